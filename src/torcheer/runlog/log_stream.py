"""The one way into a log: its writers, and of each the frames in order, once, also as it grows.

Reading it whole is following it to its end. What is damaged is left out, with a sentence.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torcheer.archive import Entry
from torcheer.archive.format.archive_reader import ArchiveStream
from torcheer.archive.format.index_tail import read_backwards
from torcheer.archive.verification import examine
from torcheer.errors import ArchiveDamaged, NotAnArchive, TorcheerError
from torcheer.ranks import split_rank
from torcheer.records import garbage_collection_off
from torcheer.runlog.log_frames import (
    COLUMNS,
    EPOCHS,
    LAYER,
    METRICS,
    ROWS,
    UNCUT,
    are_described,
    derive_again,
    is_understood,
    known_columns,
)
from torcheer.runlog.log_rows import Rows, decode_rows
from torcheer.runlog.volume.log_chunks import Chunk, archives_of, chunk_after, is_chunk
from torcheer.runlog.volume.packed_histograms import unpack_histograms

Array = NDArray[Any]
Cut = dict[str, int] | None
_LATE_POLL_SECS = 0.1


class Place(NamedTuple):
    """Where a writer's log lies."""

    path: Path  # its archive
    model: str = ""  # of several watched models, the one whose log it is
    rank: int = 0  # of several processes, the one that wrote it

    @classmethod
    def of(cls, path: Path) -> Place:
        """By the name of its folder."""
        name, rank = split_rank(path.name)
        return cls(path, name.removeprefix("watch-") if name.startswith("watch-") else "", rank)

    @property
    def owner(self) -> str:
        """Before the names of its columns, where there are several models or ranks; else ""."""
        return " ".join(filter(None, (self.model, f"rank {self.rank}" if self.rank else "")))

    @property
    def identity(self) -> tuple[int, int]:
        """Differs once another file has taken the place of this one."""
        status = (self.path / "archive.json").stat()
        return status.st_ino, status.st_mtime_ns


def writers_in(run: Path) -> Iterator[Place]:
    """Yield where the logs of a run lie."""
    paths = (file.parent for file in sorted(run.glob("log/*/archive.json")))
    return (Place.of(path) for path in paths if not is_chunk(path))


class Held(NamedTuple):
    """What holds of an opening after the cuts of later ones: the last step, and of epochs' rows the last epoch."""

    step: float = math.inf
    epoch: float = math.inf

    def before(self, cut: Cut) -> Held:
        """What holds of what stands before an opening with this cut."""
        step, epoch = ((cut or {}).get(name, math.inf) for name in self._fields)
        return Held(min(self.step, step), min(self.epoch, epoch))

    def has(self, step: int) -> bool:
        """True if what was logged at a step still holds."""
        return step <= self.step

    def rows(self, table: str, rows: Rows) -> Rows:
        """The rows that still hold."""
        if table in UNCUT or self == Held():
            return rows
        epochs = rows.cells.get("epoch") if table.startswith(EPOCHS) else None
        if epochs is None or epochs.objects is not None:
            return rows.take(rows.steps <= self.step)
        return rows.take(~epochs.present() | (epochs.numbers <= self.epoch))


