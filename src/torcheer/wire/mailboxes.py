"""One mailbox per key in shared memory, holding the newest value; used by the policy "latest".

The memory begins with a table of boxes. A box's number is 0 while its value is being copied; a reader that finds the
number changed after its own copy discards that copy.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import crc32
from torcheer.samples import Key
from torcheer.wire.shared_memory import DAMAGED, LINE, PUBLISHED, Memory

_ROW: Final = 2 * LINE  # bytes of a box's row: the writer's line, then the reader's
# The writer's line; the number is stored twice.
_NUMBER, _OFFSET, _SIZE, _TEXT, _CHECKSUM, _CHECK, _NUMBER_COPY = range(7)
_LAST_READ, _READ_COUNT = range(8, 10)  # the reader's line: the number it read last, how many it read
_MOST_BOXES: Final = 4096
_RETRY_SECS: Final = 0.001  # before a value with a wrong checksum is given up
_FIELDS: Final = struct.Struct("<5Q")


def _count_rows(memory: Memory) -> int:
    return min(_MOST_BOXES, memory.size // (8 * _ROW))


def _check(memory: Memory, fields: tuple[int, ...]) -> int:
    return crc32(_FIELDS.pack(*fields), memory.token & 0xFFFF_FFFF)


class _Mailbox:
    """The writer's state of one box."""

    __slots__ = ("capacity", "number", "offset", "published", "row")

    def __init__(self, row: int) -> None:
        self.row, self.offset, self.capacity, self.number, self.published = row, 0, 0, 0, 0


