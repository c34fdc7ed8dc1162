"""Protobuf messages: fields by number and kind, in any order, packed or not, with hostile lengths and numbers."""

from __future__ import annotations

import struct
from typing import Any, Final

from fuzz.dice import Dice

Fields = list[tuple[int, Any]]  # number; int (a varint), float (4 bytes), Double, str or bytes
_KINDS: Final = (0, 1, 2, 3, 4, 5, 6, 7)


class Double(float):
    """A number of 8 bytes."""


class Packed(list[int]):
    """Varints one after the other."""


def message(dice: Dice, fields: Fields) -> bytes:
    """A message of these fields; the order of different ones is any."""
    if dice.random() < 0.3:
        groups: dict[int, Fields] = {}
        for number, value in fields:
            groups.setdefault(number, []).append((number, value))
        fields = [field for number in dice.sample(list(groups), len(groups)) for field in groups[number]]
    fields = dice.either(fields, lambda: _changed(dice, fields))
    return b"".join(_field(dice, number, value) for number, value in fields)


def _changed(dice: Dice, fields: Fields) -> Fields:
    fields = list(fields)
    match dice.randrange(5):
        case 0 if fields:
            fields.pop(dice.randrange(len(fields)))
        case 1 if fields:
            fields.append(dice.choice(fields))  # one that stands twice: the last holds, or both are merged
        case 2:
            fields.insert(dice.randint(0, len(fields)), (dice.choice((0, 15, 99, 536870911)), dice.choice((1, b"x"))))
        case 3 if fields:
            place = dice.randrange(len(fields))
            fields[place] = (dice.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13)), fields[place][1])
        case _ if fields:
            place = dice.randrange(len(fields))
            fields[place] = (
                fields[place][0],
                dice.choice((0, 2**64 - 1, b"", b"\xff" * 8, 1.5, Double(1), b"\x80" * 12)),
            )
    return fields


def varint(dice: Dice, number: int) -> bytes:
    """A number of seven bits a byte; now and then longer than it has to be."""
    number %= 2**64
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    if dice.turns():
        extra = dice.choice((1, 3, 9, 20))
        parts[-1] |= 128
        parts += [128] * extra + ([0] if dice.random() < 0.8 else [])
    return bytes(parts)


def _field(dice: Dice, number: int, value: Any) -> bytes:
    if isinstance(value, Packed):
        value = b"".join(varint(dice, dice.field(part)) for part in value)
    if isinstance(value, str):
        value = dice.field(value).encode("utf-8", "surrogatepass")
        value = dice.either(value, lambda: value + b"\xff\xfe")
    if isinstance(value, bytes):
        kind, data = 2, varint(dice, dice.field(len(value))) + value
    elif isinstance(value, Double):
        kind, data = 1, struct.pack("<d", dice.field(float(value)))
    elif isinstance(value, float):
        kind, data = 5, struct.pack("<f", _single(dice.field(value)))
    else:
        kind, data = 0, varint(dice, dice.field(value))
    return varint(dice, number << 3 | dice.either(kind, lambda: dice.choice(_KINDS))) + data


def _single(number: float) -> float:
    return number if abs(number) < 3e38 or number != number else float("inf")
