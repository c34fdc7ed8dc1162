"""Memory that two processes share: a few numbers in front, room for records behind.

Every number has one writer. It is stored twice, the second time mixed with the ring's token, so that one that was
caught half-way, or damaged, is known as such and its reader goes by the last one it believed.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from torcheer.encoding import crc32
from torcheer.errors import BadArgument, TorcheerError

LINE: Final = 64  # records begin at multiples of it: a cache line
_FRONT: Final = 4096  # bytes before the records
_MAGIC: Final = 0x676E_6972_6372_6F74  # "torcring"
_ALL: Final = 2**64 - 1
_POPULATE: Final = getattr(mmap, "MAP_POPULATE", 0)
_ROW_BYTES: Final = 4096  # of the table that `_sums` makes of a payload
_BLOCK_BYTES: Final = 1 << 20

# Places of the numbers; those from HEAD on are pairs.
_MAGIC_AT, _TOKEN_AT, _SIZE_AT, _POLICY_AT, _CHECK_AT, ASLEEP = range(6)
HEAD, PUBLISHED = 8, 10  # the producer's: bytes written, records written
TAIL, PASSED, TAKEN, HANDLED, DAMAGED = 16, 18, 20, 22, 24  # the reader's: bytes and records behind it, …


class RingDamaged(TorcheerError, ValueError):
    """Shared memory that does not begin as a ring does."""


class Memory:
    """The memory itself, mapped into this process."""

    def __init__(self, fd: int, populate: bool = False) -> None:
        self.fd = fd
        flags = mmap.MAP_SHARED | (_POPULATE if populate else 0)  # no page faults in the training step
        self._map = mmap.mmap(fd, 0, flags=flags)
        self._all = memoryview(self._map)
        self.words = self._all[:_FRONT].cast("Q")
        self.data = self._all[_FRONT:]
        self.size, self.policy, self.by_sum = self.words[_SIZE_AT], self.words[_POLICY_AT], bool(self.words[_CHECK_AT])
        self.token = self.words[_TOKEN_AT]

    @classmethod
    def make(cls, size_bytes: int, policy: int) -> Memory:
        """New memory, all of it there at once."""
        fd = nameless("torcheer-ring")
        try:
            os.ftruncate(fd, _FRONT + size_bytes)
            if hasattr(os, "memfd_create"):  # who reads it can rely on its size
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            memory = cls(fd, populate=True)
        except (OSError, ValueError) as error:
            os.close(fd)
            raise BadArgument(f"no shared memory of {size_bytes:,} bytes: {error}; try a smaller ring") from None
        memory.size, memory.policy, memory.by_sum = size_bytes, policy, not _has_isal()
        memory.token = int.from_bytes(os.urandom(8), "little") | 1
        memory.state()
        for place in (HEAD, PUBLISHED, TAIL, PASSED, TAKEN, HANDLED, DAMAGED):
            memory.put(place, 0)
        return memory

    @classmethod
    def open(cls, fd: int) -> Memory:
        """The memory that another process made."""
        memory = cls(fd)
        if memory.words[_MAGIC_AT] != _MAGIC or memory.size != len(memory.data):
            raise RingDamaged(f"descriptor {fd} holds no ring of this version")
        return memory

    def state(self) -> None:
        """Write down what does not change; again before another reader comes."""
        constants = (_MAGIC, self.token, self.size, self.policy, int(self.by_sum), 0)
        for place, value in enumerate(constants):
            self.words[place] = value

    def put(self, place: int, value: int) -> None:
        """Store a number: each of the two is one aligned store of eight bytes."""
        self.words[place] = value
        self.words[place + 1] = (value ^ self.token) & _ALL

    def get(self, place: int) -> int | None:
        """A number, None where it is just being stored or damaged."""
        value: int = self.words[place]
        return value if self.words[place + 1] == value ^ self.token else None

    def left(self, place: int) -> int:
        """A count as a reader left it that may have been killed between the two stores; no more than can be."""
        value: int = self.words[place]
        return min(value, self.get(PUBLISHED) or value)

    def checksum(self, about: bytes, payload: Any) -> int:
        """A number that differs where a byte does."""
        return crc32(about, _sums(payload) if self.by_sum else crc32(payload))

    def close(self) -> None:
        """Let go of it, as far as nobody holds a part of it."""
        for view in (self.words, self.data, self._all):
            try:
                view.release()
            except BufferError:  # somebody kept what `fill` was lent
                continue
        try:
            self._map.close()
        except BufferError:
            pass
        os.close(self.fd)


def nameless(name: str) -> int:
    """A descriptor of memory that has no name in any folder: whoever is killed, nothing is left behind."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:  # where there is no Linux
        return os.dup(file.fileno())


def _has_isal() -> bool:
    return find_spec("isal") is not None  # which `crc32` uses


def _sums(payload: Any) -> int:
    """For want of isal: the CRC of the sums of rows and of columns, a quarter of what zlib's of everything costs."""
    whole = len(payload) // _ROW_BYTES * _ROW_BYTES
    check = crc32(payload[whole:])
    for begin in range(0, whole, _BLOCK_BYTES):  # small enough to be read from the cache the second time
        count = min(_BLOCK_BYTES, whole - begin) // 8
        table = np.frombuffer(payload, "<u8", count, begin).reshape(-1, _ROW_BYTES // 8)
        check = crc32(np.add.reduce(table, axis=0), crc32(np.add.reduce(table, axis=1), check))
    return check
