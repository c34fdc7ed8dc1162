"""Reads one writer's log: rows, alerts, statistics, the network; also while it grows, and of version 0.1."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torcheer.archive import Archive, Entry
from torcheer.archive.format.index_frames import gc_paused
from torcheer.archive.format.index_tail import read_backwards
from torcheer.archive.verification import TrustedArchive, examine
from torcheer.errors import ArchiveDamaged, TorcheerError
from torcheer.runlog.log_frames import COUNTS, EPOCHS, LAYER, METRICS, STATISTICS, UNCUT, decode_cell, decode_column
from torcheer.runlog.media.logged_samples import LoggedSample, read_samples
from torcheer.runlog.old_watch import Frame, old_frames
from torcheer.samples import BINS, PERCENTILES, Account, Alert, Key

Array = NDArray[Any]
Columns = dict[str, list[Any]]
_LATE = {("wait_secs", METRICS), ("step_secs", METRICS)}  # sent after the next step has begun, for the previous step
_PARTS = {
    "values": list, "alerts": list, "heads": dict, "network": dict, "account": dict, "cut": dict, "cleared": list,
    "rows": dict, "samples": list,
}  # fmt: skip
_LEAST_FRAMES, _MOST_FRAMES = 128, 2048  # of a tail
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

    `path` is its archive. `old`: the folder of a watch of version 0.1 that it continues. `before`: archives that it
    continues, of a session's watch that had a folder of its own.
    """

    def __init__(self, path: Path, *, old: Path | None = None, before: Sequence[Path] = ()) -> None:
        self.path, self._old, self._before = path, old, before
        self._problems, self._sealed, self._is_read = list[str](), False, False
        self._frames_of: list[_Opening] = []
        self._archive: Archive | None = None
        self._size = self._index_bytes()

    @property
    def problems(self) -> list[str]:
        """Sentences about what was lost."""
        self._read()
        return self._problems

    @property
    def sealed(self) -> bool:
        """Whether the writer ended cleanly."""
        self._read()
        return self._sealed

    @property
    def _openings(self) -> list[_Opening]:
        self._read()
        return self._frames_of

    def _read(self) -> None:
        """Read the whole log when it is first asked for."""
        if self._is_read:
            return
        self._is_read = True
        with gc_paused():
            self._read_all()

    def _read_all(self) -> None:
        if self._old is not None:
            archive = open_intact(self._old / "samples", self._problems)
            self._add(archive, old_frames(self._old, archive))
            self._sealed = archive.sealed
        for folder in self._before:
            archive = open_intact(folder, self._problems)
            self._add(archive, [frame for frame in archive.frames if self._is_understood(frame)])
        self.refresh()

    def _index_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.path.glob("*.index"))

    def refresh(self) -> bool:
        """Read what was committed since the last call; True if there is more."""
        if not self._is_read:
            size, self._size = self._size, self._index_bytes()
            return size != self._size
        new: list[Frame] = []
        if self._archive is None and (self.path / "archive.json").is_file():
            self._archive = open_intact(self.path, self._problems)
            new = self._archive.frames
        elif self._archive is not None and not isinstance(self._archive, TrustedArchive):  # that one is damaged
            if count := self._archive.refresh():
                new = self._archive.frames[-count:]
        if self._archive is not None:
            self._add(self._archive, [frame for frame in new if self._is_understood(frame)])
            self._sealed = self._archive.sealed
        return bool(new)

    def tail(self, count: int) -> dict[str, list[Row]]:
        """The last rows of the tables that were written to lately, read from the log's end; not all of it is read."""
        tables, cleared, later, opening = dict[str, list[Row]](), set[str](), _Later(), list[Frame]()
        if not (self.path / "archive.json").is_file():
            return tables
        for number, frame in enumerate(filter(self._is_understood, read_backwards(self.path))):
            about = frame["about"]
            for table, columns in about.get("rows", {}).items():
                if table not in cleared:
                    rows = tables.setdefault(table, [])
                    rows[:0] = list(_held(later, table, _rows(columns)))
            cleared.update(about.get("cleared", ()))
            opening.append(frame)
            if "opened" in about or "cut" in about:
                later, opening = later.after(_Opening.of(about.get("cut"), opening[::-1])), []
            is_enough = number >= _LEAST_FRAMES and all(len(rows) >= count for rows in tables.values())
            if is_enough or number >= _MOST_FRAMES:
                break
        return {table: rows[-count:] for table, rows in tables.items() if rows}

    def _add(self, archive: Archive, frames: list[Frame]) -> None:
        for frame in frames:
            if "opened" in frame["about"] or "cut" in frame["about"] or not self._frames_of:
                self._frames_of.append(_Opening(frame["about"].get("cut")))
            self._frames_of[-1].add(archive, frame)
        for name in ("values", "tables", "alerts", "samples", "_later") if frames else ():
            self.__dict__.pop(name, None)

    def _is_understood(self, frame: Frame) -> bool:
        about = frame["about"]
        tables = about.get("rows", {})
        known = all([isinstance(part, _PARTS[name]) for name, part in about.items() if name in _PARTS])
        numbers = about.get("cut", {}).values() if known else ()
        if known and all(_is_table(columns) for columns in tables.values()) and all(type(n) is int for n in numbers):
            return True
        self._problems.append(f"step {frame['step']}: what it holds is of another version of torcheer")
        return False

    def _parts(self, name: str) -> Iterator[tuple[int, Any]]:
        """Yield a part of each frame that has it, with the number of its opening."""
        for number, opening in enumerate(self._openings):
            for _, frame in opening.frames:
                if name in frame["about"]:
                    yield number, frame["about"][name]

    @cached_property
    def _later(self) -> list[_Later]:
        """What openings after each one say of it: up to which step and epoch it holds."""
        later = [_Later()]
        for opening in reversed(self._openings[1:]):
            later.append(later[-1].after(opening))
        return later[::-1]

    def _holds(self, number: int, step: int, key: Key, epoch: int | None = None) -> bool:
        """True if no later opening of the log has cut off that step, or reached it with the same key."""
        return self._later[number].holds(step, key, epoch)

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
        with gc_paused():
            self._collect(tables)
        return tables

    def _collect(self, tables: dict[str, list[Row]]) -> None:
        for number, opening in enumerate(self._openings):
            for _, frame in opening.frames:
                for table in frame["about"].get("cleared", ()):
                    tables.pop(table, None)
                for table, columns in frame["about"].get("rows", {}).items():
                    tables.setdefault(table, []).extend(_held(self._later[number], table, _rows(columns)))

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
        if problem not in self._problems:
            self._problems.append(problem)

    @property
    def heads(self) -> dict[str, dict[str, Any]]:
        """The title, axes and further facts of each table that was announced."""
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
        return WatchedValues([opening.frames for opening in self._openings], self._holds, self._problems)


