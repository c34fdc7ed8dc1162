"""A run that another program logged, in TensorBoard's event files or Lightning's CSV: tables, settings and samples."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from torcheer.archive import Entry
from torcheer.errors import ArchiveDamaged, TorcheerError
from torcheer.foreign.ask_readers import naming, read_apart
from torcheer.foreign.opened_files import OpenedFiles
from torcheer.foreign.request import Answer, Request
from torcheer.runlog.log_frames import METRICS
from torcheer.runlog.media.logged_samples import LoggedSample
from torcheer.runlog.table_records import Column, TableHead, TableRows
from torcheer.runlog.tables.histogram_rows import histogram_head, rebinned

EVENTS, LIGHTNING = "events", "lightning"
FOREIGN: Final = (EVENTS, LIGHTNING)
LIGHTNING_FILE: Final = "metrics.csv"
_EVENT_FILE: Final = ".tfevents."
_TEXT_SUFFIX: Final = "/text_summary"
_COUNTERS: Final = {"step": "Step", "epoch": "Epoch"}
_MOST_CELLS: Final = 10_000_000
_CELLS: Final = (int, float, str, bool, type(None))


@dataclass(slots=True)
class ForeignRun:
    """What was read of it."""

    tables: dict[str, TableRows] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    samples: list[LoggedSample] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def foreign_kind(names: Collection[str]) -> str:
    """What a folder with these files is: "events", "lightning", or "" for neither."""
    if any(_EVENT_FILE in name for name in names):
        return EVENTS
    return LIGHTNING if LIGHTNING_FILE in names else ""


def read_foreign(path: Path, kind: str, within: Path | None = None) -> ForeignRun:
    """Read a run of this kind in a process that can be lost; it is never written to.

    - `within`: a folder around it that no link may lead out of.
    """
    names = _event_files(path) if kind == EVENTS else (LIGHTNING_FILE,)
    with naming(path):
        answer = read_apart(Request(kind, path.name, names), OpenedFiles(path, within).open_once)
        return _checked_run(path, kind, answer, within)


def _event_files(path: Path) -> tuple[str, ...]:
    """The event files of a folder, oldest first: their names begin with the time."""
    return tuple(sorted(entry.name for entry in os.scandir(path) if _EVENT_FILE in entry.name and entry.is_file()))


# -- what a reader says, checked ---------------------------------------------------------------------------------------


def _checked_run(path: Path, kind: str, answer: Answer, within: Path | None) -> ForeignRun:
    body = answer.body
    try:
        run = ForeignRun(
            config={str(name): value for name, value in body["config"].items() if type(value) in _CELLS},
            problems=[str(problem) for problem in body["problems"]],
        )
        if kind == LIGHTNING:
            run.tables = _lightning_table(body["columns"])
            return run
        run.tables = _scalar_table(body["scalars"], answer.blob)
        for tag, rows in body["histograms"]:
            run.tables[histogram_head(str(tag)).name] = _histogram_table(str(tag), rows, answer.blob)
        run.samples = [_sample(path, each, within) for each in body["samples"]]
        return run
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        if isinstance(error, TorcheerError):
            raise
        raise ArchiveDamaged(f"its reader says what cannot be: {type(error).__name__}: {error}") from error


def _lightning_table(columns: Sequence[Any]) -> dict[str, TableRows]:
    named = {_COUNTERS.get(name, name): cells for name, cells in columns}
    if not named:
        return {}
    count = len(next(iter(named.values())))
    if any(len(cells) != count or not {*map(type, cells)} <= {*_CELLS} for cells in named.values()):
        raise ArchiveDamaged("its columns are of different lengths")
    described = tuple(_described(name, cells) for name, cells in named.items())
    head = TableHead(METRICS, "Metrics", "Step" if "Step" in named else "", "", described)
    return {METRICS: TableRows(head, named, count)}


def _described(name: str, cells: Sequence[Any]) -> Column:
    if any(isinstance(cell, str) for cell in cells):
        return Column(name, "text", plotted=False)
    is_counter = name in _COUNTERS.values()
    return Column(name, "int" if is_counter else "float", plotted=not is_counter)


def _scalar_table(tags: Sequence[Any], blob: bytes) -> dict[str, TableRows]:
    """The scalars of all tags, a row for each step at which any was logged."""
    cells = {
        _column_name(tag): (np.frombuffer(blob, "<i8", count, steps), np.frombuffer(blob, "<f8", count, numbers))
        for tag, count, steps, numbers in tags
    }
    if not cells:
        return {}
    steps = np.unique(np.concatenate([steps for steps, _ in cells.values()]))
    if len(steps) * len(cells) > _MOST_CELLS:
        raise ArchiveDamaged(f"its table would have {len(steps) * len(cells):,} cells; at most {_MOST_CELLS:,} fit")
    columns: dict[str, list[Any]] = {"Step": steps.tolist()}
    for tag, (at, numbers) in cells.items():
        column: list[Any] = [None] * len(steps)
        for place, number in zip(np.searchsorted(steps, at).tolist(), numbers.tolist()):
            column[place] = number
        columns[tag] = column
    described = (Column("Step", "int", plotted=False), *(Column(tag) for tag in cells))
    return {METRICS: TableRows(TableHead(METRICS, "Metrics", "Step", "", described), columns, len(steps))}


def _column_name(tag: Any) -> str:
    """The column of a tag; the first one is called Step."""
    return f"{tag} (logged)" if tag == "Step" else str(tag)


def _histogram_table(tag: str, rows: Sequence[Any], blob: bytes) -> TableRows:
    """Histograms over time in the bins that a watch has."""
    binned = [
        rebinned(np.frombuffer(blob, "<f8", count, limits), np.frombuffer(blob, "<f8", count, counts))
        for _, count, limits, counts in rows
    ]
    return TableRows(histogram_head(tag), {"Step": [int(row[0]) for row in rows], "histogram": binned}, len(rows))


# -- images, sound and text --------------------------------------------------------------------------------------------


class _ForeignArray:
    """The content of an image or a sound, decoded when it is shown; or a text."""

    def __init__(self, path: Path, said: dict[str, Any], within: Path | None) -> None:
        self._path, self._said, self._within = path, said, within

    def array(self, _: Entry) -> Any:
        """All of it."""
        said = self._said
        if said["kind"] == "text":
            return np.frombuffer(said["text"].encode("utf-8", "replace"), np.uint8)
        name = str(said["file"])
        part = (str(said["kind"]), int(said["begin"]), int(said["end"]))
        with naming(self._path / name):
            request = Request("media", name, (name,), part)
            return _checked_array(read_apart(request, OpenedFiles(self._path, self._within).open_once))


def _checked_array(answer: Answer) -> Any:
    try:
        return np.frombuffer(answer.blob, answer.body["type"]).reshape(answer.body["shape"])
    except (TypeError, ValueError, LookupError) as error:
        raise ArchiveDamaged(f"its reader says what cannot be: {error}") from error


def _sample(path: Path, said: dict[str, Any], within: Path | None) -> LoggedSample:
    is_text = said["kind"] == "text"
    size = len(said["text"].encode("utf-8", "replace")) if is_text else int(said["end"]) - int(said["begin"])
    name = str(said["tag"]).removesuffix(_TEXT_SUFFIX)
    entry = Entry(int(said["step"]), name, str(said["kind"]), -1, "uint8", (size,), 0, 0, size, 0)
    archive: Any = _ForeignArray(path, said, within)
    record = {"time": float(said["time"]), "layout": "HWC"}
    if said["kind"] == "audio":
        record["rate"] = int(said["rate"])
    return LoggedSample(archive, entry, entry.step or 0, record)
