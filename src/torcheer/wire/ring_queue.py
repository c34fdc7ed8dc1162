"""Records one after another in shared memory, the oldest first: what "drop" and "block" use."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from torcheer.encoding import crc32
from torcheer.wire.shared_memory import DAMAGED, HEAD, LINE, PASSED, PUBLISHED, TAIL, Memory

_FIELDS: Final = struct.Struct("<QQQQQQI")  # as `_Head` has them
_CHECK: Final = struct.Struct("<I")
_HEAD_BYTES: Final = _FIELDS.size + _CHECK.size
_DOUBT_SECS: Final = 0.001  # before a record that is not whole is given up
_GAP: Final = 2**32 - 1  # bytes of text of what only fills the end of the memory


class _Head(NamedTuple):
    """What stands before a record."""

    token: int  # the ring's own
    position: int  # bytes written before it, in all laps: an older lap's is no longer a record
    length: int  # with this head, in whole lines
    number: int  # how many were before it
    size: int  # bytes of the array, right after this head
    checksum: int
    text: int  # bytes of the JSON, after the array


class QueueWriter:
    """Where the next record goes."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._head, self._tail, self._passed = memory, 0, 0, 0
        self.published = 0

    def write(self, key: object, text: bytes, size_bytes: int, fill: Callable[[memoryview], None]) -> bool:
        """Write a record if there is room."""
        memory, offset = self._memory, self._head % self._memory.size
        length = LINE + -(-(size_bytes + len(text)) // LINE) * LINE
        gap = memory.size - offset if offset + length > memory.size else 0  # a record lies in one piece
        if self._head + gap + length - self._seen_tail() > memory.size:
            return False
        if gap:
            self._store_head(offset, self._head, gap, 0, 0, _GAP)
            offset = 0
        begin, end, position = offset + LINE, offset + LINE + size_bytes, self._head + gap
        payload = memory.data[begin:end]
        fill(payload)
        memory.data[end : end + len(text)] = text
        self._store_head(offset, position, length, size_bytes, memory.checksum(text, payload), len(text))
        self._head, self.published = position + length, self.published + 1
        memory.put(PUBLISHED, self.published)
        memory.put(HEAD, self._head)
        return True

    def _store_head(self, offset: int, position: int, length: int, size: int, checksum: int, text: int) -> None:
        packed = _FIELDS.pack(self._memory.token, position, length, self.published, size, checksum, text)
        self._memory.data[offset : offset + _HEAD_BYTES] = packed + _CHECK.pack(crc32(packed))

    def _seen_tail(self) -> int:
        """Where the reader is; where it was, if that cannot be read, which only costs room."""
        tail = self._memory.get(TAIL)
        self._tail = self._tail if tail is None else tail
        return self._tail

    def waiting(self, key: object) -> int:
        """How many records the reader has before it."""
        passed = self._memory.get(PASSED)
        self._passed = self._passed if passed is None else passed
        return self.published - self._passed

    def overwritten(self) -> dict[tuple[str, str], int]:
        """Nothing ever is."""
        return {}

    def close(self) -> None:
        """Nothing is held here."""


class QueueReader:
    """Where the next record is."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._doubted = memory, -1
        self._rows = np.frombuffer(memory.data, "<u8").reshape(-1, LINE // 8)
        self._tail, self._passed, self.damaged = self._begin(), memory.left(PASSED), memory.left(DAMAGED)
        self._fresh = self._tail > 0  # a reader before this one may have died between two numbers

    def _begin(self) -> int:
        """Where the reader before this one was, even if it was killed between the two stores of that."""
        memory, head = self._memory, self._memory.get(HEAD) or 0
        for tail in (memory.words[TAIL], memory.words[TAIL + 1] ^ memory.token):
            if tail == head or (0 < head - tail <= memory.size and self._head_at(tail, head) is not None):
                return int(tail)
        whole = memory.get(TAIL)
        return head if whole is None else whole  # what stands there is damaged; if even that is, what comes next is not

    def take(self) -> tuple[bytes, bytearray] | None:
        """Text and bytes of the next record that is whole."""
        while (head := self._ahead()) is not None:
            found = self._head_at(self._tail, head)
            if found is not None and found.text == _GAP:
                self._move(self._tail + found.length)
            elif found is not None and (record := self._record(found)) is not None:
                return record
            elif self._doubted != self._tail:  # a processor may show us the number before what was written before it
                self._doubted = self._tail
                time.sleep(_DOUBT_SECS)
            elif found is not None:
                self._pass(found)
                self._spoil(1)
            else:
                self._move(self._next_head(head))
        return None

    def waits(self) -> bool:
        """Whether there is something to take."""
        return self._ahead() is not None

    def _ahead(self) -> int | None:
        """How far the writer is, where that is further."""
        head = self._memory.get(HEAD)
        return head if head is not None and 0 < head - self._tail <= self._memory.size else None

    def _head_at(self, position: int, until: int) -> _Head | None:
        """What begins at a position, if that is whole and can be."""
        offset = position % self._memory.size
        line = bytes(self._memory.data[offset : offset + LINE])
        found = _Head._make(_FIELDS.unpack_from(line))
        good = (
            _CHECK.unpack_from(line, _FIELDS.size)[0] == crc32(line[: _FIELDS.size])
            and found.token == self._memory.token
            and found.position == position
            and LINE <= found.length <= min(until - position, self._memory.size - offset)
        )
        return found if good else None

    def _record(self, found: _Head) -> tuple[bytes, bytearray] | None:
        """Copy a record out, and be past it; None where it is damaged."""
        begin = self._tail % self._memory.size + LINE
        end = begin + found.size
        payload, text = bytearray(self._memory.data[begin:end]), bytes(self._memory.data[end : end + found.text])
        if self._memory.checksum(text, payload) != found.checksum:  # of the copy: that is what is handed out
            return None
        self._pass(found)
        return text, payload

    def _pass(self, found: _Head) -> None:
        if found.number > self._passed and not self._fresh:
            self._spoil(found.number - self._passed)
        self._fresh = False
        self._passed = found.number + 1
        self._memory.put(PASSED, self._passed)
        self._move(self._tail + found.length)

    def _next_head(self, head: int) -> int:
        """The first position behind a damaged one where something whole begins."""
        position, size = self._tail + LINE, self._memory.size
        while position < head:
            row, rows = position % size // LINE, min((head - position) // LINE, (size - position % size) // LINE)
            columns = self._rows[row : row + rows, :2]
            places = np.arange(position, position + rows * LINE, LINE, dtype=np.uint64)
            for place in places[(columns[:, 0] == self._memory.token) & (columns[:, 1] == places)]:
                if self._head_at(int(place), head) is not None:
                    return int(place)
            position += rows * LINE
        return head

    def _move(self, tail: int) -> None:
        self._tail = tail
        self._memory.put(TAIL, tail)

    def spoil(self) -> None:
        """The record taken last was no good after all."""
        self._spoil(1)

    def _spoil(self, count: int) -> None:
        self.damaged += count
        self._memory.put(DAMAGED, self.damaged)

    def finish(self) -> None:
        """Nothing more will be written: count what was never found."""
        published = self._memory.get(PUBLISHED)
        if self._ahead() is None and published is not None and published > self._passed and not self._fresh:
            self._spoil(published - self._passed)
            self._passed = published
            self._memory.put(PASSED, published)

    def close(self) -> None:
        """Let go of the memory."""
        del self._rows
