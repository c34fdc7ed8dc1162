"""A folder of TensorBoard events as a run: scalars as a table, histograms as one each, images, sound and text."""

from __future__ import annotations

import io
import wave
from pathlib import Path
from typing import Any, Final

import numpy as np

from torcheer.archive import Entry
from torcheer.errors import ArchiveDamaged
from torcheer.runlog.foreign.event_messages import EventValue, Histogram, values_of
from torcheer.runlog.foreign.event_records import read_records
from torcheer.runlog.foreign.foreign_run import ForeignRun, event_files
from torcheer.runlog.foreign.lightning_logs import read_settings
from torcheer.runlog.log_frames import METRICS
from torcheer.runlog.media.logged_samples import LoggedSample
from torcheer.runlog.table_records import Column, TableHead, TableRows
from torcheer.runlog.tables.histogram_rows import histogram_head, rebinned

_MOST_SAMPLES: Final = 5000
_WAV_TYPES: Final = {1: "u1", 2: "<i2", 4: "<i4"}  # by bytes a number
_TEXT_SUFFIX: Final = "/text_summary"


def read_event_run(path: Path) -> ForeignRun:
    """Read all event files of a folder; a value that was written again for a step replaces the earlier one."""
    run = ForeignRun(config=read_settings(path / "hparams.yaml"))
    scalars: dict[int, dict[str, float]] = {}
    histograms: dict[str, dict[int, Histogram]] = {}
    for file in event_files(path):
        records = read_records(file)
        run.problems += [records.problem] if records.problem else []
        for record in records.records:
            try:
                for value in values_of(record):
                    _add(run, scalars, histograms, value)
            except ValueError as error:
                run.problems.append(f"{file.name}: an event that cannot be read: {error}")
    run.tables = {METRICS: _scalar_table(scalars)} if scalars else {}
    run.tables |= {histogram_head(tag).name: _histogram_table(tag, rows) for tag, rows in histograms.items()}
    run.samples = sorted(run.samples, key=lambda sample: sample.step)[-_MOST_SAMPLES:]
    return run


def _add(
    run: ForeignRun,
    scalars: dict[int, dict[str, float]],
    histograms: dict[str, dict[int, Histogram]],
    value: EventValue,
) -> None:
    if value.kind == "scalar":
        scalars.setdefault(value.step, {})[value.tag] = value.value
    elif value.kind == "histogram":
        histograms.setdefault(value.tag, {})[value.step] = value.value
    elif value.kind == "hparams":
        run.config |= value.value
    else:
        run.samples.append(_sample(value))


def _scalar_table(scalars: dict[int, dict[str, float]]) -> TableRows:
    steps = sorted(scalars)
    tags = list(dict.fromkeys(tag for step in steps for tag in scalars[step]))
    columns: dict[str, list[Any]] = {"Step": list(steps)}
    columns |= {tag: [scalars[step].get(tag) for step in steps] for tag in tags if tag != "Step"}
    described = (Column("Step", "int", plotted=False), *(Column(tag) for tag in columns if tag != "Step"))
    return TableRows(TableHead(METRICS, "Metrics", "Step", "", described), columns, len(steps))


def _histogram_table(tag: str, rows: dict[int, Histogram]) -> TableRows:
    """Histograms over time in the bins that a watch has: each count goes where the middle of its bin lies."""
    steps = sorted(rows)
    head = histogram_head(tag)
    return TableRows(
        head,
        {"Step": list(steps), "histogram": [rebinned(rows[step].limits, rows[step].counts) for step in steps]},
        len(steps),
    )


# -- images, sound and text --------------------------------------------------------------------------------------------


class _EventArray:
    """The content of an image, a sound or a text, decoded when it is shown."""

    def __init__(self, kind: str, value: Any) -> None:
        self._kind, self._value = kind, value

    def array(self, _: Entry) -> Any:
        if self._kind == "text":
            return np.frombuffer(self._value.encode(), np.uint8)
        return _sound(self._value)[0] if self._kind == "audio" else _decoded(self._value)


def _sample(value: EventValue) -> LoggedSample:
    content = value.value.encode() if value.kind == "text" else value.value
    entry = Entry(
        value.step,
        value.tag.removesuffix(_TEXT_SUFFIX),
        value.kind,
        -1,
        "uint8",
        (len(content),),
        0,
        0,
        len(content),
        0,
    )
    archive: Any = _EventArray(value.kind, value.value)
    record = {"time": value.time_secs, "layout": "HWC"}
    if value.kind == "audio":
        record |= {"rate": _rate(value.value)}
    return LoggedSample(archive, entry, value.step, record)


def _rate(encoded: bytes) -> int:
    """Numbers a second of a WAV file; 0 where it is none: what shows it says so."""
    try:
        return _sound(encoded, frames=0)[1]
    except ArchiveDamaged:
        return 0


def _sound(encoded: bytes, frames: int = -1) -> tuple[Any, int]:
    """The sound of a WAV file, channels × numbers, and how many numbers there are a second."""
    try:
        with wave.open(io.BytesIO(encoded)) as reader:
            channels, width = reader.getnchannels(), reader.getsampwidth()
            data = reader.readframes(reader.getnframes() if frames < 0 else frames)
            if width not in _WAV_TYPES:
                raise ArchiveDamaged(f"its sound has {8 * width} bits a number, which is not decoded")
            numbers = np.frombuffer(data, _WAV_TYPES[width]).reshape(-1, channels).T
            return (numbers.astype(np.int16) - 128 << 8 if width == 1 else numbers), reader.getframerate()
    except (wave.Error, EOFError, ValueError) as error:
        raise ArchiveDamaged(f"it is no sound that can be decoded: {error}") from None


def _decoded(encoded: bytes) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ArchiveDamaged("pictures of TensorBoard need pillow: pip install 'torcheer[all]'") from None
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            return np.asarray(image.convert("RGBA" if "A" in image.mode else "RGB"))
    except (OSError, ValueError, SyntaxError) as error:
        raise ArchiveDamaged(f"it is no picture that can be decoded: {error}") from None
