"""Memory-mapped reader of an archive: all of its steps, or each once as it is committed."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from torcheer import remote
from torcheer.archive.format import seals
from torcheer.archive.format.archive_folder import list_segments, read_header, segment_paths
from torcheer.archive.format.index_frames import Entry, IndexScan, scan_index
from torcheer.archive.format.value_codecs import unpack
from torcheer.disk import LATE_SECS, is_network_storage
from torcheer.encoding import crc32, decode, from_bytes, numbers_of
from torcheer.errors import ArchiveDamaged, UnknownLayer
from torcheer.public_names import PublicClass
from torcheer.records import Sample
from torcheer.terminal import first_names

__all__ = ["Archive", "ArchiveStream", "Entry"]

_BLOCK_BYTES = 1 << 20  # of an index, read at a time
_LATE_POLL_SECS = 0.1
Frame = dict[str, Any]


class ArchiveStream:
    """The committed steps of an archive, each handed out once and not kept: for a reader that follows it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        remote.fetch_folder(self.path)
        self.about, keeps_copies = read_header(self.path)
        self._keeps_copies = keeps_copies
        self.torn_bytes = 0  # of a frame that was being written when its writer died; its step was never committed
        self.sealed = False  # whether the writer closed it: nothing will be appended
        self.late_since: float | None = None  # when a part of it was missing that another machine may have written
        self._maps: dict[int, memoryview] = {}
        self._scans: list[IndexScan] = []  # of each segment, without its frames

    def new_frames(self) -> Iterator[list[Frame]]:
        """Yield the steps that were committed since the last call, some at a time: "step", "entries" and "about".

        On network storage an index may be seen before the values that it names: these steps come with a later call, and
        what is still missing after a minute is damage.
        """
        try:
            yield from self._committed_frames()
            self.late_since = None
        except (ArchiveDamaged, FileNotFoundError):
            self.late_since = self.late_since or time.monotonic()
            if time.monotonic() - self.late_since > LATE_SECS or not is_network_storage(self.path):
                raise

    def _committed_frames(self) -> Iterator[list[Frame]]:
        seal_copies = seals.read_copies(self.path)  # before the indexes, which may be sealed meanwhile
        numbers = list_segments(self.path)
        for number in numbers[max(len(self._scans) - 1, 0) :]:
            yield from self._read_index(number, last=number == len(numbers) - 1)
        final_seals = {number: scan.final_seal_crc for number, scan in enumerate(self._scans)}
        for fault in seals.find_faults(
            self.path, seal_copies, final_seals, self.about, keeps_copies=self._keeps_copies
        ):
            raise ArchiveDamaged(fault)
        self.torn_bytes = sum(scan.torn_bytes for scan in self._scans)

    def _read_index(self, number: int, last: bool) -> Iterator[list[Frame]]:
        """Yield what a segment's index has gained, a block at a time."""
        index, data = segment_paths(self.path, number)
        scan, size, is_end = self._scans[number] if number < len(self._scans) else None, _BLOCK_BYTES, False
        with open(index, "rb") as file:
            while not is_end:
                start = scan.end if scan is not None else 0
                file.seek(start)
                block = file.read(size)
                is_end = len(block) < size
                scan = scan_index(block, number, str(index), scan)
                if scan.end == start:
                    size *= 2  # a frame that is longer than a block
                    continue
                scan.check_data(data.stat().st_size if data.exists() else 0, str(data))
                self._scans[number:] = [scan._replace(frames=[])]
                yield scan.frames
        if scan is None or (scan.seal is None and not last):
            raise ArchiveDamaged(f"{index} is not sealed, though another segment follows it")
        self._scans[number:] = [scan._replace(frames=[])]
        self.sealed = scan.seal is not None and not scan.expects_next

    def array(self, entry: Entry) -> NDArray[Any]:
        """Return an entry's values: a view of the mapped file for the raw codec, a copy otherwise."""
        return from_bytes(entry.type, entry.shape, self.memory(entry).toreadonly())

    def numbers(self, entry: Entry) -> NDArray[Any]:
        """Return an entry's values as `array` does, but never as bits: without ml_dtypes, bfloat16 is float32."""
        return numbers_of(entry.type, self.array(entry))

    def memory(self, entry: Entry, *, reread: bool = False) -> memoryview:
        """Return the bytes of an entry's values, verified. Writes never reach the file.

        `reread` maps the file again, for memory that was written to.
        """
        stored = self.stored(entry, reread=reread)
        return unpack(entry.codec, entry.scale, entry.type, entry.shape, stored) if entry.stored else stored

    def stored(self, entry: Entry, *, reread: bool = False) -> memoryview:
        """Return the bytes of an entry as they are stored, verified."""
        if not entry.stored:
            return memoryview(bytearray())
        source = self._map(entry.segment) if reread else self.mapped(entry.segment)
        if len(source) < entry.offset + entry.stored:  # mapped before the file grew
            source = self._maps[entry.segment] = self._map(entry.segment)
        remote.fill(segment_paths(self.path, entry.segment)[1], entry.offset, entry.offset + entry.stored)
        stored = source[entry.offset : entry.offset + entry.stored]
        self._check(entry, stored, reread)
        return stored

    def _check(self, entry: Entry, stored: memoryview, again: bool) -> None:
        if len(stored) != entry.stored or crc32(stored) != entry.crc32:
            raise ArchiveDamaged(
                f"{self.path}: {entry.layer!r} {entry.variable} of step {entry.step} is not what was written"
            )

    def mapped(self, number: int) -> memoryview:
        """Return a segment's data as a private (copy-on-write) memory map, cached."""
        if number not in self._maps:
            self._maps[number] = self._map(number)
        return self._maps[number]

    def hold(self, entry: Entry) -> None:
        """Map an entry's file, so that it can be read after another archive has replaced this one."""
        if entry.stored and len(self.mapped(entry.segment)) < entry.offset + entry.stored:
            self._maps[entry.segment] = self._map(entry.segment)

    def _map(self, number: int) -> memoryview:
        with open(segment_paths(self.path, number)[1], "rb") as file:
            if not os.fstat(file.fileno()).st_size:  # an empty file cannot be mapped
                return memoryview(bytearray())
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))


