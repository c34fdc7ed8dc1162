"""One mailbox per key in shared memory, with the newest value in it: what "latest" uses.

A table of boxes stands in front. The number of a box is 0 while its value is being copied; a reader that finds it
changed after its own copy lets that copy go.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import crc32
from torcheer.wire.shared_memory import DAMAGED, LINE, PUBLISHED, Memory

Key = tuple[str, str]
_ROW: Final = 2 * LINE  # bytes of a box's row: the writer's line, then the reader's
_NUMBER, _OFFSET, _SIZE, _TEXT, _CHECKSUM, _CHECK, _AGAIN = range(7)  # the writer's line; its number stands twice
_SEEN, _READ = range(8, 10)  # of the reader's: the number it saw last, how many it saw
_MOST_BOXES: Final = 4096
_DOUBT_SECS: Final = 0.001  # before a value that is not whole is given up
_FIELDS: Final = struct.Struct("<5Q")


def _rows(memory: Memory) -> int:
    return min(_MOST_BOXES, memory.size // (8 * _ROW))


def _check(memory: Memory, fields: tuple[int, ...]) -> int:
    return crc32(_FIELDS.pack(*fields), memory.token & 0xFFFF_FFFF)


class _Box:
    """A box as its writer knows it."""

    __slots__ = ("capacity", "number", "offset", "published", "row")

    def __init__(self, row: int) -> None:
        self.row, self.offset, self.capacity, self.number, self.published = row, 0, 0, 0, 0


class MailboxWriter:
    """Which box a value goes into."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._rows = memory, _rows(memory)
        self._words = memory.data[: self._rows * _ROW].cast("Q")
        self._boxes: dict[Key, _Box] = {}
        self._end = self._rows * _ROW  # nothing lies behind it yet
        self._spare: list[tuple[int, int]] = []  # offset and bytes of boxes that became too small
        self.published = 0

    def write(self, key: Key, text: bytes, size_bytes: int, fill: Callable[[memoryview], None]) -> bool:
        """Put a value into its key's box; False where no box can be had."""
        box = self._box(key, size_bytes + len(text))
        if box is None:
            return False
        memory, begin, at = self._memory, box.offset, box.row * _ROW // 8
        self._words[at + _NUMBER] = box.number = 0
        payload = memory.data[begin : begin + size_bytes]
        fill(payload)
        memory.data[begin + size_bytes : begin + size_bytes + len(text)] = text
        fields = (self.published + 1, begin, size_bytes, len(text), memory.checksum(text, payload))
        for place, value in enumerate(fields[1:], _OFFSET):
            self._words[at + place] = value
        self._words[at + _CHECK] = _check(memory, fields)
        self._words[at + _AGAIN] = fields[0] ^ memory.token
        self.published, box.published, box.number = self.published + 1, box.published + 1, fields[0]
        memory.put(PUBLISHED, self.published)
        self._words[at + _NUMBER] = fields[0]
        return True

    def _box(self, key: Key, needed: int) -> _Box | None:
        """The key's box, with room enough."""
        box = self._boxes.get(key)
        if box is None:
            if len(self._boxes) == self._rows:
                return None
            box = _Box(len(self._boxes))
        if box.capacity < needed:
            place = self._place(-(-needed * 5 // 4 // LINE) * LINE)  # texts grow with their numbers
            if place is None:
                return None
            if box.capacity:
                self._words[box.row * _ROW // 8 + _NUMBER] = box.number = 0  # before others may write there
                self._spare.append((box.offset, box.capacity))
            box.offset, box.capacity = place
        self._boxes[key] = box
        return box

    def _place(self, bytes_: int) -> tuple[int, int] | None:
        fits = [spare for spare in self._spare if spare[1] >= bytes_]
        if fits:
            best = min(fits, key=lambda spare: spare[1])
            self._spare.remove(best)
            return best
        if self._end + bytes_ > self._memory.size:
            return None
        self._end += bytes_
        return self._end - bytes_, bytes_

    def waiting(self, key: Key) -> int:
        """How many boxes of other keys hold something unread."""
        return sum(self._unread(box) for other, box in self._boxes.items() if other != key)

    def _unread(self, box: _Box) -> bool:
        return box.number > 0 and box.number != self._words[box.row * _ROW // 8 + _SEEN]

    def overwritten(self) -> dict[Key, int]:
        """How many values of each key gave way to a newer one before they were read."""
        found: dict[Key, int] = {}
        for key, box in list(self._boxes.items()):
            at = box.row * _ROW // 8
            read = self._words[at + _READ] + self._unread(box)
            if read < box.published:
                found[key] = box.published - read
        return found

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()


class MailboxReader:
    """Which box is looked into next."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._next, self._doubted = memory, 0, (-1, -1)
        rows = _rows(memory)
        self._words: NDArray[np.uint64] = np.frombuffer(memory.data, "<u8", rows * _ROW // 8).reshape(rows, _ROW // 8)
        self._seen, self._read_counts = self._words[:, _SEEN].copy(), self._words[:, _READ].tolist()
        self.damaged = memory.left(DAMAGED)
        self._table = memory.data[: rows * _ROW].cast("Q")

    def take(self) -> tuple[bytes, bytearray] | None:
        """Text and bytes of the next value, key after key."""
        fresh = self._fresh()
        turn = int(np.searchsorted(fresh, self._next))
        for row in map(int, (*fresh[turn:], *fresh[:turn])):
            found = self._read(row)
            if found is not None:
                self._next = row + 1
                return found
        return None

    def waits(self) -> bool:
        """Whether there is something to take."""
        return len(self._fresh()) > 0

    def _fresh(self) -> NDArray[np.intp]:
        numbers = self._words[:, _NUMBER].copy()
        whole = numbers ^ self._words[:, _AGAIN] == self._memory.token
        return np.flatnonzero((numbers != 0) & (numbers != self._seen) & whole)

    def _read(self, row: int) -> tuple[bytes, bytearray] | None:
        at, table = row * _ROW // 8, self._table
        fields = tuple(table[at : at + _CHECKSUM + 1])
        number, begin, size, text_size, checksum = fields
        good = table[at + _CHECK] == _check(self._memory, fields)
        good = good and begin + size + text_size <= self._memory.size
        payload, text = bytearray(), b""
        if good:
            payload = bytearray(self._memory.data[begin : begin + size])
            text = bytes(self._memory.data[begin + size : begin + size + text_size])
            good = self._memory.checksum(text, payload) == checksum
        if not number or table[at + _NUMBER] != number:
            return None  # it was overwritten meanwhile: the next look finds the newer one
        if not good and self._doubted != (row, number):  # a processor may show us the number first
            self._doubted = (row, number)
            time.sleep(_DOUBT_SECS)
            return self._read(row)
        self._seen[row] = table[at + _SEEN] = number
        self._read_counts[row] += 1
        table[at + _READ] = self._read_counts[row]
        if not good:
            self.spoil()
        return (text, payload) if good else None

    def spoil(self) -> None:
        """The value taken last was no good after all."""
        self.damaged += 1
        self._memory.put(DAMAGED, self.damaged)

    def finish(self) -> None:
        """Nothing can be hidden here."""

    def close(self) -> None:
        """Let go of the memory."""
        self._table.release()
        del self._words