class _Opening:
    """One opening of a log: up to where it cut what was before, or its first step and the keys that it has of it."""

    def __init__(self, cut: dict[str, int] | None) -> None:
        self.cut = cut
        self.frames: list[tuple[Archive, Frame]] = []
        self._first: int | None = None
        self._keys: set[Key] = set()

    @classmethod
    def of(cls, cut: dict[str, int] | None, frames: list[Frame]) -> _Opening:
        """An opening with these frames, oldest first."""
        opening = cls(cut)
        for frame in frames:
            opening.note(frame)
        return opening

    def add(self, archive: Archive, frame: Frame) -> None:
        self.frames.append((archive, frame))
        self.note(frame)

    def note(self, frame: Frame) -> None:
        """Take a frame into account, from the first on."""
        if self.cut is not None:
            return
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


class _Later(NamedTuple):
    """What later openings say of an opening."""

    step: float = math.inf  # the last one that holds
    epoch: float = math.inf
    openings: tuple[_Opening, ...] = ()  # those without a cut: their first rows say it

    def after(self, opening: _Opening) -> _Later:
        """The same for one opening earlier."""
        if opening.cut is None:
            return self._replace(openings=(*self.openings, opening))
        step, epoch = (opening.cut.get(name, math.inf) for name in ("step", "epoch"))
        return self._replace(step=min(self.step, step), epoch=min(self.epoch, epoch))

    def holds(self, step: int, key: Key, epoch: int | None = None) -> bool:
        """True if no later opening has cut off that step, or reached it with the same key."""
        if key[1] not in UNCUT and (step > self.step if epoch is None else epoch > self.epoch):
            return False
        return not any(opening.covers(step, key) for opening in self.openings)


def _held(later: _Later, table: str, rows: list[Row]) -> Iterator[Row]:
    """Yield the rows of an opening that still hold."""
    if later == _Later():
        yield from rows
        return
    for row in rows:
        epoch = row.cells.get("epoch") if table.startswith(EPOCHS) else None
        if table != METRICS:
            if later.holds(row.step, ("", table), epoch):
                yield row
        else:  # a step's metrics may come in several rows
            names = [name for name in row.cells if later.holds(row.step, (name, table))]
            if names:
                yield row._replace(cells={name: row.cells[name] for name in names})


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
    cells = {name: decode_column(column) for name, column in columns["cells"].items()}
    return [
        Row(step, when, {name: column[place] for name, column in cells.items() if column[place] is not None})
        for place, (step, when) in enumerate(zip(columns["step"], columns["time"]))
    ]


Holds = Callable[..., bool]  # of an opening's number, a step, a key


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
