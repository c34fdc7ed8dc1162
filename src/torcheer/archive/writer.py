"""Writing an archive: values first, then the frame that makes them count."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torcheer.archive.folder import begin, locked, segments_of
from torcheer.archive.frames import frame, head, scan
from torcheer.archive.numbers import to_bytes
from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.records import Sample

ALIGN = 64
SEGMENT_BYTES = 1 << 30
SYNCS = ("step", "interval", "never")


class Writer:
    """Appends steps to an archive; each is there whole or not at all.

    `fsync="step"` waits for the disk at every step, `"interval"` at most every `interval_secs`, `"never"` leaves it to
    the system. A process that is killed loses nothing that was committed, either way; a machine without power may.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        about: dict[str, Any] | None = None,
        fsync: str = "interval",
        interval_secs: float = 5.0,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        if fsync not in SYNCS:
            raise BadArgument(f"fsync={fsync!r}: use one of {', '.join(SYNCS)}")
        self.path = Path(path)
        self._fsync, self._interval, self._limit = fsync, interval_secs, segment_bytes
        self._synced = time.monotonic()
        self._lock = locked(self.path)
        try:
            begin(self.path, about or {})
            self._open(max(segments_of(self.path), default=0))
        except BaseException:
            os.close(self._lock)
            raise
        self.closed = False

    def _open(self, number: int) -> None:
        """Go on in a segment, behind its last whole frame; in the next one, where it is sealed."""
        self.number = number
        index, data = (self.path / f"{number:06}.{kind}" for kind in ("index", "data"))
        found = scan(index.read_bytes() if index.exists() else b"", number, str(index))
        if found.frames and "seal" in found.frames[-1]:
            self._open(number + 1)
            return
        self._index, self._data = (os.open(file, os.O_RDWR | os.O_CREAT, 0o666) for file in (index, data))
        used = [entry["offset"] + entry["stored"] for body in found.frames for entry in body["entries"]]
        self._after, self._count = found.last, len(found.frames)
        self._index_end, self._data_end = found.end, max(used, default=0)
        if os.fstat(self._data).st_size < self._data_end:
            self._close_files()
            raise ArchiveDamaged(f"{data} is shorter than its index says")
        self._forget()
        if not self._index_end:
            self._index_end = _put(self._index, head(number), 0)

    def step(self, samples: Iterable[Sample], **about: Any) -> None:
        """Write the values of one step, and commit them."""
        entries: list[dict[str, Any]] = []
        steps, seen, end = set(), set(), self._data_end
        try:
            for sample in samples:
                steps.add(sample.step)
                seen.add((sample.layer, sample.variable, sample.item))
                entry, end = self._write(sample, end)
                entries.append(entry)
            if len(steps) > 1 or len(seen) < len(entries):
                raise BadArgument("step(): a frame holds one step, and each layer, variable and item once")
            if self._due():
                os.fsync(self._data)
            body = {"step": min(steps, default=None), "entries": entries, "about": about}
            self._commit(body, end)
        except BaseException:
            self._forget()  # the disk is full, an array cannot be kept: what was committed stays
            raise
        if self._data_end >= self._limit:
            self._seal()
            self._open(self.number + 1)

    def _write(self, sample: Sample, end: int) -> tuple[dict[str, Any], int]:
        name, shape, data = to_bytes(sample.array)
        offset = -(-end // ALIGN) * ALIGN if data else end
        _put(self._data, data, offset)
        entry = {
            "layer": sample.layer, "variable": sample.variable, "item": sample.item, "type": name, "shape": shape,
            "offset": offset, "stored": len(data), "crc32": zlib.crc32(data),
        }  # fmt: skip
        return entry, offset + len(data)

    def _commit(self, body: dict[str, Any], data_end: int) -> None:
        text, check = frame(body, self._after)
        index_end = _put(self._index, text, self._index_end)
        if self._due():
            os.fsync(self._index)
            self._synced = time.monotonic()
        self._after, self._count = check, self._count + 1
        self._index_end, self._data_end = index_end, data_end

    def _forget(self) -> None:
        """Take away whatever is not committed."""
        os.ftruncate(self._data, self._data_end)
        os.ftruncate(self._index, self._index_end)

    def _due(self) -> bool:
        late = time.monotonic() - self._synced >= self._interval
        return self._fsync == "step" or (self._fsync == "interval" and late)

    def _seal(self) -> None:
        self._commit({"seal": {"frames": self._count, "bytes": self._data_end}}, self._data_end)
        os.fsync(self._data)
        os.fsync(self._index)
        self._close_files()

    def _close_files(self) -> None:
        os.close(self._index)
        os.close(self._data)

    def close(self, *, seal: bool = True) -> None:
        """End the archive. Sealed, it says where it ends, and a lost tail would be noticed."""
        if self.closed:
            return
        self.closed = True
        try:
            self._seal() if seal else self._close_files()
        finally:
            os.close(self._lock)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *problem: Any) -> None:
        self.close(seal=problem[0] is None)


def _put(file: int, data: Any, at: int) -> int:
    """Write all of `data` at a place; return where it ends."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file, rest, at)
        rest, at = rest[written:], at + written
    return at