class LogFrame:
    """A frame of a writer's log as it is described in `log_frames`; its arrays are read when they are asked for."""

    __slots__ = ("_report", "about", "archive", "entries", "number", "opening", "step")

    def __init__(
        self, archive: ArchiveStream, frame: dict[str, Any], report: Callable[[str], None], opening: int = 0,
        number: int = 0,
    ) -> None:  # fmt: skip
        self.archive, self.about, self.step, self._report = archive, frame["about"], frame["step"], report
        self.entries: list[Entry] = frame["entries"]
        self.opening, self.number = opening, number  # its place among the log's openings, and frames from 1 on

    @property
    def begins_opening(self) -> bool:
        """Whether an opening begins with it, or a part of one that cuts off what stands before."""
        return "opened" in self.about or "cut" in self.about

    def entry(self, layer: str, variable: str, item: int = -1) -> Entry | None:
        """An array of it, without its numbers; None where there is none, or damage took it."""
        wanted = (layer, variable, item)
        return next((entry for entry in self.entries if (entry.layer, entry.variable, entry.item) == wanted), None)

    def rows(self, table: str, names: Collection[str] | None = None) -> Rows | None:
        """The rows of a table, or some of their columns; None where there are none, or damage took them."""
        record = self.about.get("rows", {}).get(table)
        if record is None or (array := self.array(ROWS, table, f"rows of {table}")) is None:
            return None
        rows = decode_rows(record, array, names)
        if rows is None or (table == METRICS and any(block.types() & {str, list} for block in rows.cells.values())):
            self._report(f"step {self.step}: rows of {table} are of another version of torcheer")
            return None
        return rows

    @property
    def tables(self) -> list[str]:
        """The tables that it has rows of."""
        return list(self.about.get("rows", {}))

    def array(self, layer: str, variable: str, what: str) -> Array | None:
        """An array of it; None, and a problem, where damage took it."""
        entry = self.entry(layer, variable)
        try:
            if entry is not None:
                return self.archive.array(entry)
            self._report(f"step {self.step}: {what} are lost")
        except TorcheerError as error:
            self._report(f"step {self.step}: {what} cannot be read: {error}")
        return None

    # -- the values of a watch

    @property
    def names(self) -> list[list[Any]]:
        """Layer, variable, type and shape of each value; optionally device and message."""
        names: list[list[Any]] = self.about.get("values", [])
        return names

    @property
    def hashes(self) -> list[int | None]:
        """The hashes of its values; empty where there are none."""
        hashes: list[int | None] = self.about.get("hashes", [])
        return hashes if len(hashes) == len(self.names) else []

    def has_values(self) -> bool:
        """Whether it has values, with statistics that are intact; if these are not, it is reported."""
        if "values" not in self.about:
            return False
        columns, problem = self.about.get("columns", {}), ""
        for kind, type_name in (("statistics", "float64"), ("counts", "int64")):
            entry = self.entry(LAYER, kind)
            if entry is None:
                problem = "cannot be read: they are lost"
            elif (entry.type, entry.shape) != (type_name, (len(self.names), len(columns.get(kind, ())))):
                problem = "are of another version of torcheer"
            else:
                try:
                    self.archive.stored(entry)
                except TorcheerError as error:
                    problem = f"cannot be read: {error}"
        if not problem and not are_described(self.names):
            problem = "are of another version of torcheer"
        if problem:
            self._report(f"step {self.step}: its statistics {problem}")
        return not problem

    def numbers(self, kind: str) -> Array:
        """The `statistics` or `counts` of its values, a row each, in the columns of this version."""
        entry = self.entry(LAYER, kind)
        assert entry is not None  # `has_values` is true
        numbers = known_columns(self.about, kind, self.archive.array(entry))
        if kind == "statistics" and self.about["columns"] != COLUMNS:
            return derive_again(np.array(numbers), self.numbers("counts"))
        return numbers

    def histograms(self) -> Array | None:
        """The histograms of its values, a row each that has one; None, and a problem, where damage took them."""
        packed = self.array(LAYER, "bins", "histograms")
        try:
            return None if packed is None else unpack_histograms(packed)
        except (IndexError, ValueError):
            self._report(f"step {self.step}: histograms are of another version of torcheer")
            return None


