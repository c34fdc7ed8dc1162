"""Frames of an index: a length, two checksums and a JSON object each, one after the other.

Everything a reader needs to know of the bytes is in docs/archive-format.md.
"""

from __future__ import annotations

import gc
import json
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torcheer.archive.format import value_codecs
from torcheer.encoding import cut, described
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive

VERSION = 1
MAGIC = b"torchidx"
ALIGN = 64  # values begin at multiples of it, so that they can be used where they lie
MOST_BODY_BYTES = 2**32 - 1  # what the length of a frame can say
_MOST_DEPTH = 100
_COMMON = frozenset((int, float, str, bool))  # most of what there is, and nothing in it
_HEAD = struct.Struct("<8sII")  # magic, version, number of the segment
_FRAME = struct.Struct("<4sIII")  # "FRME", length of the body, its CRC-32, CRC-32 of the twelve bytes before
_MARK = b"FRME"
HEAD_BYTES = _HEAD.size


class Entry(NamedTuple):
    """Where a value is."""

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
    codec: str = "raw"  # what was stored instead of the bytes themselves: see `codecs`
    scale: float = 1.0  # of one step of int8


class Scan(NamedTuple):
    """What an index holds."""

    frames: list[dict[str, Any]]  # the steps: "step", "entries" (a list of Entry), "about"
    seal: dict[str, Any] | None  # "frames", "bytes", "more"
    end: int  # where the last whole frame ends
    torn: int  # bytes behind it: a frame that was being written when its writer died
    last: int  # CRC-32 of the last frame's body; the next one names it
    data_end: int  # where the last value ends

    @property
    def more(self) -> bool:
        """Whether another segment was to follow."""
        return self.seal is not None and bool(self.seal.get("more"))

    @property
    def final(self) -> int | None:
        """The CRC-32 of the seal that says that no other segment follows; None where there is none."""
        return None if self.seal is None or self.more else self.last

    def check_data(self, size: int, where: str) -> None:
        """Compare with what the data file has."""
        if size < self.data_end:
            raise ArchiveDamaged(f"{where} has {size} bytes, and values lie outside of the file: up to {self.data_end}")
        if self.seal is not None and self.seal["bytes"] != size:
            raise ArchiveDamaged(f"{where} has {size} bytes, and was sealed with {self.seal['bytes']}")


@contextmanager
def no_collecting() -> Iterator[None]:
    """Let Python's collector rest: it would go through every record again and again, and they make no circles."""
    was = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was:
            gc.enable()


def head(segment: int) -> bytes:
    """How an index begins."""
    return _HEAD.pack(MAGIC, VERSION, segment)


def frame(body: dict[str, Any], after: int) -> tuple[bytes, int]:
    """A frame that follows one whose checksum was `after`, and its own checksum."""
    text = to_json({**body, "after": after}, "a step")
    if len(text) > MOST_BODY_BYTES:
        raise BadArgument(f"a step's index takes {len(text)} bytes, and {MOST_BODY_BYTES} fit: write it as several")
    check = zlib.crc32(text)
    start = struct.pack("<4sII", _MARK, len(text), check)
    return start + struct.pack("<I", zlib.crc32(start)) + text, check


@no_collecting()
def scan(data: bytes | memoryview, segment: int, where: str) -> Scan:
    """Every whole frame of an index; damage raises, an unfinished frame at the end does not."""
    if len(data) < HEAD_BYTES:
        return Scan([], None, 0, len(data), 0, 0)
    _check_head(data, segment, where)
    frames: list[dict[str, Any]] = []
    seal, bodies = None, list(_bodies(data, where))
    for body, _, _ in bodies:
        if seal is not None:
            raise ArchiveDamaged(f"{where}: a frame stands behind the seal")
        if "seal" in body:
            seal = _seal(body["seal"], len(frames), where)
        else:
            frames.append(_step(body, segment, where))
    end, last = bodies[-1][1:] if bodies else (HEAD_BYTES, 0)
    torn = len(data) - end
    if torn and seal is not None:
        raise ArchiveDamaged(f"{where}: {torn} bytes stand behind its seal")
    if any(frame_begins(data, later) for later in frame_starts(data, end + 1)):
        raise ArchiveDamaged(f"{where}: the frame at byte {end} is damaged; others follow it")
    ends = (entry.offset + entry.stored for body in frames for entry in body["entries"])
    return Scan(frames, seal, end, torn, last, max(ends, default=0))


def _bodies(data: bytes | memoryview, where: str) -> Iterator[tuple[dict[str, Any], int, int]]:
    """The body of each whole frame, where it ends, its checksum."""
    at, after = HEAD_BYTES, 0
    while (found := read_frame(data, at)) is not None:
        text, at, check = found
        body = strict_json(text, f"{where}: the frame that ends at byte {at}")
        if not isinstance(body, dict) or body.get("after") != after:
            raise ArchiveDamaged(f"{where}: the frame that ends at byte {at} does not follow the one before it")
        after = check
        yield body, at, check