class MailboxWriter:
    """The writing end of the mailboxes."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._rows = memory, _count_rows(memory)
        self._words = memory.data[: self._rows * _ROW].cast("Q")
        self._boxes: dict[Key, _Mailbox] = {}
        self._end = self._rows * _ROW  # the memory behind it is unused
        self._free_blocks: list[tuple[int, int]] = []  # offset and bytes of the blocks that boxes have outgrown
        self.published = 0

    def write(self, key: Key, text: bytes, size_bytes: int, fill: Callable[[memoryview], None]) -> bool:
        """Write a value into its key's box; False where there is no room for a box."""
        box = self._box(key, size_bytes + len(text))
        if box is None:
            return False
        memory, begin, at = self._memory, box.offset, box.row * _ROW // 8
        self._words[at + _NUMBER] = box.number = 0
        payload = memory.data[begin : begin + size_bytes]
        fill(payload)
        memory.data[begin + size_bytes : begin + size_bytes + len(text)] = text
        fields = (self.published + 1, begin, size_bytes, len(text), memory.checksum(text, payload))
        for column, value in enumerate(fields[1:], _OFFSET):
            self._words[at + column] = value
        self._words[at + _CHECK] = _check(memory, fields)
        self._words[at + _NUMBER_COPY] = fields[0] ^ memory.token
        self.published, box.published, box.number = self.published + 1, box.published + 1, fields[0]
        memory.put(PUBLISHED, self.published)
        self._words[at + _NUMBER] = fields[0]
        return True

    def _box(self, key: Key, needed_bytes: int) -> _Mailbox | None:
        """The key's box, with enough room."""
        box = self._boxes.get(key)
        if box is None:
            if len(self._boxes) == self._rows:
                return None
            box = _Mailbox(len(self._boxes))
        if box.capacity < needed_bytes:
            block = self._allocate(-(-needed_bytes * 5 // 4 // LINE) * LINE)  # headers grow with the digits of numbers
            if block is None:
                return None
            if box.capacity:
                self._words[box.row * _ROW // 8 + _NUMBER] = box.number = 0  # before another box may reuse the block
                self._free_blocks.append((box.offset, box.capacity))
            box.offset, box.capacity = block
        self._boxes[key] = box
        return box

    def _allocate(self, size_bytes: int) -> tuple[int, int] | None:
        fits = [block for block in self._free_blocks if block[1] >= size_bytes]
        if fits:
            best = min(fits, key=lambda block: block[1])
            self._free_blocks.remove(best)
            return best
        if self._end + size_bytes > self._memory.size:
            return None
        self._end += size_bytes
        return self._end - size_bytes, size_bytes

    def waiting(self, key: Key) -> int:
        """Number of unread boxes of other keys."""
        return sum(self._unread(box) for box_key, box in self._boxes.items() if box_key != key)

    def _unread(self, box: _Mailbox) -> bool:
        return box.number > 0 and box.number != self._words[box.row * _ROW // 8 + _LAST_READ]

    def overwritten(self) -> dict[Key, int]:
        """Values of each key that a newer one replaced before they were read."""
        counts: dict[Key, int] = {}
        for key, box in list(self._boxes.items()):
            at = box.row * _ROW // 8
            read = self._words[at + _READ_COUNT] + self._unread(box)
            if read < box.published:
                counts[key] = box.published - read
        return counts

    def close(self) -> None:
        """Release the view of the memory."""
        self._words.release()


class MailboxReader:
    """The reading end of the mailboxes."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._next_row = memory, 0
        self._retried = (-1, -1)  # row and number that were read again after a wrong checksum
        rows = _count_rows(memory)
        self._words: NDArray[np.uint64] = np.frombuffer(memory.data, "<u8", rows * _ROW // 8).reshape(rows, _ROW // 8)
        self._last_numbers, self._read_counts = self._words[:, _LAST_READ].copy(), self._words[:, _READ_COUNT].tolist()
        self.damaged = memory.recover_count(DAMAGED)
        self._table = memory.data[: rows * _ROW].cast("Q")

    def take(self) -> tuple[bytes, bytearray, int] | None:
        """Take the next unread value, round-robin over the keys: its JSON, its payload, and 1, as a box holds one."""
        unread = self._unread_rows()
        first = int(np.searchsorted(unread, self._next_row))
        for row in map(int, (*unread[first:], *unread[:first])):
            value = self._read(row)
            if value is not None:
                self._next_row = row + 1
                return *value, 1
        return None

    def has_next(self) -> bool:
        """Whether there is a value to take."""
        return len(self._unread_rows()) > 0

    def _unread_rows(self) -> NDArray[np.intp]:
        numbers = self._words[:, _NUMBER].copy()
        is_valid = numbers ^ self._words[:, _NUMBER_COPY] == self._memory.token
        return np.flatnonzero((numbers != 0) & (numbers != self._last_numbers) & is_valid)

    def _read(self, row: int) -> tuple[bytes, bytearray] | None:
        at, table = row * _ROW // 8, self._table
        fields = tuple(table[at : at + _CHECKSUM + 1])
        number, begin, size, text_size, checksum = fields
        is_valid = table[at + _CHECK] == _check(self._memory, fields)
        is_valid = is_valid and begin + size + text_size <= self._memory.size
        payload, text = bytearray(), b""
        if is_valid:
            payload = bytearray(self._memory.data[begin : begin + size])
            text = bytes(self._memory.data[begin + size : begin + size + text_size])
            is_valid = self._memory.checksum(text, payload) == checksum
        if not number or table[at + _NUMBER] != number:
            return None  # it was overwritten meanwhile: the next `take` finds the newer one
        if not is_valid and self._retried != (row, number):  # a CPU may make the number visible before the data
            self._retried = (row, number)
            time.sleep(_RETRY_SECS)
            return self._read(row)
        self._last_numbers[row] = table[at + _LAST_READ] = number
        self._read_counts[row] += 1
        table[at + _READ_COUNT] = self._read_counts[row]
        if not is_valid:
            self.count_damaged(1)
        return (text, payload) if is_valid else None

    def count_damaged(self, count: int) -> None:
        """Count values that could not be read."""
        self.damaged += count
        self._memory.put(DAMAGED, self.damaged)

    def finish(self) -> None:
        """Do nothing: every published value is either read or overwritten."""

    def close(self) -> None:
        """Release the view of the memory."""
        self._table.release()
        del self._words
