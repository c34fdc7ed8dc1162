"""The header of safetensors files, made and checked here: the values after it are streamed or memory-mapped.

A file is the header's length, a JSON header, and the bytes of all values. Why not the library:
docs/decisions/0013-safetensors-by-hand.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from torcheer.disk import strict_json
from torcheer.encoding import bytes_of
from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.terminal import short_repr
from torcheer.vocabulary.dtypes import DTYPES, codes

MOST_BYTES: Final = 100_000_000  # the limit of other readers
_TYPES: Final = codes("safetensors")


class Entry(NamedTuple):
    """A value of a file."""

    name: str
    type: str  # as in `encoding.TYPES`
    shape: tuple[int, ...]  # as torch has it: of a packed type, of elements
    begin: int  # of its bytes, counted from the end of the header
    end: int


def make_header(values: Iterable[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, Any]) -> bytes:
    """Return the start of a file: all before its values, which follow in the given order.

    A value is its name, type and shape.
    """
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, kind, shape in values:
        begin, end = end, end + bytes_of(kind, shape)
        header[name] = {
            "dtype": DTYPES[kind].safetensors,
            "shape": DTYPES[kind].in_numbers(shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read_header(read: Callable[[int], bytes], size: int, path: Path) -> tuple[list[Entry], dict[str, Any]]:
    """Read the header of a file of `size` bytes; return its values in its order, and its metadata.

    Raises where it does not describe just these bytes, without gaps or overlaps.
    """
    header_bytes = int.from_bytes(read(8), "little")
    if header_bytes > min(MOST_BYTES, size - 8):
        raise ArchiveDamaged(f"{path} is no safetensors file, or is cut: its header would be {header_bytes} bytes long")
    header = strict_json(read(header_bytes), f"{path}: its header")
    if not isinstance(header, dict):
        raise ArchiveDamaged(f"{path}: its header is no object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise ArchiveDamaged(f"{path}: its __metadata__ is no object")
    body = size - 8 - header_bytes
    entries = [_parse_entry(name, entry, body, path) for name, entry in header.items()]
    at = 0
    for begin, end in sorted((entry.begin, entry.end) for entry in entries):
        if begin != at:
            problem = "overlap" if begin < at else "leave gaps"
            raise ArchiveDamaged(f"{path}: its values {problem} at byte {min(at, begin)}")
        at = end
    if at != body:
        raise ArchiveDamaged(f"{path}: {body - at} bytes at its end belong to no value")
    return entries, metadata


def _parse_entry(name: str, entry: Any, body: int, path: Path) -> Entry:
    try:
        kind, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        is_valid = isinstance(entry["shape"], list) and all(
            type(number) is int and 0 <= number < 2**63 for number in (*shape, begin, end)
        )
        is_valid = is_valid and isinstance(kind, str) and math.prod(length or 1 for length in shape) < 2**60
    except (LookupError, TypeError, ValueError):
        is_valid = False
    if not is_valid:
        raise ArchiveDamaged(f"{path}: {short_repr(name)} cannot be read: {short_repr(entry)}")
    if kind not in _TYPES:
        raise BadArgument(
            f"{path}: {short_repr(name)} is of type {kind}, which cannot be kept; known are {', '.join(_TYPES)}"
        )
    dtype, elements = _TYPES[kind], _TYPES[kind].in_elements(shape)
    is_whole = dtype.in_numbers(elements) == shape and end - begin == bytes_of(dtype.name, elements)
    if not begin <= end <= body or not is_whole:
        raise ArchiveDamaged(f"{path}: {short_repr(name)} lies outside of the file, or has another size than its shape")
    return Entry(name, dtype.name, elements, begin, end)
