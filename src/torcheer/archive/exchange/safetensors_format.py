"""safetensors, written and read by hand: a length, a JSON header, and the bytes, so that none has to be in memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.archive.exchange.guards import understood
from torcheer.archive.exchange.value_manifest import (
    KEY,
    MARK,
    Content,
    Facts,
    Packing,
    Value,
    manifest_in,
    named_content,
)
from torcheer.archive.format.index_frames import strict_json
from torcheer.encoding import TYPES, bytes_of, from_bytes
from torcheer.errors import ArchiveDamaged, BadArgument

HEADER_BYTES = 100_000_000  # the most that other readers take
_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "float32": "F32", "float64": "F64", "complex64": "C64",
    "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip
_TYPES = {theirs: ours for ours, theirs in _NAMES.items()}


def write(file: Path, packing: Packing) -> None:
    """Values first, behind a gap as long as the header will be: it holds their checksums."""
    names = packing.names()
    # The largest types first: then each array begins at a multiple of its own width, as readers like it.
    order = sorted(range(len(names)), key=lambda place: -TYPES[packing.facts[place].type].itemsize)
    room = len(_header(packing, names, order))
    if room > HEADER_BYTES:
        raise BadArgument(
            f"{len(names)} values make a header of {room} bytes, and readers of safetensors stop at {HEADER_BYTES}; "
            "export to .parquet, .arrow or .npz"
        )
    with open(file, "wb") as out:
        out.seek(8 + room)
        for place in order:
            out.write(packing.bits(place))
        out.seek(0)
        out.write(struct.pack("<Q", room) + _header(packing, names, order))


def _header(packing: Packing, names: list[str], order: list[int]) -> bytes:
    found: dict[str, Any] = {"__metadata__": {**MARK, KEY: packing.manifest(names)}}
    end = 0
    for place in order:
        kind, shape = _stored(packing.facts[place])
        begin, end = end, end + bytes_of(_TYPES[kind], shape)
        found[names[place]] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(found, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def _stored(facts: Facts) -> tuple[str, tuple[int, ...]]:
    """Type and shape as safetensors has them; it has no complex128, which is kept as pairs."""
    return ("F64", (*facts.shape, 2)) if facts.type == "complex128" else (_NAMES[facts.type], facts.shape)


@contextmanager
def read(file: Path) -> Iterator[Content]:
    """What a file holds, ours or any other."""
    with understood(file):
        data = np.memmap(file, np.uint8, "r")
    header, body = _parts(data, file)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise ArchiveDamaged(f"{file}: its __metadata__ is no object")
    values, spans = {}, []
    for name, found in header.items():
        values[name], span = _value(name, found, body, file)
        spans.append(span)
    _assert_filled(sorted(spans), len(body), file)
    manifest = manifest_in(metadata, file)
    yield named_content(file, manifest, values, {"metadata": metadata} if metadata else {})


def _parts(data: NDArray[np.uint8], file: Path) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    room = int.from_bytes(data[:8].tobytes(), "little")
    if len(data) < 8 or room > min(HEADER_BYTES, len(data) - 8):
        raise ArchiveDamaged(f"{file} is no safetensors file, or is cut: its header would be {room} bytes long")
    header = strict_json(data[8 : 8 + room].tobytes(), f"{file}: its header")
    if not isinstance(header, dict):
        raise ArchiveDamaged(f"{file}: its header is no object")
    return header, data[8 + room :]


def _value(name: str, found: Any, body: NDArray[np.uint8], file: Path) -> tuple[Value, tuple[int, int]]:
    try:
        kind, shape, (begin, end) = found["dtype"], tuple(found["shape"]), found["data_offsets"]
        whole = all(type(number) is int and number >= 0 for number in (*shape, begin, end)) and isinstance(kind, str)
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise ArchiveDamaged(f"{file}: {name!r} cannot be read: {str(found)[:300]}")
    if kind not in _TYPES:
        raise BadArgument(f"{file}: {name!r} is of type {kind}, which cannot be kept; known are {', '.join(_TYPES)}")
    ours = _TYPES[kind]
    if not begin <= end <= len(body) or end - begin != bytes_of(ours, shape):
        raise ArchiveDamaged(f"{file}: {name!r} lies outside of the file, or has another size than its shape")
    return Value(ours, shape, lambda: from_bytes(ours, shape, body[begin:end])), (begin, end)


def _assert_filled(spans: list[tuple[int, int]], size: int, file: Path) -> None:
    """Values lie one after the other, as safetensors asks for: none over another, no bytes between."""
    at = 0
    for begin, end in spans:
        if begin != at:
            raise ArchiveDamaged(
                f"{file}: its values {'overlap' if begin < at else 'leave gaps'} at byte {min(at, begin)}"
            )
        at = end
    if at != size:
        raise ArchiveDamaged(f"{file}: {size - at} bytes at its end belong to no value")
