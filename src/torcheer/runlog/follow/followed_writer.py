"""Follows one writer's log as it grows: each frame once, with what later openings say of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torcheer.archive.format.archive_reader import ArchiveStream
from torcheer.archive.verification import examine
from torcheer.errors import ArchiveDamaged, NotAnArchive
from torcheer.runlog.log_frames import Frame, is_understood
from torcheer.runlog.log_openings import Held, begins_opening, held_after
from torcheer.runlog.log_reader import Place
from torcheer.runlog.volume.log_chunks import Chunk, chunk_after


class NewFrame(NamedTuple):
    """A frame that was not read before."""

    held: Held  # which of it still holds
    archive: ArchiveStream  # that has its values
    frame: Frame
    number: int  # of its log's frames, from 1 on


class FollowedWriter:
    """Reads on from where it was left; keeps no frame."""

    def __init__(self, place: Place) -> None:
        self.place, self.identity, self.problems = place, place.identity, list[str]()
        self._cuts: list[dict[str, int] | None] = []  # of the openings
        self._known = 0  # frames whose cuts are noted
        self.is_outdated = False  # True once a later opening has replaced what was read: rewind and read again
        self.rewind()

    def rewind(self) -> None:
        """Read all of it again."""
        self._archive: ArchiveStream | None = None
        self._is_damaged = self.is_outdated = False
        self._reading: Iterator[tuple[ArchiveStream, Frame]] | None = None
        self.count, self._opening = 0, -1  # `count`: frames yielded so far
        self._chunk, self._taken, self._skipped = 0, 0, 0  # where it is: frames taken of this chunk, and read of it

    def new_frames(self) -> Iterator[NewFrame]:
        """Yield what was committed and not yielded yet; it can be left at any frame."""
        if self._reading is None:
            self._reading = self._unread()
        for archive, frame in self._reading:
            if not is_understood(frame, self._report):
                continue
            begins = begins_opening(frame) or self._opening < 0
            self._opening += begins
            self.count += 1
            if self.count > self._known:
                self._known = self.count
                if begins:
                    self._cuts.append(frame["about"].get("cut"))
                    self.is_outdated |= len(self._cuts) > 1 and bool(self._cuts[-1])
            yield NewFrame(held_after(self._cuts)[self._opening], archive, frame, self.count)
        self._reading = None

    def _unread(self) -> Iterator[tuple[ArchiveStream, Frame]]:
        while (chunk := chunk_after(self.place.path, self._chunk)) is not None and not self._is_damaged:
            has_later = chunk_after(self.place.path, chunk.number + 1) is not None  # before it is read to its end
            yield from self._read_chunk(chunk)
            if has_later and chunk.path.exists():
                self._chunk, self._archive, self._taken, self._is_damaged = chunk.number + 1, None, 0, False
            elif not has_later:
                return

    def _read_chunk(self, chunk: Chunk) -> Iterator[tuple[ArchiveStream, Frame]]:
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
        except (ArchiveDamaged, NotAnArchive, FileNotFoundError):
            if not chunk.path.exists():  # its successor is there
                self._archive = None
                return
            self._is_damaged = True
            intact = examine(chunk.path)
            for text in intact.lost:
                self._report(text)
            yield from ((intact, frame) for frame in intact.frames[self._taken :])

    def _report(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)
