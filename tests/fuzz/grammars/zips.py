"""Zip archives by hand: local headers, the central directory and its end, each of which may lie about the others."""

from __future__ import annotations

import struct
import zlib
from typing import Final

from fuzz.dice import EDGES, Dice

_ALIGN: Final = 64  # of torch's files
_WIDE: Final = 0xFFFFFFFF


def zipped(dice: Dice, files: list[tuple[str, bytes]]) -> bytes:
    """A zip of these files, stored as torch stores them: not compressed, each at a place that 64 divides."""
    if dice.turns():
        files = files + [dice.choice(files)] if dice.random() < 0.5 else files[:-1]
    data, directory, is_wide = b"", b"", dice.random() < 0.2
    for name, content in files:
        offset = len(data)
        local, entry = _headers(dice, name, content, offset, is_wide)
        data += local + content
        directory += entry
    return dice.field(data + directory + _end(dice, len(files), len(directory), len(data), is_wide))


def _headers(dice: Dice, name: str, content: bytes, offset: int, is_wide: bool) -> tuple[bytes, bytes]:
    """What stands before a file, and its line in the directory."""
    encoded = dice.field(name).encode("utf-8", "surrogatepass")[:60_000]
    method = dice.either(0, lambda: dice.choice((8, 12, 14, 99)))
    size, stored = (dice.field(len(content)) % 2**32 for _ in range(2))
    crc = dice.field(zlib.crc32(content)) % 2**32
    flags = dice.either(0x800, lambda: dice.choice((0, 1, 8, 0xFFFF)))
    padding = -(offset + 30 + len(encoded) + 4) % _ALIGN
    extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
    common = struct.pack("<HHHHHIII", 20, flags, method, 0, 0x21, crc, stored, size)
    local = b"PK\3\4" + common + struct.pack(
        "<HH", dice.field(len(encoded)) % 2**16, dice.field(len(extra)) % 2**16
    ) + encoded + extra  # fmt: skip
    more = b""
    if is_wide:
        common = struct.pack("<HHHHHIII", 45, flags, method, 0, 0x21, crc, _WIDE, _WIDE)
        places = [dice.field(number) % 2**64 for number in (size, stored, offset)]
        more = struct.pack("<HHQQQ", 1, dice.field(24) % 2**16, *places)
    else:
        offset = dice.field(offset) % 2**32
    name_bytes = dice.field(len(encoded)) % 2**16
    entry = b"PK\1\2" + struct.pack("<H", 45) + common + struct.pack(
        "<HHHHHII", name_bytes, len(more), dice.either(0, lambda: 5), 0, 0, 0, _WIDE if is_wide else offset
    ) + encoded + more  # fmt: skip
    return local, entry


def _end(dice: Dice, count: int, size: int, offset: int, is_wide: bool) -> bytes:
    """The end of the directory, with the wide one before it where there is one."""
    count, size, place = (dice.field(number) for number in (count, size, offset))
    wide = b""
    if is_wide:
        wide = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, *(
            number % 2**64 for number in (count, count, size, place)
        )) + b"PK\6\7" + struct.pack("<IQI", 0, dice.field(offset + size) % 2**64, 1)  # fmt: skip
    comment = dice.either(b"", lambda: b"x" * 100, lambda: b"PK\5\6" + bytes(18))
    numbers = (0xFFFF, 0xFFFF, _WIDE, _WIDE) if is_wide else (count % 2**16, count % 2**16, size % 2**32, place % 2**32)
    disk = dice.either(0, lambda: dice.choice(EDGES) % 2**16)
    return wide + b"PK\5\6" + struct.pack("<HHHHIIH", disk, 0, *numbers, len(comment)) + comment
