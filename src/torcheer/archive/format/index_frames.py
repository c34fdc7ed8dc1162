"""Frames of an index file: each a length, two checksums and a JSON object.

The byte layout is specified in docs/archive-format.md.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from torcheer.archive.format import value_codecs
from torcheer.disk import strict_json
from torcheer.encoding import described
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive
from torcheer.records import garbage_collection_off
from torcheer.terminal import short_repr

VERSION = 1
MAGIC = b"torchidx"
ALIGN = 64  # values begin at multiples of it, so that they can be used from the mapped file without a copy
MAX_BODY_BYTES = 2**32 - 1  # the length field of a frame has 32 bits
_MAX_DEPTH = 100
_LEAF_TYPES = frozenset((int, float, str, bool))  # the most frequent values, which contain no others
_HEADER = struct.Struct("<8sII")  # magic, version, number of the segment
_FRAME = struct.Struct("<4sIII")  # "FRME", length of the body, its CRC-32, CRC-32 of the twelve bytes before
_MARK = b"FRME"
HEADER_BYTES = _HEADER.size


class Entry(NamedTuple):
    """Location and description of one stored value."""

    step: int | None
    layer: str
    variable: str
    item: int
    type: str
    shape: tuple[int, ...]
    segment: int
    offset: int
    stored: int
    crc32: int
    codec: str = "raw"  # how the bytes are stored: see `value_codecs`
    scale: float = 1.0  # the value of one int8 step


class IndexScan(NamedTuple):
    """Parsed content of an index file."""

    frames: list[dict[str, Any]]  # the steps that were read last: "step", "entries" (a list of Entry), "about"
    steps: int  # of all frames so far
    seal: dict[str, Any] | None  # "frames", "bytes", "more"
    end: int  # where the last whole frame ends
    torn_bytes: int  # bytes after it: a frame that was being written when its writer died
    last_crc: int  # CRC-32 of the last frame's body, which the next frame names
    data_end: int  # where the last value ends

    @property
    def expects_next(self) -> bool:
        """Return whether its seal announces another segment."""
        return self.seal is not None and bool(self.seal.get("more"))

    @property
    def final_seal_crc(self) -> int | None:
        """Return the CRC-32 of the seal if it is the archive's last; None otherwise."""
        return None if self.seal is None or self.expects_next else self.last_crc

    def check_data(self, size: int, where: str) -> None:
        """Check the size of the data file against the index."""
        if size < self.data_end:
            raise ArchiveDamaged(f"{where} has {size} bytes, and values lie outside of the file: up to {self.data_end}")
        if self.seal is not None and self.seal["bytes"] != size:
            raise ArchiveDamaged(f"{where} has {size} bytes, and was sealed with {self.seal['bytes']}")


def index_header(segment: int) -> bytes:
    """Return the header of an index file."""
    return _HEADER.pack(MAGIC, VERSION, segment)


def encode_frame(body: dict[str, Any], previous_crc: int) -> tuple[bytes, int]:
    """Encode a frame that follows the one with checksum `previous_crc`.

    Return it with its own checksum.
    """
    text = to_json({**body, "after": previous_crc}, "a step")
    if len(text) > MAX_BODY_BYTES:
        raise BadArgument(f"a step's index takes {len(text)} bytes, and {MAX_BODY_BYTES} fit: write it as several")
    crc = zlib.crc32(text)
    prefix = struct.pack("<4sII", _MARK, len(text), crc)
    return prefix + struct.pack("<I", zlib.crc32(prefix)) + text, crc


@garbage_collection_off()
def scan_index(data: bytes | memoryview, segment: int, where: str, since: IndexScan | None = None) -> IndexScan:
    """Parse every whole frame of an index, or of a part of it: with `since`, `data` is what follows that scan.

    Damage raises, an unfinished frame at the end does not.
    """
    if since is None or not since.end:
        if len(data) < HEADER_BYTES:
            return IndexScan([], 0, None, 0, len(data), 0, 0)
        _check_header(data, segment, where)
        since, start = IndexScan([], 0, None, 0, 0, 0, 0), HEADER_BYTES
    else:
        start = 0
    frames: list[dict[str, Any]] = []
    seal, bodies = since.seal, list(_read_bodies(data, where, start, since.last_crc))
    for body, _, _ in bodies:
        if seal is not None:
            raise ArchiveDamaged(f"{where}: a frame stands behind the seal")
        if "seal" in body:
            seal = _check_seal(body["seal"], since.steps + len(frames), where)
        else:
            frames.append(parse_step(body, segment, where))
    end, last_crc = bodies[-1][1:] if bodies else (start, since.last_crc)
    torn = len(data) - end
    if torn and seal is not None:
        raise ArchiveDamaged(f"{where}: {torn} bytes stand behind its seal")
    if any(is_frame_start(data, offset) for offset in find_frame_marks(data, end + 1)):
        raise ArchiveDamaged(f"{where}: the frame at byte {since.end + end} is damaged; others follow it")
    ends = (entry.offset + entry.stored for body in frames for entry in body["entries"])
    steps, data_end = since.steps + len(frames), max(ends, default=since.data_end)
    return IndexScan(frames, steps, seal, since.end + end, torn, last_crc, data_end)


