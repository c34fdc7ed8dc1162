"""Records of TensorBoard's event files (TFRecord): a length, its checksum, bytes, theirs.

The checksums are CRC-32C, masked. They are computed for many records at a time: byte by byte, Python would take a
second for 5 MB.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torcheer.foreign.readers.budget import Budget

_HEAD: Final = struct.Struct("<QI")  # length, its masked checksum
_TAIL_BYTES: Final = 4
_MASK: Final = 0xA282EAD8
_AT_ONCE_BYTES: Final = 16 << 20  # of records whose checksums are computed together
_ROW_BYTES: Final = 1024  # of a long record: its rows are summed at the same time

Sums = NDArray[np.uint32]


class EventRecords(NamedTuple):
    """Where the intact records of a file lie, and what follows them."""

    places: list[tuple[int, int]]  # where the bytes of each begin, and their number
    end: int  # where the last of them ends
    problem: str  # "" if nothing follows, or a record that is still being written


def find_records(data: memoryview, name: str, budget: Budget) -> EventRecords:
    """Find the records of a file; the first that is damaged, and all after it, are left out."""
    places, end = list[tuple[int, int]](), 0
    while True:
        found = _places(data, end)
        budget.spend("steps", len(found), name)
        intact = _count_intact(data, found)
        places += found[:intact]
        if intact:
            end = sum(found[intact - 1]) + _TAIL_BYTES
        if intact < len(found) or not found:
            break
    is_damaged = intact < len(found) or _is_garbled(data, end)
    problem = f"{name} is damaged from byte {end:,} on; what is before it is shown" if is_damaged else ""
    return EventRecords(places, end, problem)


def _places(data: memoryview, offset: int) -> list[tuple[int, int]]:
    """Where the bytes of the next records begin, and their number: of those that lie whole in the file."""
    places, last = list[tuple[int, int]](), offset + _AT_ONCE_BYTES
    while offset + _HEAD.size + _TAIL_BYTES <= len(data) and offset < last:
        length = _HEAD.unpack_from(data, offset)[0]
        if length > len(data) - offset - _HEAD.size - _TAIL_BYTES:
            break
        places.append((offset + _HEAD.size, length))
        offset += _HEAD.size + length + _TAIL_BYTES
    return places


def _count_intact(data: memoryview, places: list[tuple[int, int]]) -> int:
    """How many of these records, from the first on, have the checksums that they say."""
    heads = masked_sums([data[begin - _HEAD.size : begin - 4] for begin, _ in places])
    bodies = masked_sums([data[begin : begin + length] for begin, length in places])
    for count, ((begin, length), head, body) in enumerate(zip(places, heads, bodies, strict=True)):
        said = struct.unpack_from("<I", data, begin - 4)[0], struct.unpack_from("<I", data, begin + length)[0]
        if (head, body) != said:
            return count
    return len(places)


def _is_garbled(data: memoryview, end: int) -> bool:
    """True if what follows the last record is no beginning of another: its length has another checksum."""
    head = data[end : end + _HEAD.size]
    return len(head) == _HEAD.size and masked_sums([head[:8]])[0] != _HEAD.unpack(head)[1]


# -- checksums ---------------------------------------------------------------------------------------------------------


def masked_sums(parts: list[memoryview]) -> list[int]:
    """The masked CRC-32C of each part; those of the same length are computed together."""
    sums = [0] * len(parts)
    by_length: dict[int, list[int]] = {}
    for number, part in enumerate(parts):
        by_length.setdefault(len(part), []).append(number)
    for length, numbers in by_length.items():
        crcs = _long_sums if length > 2 * _ROW_BYTES else _sums
        for number, crc in zip(numbers, crcs([parts[number] for number in numbers]).tolist(), strict=True):
            sums[number] = ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF
    return sums


def _sums(parts: list[memoryview]) -> Sums:
    """CRC-32C of parts of one length."""
    states = np.full(len(parts), 0xFFFFFFFF, np.uint32)
    return _advance(states, np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), -1)) ^ np.uint32(0xFFFFFFFF)


def _long_sums(parts: list[memoryview]) -> Sums:
    """CRC-32C of long parts: of their rows at the same time, then joined."""
    return np.array([_long_sum(part) for part in parts], np.uint32)


def _long_sum(part: memoryview) -> int:
    whole = len(part) // _ROW_BYTES * _ROW_BYTES
    rows = np.frombuffer(part[:whole], np.uint8).reshape(-1, _ROW_BYTES)
    sums = _advance(np.zeros(len(rows), np.uint32), rows).tolist()
    shift, state = _shift_table(), 0xFFFFFFFF
    for crc in sums:  # a state moves over a row as over zeros, and the row's own sum is added
        moved = shift[0][state & 255] ^ shift[1][state >> 8 & 255] ^ shift[2][state >> 16 & 255] ^ shift[3][state >> 24]
        state = moved ^ crc
    last = np.frombuffer(part[whole:], np.uint8).reshape(1, -1)
    return int(_advance(np.array([state], np.uint32), last)[0]) ^ 0xFFFFFFFF


def _advance(states: Sums, rows: NDArray[np.uint8]) -> Sums:
    """The states after the bytes of a row each."""
    table = _table()
    for column in range(rows.shape[1]):
        states = table[(states ^ rows[:, column]) & np.uint32(255)] ^ (states >> np.uint32(8))
    return states


@cache
def _table() -> Sums:
    states = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        states = np.where(states & 1, states >> np.uint32(1) ^ np.uint32(0x82F63B78), states >> np.uint32(1))
    return states.astype(np.uint32)


@cache
def _shift_table() -> list[list[Any]]:
    """What a row of zeros makes of each byte of a state."""
    states = np.array([byte << 8 * place for place in range(4) for byte in range(256)], np.uint32)
    zeros = np.zeros((len(states), _ROW_BYTES), np.uint8)
    moved = _advance(states, zeros).reshape(4, 256)
    table: list[list[Any]] = moved.tolist()
    return table