class LogStream:
    """Reads a writer's log, on from where it was left; keeps no frame."""

    def __init__(self, place: Place) -> None:
        self.place, self.problems = place, list[str]()
        self._cuts: list[Cut] = []  # of the openings
        self._held: list[Held] = []  # the same, as what holds of each
        self._known = 0  # frames whose cuts are noted
        self.is_outdated = False  # True once a later opening has cut off what was read: rewind and read again
        self.sealed = False  # whether its last writer has closed it
        self.rewind()

    def rewind(self) -> None:
        """Read all of it again."""
        self._archive: ArchiveStream | None = None
        self._is_damaged = self.is_outdated = False
        self._reading: Iterator[tuple[ArchiveStream, dict[str, Any]]] | None = None
        self._count, self._opening = 0, -1  # frames yielded so far
        self._chunk, self._taken, self._skipped = 0, 0, 0  # where it is: frames taken of this chunk, and read of it

    def read(self) -> list[LogFrame]:
        """All of it to its end, also what another machine has written and network storage does not show yet."""
        with garbage_collection_off():
            frames = [*self.new_frames()]
            while not self._is_damaged and self._archive is not None and self._archive.late_since is not None:
                time.sleep(_LATE_POLL_SECS)
                frames += self.new_frames()
        return frames

    def new_frames(self) -> Iterator[LogFrame]:
        """Yield what was committed and not yielded yet; it can be left at any frame."""
        if self._reading is None:
            self._reading = self._unread()
        for archive, body in self._reading:
            if not is_understood(body, self.report):
                continue
            frame = LogFrame(archive, body, self.report)
            self._opening += frame.begins_opening or self._opening < 0
            self._count += 1
            frame.opening, frame.number = self._opening, self._count
            if self._count > self._known:
                self._known = self._count
                if len(self._cuts) <= self._opening:
                    self._note_cut(frame.about.get("cut"))
            yield frame
        self._reading = None

    def _note_cut(self, cut: Cut) -> None:
        self.is_outdated = self.is_outdated or (bool(cut) and bool(self._cuts))
        self._cuts.append(cut)
        held = accumulate(reversed(self._cuts[1:]), Held.before, initial=Held())
        self._held = [*held][::-1]

    def held(self, frame: LogFrame) -> Held:
        """What holds of a frame, after all cuts that were read."""
        return self._held[frame.opening]

    def _unread(self) -> Iterator[tuple[ArchiveStream, dict[str, Any]]]:
        while (chunk := chunk_after(self.place.path, self._chunk)) is not None and not self._is_damaged:
            has_later = chunk_after(self.place.path, chunk.number + 1) is not None  # before it is read to its end
            yield from self._read_chunk(chunk)
            if has_later and chunk.path.exists():
                self._chunk, self._archive, self._taken, self._is_damaged = chunk.number + 1, None, 0, False
            elif not has_later:
                return

    def _read_chunk(self, chunk: Chunk) -> Iterator[tuple[ArchiveStream, dict[str, Any]]]:
        """Yield what a chunk has gained. One that was thinned meanwhile has as many frames, and is read on."""
        try:
            if self._archive is None or self._archive.path != chunk.path:
                self._archive, self._skipped = ArchiveStream(chunk.path), 0
            for frames in self._archive.new_frames():
                for frame in frames:
                    self._skipped += 1
                    if self._skipped > self._taken:
                        for entry in frame["entries"]:
                            self._archive.hold(entry)
                        self._taken += 1
                        yield self._archive, frame
            self.sealed = self._archive.sealed
        except (ArchiveDamaged, NotAnArchive, FileNotFoundError):
            if not chunk.path.exists():  # its successor is there
                self._archive = None
                return
            self._is_damaged = True
            intact = examine(chunk.path)
            self.sealed = intact.sealed
            for text in intact.lost:
                self.report(text)
            yield from ((intact, frame) for frame in intact.frames[self._taken :])

    def backwards(self) -> Iterator[LogFrame]:
        """Yield its frames, newest first, without reading all of them."""
        for path in reversed(archives_of(self.place.path)):
            archive = ArchiveStream(path)
            for body in read_backwards(path):
                if is_understood(body, self.report):
                    yield LogFrame(archive, body, self.report)

    def report(self, text: str) -> None:
        """Note what was lost."""
        if text not in self.problems:
            self.problems.append(text)
