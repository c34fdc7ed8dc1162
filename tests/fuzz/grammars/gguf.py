"""GGUF: metadata of typed values, a table of tensors, their blocks at aligned places."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from fuzz.dice import EDGES, Dice, product

_BLOCKS: Final = {  # number of a type: numbers in a block, its bytes
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 20: (32, 18), 24: (1, 1), 25: (1, 2), 26: (1, 4),
    27: (1, 8), 28: (1, 8), 30: (1, 2),
}  # fmt: skip
_FORMS: Final = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _LIST = 8, 9


def write_file(dice: Dice, folder: Path) -> Path:
    """Write a file of a few tensors."""
    alignment = dice.one_of(32, 32, 32, 64, 8)
    entries = [_text(dice, "general.architecture") + _value(dice, _TEXT)]
    if alignment != 32:
        stored = dice.field(alignment) % 2**32
        entries.append(_text(dice, "general.alignment") + struct.pack("<II", 4, stored))
    entries += [_text(dice, f"key.{number}") + _value(dice) for number in range(dice.randint(0, 4))]
    table, body = [], b""
    for number in range(dice.randint(0, 4)):
        header, data = _tensor(dice, number, len(body))
        table.append(header)
        body += data + b"\0" * (-len(data) % alignment)
    head = dice.field(b"GGUF") + struct.pack(
        "<IQQ", dice.either(dice.one_of(3, 3, 2), lambda: dice.choice((0, 1, 4, 3 << 24))),
        dice.field(len(table)) % 2**64, dice.field(len(entries)) % 2**64,
    ) + b"".join(entries) + b"".join(table)  # fmt: skip
    path = folder / "model.gguf"
    path.write_bytes(dice.field(head + b"\0" * (-len(head) % alignment) + body))
    return path


def _text(dice: Dice, text: str) -> bytes:
    data = dice.field(text).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", dice.field(len(data)) % 2**64) + data


def _value(dice: Dice, kind: int | None = None, depth: int = 0) -> bytes:
    """A value with its type before it."""
    kind = kind if kind is not None else dice.choice([*_FORMS, _TEXT, _LIST])
    kind = dice.either(kind, lambda: dice.choice((13, 255, 2**32 - 1, _LIST)))
    return struct.pack("<I", kind) + _content(dice, kind, depth)


def _content(dice: Dice, kind: int, depth: int) -> bytes:
    if kind == _TEXT:
        return _text(dice, dice.name())
    if kind == _LIST:
        inner = dice.choice([*_FORMS, _TEXT])
        if dice.hostility and dice.turns():
            inner = _LIST if depth < 6 else 0
        count = dice.randint(0, 12)
        items = b"".join(_content(dice, inner, depth + 1) for _ in range(count))
        return struct.pack("<IQ", inner, dice.field(count) % 2**64) + items
    form = _FORMS.get(kind, "<I")
    if form == "<?":
        return bytes([dice.either(dice.randrange(2), lambda: 7)])
    return dice.randbytes(struct.calcsize(form))


def _tensor(dice: Dice, number: int, offset: int) -> tuple[bytes, bytes]:
    """Its line in the table, and its blocks."""
    type = dice.choice(list(_BLOCKS))
    elements, width = _BLOCKS[type]
    shape = [elements * dice.randint(1, 2), *(dice.randint(1, 3) for _ in range(dice.randint(0, 3)))]  # fastest first
    data = dice.randbytes(product(shape) // elements * width)
    named = dice.either(type, lambda: dice.choice((4, 5, 31, 36, 99, 2**31, 2**32 - 1)))
    sizes = [size % 2**64 for size in dice.field(shape)]
    axes = dice.either(len(sizes), lambda: dice.choice(EDGES) % 2**32)
    line = _text(dice, f"blk.{number}.{dice.name()}"[:60]) + struct.pack("<I", axes)
    line += struct.pack(f"<{len(sizes)}Q", *sizes) + struct.pack("<IQ", named, dice.field(offset) % 2**64)
    return line, data
