"""Reads protobuf messages field by field from memory, without a schema compiler and without copies of large fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from torcheer.errors import ArchiveDamaged

_NUMBER, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_MOST_FIELDS: Final = 10_000_000


class Field(NamedTuple):
    """A field of a message: its number, and a whole number or bytes."""

    number: int
    value: int | memoryview


def fields(message: memoryview) -> Iterator[Field]:
    """Yield the fields of a message; raises `ArchiveDamaged` where it is cut or no protobuf."""
    place, count = 0, 0
    while place < len(message):
        key, place = _varint(message, place)
        kind, number, count = key & 7, key >> 3, count + 1
        if kind == _NUMBER:
            value, place = _varint(message, place)
            yield Field(number, value)
            continue
        if kind == _BYTES:
            length, place = _varint(message, place)
        elif kind in (_EIGHT, _FOUR):
            length = 8 if kind == _EIGHT else 4
        else:
            raise ArchiveDamaged(f"a field of kind {kind}, which protobuf does not have any more")
        if length > len(message) - place or count > _MOST_FIELDS or not number:
            raise ArchiveDamaged("a field that ends outside of its message")
        yield Field(number, message[place : place + length])
        place += length


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


def numbers(value: Any) -> Iterator[int]:
    """Yield the whole numbers of a field, packed or alone."""
    if isinstance(value, int):
        yield value
        return
    place = 0
    while place < len(value):
        number, place = _varint(value, place)
        yield number


def text(value: Any, most: int = 1 << 16) -> str:
    """The text of a field."""
    return "" if isinstance(value, int) else bytes(value[:most]).decode("utf-8", "replace")


def signed(number: int) -> int:
    """A number as int64."""
    return number - 2**64 if number >= 2**63 else number
