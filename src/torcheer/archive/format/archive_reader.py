"""Reading an archive: memory-mapped, each value checked when it is first touched."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from torcheer.archive.format import seals
from torcheer.archive.format.archive_folder import read_head, segment_files, segments_of
from torcheer.archive.format.index_frames import Entry, scan
from torcheer.archive.format.value_codecs import unpack
from torcheer.encoding import crc32, decode, from_bytes
from torcheer.errors import ArchiveDamaged, UnknownLayer
from torcheer.records import Sample

__all__ = ["Archive", "Entry"]


class Archive:
    """The committed steps of an archive."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.about, twice = read_head(self.path)
        copied = seals.copies(self.path)  # before the indexes, which may be sealed meanwhile
        self.frames: list[dict[str, Any]] = []  # of each step its "step", "entries" and "about"
        self.entries: list[Entry] = []
        self.torn_bytes = 0  # of a frame that was being written when its writer died; its step was never committed
        self.sealed = False  # whether the writer has said that this is all
        self._maps: dict[int, memoryview] = {}
        self._checked: set[tuple[int, ...]] = set()
        numbers = segments_of(self.path)
        ends = {number: self._read_index(number, last=number == len(numbers) - 1) for number in numbers}
        for fault in seals.faults(self.path, copied, ends, self.about, twice=twice):
            raise ArchiveDamaged(fault)

    def _read_index(self, number: int, last: bool) -> int | None:
        """Take in a segment; the CRC-32 of the seal that says that it is the last, where it has one."""
        index, data = segment_files(self.path, number)
        found = scan(index.read_bytes(), number, str(index))
        found.check_data(data.stat().st_size if data.exists() else 0, str(data))
        if found.seal is None and not last:
            raise ArchiveDamaged(f"{index} is not sealed, though another segment follows it")
        self.sealed = found.seal is not None and not found.more
        self.torn_bytes += found.torn
        self.frames += found.frames
        for body in found.frames:
            self.entries += body["entries"]
        return found.final

    @property
    def steps(self) -> list[int | None]:
        """The committed steps, in the order they were written."""
        return [body["step"] for body in self.frames]

    def array(self, entry: Entry) -> NDArray[Any]:
        """The values of an entry, over the file's own memory where they are stored as they are."""
        return from_bytes(entry.type, entry.shape, self.memory(entry).toreadonly())

    def memory(self, entry: Entry, *, again: bool = False) -> memoryview:
        """The bytes of an entry's values, checked the first time; writing to them never reaches the file.

        `again` reads the file anew, for memory that was written to.
        """
        if not entry.stored:
            return memoryview(bytearray())
        source = self._map(entry.segment) if again else self.mapped(entry.segment)
        stored = source[entry.offset : entry.offset + entry.stored]
        place = (entry.segment, entry.offset, entry.stored, entry.crc32)
        if again or place not in self._checked:
            if len(stored) != entry.stored or crc32(stored) != entry.crc32:
                raise ArchiveDamaged(
                    f"{self.path}: {entry.layer!r} {entry.variable} of step {entry.step} is not what was written"
                )
            self._checked.add(place)
        return unpack(entry.codec, entry.scale, entry.type, entry.shape, stored)

    def mapped(self, number: int) -> memoryview:
        """The data of a segment, in private memory that is filled as it is touched."""
        if number not in self._maps:
            self._maps[number] = self._map(number)
        return self._maps[number]

    def _map(self, number: int) -> memoryview:
        with open(segment_files(self.path, number)[1], "rb") as file:
            if not os.fstat(file.fileno()).st_size:  # nothing that could be mapped
                return memoryview(bytearray())
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))

    def find(self, layer: str, variable: str = "value", step: int | None = None, item: int = -1) -> Entry:
        """One entry, the newest where several steps have it."""
        for entry in reversed(self.entries):
            if (entry.layer, entry.variable, entry.item) == (layer, variable, item) and step in (None, entry.step):
                return entry
        known = sorted({f"{entry.layer} ({entry.variable})" for entry in self.entries})
        raise UnknownLayer(f"no {variable} of {layer!r} in {self.path}; it has {', '.join(known[:8]) or 'nothing'}")

    def samples(self) -> Iterator[Sample]:
        """Every value, in the order they were written."""
        for entry in self.entries:
            yield decode(entry._asdict(), self.memory(entry).toreadonly(), entry.step or 0)

    def verify(self) -> int:
        """Check every value; return how many there are."""
        for entry in self.entries:
            self.memory(entry)
        return len(self.entries)

    def __repr__(self) -> str:
        state = "sealed" if self.sealed else f"open, {self.torn_bytes} bytes of an unfinished step"
        return f"<Archive {self.path}: {len(self.frames)} steps, {len(self.entries)} values, {state}>"