class Archive(ArchiveStream, metaclass=PublicClass):
    """The committed steps of an archive, all of them; each value is verified on first access.

    - `path`: the folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.frames: list[Frame] = []  # per step: "step", "entries" and "about"
        self.entries: list[Entry] = []
        self._checked: set[tuple[int, ...]] = set()
        self.refresh()
        while self.late_since is not None:  # until it is whole, or `refresh` raises
            time.sleep(_LATE_POLL_SECS)
            self.refresh()

    def refresh(self) -> int:
        """Read the steps that were committed since the last call; return how many."""
        before = len(self.frames)
        for frames in self.new_frames():
            self.frames += frames
            for body in frames:
                self.entries += body["entries"]
        return len(self.frames) - before

    def _check(self, entry: Entry, stored: memoryview, again: bool) -> None:
        key = (entry.segment, entry.offset, entry.stored, entry.crc32)
        if again or key not in self._checked:
            super()._check(entry, stored, again)
            self._checked.add(key)

    @property
    def steps(self) -> list[int | None]:
        """The committed steps, in the order they were written."""
        return [body["step"] for body in self.frames]

    def find(self, layer: str, variable: str = "value", step: int | None = None, item: int = -1) -> Entry:
        """Find one entry: the newest where several steps have it."""
        for entry in reversed(self.entries):
            if (entry.layer, entry.variable, entry.item) == (layer, variable, item) and step in (None, entry.step):
                return entry
        names = sorted({f"{entry.layer} ({entry.variable})" for entry in self.entries})
        raise UnknownLayer(f"no {variable} of {layer!r} in {self.path}; it has {first_names(names) or 'nothing'}")

    def samples(self) -> Iterator[Sample]:
        """Iterate over all values in the order they were written."""
        for entry in self.entries:
            yield decode(entry._asdict(), self.memory(entry).toreadonly(), entry.step or 0)

    def verify(self) -> int:
        """Verify the checksum of every value; return how many there are."""
        for entry in self.entries:
            self.memory(entry)
        return len(self.entries)

    def __repr__(self) -> str:
        state = "sealed" if self.sealed else f"open, {self.torn_bytes} bytes of an unfinished step"
        return f"<Archive {self.path}: {len(self.frames)} steps, {len(self.entries)} values, {state}>"
