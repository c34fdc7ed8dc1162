"""Memory shared by two processes: a header of counters, then room for records.

Every counter has one writer. It is stored twice, the second time XORed with the ring's token, so that one that is half
written or damaged is detected and its reader keeps the last valid one.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from torcheer.disk import require_unix
from torcheer.encoding import crc32
from torcheer.errors import BadArgument, TorcheerError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LINE: Final = 64  # bytes of a cache line; records begin at multiples of it
_HEADER_BYTES: Final = 4096  # before the records
_MAGIC: Final = 0x676E_6972_6372_6F74  # "torcring"
_MASK: Final = 2**64 - 1
_POPULATE: Final = getattr(mmap, "MAP_POPULATE", 0)
_DONTNEED: Final = mmap.MADV_DONTNEED  # of shared memory: the pages stay, and are mapped again when they are read
_ROW_BYTES: Final = 4096  # row length of the table whose sums `_table_checksum` takes
_BLOCK_BYTES: Final = 1 << 20

# Indices of the counters; those from HEAD on are pairs.
_MAGIC_AT, _TOKEN_AT, _SIZE_AT, _POLICY_AT, _CHECK_AT, ASLEEP = range(6)
HEAD, PUBLISHED = 8, 10  # of the writer: bytes written, records written
TAIL, PASSED, TAKEN, HANDLED, DAMAGED = 16, 18, 20, 22, 24  # of the reader: bytes and records passed, …


class RingDamaged(TorcheerError, ValueError):
    """Shared memory without a ring's header."""


class Memory:
    """The shared memory of a ring, mapped into this process."""

    def __init__(self, fd: int, populate: bool = False) -> None:
        self.fd = fd
        flags = mmap.MAP_SHARED | (_POPULATE if populate else 0)  # no page faults in the training step
        self._map = mmap.mmap(fd, 0, flags=flags)
        self._all = memoryview(self._map)
        self.words = self._all[:_HEADER_BYTES].cast("Q")
        self.data = self._all[_HEADER_BYTES:]
        self.size, self.policy, self.by_sum = self.words[_SIZE_AT], self.words[_POLICY_AT], bool(self.words[_CHECK_AT])
        self.token = self.words[_TOKEN_AT]

    @classmethod
    def make(cls, size_bytes: int, policy: int) -> Memory:
        """Allocate new memory, all pages at once."""
        require_unix("memory that is shared with another process (watch, live)")
        fd = anonymous_memory("torcheer-ring")
        try:
            os.ftruncate(fd, _HEADER_BYTES + size_bytes)
            if hasattr(os, "memfd_create"):  # so that the reader can rely on its size
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            memory = cls(fd, populate=True)
        except (OSError, ValueError) as error:
            os.close(fd)
            raise BadArgument(f"no shared memory of {size_bytes:,} bytes: {error}; try a smaller ring") from None
        memory.size, memory.policy, memory.by_sum = size_bytes, policy, not _has_isal()
        memory.token = int.from_bytes(os.urandom(8), "little") | 1
        memory.write_header()
        for index in (HEAD, PUBLISHED, TAIL, PASSED, TAKEN, HANDLED, DAMAGED):
            memory.put(index, 0)
        return memory

    @classmethod
    def open(cls, fd: int) -> Memory:
        """Map the memory that another process allocated."""
        memory = cls(fd)
        if memory.words[_MAGIC_AT] != _MAGIC or memory.size != len(memory.data):
            raise RingDamaged(f"descriptor {fd} holds no ring of this version")
        return memory

    def write_header(self) -> None:
        """Write the constants of the header; once more before another reader starts."""
        constants = (_MAGIC, self.token, self.size, self.policy, int(self.by_sum), 0)
        for index, value in enumerate(constants):
            self.words[index] = value

    def put(self, index: int, value: int) -> None:
        """Store a counter; each of the two copies is one aligned store of eight bytes."""
        self.words[index] = value
        self.words[index + 1] = (value ^ self.token) & _MASK

    def get(self, index: int) -> int | None:
        """Read a counter; None where it is half stored or damaged."""
        value: int = self.words[index]
        return value if self.words[index + 1] == value ^ self.token else None

    def recover_count(self, index: int) -> int:
        """Read a counter of a reader that may have been killed between the two stores; at most PUBLISHED."""
        value: int = self.words[index]
        return min(value, self.get(PUBLISHED) or value)

    def forget(self, begin: int, end: int) -> None:
        """Unmap what this process has read: else all of a ring would count as its memory, after one lap."""
        page = mmap.PAGESIZE
        first, last = -(-(_HEADER_BYTES + begin) // page) * page, (_HEADER_BYTES + end) // page * page
        if first < last:
            self._map.madvise(_DONTNEED, first, last - first)

    def checksum(self, header: bytes, payload: Any) -> int:
        """The checksum of a record."""
        return crc32(header, _table_checksum(payload) if self.by_sum else crc32(payload))

    def close(self) -> None:
        """Unmap the memory, unless a view of it is still held elsewhere."""
        for view in (self.words, self.data, self._all):
            try:
                view.release()
            except BufferError:  # a `fill` has kept the view that it received
                continue
        try:
            self._map.close()
        except BufferError:
            pass
        os.close(self.fd)


def anonymous_memory(name: str) -> int:
    """A descriptor of memory without a path: nothing is left behind after a kill."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:  # other systems than Linux
        return os.dup(file.fileno())


def check_sealed(fd: int) -> None:
    """Refuse memory of a process that is not trusted and might make it smaller while it is read."""
    if hasattr(fcntl, "F_GET_SEALS") and not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        raise RingDamaged("its memory may become smaller: to touch what is not there would end this process")


def copy_for_child(fd: int) -> int:
    """Copy a descriptor, never to 0, 1 or 2: those are free where the standard streams are closed."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def _has_isal() -> bool:
    return find_spec("isal") is not None  # `crc32` uses it


def _table_checksum(payload: Any) -> int:
    """Without isal: the CRC of the sums of rows and of columns, at a quarter of the cost of zlib's CRC of all bytes."""
    full_rows = len(payload) // _ROW_BYTES * _ROW_BYTES
    check = crc32(payload[full_rows:])
    for begin in range(0, full_rows, _BLOCK_BYTES):  # small enough that the second pass reads from the cache
        count = min(_BLOCK_BYTES, full_rows - begin) // 8
        table = np.frombuffer(payload, "<u8", count, begin).reshape(-1, _ROW_BYTES // 8)
        check = crc32(np.add.reduce(table, axis=0), crc32(np.add.reduce(table, axis=1), check))
    return check
