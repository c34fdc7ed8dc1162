"""Reads one writer's log: rows, alerts, statistics, the network; also while it grows, and of version 0.1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

from torcheer.archive import Archive
from torcheer.archive.format.index_frames import gc_paused
from torcheer.archive.format.index_tail import read_backwards
from torcheer.archive.verification import TrustedArchive, examine
from torcheer.errors import ArchiveDamaged
from torcheer.runlog.earlier.old_watch import Frame, old_frames
from torcheer.runlog.log_frames import decode_cell
from torcheer.runlog.log_openings import Later, Opening, Row, held_rows, is_table, rows_of
from torcheer.runlog.media.logged_samples import LoggedSample, read_samples
from torcheer.runlog.watched_values import WatchedValues
from torcheer.samples import Account, Alert, Key

_PARTS = {
    "values": list, "alerts": list, "heads": dict, "network": dict, "account": dict, "cut": dict, "cleared": list,
    "rows": dict, "samples": list,
}  # fmt: skip
_LEAST_FRAMES, _MOST_FRAMES = 128, 2048  # of a tail
_ALERT = {field.name for field in fields(Alert)}


class WriterLog:
    """Everything in a writer's log, without what a later opening of it has replaced.

    `path` is its archive. `old`: the folder of a watch of version 0.1 that it continues. `before`: archives that it
    continues, of a session's watch that had a folder of its own.
    """

    def __init__(self, path: Path, *, old: Path | None = None, before: Sequence[Path] = ()) -> None:
        self.path, self._old, self._before = path, old, before
        self._problems, self._sealed, self._is_read = list[str](), False, False
        self._frames_of: list[Opening] = []
        self._tables: dict[str, list[Row]] = {}
        self._new_frames: list[tuple[int, Frame]] = []  # with the number of their opening; not in the tables yet
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
    def _openings(self) -> list[Opening]:
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
        tables, cleared, later, opening = dict[str, list[Row]](), set[str](), Later(), list[Frame]()
        if not (self.path / "archive.json").is_file():
            return tables
        for number, frame in enumerate(filter(self._is_understood, read_backwards(self.path))):
            about = frame["about"]
            for table, columns in about.get("rows", {}).items():
                if table not in cleared:
                    rows = tables.setdefault(table, [])
                    rows[:0] = list(held_rows(later, table, rows_of(columns)))
            cleared.update(about.get("cleared", ()))
            opening.append(frame)
            if "opened" in about or "cut" in about:
                later, opening = later.after(Opening.of(about.get("cut"), opening[::-1])), []
            is_enough = number >= _LEAST_FRAMES and all(len(rows) >= count for rows in tables.values())
            if is_enough or number >= _MOST_FRAMES:
                break
        return {table: rows[-count:] for table, rows in tables.items() if rows}

    def _add(self, archive: Archive, frames: list[Frame]) -> None:
        replaces = False  # rows that were read before
        for frame in frames:
            is_opening = "opened" in frame["about"] or "cut" in frame["about"] or not self._frames_of
            if is_opening:
                self._frames_of.append(Opening(frame["about"].get("cut")))
            covers_more = self._frames_of[-1].add(archive, frame)
            self._new_frames.append((len(self._frames_of) - 1, frame))
            replaces = replaces or ((is_opening or covers_more) and len(self._frames_of) > 1)
        if replaces:
            self._tables = {}
            self._new_frames = [(n, frame) for n, opening in enumerate(self._frames_of) for _, frame in opening.frames]
        for name in ("values", "alerts", "_later") if frames else ():
            self.__dict__.pop(name, None)
        if replaces or any("samples" in frame["about"] for frame in frames):
            self.__dict__.pop("samples", None)

    def _is_understood(self, frame: Frame) -> bool:
        about = frame["about"]
        tables = about.get("rows", {})
        known = all([isinstance(part, _PARTS[name]) for name, part in about.items() if name in _PARTS])
        numbers = about.get("cut", {}).values() if known else ()
        if known and all(is_table(columns) for columns in tables.values()) and all(type(n) is int for n in numbers):
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
    def _later(self) -> list[Later]:
        """What openings after each one say of it: up to which step and epoch it holds."""
        later = [Later()]
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

    @property
    def tables(self) -> dict[str, list[Row]]:
        """The rows of each table, in the order they were written; what is new is added to what was read before."""
        self._read()
        with gc_paused():
            for number, frame in self._new_frames:
                for table in frame["about"].get("cleared", ()):
                    self._tables.pop(table, None)
                for table, columns in frame["about"].get("rows", {}).items():
                    rows = held_rows(self._later[number], table, rows_of(columns))
                    self._tables.setdefault(table, []).extend(rows)
        self._new_frames = []
        return self._tables

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


def open_intact(path: Path, problems: list[str]) -> Archive:
    """Open an archive; of a damaged one the intact part, adding losses to `problems`."""
    try:
        return Archive(path)
    except ArchiveDamaged:
        archive = examine(path)
        problems += archive.lost
        return archive
