"""Reads one writer's log: rows, alerts, statistics, the network; also while it grows, and of version 0.1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torcheer.archive import Archive, Entry
from torcheer.archive.verification import TrustedArchive, examine
from torcheer.errors import ArchiveDamaged, TorcheerError
from torcheer.runlog.log_frames import COUNTS, LAYER, METRICS, STATISTICS, decode_cell
from torcheer.runlog.media.logged_samples import LoggedSample, read_samples
from torcheer.runlog.old_watch import Frame, old_frames
from torcheer.samples import BINS, PERCENTILES, Account, Alert, Key

Array = NDArray[Any]
Columns = dict[str, list[Any]]
_LATE = {("wait_secs", METRICS), ("step_secs", METRICS)}  # sent after the next step has begun, for the previous step
_PARTS = (("values", list), ("alerts", list), ("heads", dict), ("network", dict), ("account", dict),
          ("samples", list))  # fmt: skip
_WHOLE_RUN = ("", "")  # an alert about no layer
_NO_ROWS: dict[str, Any] = {"step": [], "time": [], "cells": {}}
_ALERT = {field.name for field in fields(Alert)}


class Row(NamedTuple):
    """A row of a table."""

    step: int
    time_secs: float
    cells: dict[str, Any]


class WriterLog:
    """Everything in a writer's log, without what a later opening of it has replaced.

    `path` is its archive. `old`: the folder of a watch of version 0.1 that it continues.
    """

    def __init__(self, path: Path, *, old: Path | None = None) -> None:
        self.path, self.problems = path, list[str]()
        self._openings: list[_Opening] = []
        self._archive: Archive | None = None
        self.sealed = False  # whether the writer ended cleanly
        if old is not None:
            archive = open_intact(old / "samples", self.problems)
            self._add(archive, old_frames(old, archive))
            self.sealed = archive.sealed
        self.refresh()

    def refresh(self) -> bool:
        """Read what was committed since the last call; True if there is more."""
        new: list[Frame] = []
        if self._archive is None and (self.path / "archive.json").is_file():
            self._archive = open_intact(self.path, self.problems)
            new = self._archive.frames
        elif self._archive is not None and not isinstance(self._archive, TrustedArchive):  # that one is damaged
            if count := self._archive.refresh():
                new = self._archive.frames[-count:]
        if self._archive is not None:
            self._add(self._archive, [frame for frame in new if self._is_understood(frame)])
            self.sealed = self._archive.sealed
        return bool(new)

    def _add(self, archive: Archive, frames: list[Frame]) -> None:
        for frame in frames:
            if "opened" in frame["about"] or not self._openings:
                self._openings.append(_Opening())
            self._openings[-1].add(archive, frame)
        for name in ("values", "tables", "alerts", "samples") if frames else ():
            self.__dict__.pop(name, None)

    def _is_understood(self, frame: Frame) -> bool:
        about = frame["about"]
        tables = about.get("rows", {})
        known = isinstance(tables, dict) and all(isinstance(about.get(name, kind()), kind) for name, kind in _PARTS)
        if known and all(_is_table(columns) for columns in tables.values()):
            return True
        self.problems.append(f"step {frame['step']}: what it holds is of another version of torcheer")
        return False

    def _parts(self, name: str) -> Iterator[tuple[int, Any]]:
        """Yield a part of each frame that has it, with the number of its opening."""
        for number, opening in enumerate(self._openings):
            for _, frame in opening.frames:
                if name in frame["about"]:
                    yield number, frame["about"][name]

    def _holds(self, number: int, step: int, key: Key) -> bool:
        """True if no later opening of the log has reached that step and key."""
        return not any(later.covers(step, key) for later in self._openings[number + 1 :])

    @cached_property
    def alerts(self) -> list[Alert]:
        """The alerts, in order."""
        alerts = []
        for number, records in self._parts("alerts"):
            for record in decode_cell(records):
                try:
                    alert = Alert(**{name: record[name] for name in _ALERT & record.keys()})
                    if self._holds(number, alert.step, (alert.layer, alert.variable)):
                        alerts.append(alert)
                except (TypeError, AttributeError):  # half of a record
                    continue
        return alerts

    @cached_property
    def tables(self) -> dict[str, list[Row]]:
        """The rows of each table, in the order they were written."""
        tables: dict[str, list[Row]] = {}
        for number, parts in self._parts("rows"):
            for table, columns in parts.items():
                rows = tables.setdefault(table, [])
                for row in _rows(columns):
                    if table == METRICS:  # a step's metrics may come in several rows
                        names = [name for name in row.cells if self._holds(number, row.step, (name, table))]
                        row = row._replace(cells={name: row.cells[name] for name in names})
                    if row.cells if table == METRICS else self._holds(number, row.step, ("", table)):
                        rows.append(row)
        return tables

    @cached_property
    def samples(self) -> list[LoggedSample]:
        """What people logged beside numbers, in the order it was written."""
        return [
            sample
            for number, opening in enumerate(self._openings)
            for archive, frame in opening.frames
            if "samples" in frame["about"]
            for sample in read_samples(archive, frame, self._report)
            if self._holds(number, sample.step, (sample.name, sample.kind))
        ]

    def _report(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    @property
    def heads(self) -> dict[str, dict[str, str]]:
        """The title and axes of each table that was announced."""
        return {name: head for _, heads in self._parts("heads") for name, head in heads.items()}

    @property
    def network(self) -> dict[str, Any] | None:
        """The last network, as JSON."""
        return next((network for _, network in reversed(list(self._parts("network")))), None)

    @property
    def account(self) -> Account | None:
        """How many values were written and dropped; None while the last writer is at work, or if it was killed."""
        frames = self._openings[-1].frames if self._openings else []
        record = next((frame["about"]["account"] for _, frame in frames if "account" in frame["about"]), None)
        try:
            dropped = {(entry[0], entry[1]): int(entry[2]) for entry in record["dropped"]} if record else {}
            return Account(**{**record, "dropped": dropped}) if record else None
        except (TypeError, LookupError, ValueError):
            return None

    @cached_property
    def values(self) -> WatchedValues:
        """The values with their statistics."""
        return WatchedValues([opening.frames for opening in self._openings], self._holds, self.problems)


class _Opening:
    """One opening of a log: its first step, and the keys that it has of that step."""

    def __init__(self) -> None:
        self.frames: list[tuple[Archive, Frame]] = []
        self._first: int | None = None
        self._keys: set[Key] = set()

    def add(self, archive: Archive, frame: Frame) -> None:
        self.frames.append((archive, frame))
        tables = frame["about"].get("rows", {}).values()
        if (
            self._first is not None
            and frame["step"] != self._first
            and all(self._first not in t["step"] for t in tables)
        ):
            return
        keys = list(_keys(frame))
        if self._first is None:
            self._first = min((step for step, key in keys if key not in _LATE), default=None)
        self._keys.update(key for step, key in keys if step == self._first)

    def covers(self, step: int, key: Key) -> bool:
        """True if an earlier opening's value of this step and key is outdated."""
        if self._first is None or step != self._first:
            return self._first is not None and step > self._first
        return key in self._keys or key == _WHOLE_RUN