def _read_bodies(
    data: bytes | memoryview, where: str, offset: int, previous_crc: int
) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield the body of each whole frame, its end offset and its checksum."""
    while (match := read_frame(data, offset)) is not None:
        text, offset, crc = match
        body = strict_json(text, f"{where}: the frame that ends at byte {offset}")
        if not isinstance(body, dict) or body.get("after") != previous_crc:
            raise ArchiveDamaged(f"{where}: the frame that ends at byte {offset} does not follow the one before it")
        previous_crc = crc
        yield body, offset, crc


def _check_header(data: bytes | memoryview, segment: int, where: str) -> None:
    magic, version, number = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise NotAnArchive(f"{where} is no index of an archive: it begins with {bytes(magic)!r}")
    if version != VERSION:
        raise NotAnArchive(f"{where} is of version {version}, and this torcheer reads version {VERSION}: update it")
    if number != segment:
        raise ArchiveDamaged(f"{where} says that it is segment {number}")


def is_frame_start(data: bytes | memoryview, offset: int) -> bool:
    """Return whether a valid frame prefix (16 bytes) begins at `offset`."""
    if offset + _FRAME.size > len(data):
        return False
    mark, _, _, prefix_crc = _FRAME.unpack_from(data, offset)
    return bool(mark == _MARK and zlib.crc32(data[offset : offset + 12]) == prefix_crc)


def read_frame(data: bytes | memoryview, offset: int) -> tuple[bytes, int, int] | None:
    """Read the frame at `offset`: its body, end offset and checksum.

    None unless it is whole and intact.
    """
    if not is_frame_start(data, offset):
        return None
    _, length, crc, _ = _FRAME.unpack_from(data, offset)
    begin = offset + _FRAME.size
    text = bytes(data[begin : begin + length])
    return (text, begin + length, crc) if len(text) == length and zlib.crc32(text) == crc else None


def find_frame_marks(data: bytes | memoryview, start: int) -> Iterator[int]:
    """Yield the offsets of all frame marks, from `start` on."""
    text = bytes(data[start:])
    position = text.find(_MARK)
    while position >= 0:
        yield start + position
        position = text.find(_MARK, position + 1)


def _check_seal(seal: Any, frames: int, where: str) -> dict[str, Any]:
    if not isinstance(seal, dict) or type(seal.get("bytes")) is not int or type(seal.get("more", False)) is not bool:
        raise ArchiveDamaged(f"{where}: its seal cannot be read: {short_repr(seal)}")
    if type(seal.get("frames")) is not int or seal["frames"] != frames:
        raise ArchiveDamaged(f"{where} has {frames} frames, and was sealed with {short_repr(seal.get('frames'))}")
    return seal


def parse_step(body: dict[str, Any], segment: int, where: str) -> dict[str, Any]:
    """Validate the frame of a step; its entries become `Entry` records."""
    step, entries, about = body.get("step"), body.get("entries"), body.get("about", {})
    if (
        not isinstance(entries, list)
        or not isinstance(about, dict)
        or (type(step) is not int and (step, entries) != (None, []))
    ):
        raise ArchiveDamaged(f"{where}: a frame cannot be read: step {short_repr(step)}, entries {short_repr(entries)}")
    try:
        parsed = [parse_entry(step, entry, segment) for entry in entries]
    except (ArchiveDamaged, KeyError, TypeError, AttributeError) as error:
        text = str(error) if isinstance(error, ArchiveDamaged) else repr(error)
        raise ArchiveDamaged(f"{where}: step {short_repr(step)} has an entry that cannot be read: {text}") from None
    if len({(entry.layer, entry.variable, entry.item) for entry in parsed}) < len(parsed):
        raise ArchiveDamaged(f"{where}: step {step} names a layer, variable and item twice")
    return {"step": step, "entries": parsed, "about": about}


def parse_entry(step: int | None, entry: dict[str, Any], segment: int) -> Entry:
    layer, variable, item, kind, shape = described(entry)
    offset, stored, crc32 = entry["offset"], entry["stored"], entry["crc32"]
    if (
        not (type(offset) is type(stored) is type(crc32) is int)
        or offset < 0
        or stored < 0
        or (offset % ALIGN and stored)
    ):
        raise ArchiveDamaged(f"{short_repr(layer)} lies at {short_repr(offset)}, {short_repr(stored)} bytes")
    codec, scale = value_codecs.parse_codec(entry, kind, shape)
    if len(entry) != 8 + ("as" in entry) + ("zstd" in entry) + ("zlib" in entry):
        raise ArchiveDamaged(
            f"{short_repr(layer)} has keys that this torcheer does not know: {short_repr(list(entry))}"
        )
    return Entry(step, layer, variable, item, kind, shape, segment, offset, stored, crc32, codec, scale)


def to_json(value: dict[str, Any], subject: str) -> bytes:
    """Serialize to JSON that `strict_json` accepts; the user's part, "about", is validated."""
    try:
        _check_keys(value.get("about") or {}, _MAX_DEPTH)
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadArgument(f"{subject} cannot be written as JSON: {short_repr(error)}") from None


def _check_keys(value: Any, depth: int) -> None:
    """Reject keys that are not text: JSON would merge 1 and "1"."""
    if not depth:
        raise ValueError(f"it is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not text")
        value = value.values()
    if _LEAF_TYPES.issuperset(map(type, value)):  # most lists; without a look at each part here
        return
    for part in value:
        if type(part) not in _LEAF_TYPES and isinstance(part, (dict, list, tuple)):
            _check_keys(part, depth - 1)