def _check_head(data: bytes | memoryview, segment: int, where: str) -> None:
    magic, version, number = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise NotAnArchive(f"{where} is no index of an archive: it begins with {bytes(magic)!r}")
    if version != VERSION:
        raise NotAnArchive(f"{where} is of version {version}, and this torcheer reads version {VERSION}: update it")
    if number != segment:
        raise ArchiveDamaged(f"{where} says that it is segment {number}")


def frame_begins(data: bytes | memoryview, at: int) -> bool:
    """Whether the first 16 bytes of a frame stand here."""
    if at + _FRAME.size > len(data):
        return False
    mark, _, _, own = _FRAME.unpack_from(data, at)
    return bool(mark == _MARK and zlib.crc32(data[at : at + 12]) == own)


def read_frame(data: bytes | memoryview, at: int) -> tuple[bytes, int, int] | None:
    """The body of the frame that begins here, where it ends, its checksum; None unless all of it is there."""
    if not frame_begins(data, at):
        return None
    _, length, check, _ = _FRAME.unpack_from(data, at)
    begin = at + _FRAME.size
    text = bytes(data[begin : begin + length])
    return (text, begin + length, check) if len(text) == length and zlib.crc32(text) == check else None


def frame_starts(data: bytes | memoryview, start: int) -> Iterator[int]:
    """Places where a frame might begin."""
    text = bytes(data[start:])
    at = text.find(_MARK)
    while at >= 0:
        yield start + at
        at = text.find(_MARK, at + 1)


def _seal(seal: Any, frames: int, where: str) -> dict[str, Any]:
    if not isinstance(seal, dict) or type(seal.get("bytes")) is not int or type(seal.get("more", False)) is not bool:
        raise ArchiveDamaged(f"{where}: its seal cannot be read: {cut(seal)}")
    if type(seal.get("frames")) is not int or seal["frames"] != frames:
        raise ArchiveDamaged(f"{where} has {frames} frames, and was sealed with {cut(seal.get('frames'))}")
    return seal


def _step(body: dict[str, Any], segment: int, where: str) -> dict[str, Any]:
    """A step's frame, its entries as records."""
    step, entries, about = body.get("step"), body.get("entries"), body.get("about", {})
    if (
        not isinstance(entries, list)
        or not isinstance(about, dict)
        or (type(step) is not int and (step, entries) != (None, []))
    ):
        raise ArchiveDamaged(f"{where}: a frame cannot be read: step {cut(step)}, entries {cut(entries)}")
    try:
        made = [read_entry(step, entry, segment) for entry in entries]
    except (ArchiveDamaged, KeyError, TypeError, AttributeError) as error:
        text = str(error) if isinstance(error, ArchiveDamaged) else repr(error)
        raise ArchiveDamaged(f"{where}: step {cut(step)} has an entry that cannot be read: {text}") from None
    if len({(one.layer, one.variable, one.item) for one in made}) < len(made):
        raise ArchiveDamaged(f"{where}: step {step} names a layer, variable and item twice")
    return {"step": step, "entries": made, "about": about}


def read_entry(step: int | None, entry: dict[str, Any], segment: int) -> Entry:
    layer, variable, item, kind, shape = described(entry)
    offset, stored, crc32 = entry["offset"], entry["stored"], entry["crc32"]
    if (
        not (type(offset) is type(stored) is type(crc32) is int)
        or offset < 0
        or stored < 0
        or (offset % ALIGN and stored)
    ):
        raise ArchiveDamaged(f"{cut(layer)} lies at {cut(offset)}, {cut(stored)} bytes")
    codec, scale = value_codecs.read(entry, kind, shape)
    if len(entry) != 8 + ("as" in entry) + ("zstd" in entry):
        raise ArchiveDamaged(f"{cut(layer)} has keys that this torcheer does not know: {cut(list(entry))}")
    return Entry(step, layer, variable, item, kind, shape, segment, offset, stored, crc32, codec, scale)


def to_json(value: dict[str, Any], what: str) -> bytes:
    """JSON that `strict_json` reads again; what users have put into its "about" is looked through."""
    try:
        _check_keys(value.get("about") or {}, _MOST_DEPTH)
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadArgument(f"{what} cannot be written as JSON: {cut(error)}") from None


def _check_keys(value: Any, depth: int) -> None:
    """JSON's keys are text: 1 and "1" would be one."""
    if not depth:
        raise ValueError(f"it is nested more than {_MOST_DEPTH} deep")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not text")
        value = value.values()
    for part in value:
        if type(part) not in _COMMON and isinstance(part, (dict, list, tuple)):
            _check_keys(part, depth - 1)


def strict_json(text: bytes, where: str) -> Any:
    """JSON in UTF-8, no key twice, no NaN."""
    try:
        return json.loads(text.decode(), object_pairs_hook=_once, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise ArchiveDamaged(f"{where} cannot be read: {cut(str(error))}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"a key stands twice among {cut([key for key, _ in pairs])}")
    return found


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
