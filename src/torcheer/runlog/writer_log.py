"""Reads one writer's log: rows, alerts, statistics, the network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

from torcheer.archive import Archive
from torcheer.archive.format.index_tail import read_backwards
from torcheer.archive.verification import examine
from torcheer.errors import ArchiveDamaged, NotAnArchive
from torcheer.records import garbage_collection_off
from torcheer.runlog.log_frames import METRICS, Frame, decode_cell, is_understood
from torcheer.runlog.log_openings import Held, Row, begins_opening, held_after, held_rows, rows_of
from torcheer.runlog.media.logged_samples import LoggedSample, read_samples
from torcheer.runlog.ranks.rank_board import RankBoard
from torcheer.runlog.ranks.rank_facts import RankFacts
from torcheer.runlog.volume.log_chunks import archives_of, chunk_after
from torcheer.runlog.watched_values import NO_ROWS, WatchedValues, hashes_of
from torcheer.samples import Account, Alert

_BLOCK_BYTES = 1 << 20
_LEAST_FRAMES, _MOST_FRAMES = 128, 2048  # of a tail
_COUNTS = ("offered", "handled", "lost", "damaged", "restarts")
_ALERT = {field.name: {"str": str, "int": int}.get(str(field.type), dict) for field in fields(Alert)}


class WriterLog:
    """Everything in a writer's log, without what a later opening of it has replaced.

    `path` is its archive.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._problems: list[str] = []
        self._sealed = False

    @property
    def problems(self) -> list[str]:
        """Sentences about what was lost."""
        assert self._openings is not None
        return self._problems

    @property
    def sealed(self) -> bool:
        """Whether the writer ended cleanly."""
        assert self._openings is not None
        return self._sealed

    @cached_property
    def _openings(self) -> list[tuple[Held, list[tuple[Archive, Frame]]]]:
        """The whole log, read when it is first asked for: of each opening what holds of it, and its frames."""
        openings, cuts = list[list[tuple[Archive, Frame]]](), list[dict[str, int] | None]()
        with garbage_collection_off():
            for archive, frames in self._archives():
                self._sealed = archive.sealed
                for frame in frames:
                    if not is_understood(frame, self._problems.append):
                        continue
                    if begins_opening(frame) or not openings:
                        openings.append([])
                        cuts.append(frame["about"].get("cut"))
                    openings[-1].append((archive, frame))
        return [*zip(held_after(cuts), openings)]

    def _archives(self) -> Iterator[tuple[Archive, list[Frame]]]:
        number = 0
        while (chunk := chunk_after(self.path, number)) is not None:
            try:
                archive = open_intact(chunk.path, self._problems)
                for entry in archive.entries:
                    archive.hold(entry)
            except (FileNotFoundError, NotAnArchive):  # thinned meanwhile: its successor is there
                if not chunk.path.exists():
                    continue
                raise
            number = chunk.number + 1
            yield archive, archive.frames

    def tail(self, count: int) -> dict[str, list[Row]]:
        """The last rows of the tables that were written to lately, read from the log's end; not all of it is read."""
        tables, cleared, held = dict[str, list[Row]](), set[str](), Held()
        if not (self.path / "archive.json").is_file():
            return tables
        for number, frame in enumerate(self._backwards()):
            about = frame["about"]
            for table, columns in about.get("rows", {}).items():
                if table not in cleared:
                    rows = tables.setdefault(table, [])
                    rows[:0] = list(held_rows(held, table, rows_of(columns)))
            cleared.update(about.get("cleared", ()))
            held = held.before(about.get("cut"))
            is_enough = number >= _LEAST_FRAMES and all(len(rows) >= count for rows in tables.values())
            if is_enough or number >= _MOST_FRAMES:
                break
        return {table: rows[-count:] for table, rows in tables.items() if rows}

    def mentions(self, part: bytes) -> bool:
        """Whether these bytes stand in the log's indexes."""
        overlap = len(part) - 1
        for index in [index for path in archives_of(self.path) for index in path.glob("*.index")]:
            with open(index, "rb") as file:
                block = file.read(_BLOCK_BYTES)
                while block:
                    if part in block:
                        return True
                    more = file.read(_BLOCK_BYTES)
                    block = block[-overlap:] + more if more else b""
        return False

    def _backwards(self) -> Iterator[Frame]:
        """Yield the frames, newest first, without reading all of them."""
        frames = (frame for path in reversed(archives_of(self.path)) for frame in read_backwards(path))
        return (frame for frame in frames if is_understood(frame, self._problems.append))

    def _parts(self, name: str) -> Iterator[tuple[Held, Any]]:
        """Yield a part of each frame that has it, with what holds of its opening."""
        for held, frames in self._openings:
            for _, frame in frames:
                if name in frame["about"]:
                    yield held, frame["about"][name]

    @cached_property
    def alerts(self) -> list[Alert]:
        """The alerts, in order."""
        return [alert for held, records in self._parts("alerts") for alert in read_alerts(records, held)]

    @cached_property
    def tables(self) -> dict[str, list[Row]]:
        """The rows of each table, in the order they were written."""
        tables: dict[str, list[Row]] = {}
        with garbage_collection_off():
            for held, frames in self._openings:
                for _, frame in frames:
                    for table in frame["about"].get("cleared", ()):
                        tables.pop(table, None)
                    for table, columns in frame["about"].get("rows", {}).items():
                        tables.setdefault(table, []).extend(held_rows(held, table, rows_of(columns)))
        return tables

    @cached_property
    def samples(self) -> list[LoggedSample]:
        """What people logged beside numbers, in the order it was written."""
        return [
            sample
            for held, frames in self._openings
            for archive, frame in frames
            if "samples" in frame["about"]
            for sample in read_samples(archive, frame, self._report)
            if held.has(sample.step)
        ]

    def _report(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)

    @property
    def heads(self) -> dict[str, dict[str, Any]]:
        """The title, axes and further facts of each table that was announced."""
        return {name: head for _, heads in self._parts("heads") for name, head in heads.items()}

    def rank_facts(self, rank: int) -> RankFacts:
        """What its last opening says of the process that wrote it, one of several."""
        records = [record for _, record in self._parts("rank")]
        return RankFacts.parse(records[-1] if records else None, rank)

    def compare_on(self, board: RankBoard, rank: int) -> None:
        """Give the times and the hashes in it to a board."""
        board.note_rank(self.rank_facts(rank))
        for _, frames in self._openings:
            for _, frame in frames:
                note_frame(board, rank, frame)

    @property
    def network(self) -> dict[str, Any] | None:
        """The last network, as JSON."""
        return next((network for _, network in reversed(list(self._parts("network")))), None)

    @property
    def account(self) -> Account | None:
        """How many values were written and dropped; None while the last writer is at work, or if it was killed."""
        frames = self._openings[-1][1] if self._openings else []
        record = next((frame["about"]["account"] for _, frame in frames if "account" in frame["about"]), None)
        try:
            dropped = {(entry[0], entry[1]): int(entry[2]) for entry in record["dropped"]} if record else {}
            account = Account(**{**record, "dropped": dropped}) if record else None
            counts = (
                [*(getattr(account, name) for name in _COUNTS), 0 if account.written is None else account.written]
                if account is not None
                else []
            )
            return account if {int}.issuperset(map(type, counts)) else None
        except (TypeError, LookupError, ValueError):
            return None

    @cached_property
    def values(self) -> WatchedValues:
        """The values with their statistics."""
        return WatchedValues(self._openings, self._problems)


def note_frame(board: RankBoard, rank: int, frame: Frame) -> None:
    """Give the times and the hashes in a frame to a board."""
    for row in rows_of(frame["about"].get("rows", {}).get(METRICS, NO_ROWS)):
        board.note_metrics(rank, row.step, row.cells)
    if frame["about"].get("values"):
        board.note_step(rank, frame["step"])
    if hashes := hashes_of(frame):
        board.note_hashes(rank, frame["step"], frame["about"]["values"], hashes)


def read_alerts(records: list[Any], held: Held) -> Iterator[Alert]:
    """Yield the alerts of a frame that still hold."""
    for record in decode_cell(records):
        try:
            alert = Alert(**{name: record[name] for name in _ALERT.keys() & record.keys()})
            is_whole = all(type(getattr(alert, name)) is kind for name, kind in _ALERT.items())
            if is_whole and held.has(alert.step):
                yield alert
        except (TypeError, AttributeError):  # half of a record
            continue


def open_intact(path: Path, problems: list[str]) -> Archive:
    """Open an archive; of a damaged one the intact part, adding losses to `problems`."""
    try:
        return Archive(path)
    except ArchiveDamaged:
        archive = examine(path)
        problems += archive.lost
        return archive
