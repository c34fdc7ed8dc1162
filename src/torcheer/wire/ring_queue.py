"""A queue of records in shared memory, oldest first; used by the policies "drop" and "block"."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from torcheer.encoding import crc32
from torcheer.wire.shared_memory import DAMAGED, HEAD, LINE, PASSED, PUBLISHED, TAIL, Memory

_FIELDS: Final = struct.Struct("<QQQQQQII")  # in the order of `_RecordHead`
_CHECK: Final = struct.Struct("<I")
_HEAD_BYTES: Final = _FIELDS.size + _CHECK.size
_RETRY_SECS: Final = 0.001  # before a record with a wrong checksum is given up
_FORGET_BYTES: Final = 1 << 20  # read, until they are unmapped
_GAP: Final = 2**32 - 1  # value of `text` in the padding at the end of the memory


class _RecordHead(NamedTuple):
    """The fixed-size head before a record."""

    token: int  # of this ring
    position: int  # bytes written before it, over all laps: tells it from records of older laps
    length: int  # bytes with this head, a multiple of LINE
    number: int  # number of values before it
    size: int  # bytes of the arrays, right after this head
    checksum: int
    text: int  # bytes of the JSON, after the arrays
    values: int  # that it holds


class QueueWriter:
    """The writing end of the queue."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._head, self._tail, self._passed = memory, 0, 0, 0
        self.published = 0

    def write(
        self, key: object, text: bytes, size_bytes: int, fill: Callable[[memoryview], None], values: int = 1
    ) -> bool:
        """Write a record of so many values if there is room for it."""
        memory, offset = self._memory, self._head % self._memory.size
        length = LINE + -(-(size_bytes + len(text)) // LINE) * LINE
        gap = memory.size - offset if offset + length > memory.size else 0  # a record is contiguous
        if self._head + gap + length - self._reader_tail() > memory.size:
            return False
        if gap:
            self._store_head(offset, self._head, gap, 0, 0, _GAP, 0)
            offset = 0
        begin, end, position = offset + LINE, offset + LINE + size_bytes, self._head + gap
        payload = memory.data[begin:end]
        fill(payload)
        memory.data[end : end + len(text)] = text
        self._store_head(offset, position, length, size_bytes, memory.checksum(text, payload), len(text), values)
        self._head, self.published = position + length, self.published + values
        memory.put(PUBLISHED, self.published)
        memory.put(HEAD, self._head)
        return True

    def _store_head(
        self, offset: int, position: int, length: int, size: int, checksum: int, text: int, values: int
    ) -> None:
        packed = _FIELDS.pack(self._memory.token, position, length, self.published, size, checksum, text, values)
        self._memory.data[offset : offset + _HEAD_BYTES] = packed + _CHECK.pack(crc32(packed))

    def _reader_tail(self) -> int:
        """The reader's position; the last known one if it cannot be read, which only costs room."""
        tail = self._memory.get(TAIL)
        self._tail = self._tail if tail is None else tail
        return self._tail

    def waiting(self, key: object) -> int:
        """Number of unread values."""
        passed = self._memory.get(PASSED)
        self._passed = self._passed if passed is None else passed
        return self.published - self._passed

    def overwritten(self) -> dict[tuple[str, str], int]:
        """A queue overwrites nothing: always empty."""
        return {}

    def close(self) -> None:
        """Do nothing: the writer holds no view of the memory."""


class QueueReader:
    """The reading end of the queue."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._retried = memory, -1  # position that was read again after a wrong checksum
        self._rows = np.frombuffer(memory.data, "<u8").reshape(-1, LINE // 8)
        self._tail, self._passed, self.damaged = (
            self._recover_tail(),
            memory.recover_count(PASSED),
            memory.recover_count(DAMAGED),
        )
        self._forgotten = self._tail  # up to which what was read is unmapped
        self._resumed = self._tail > 0  # a previous reader may have died between storing two counts

    def _recover_tail(self) -> int:
        """The previous reader's position, even if it was killed between the two stores of that number."""
        memory, head = self._memory, self._memory.get(HEAD) or 0
        for tail in (memory.words[TAIL], memory.words[TAIL + 1] ^ memory.token):
            if tail == head or (0 < head - tail <= memory.size and self._head_at(tail, head) is not None):
                return int(tail)
        stored = memory.get(TAIL)
        return head if stored is None else stored  # the record there is damaged; without a number skip to the head

    def take(self) -> tuple[bytes, bytearray, int] | None:
        """Take the next undamaged record: its JSON, its payload, how many values it holds."""
        while (head := self._new_head()) is not None:
            entry = self._head_at(self._tail, head)
            if entry is not None and entry.text == _GAP:
                self._set_tail(self._tail + entry.length)
            elif entry is not None and (record := self._read_record(entry)) is not None:
                return record
            elif self._retried != self._tail:  # a CPU may make the position visible before the data written earlier
                self._retried = self._tail
                time.sleep(_RETRY_SECS)
            elif entry is not None:
                self._pass(entry)
                self.count_damaged(entry.values)
            else:
                self._set_tail(self._next_head(head))
        return None

    def has_next(self) -> bool:
        """Whether there is a record to take."""
        return self._new_head() is not None

    def _new_head(self) -> int | None:
        """The writer's position, where it is ahead of this reader; else None."""
        head = self._memory.get(HEAD)
        return head if head is not None and 0 < head - self._tail <= self._memory.size else None

    def _head_at(self, position: int, end: int) -> _RecordHead | None:
        """The record head at a position, if it is valid."""
        offset = position % self._memory.size
        line = bytes(self._memory.data[offset : offset + LINE])
        entry = _RecordHead._make(_FIELDS.unpack_from(line))
        is_valid = (
            _CHECK.unpack_from(line, _FIELDS.size)[0] == crc32(line[: _FIELDS.size])
            and entry.token == self._memory.token
            and entry.position == position
            and LINE <= entry.length <= min(end - position, self._memory.size - offset)
        )
        return entry if is_valid else None

    def _read_record(self, entry: _RecordHead) -> tuple[bytes, bytearray, int] | None:
        """Copy a record out and move behind it; None where it is damaged."""
        begin = self._tail % self._memory.size + LINE
        end = begin + entry.size
        payload, text = bytearray(self._memory.data[begin:end]), bytes(self._memory.data[end : end + entry.text])
        if self._memory.checksum(text, payload) != entry.checksum:  # of the copy, as that is what is returned
            return None
        self._pass(entry)
        return text, payload, entry.values

    def _pass(self, entry: _RecordHead) -> None:
        if entry.number > self._passed and not self._resumed:
            self.count_damaged(entry.number - self._passed)
        self._resumed = False
        self._passed = entry.number + entry.values
        self._memory.put(PASSED, self._passed)
        self._set_tail(self._tail + entry.length)

    def _next_head(self, head: int) -> int:
        """The first position behind a damaged record where a valid one begins."""
        position, size = self._tail + LINE, self._memory.size
        while position < head:
            row, rows = position % size // LINE, min((head - position) // LINE, (size - position % size) // LINE)
            columns = self._rows[row : row + rows, :2]
            positions = np.arange(position, position + rows * LINE, LINE, dtype=np.uint64)
            for candidate in positions[(columns[:, 0] == self._memory.token) & (columns[:, 1] == positions)]:
                if self._head_at(int(candidate), head) is not None:
                    return int(candidate)
            position += rows * LINE
        return head

    def _set_tail(self, tail: int) -> None:
        if tail // _FORGET_BYTES != self._tail // _FORGET_BYTES:
            self._forget(tail)
        self._tail = tail
        self._memory.put(TAIL, tail)

    def _forget(self, tail: int) -> None:
        """Unmap what was read since the last time; in two parts, where the memory's end lies between them."""
        size = self._memory.size
        begin, end = max(self._forgotten, tail - size) % size, tail % size
        self._forgotten = tail
        for first, last in ((begin, end),) if begin < end else ((begin, size), (0, end)):
            self._memory.forget(first, last)

    def count_damaged(self, count: int) -> None:
        """Count values that could not be read."""
        self.damaged += count
        self._memory.put(DAMAGED, self.damaged)

    def finish(self) -> None:
        """End reading: count as damaged what was published but never found."""
        published = self._memory.get(PUBLISHED)
        if self._new_head() is None and published is not None and published > self._passed and not self._resumed:
            self.count_damaged(published - self._passed)
            self._passed = published
            self._memory.put(PASSED, published)

    def close(self) -> None:
        """Release the view of the memory."""
        del self._rows
