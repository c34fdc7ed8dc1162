"""A folder of TensorBoard's event files as a run: scalars as a table, histograms as one each, images and text."""

from __future__ import annotations

import io
from bisect import bisect_right
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
from torcheer.samples import BINS, EDGES

_MOST_SAMPLES: Final = 5000
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
    run.tables |= {f"{tag} histogram": _histogram_table(tag, rows) for tag, rows in histograms.items()}
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
    bins = Column("histogram", "tensor", (BINS,), plotted=False, edges=EDGES[1:-1])
    head = TableHead(f"{tag} histogram", tag, "Step", "", (Column("Step", "int", plotted=False), bins))
    return TableRows(head, {"Step": list(steps), "histogram": [_binned(rows[step]) for step in steps]}, len(steps))


def _binned(histogram: Histogram) -> list[int]:
    counts, low = [0] * BINS, histogram.limits[0] if histogram.limits else 0.0
    for limit, count in zip(histogram.limits, histogram.counts, strict=True):
        if count > 0:
            middle = low + (limit - low) / 2 if abs(limit) < 1e300 and abs(low) < 1e300 else min(low, limit, key=abs)
            counts[min(BINS - 1, max(0, bisect_right(EDGES, middle) - 1))] += round(count)
        low = limit
    return counts


# -- images and text ---------------------------------------------------------------------------------------------------


class _EventArray:
    """The content of an image or a text, decoded when it is shown."""

    def __init__(self, kind: str, value: Any) -> None:
        self._kind, self._value = kind, value

    def array(self, _: Entry) -> Any:
        if self._kind == "text":
            return np.frombuffer(self._value.encode(), np.uint8)
        return _decoded(self._value)


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
    return LoggedSample(archive, entry, value.step, {"time": value.time_secs, "layout": "HWC"})


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
