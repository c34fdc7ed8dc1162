"""Records of TensorBoard's event files (TFRecord): a length, its checksum, bytes, theirs.

The checksums are CRC-32C, masked. They are computed for many records at a time: byte by byte, Python would take a
second for 5 MB.
"""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_HEAD: Final = struct.Struct("<QI")  # length, its masked checksum
_TAIL_BYTES: Final = 4
_MASK: Final = 0xA282EAD8
_ROW_BYTES: Final = 1024  # of a long record: its rows are summed at the same time

Sums = NDArray[np.uint32]


class EventRecords(NamedTuple):
    """The intact records of a file, and what follows them."""

    records: list[bytes]
    end: int  # where the last of them ends
    problem: str  # "" if nothing follows, or a record that is still being written


def read_records(path: Path, start: int = 0) -> EventRecords:
    """Read the records of a file from a byte on; the first that is damaged, and all after it, are left out."""
    with open(path, "rb") as file:
        file.seek(start)
        data = file.read()
    places = _places(data)
    heads = [data[offset : offset + 8] for offset, _ in places]
    bodies = [data[offset + _HEAD.size : offset + _HEAD.size + length] for offset, length in places]
    said = [
        (_HEAD.unpack_from(data, offset)[1], struct.unpack_from("<I", data, offset + _HEAD.size + length)[0])
        for offset, length in places
    ]
    intact = 0
    for found in zip(masked_sums(heads), masked_sums(bodies), said, strict=True):
        if found[:2] != found[2]:
            break
        intact += 1
    end = places[intact - 1][0] + _HEAD.size + places[intact - 1][1] + _TAIL_BYTES if intact else 0
    is_damaged = intact < len(places) or _is_garbled(data, end)
    problem = f"{path.name} is damaged from byte {start + end:,} on; what is before it is shown" if is_damaged else ""
    return EventRecords(bodies[:intact], start + end, problem)


def _places(data: bytes) -> list[tuple[int, int]]:
    """Offset and length of the records that lie whole in these bytes."""
    places, offset = list[tuple[int, int]](), 0
    while offset + _HEAD.size + _TAIL_BYTES <= len(data):
        length = _HEAD.unpack_from(data, offset)[0]
        if length > len(data) - offset - _HEAD.size - _TAIL_BYTES:
            break
        places.append((offset, length))
        offset += _HEAD.size + length + _TAIL_BYTES
    return places


def _is_garbled(data: bytes, end: int) -> bool:
    """True if what follows the last record is no beginning of another: its length has another checksum."""
    head = data[end : end + _HEAD.size]
    return len(head) == _HEAD.size and masked_sums([head[:8]])[0] != _HEAD.unpack(head)[1]


# -- checksums ---------------------------------------------------------------------------------------------------------


def masked_sums(parts: list[bytes]) -> list[int]:
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


def _sums(parts: list[bytes]) -> Sums:
    """CRC-32C of parts of one length."""
    states = np.full(len(parts), 0xFFFFFFFF, np.uint32)
    return _advance(states, np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), -1)) ^ np.uint32(0xFFFFFFFF)


def _long_sums(parts: list[bytes]) -> Sums:
    """CRC-32C of long parts: of their rows at the same time, then joined."""
    return np.array([_long_sum(part) for part in parts], np.uint32)


def _long_sum(part: bytes) -> int:
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
