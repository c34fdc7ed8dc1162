"""Reads protobuf messages field by field from memory, without a schema compiler and without copies of large fields."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import ArchiveDamaged
from torcheer.foreign.readers.budget import Budget

_NUMBER, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_SIZES: Final = {_EIGHT: 8, _FOUR: 4}


class Field(NamedTuple):
    """A field of a message: its number, and its value in the form that the message has it.

    A whole number, `bytes` of a fixed size (a float, a double), or a view of any length (text, a message, a list). Who
    wants another form takes a field for one that is not there, as every reader of protobuf does.
    """

    number: int
    value: int | bytes | memoryview


class Messages:
    """Takes messages of one file apart; every field counts against its budget."""

    def __init__(self, budget: Budget, where: str) -> None:
        self._budget, self._where = budget, where

    def fields(self, message: Any) -> Iterator[Field]:
        """Yield the fields of a message; raises `ArchiveDamaged` where it is cut or no protobuf."""
        if not isinstance(message, memoryview):
            raise ArchiveDamaged("a number where protobuf has a message")
        place, end, count = 0, len(message), 0
        while place < end:
            key = message[place]
            place += 1
            if key >= 128:
                key, place = _varint(message, place - 1)
            kind, number, count = key & 7, key >> 3, count + 1
            if count == 1000:
                self._budget.spend("steps", count, self._where)
                count = 0
            if kind == _NUMBER:
                value = message[place] if place < end else 128
                if value < 128:
                    place += 1
                else:
                    value, place = _varint(message, place)
                yield Field(number, value)
                continue
            if kind == _BYTES:
                length, place = _varint(message, place)
            elif (length := _SIZES.get(kind, -1)) < 0:
                raise ArchiveDamaged(f"a field of kind {kind}, which protobuf does not have any more")
            if length > end - place or not number:
                raise ArchiveDamaged("a field that ends outside of its message")
            view = message[place : place + length]
            yield Field(number, view if kind == _BYTES else bytes(view))
            place += length
        self._budget.spend("steps", count + 1, self._where)

    def last(self, message: Any) -> dict[int, Any]:
        """The fields of a message by their number; of one that comes more than once, the last."""
        return dict(self.fields(message))

    def numbers(self, value: Any) -> list[int]:
        """The whole numbers of a field, packed or alone; none in a field of fixed size."""
        if not isinstance(value, memoryview):
            return [value] if isinstance(value, int) else []
        self._budget.spend("steps", len(value) // 10 + 1, self._where)
        self._budget.spend("bytes", 50 * len(value), self._where)
        return _packed(np.frombuffer(value, np.uint8))


def _packed(data: NDArray[np.uint8]) -> list[int]:
    """Whole numbers one after the other, each of up to ten bytes of seven bits; the last byte of each is below 128."""
    ends = np.flatnonzero(data < 128)
    if len(data) != (ends[-1] + 1 if len(ends) else 0):
        raise ArchiveDamaged("a message that ends inside a number")
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    lengths = ends + 1 - starts
    if len(lengths) and lengths.max() > 10:
        raise ArchiveDamaged("a number of more than ten bytes")
    numbers = np.zeros(len(ends), np.uint64)
    for place in range(int(lengths.max()) if len(lengths) else 0):
        has = lengths > place
        numbers[has] |= (data[starts[has] + place] & np.uint8(127)).astype(np.uint64) << np.uint64(7 * place)
    whole: list[int] = numbers.tolist()
    return whole


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if place >= len(message):
            raise ArchiveDamaged("a message that ends inside a number")
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value & (2**64 - 1), place
    raise ArchiveDamaged("a number of more than ten bytes")


def text(value: Any, most: int = 1 << 16) -> str:
    """The text of a field; "" for what is none."""
    return bytes(value[:most]).decode("utf-8", "replace") if isinstance(value, memoryview) else ""


def signed(number: int) -> int:
    """A number as int64."""
    return number - 2**64 if number >= 2**63 else number


def is_list_of(value: Any, size: int) -> bool:
    """Whether a field has numbers of `size` bytes, many of them or a single one."""
    return isinstance(value, memoryview) or (isinstance(value, bytes) and len(value) == size)


def real(value: Any, form: Literal["<f", "<d"]) -> float | None:
    """The float or double of a field; None for a field of another form."""
    if not isinstance(value, bytes) or len(value) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, value)[0])