def _keys(frame: Frame) -> Iterator[tuple[int, Key]]:
    """Yield the step and key of everything in a frame."""
    for name in frame["about"].get("values") or ():
        yield frame["step"], (name[0], name[1])
    for record in frame["about"].get("samples", ()):
        if isinstance(record, dict):
            yield frame["step"], (str(record.get("name")), str(record.get("kind")))
    for table, columns in frame["about"].get("rows", {}).items():
        for row in _rows(columns):
            names = row.cells if table == METRICS else ("",)
            yield from ((row.step, (name, table)) for name in names)


def _is_table(columns: Any) -> bool:
    if not isinstance(columns, dict) or not isinstance(columns.get("cells"), dict):
        return False
    lists = [columns.get("step"), columns.get("time"), *columns["cells"].values()]
    return all(isinstance(cells, list) and len(cells) == len(lists[0] or ()) for cells in lists)


def _rows(columns: dict[str, Any]) -> list[Row]:
    cells = {name: decode_cell(column) for name, column in columns["cells"].items()}
    return [
        Row(step, when, {name: column[place] for name, column in cells.items() if column[place] is not None})
        for place, (step, when) in enumerate(zip(columns["step"], columns["time"]))
    ]


Holds = Callable[[int, int, Key], bool]


class WatchedValues:
    """Every value with statistics as columns, scalars among them."""

    def __init__(self, openings: list[list[tuple[Archive, Frame]]], holds: Holds, problems: list[str]) -> None:
        self.names: list[list[Any]] = []  # layer, variable, type, shape; optionally device and message
        self._where: list[tuple[Archive, Frame] | None] = []  # None for a scalar
        self._seen: Counter[str] = Counter()  # values of each metric
        self._problems, self._steps = problems, list[int]()
        self._numbers, self._counts = [np.empty((0, len(STATISTICS)))], [np.empty((0, len(COUNTS)), np.int64)]
        self._scalars: list[tuple[float, float, int]] = []  # value, time_secs, seen; not yet among the numbers
        for number, frames in enumerate(openings):
            for archive, frame in frames:
                rows = _rows(frame["about"].get("rows", {}).get(METRICS, _NO_ROWS))
                step = frame["step"] if "values" in frame["about"] else None
                self._add_scalars([row for row in rows if step is None or row.step < step], number, holds)
                if step is not None:
                    self._add_statistics(archive, frame, number, holds)
                    self._add_scalars([row for row in rows if row.step >= step], number, holds)
        self._flush()
        self.steps = np.array(self._steps, np.int64)
        self.statistics, self.counts = np.concatenate(self._numbers), np.concatenate(self._counts)
        self.places: dict[Key, list[int]] = {}
        for place, name in enumerate(self.names):
            self.places.setdefault((name[0], name[1]), []).append(place)

    def _add_scalars(self, rows: list[Row], opening: int, holds: Holds) -> None:
        for row in rows:
            for name, cell in row.cells.items():
                if holds(opening, row.step, (name, METRICS)):
                    self._steps.append(row.step)
                    self.names.append([name, METRICS, "float64", []])
                    self._where.append(None)
                    self._scalars.append((float(cell), row.time_secs, self._seen[name]))
                self._seen[name] += 1

    def _add_statistics(self, archive: Archive, frame: Frame, opening: int, holds: Holds) -> None:
        if (read := self._statistics(archive, frame)) is None:
            return
        names, numbers, counts = read
        keep = [place for place, name in enumerate(names) if holds(opening, frame["step"], (name[0], name[1]))]
        self._flush()
        self._steps += [frame["step"]] * len(keep)
        self.names += [names[place] for place in keep]
        self._where += [(archive, frame)] * len(keep)
        self._numbers.append(numbers[keep])
        self._counts.append(counts[keep])

    def _flush(self) -> None:
        """Move the scalars among the numbers: each is its own minimum, mean and percentile."""
        if not self._scalars:
            return
        numbers, times, seen = (np.array(column) for column in zip(*self._scalars))
        self._scalars = []
        value = np.where(np.isfinite(numbers), numbers, np.nan)
        none, one = np.full(len(value), -1), np.ones(len(value), np.int64)
        statistics = [times, value, value, value, value * 0.0, np.abs(value), *[value] * len(PERCENTILES)]
        counts = [none, seen, one, numbers == 0, np.isnan(numbers), np.isinf(numbers), one, none, none]
        self._numbers.append(np.stack(statistics, 1))
        self._counts.append(np.stack([column.astype(np.int64) for column in counts], 1))

    def _statistics(self, archive: Archive, frame: Frame) -> tuple[list[list[Any]], Array, Array] | None:
        entries = {entry.variable: entry for entry in frame["entries"] if entry.layer == LAYER}
        names = frame["about"]["values"]
        try:
            numbers, counts = (archive.array(entries[name]) for name in ("statistics", "counts"))
        except (KeyError, TorcheerError) as error:
            self._report(f"step {frame['step']}: its statistics cannot be read: {error}")
            return None
        shapes = numbers.shape, counts.shape
        if not isinstance(names, list) or shapes != ((len(names), len(STATISTICS)), (len(names), len(COUNTS))):
            self._report(f"step {frame['step']}: its statistics are of another version of torcheer")
            return None
        return names, numbers, counts

    def _report(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)

    def _entry(self, place: int, layer: str, variable: str, item: int) -> tuple[Archive, Entry] | None:
        where, wanted = self._where[place], (layer, variable, item)
        if where is None:
            return None
        entries: list[Entry] = where[1]["entries"]
        same = (entry for entry in entries if (entry.layer, entry.variable, entry.item) == wanted)
        return next(((where[0], entry) for entry in same), None)

    def _kept_entry(self, place: int) -> tuple[Archive, Entry] | None:
        layer, variable = self.names[place][:2]
        return self._entry(place, layer, variable, int(self.counts[place, COUNTS.index("item")]))

    def histogram(self, place: int) -> Array:
        """The histogram of a value; zeros if it has none."""
        binned, found = int(self.counts[place, COUNTS.index("binned")]), self._entry(place, LAYER, "histogram", -1)
        histogram: Array = np.zeros(BINS, np.int64)
        if binned >= 0 and found is not None:
            histogram += found[0].array(found[1])[binned]
        return histogram

    def is_scalar(self, place: int) -> bool:
        """Whether a value is a cell of a row."""
        return self._where[place] is None

    def has_histogram(self, place: int) -> bool:
        """Whether a value has a histogram."""
        return bool(self.counts[place, COUNTS.index("binned")] >= 0)

    def keeps(self, place: int) -> bool:
        """Whether a value's array is there; a scalar is its own."""
        return self.is_scalar(place) or self._kept_entry(place) is not None

    def kept(self, place: int) -> Array:
        """A value's array, where `keeps` is true."""
        found = self._kept_entry(place)
        if found is None:
            return np.array(self.statistics[place, STATISTICS.index("mean")])
        return found[0].array(found[1])

    def column(self, name: str, places: Array) -> Array:
        """One number of each value.

        `finite`: whether all of a value's numbers are, as far as they were checked.
        """
        if name in STATISTICS:
            statistics: Array = self.statistics[places, STATISTICS.index(name)]
            return statistics
        counts: Array = self.counts[places, COUNTS.index(name)]
        if name == "finite":
            none_bad = self.column("nans", places) + self.column("infs", places) == 0
            return np.where(counts < 0, none_bad, counts > 0)
        return counts

    def table(self, places: Array) -> Columns:
        """The values as plain columns."""
        names = [self.names[place] for place in places]
        columns: Columns = {"step": self.steps[places].tolist()}
        columns["layer"], columns["variable"] = [name[0] for name in names], [name[1] for name in names]
        columns |= {name: self.column(name, places).tolist() for name in (*STATISTICS, *COUNTS[:-1])}
        columns["type"], columns["shape"] = [name[2] for name in names], [list(name[3]) for name in names]
        columns["device"] = [name[4] if len(name) > 4 else "cpu" for name in names]
        columns["message"] = [name[5] if len(name) > 5 else "" for name in names]
        return columns


def open_intact(path: Path, problems: list[str]) -> Archive:
    """Open an archive; of a damaged one the intact part, adding losses to `problems`."""
    try:
        return Archive(path)
    except ArchiveDamaged:
        archive = examine(path)
        problems += archive.lost
        return archive
