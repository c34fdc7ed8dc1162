"""Frames of an index: a length, two checksums and a JSON object each, one after the other.

Everything a reader needs to know of the bytes is in docs/archive-format.md.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from torcheer.errors import ArchiveDamaged, NotAnArchive

VERSION = 1
MAGIC = b"torchidx"
_HEAD = struct.Struct("<8sII")  # magic, version, number of the segment
_FRAME = struct.Struct("<4sIII")  # "FRME", length of the body, its CRC-32, CRC-32 of the twelve bytes before
_MARK = b"FRME"
HEAD_BYTES = _HEAD.size


class Scan(NamedTuple):
    """What an index holds."""

    frames: list[dict[str, Any]]
    end: int  # where the last whole frame ends
    torn: int  # bytes behind it: a frame that was being written when its writer died
    last: int  # CRC-32 of the last frame's body; the next one names it


def head(segment: int) -> bytes:
    """How an index begins."""
    return _HEAD.pack(MAGIC, VERSION, segment)


def frame(body: dict[str, Any], after: int) -> tuple[bytes, int]:
    """A frame that follows one whose checksum was `after`, and its own checksum."""
    text = json.dumps({**body, "after": after}, separators=(",", ":"), allow_nan=False).encode()
    check = zlib.crc32(text)
    start = struct.pack("<4sII", _MARK, len(text), check)
    return start + struct.pack("<I", zlib.crc32(start)) + text, check


def scan(data: bytes | memoryview, segment: int, where: str) -> Scan:
    """Every whole frame of an index; damage raises, an unfinished frame at the end does not."""
    if len(data) < HEAD_BYTES:
        return Scan([], 0, len(data), 0)
    magic, version, number = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise NotAnArchive(f"{where} is no index of an archive: it begins with {bytes(magic)!r}")
    if version > VERSION:
        raise NotAnArchive(f"{where} is of version {version}, and this torcheer reads up to {VERSION}: update it")
    if number != segment:
        raise ArchiveDamaged(f"{where} says that it is segment {number}")
    frames: list[dict[str, Any]] = []
    at, after = HEAD_BYTES, 0
    while at < len(data):
        found = _frame_at(data, at)
        if found is None:
            break
        body, end, check = found
        if body.get("after") != after:
            raise ArchiveDamaged(f"{where}: the frame at byte {at} does not follow the one before it")
        frames.append(body)
        at, after = end, check
    if at < len(data) and any(_frame_at(data, later) for later in _marks(data, at + 1)):
        raise ArchiveDamaged(f"{where}: the frame at byte {at} is damaged; whole ones follow it")
    return Scan(frames, at, len(data) - at, after)


def _frame_at(data: bytes | memoryview, at: int) -> tuple[dict[str, Any], int, int] | None:
    if at + _FRAME.size > len(data):
        return None
    mark, length, check, own = _FRAME.unpack_from(data, at)
    begin = at + _FRAME.size
    if mark != _MARK or zlib.crc32(data[at : at + 12]) != own or begin + length > len(data):
        return None
    text = bytes(data[begin : begin + length])
    if zlib.crc32(text) != check:
        return None
    body = json.loads(text, object_pairs_hook=_once)
    return (body, begin + length, check) if isinstance(body, dict) else None


def _marks(data: bytes | memoryview, start: int) -> Iterator[int]:
    """Places where a frame might begin."""
    text = bytes(data[start:])
    at = text.find(_MARK)
    while at >= 0:
        yield start + at
        at = text.find(_MARK, at + 1)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ArchiveDamaged("an index names a key twice")
    return found
