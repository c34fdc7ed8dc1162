"""Reading an archive: memory-mapped, each value checked when it is first touched."""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from torcheer.archive.folder import read_about, segments_of
from torcheer.archive.frames import scan
from torcheer.archive.numbers import TYPES, from_bytes
from torcheer.errors import ArchiveDamaged, UnknownLayer
from torcheer.records import Sample


class Entry(NamedTuple):
    """Where a value is."""

    step: int | None
    layer: str
    variable: str
    item: int
    type: str
    shape: tuple[int, ...]
    segment: int
    offset: int
    stored: int
    crc32: int


class Archive:
    """The committed steps of an archive."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.about = read_about(self.path)
        self.frames: list[dict[str, Any]] = []
        self.torn_bytes = 0  # of a frame that was being written when its writer died; its step was never committed
        self.sealed = False  # whether the writer has said that this is all
        self._maps: dict[int, memoryview] = {}
        self._checked: set[tuple[int, int]] = set()
        self.entries: list[Entry] = []
        numbers = segments_of(self.path)
        if numbers != list(range(len(numbers))):
            raise ArchiveDamaged(f"{self.path}: segments {numbers} are there; one between them is missing")
        for number in numbers:
            self._read_index(number, last=number == len(numbers) - 1)

    def _read_index(self, number: int, last: bool) -> None:
        index = self.path / f"{number:06}.index"
        found = scan(index.read_bytes(), number, str(index))
        self.sealed = bool(found.frames) and "seal" in found.frames[-1]
        if not self.sealed and not last:
            raise ArchiveDamaged(f"{index} is not sealed, though another segment follows it")
        if self.sealed and found.torn:
            raise ArchiveDamaged(f"{index}: {found.torn} bytes stand behind its seal")
        self.torn_bytes += found.torn
        size = self._size(number)
        for body in found.frames[: -1 if self.sealed else None]:
            self.frames.append(body)
            self.entries += [self._entry(number, body, entry, size) for entry in body["entries"]]

    def _size(self, number: int) -> int:
        data = self.path / f"{number:06}.data"
        return data.stat().st_size if data.exists() else 0

    def _entry(self, number: int, body: dict[str, Any], entry: dict[str, Any], size: int) -> Entry:
        try:
            made = Entry(
                body["step"], entry["layer"], entry["variable"], entry["item"], entry["type"], tuple(entry["shape"]),
                number, entry["offset"], entry["stored"], entry["crc32"],
            )  # fmt: skip
            needed = TYPES[made.type].itemsize
            for length in made.shape:
                needed *= length
            good = 0 <= made.offset <= made.offset + made.stored <= size and needed == made.stored
        except (KeyError, TypeError) as error:
            raise ArchiveDamaged(f"{self.path}, segment {number}: an entry cannot be read: {error!r}") from None
        if not good:
            raise ArchiveDamaged(f"{self.path}, segment {number}: {made.layer!r} lies outside of the file, or is cut")
        return made

    @property
    def steps(self) -> list[int | None]:
        """The committed steps, in the order they were written."""
        return [body["step"] for body in self.frames]

    def array(self, entry: Entry) -> NDArray[Any]:
        """The values of an entry, over the file's own memory; the first time they are checked."""
        if not entry.stored:
            return from_bytes(entry.type, entry.shape, b"")
        data = self._map(entry.segment)[entry.offset : entry.offset + entry.stored]
        place = (entry.segment, entry.offset)
        if place not in self._checked:
            if zlib.crc32(data) != entry.crc32:
                raise ArchiveDamaged(
                    f"{self.path}: {entry.layer!r} {entry.variable} of step {entry.step} is not what was written"
                )
            self._checked.add(place)
        return from_bytes(entry.type, entry.shape, data)

    def _map(self, number: int) -> memoryview:
        if number not in self._maps:
            with open(self.path / f"{number:06}.data", "rb") as file:
                self._maps[number] = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return self._maps[number]

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
            yield Sample(entry.step or 0, entry.layer, entry.variable, entry.item, self.array(entry))

    def verify(self) -> int:
        """Check every value; return how many there are."""
        for entry in self.entries:
            self.array(entry)
        return len(self.entries)

    def __repr__(self) -> str:
        state = "sealed" if self.sealed else f"open, {self.torn_bytes} bytes of an unfinished step"
        return f"<Archive {self.path}: {len(self.frames)} steps, {len(self.entries)} values, {state}>"
