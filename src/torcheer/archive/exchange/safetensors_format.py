"""safetensors files, read and written here with one value in memory at a time.

A file is the header's length, a JSON header, and the bytes of all values. The safetensors library would need all
values in memory at once.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.archive.exchange.guards import read_errors
from torcheer.archive.exchange.value_manifest import (
    KEY,
    MADE_BY,
    ExportSource,
    ImportContent,
    LazyArray,
    ValueInfo,
    named_content,
    pop_manifest,
)
from torcheer.disk import strict_json
from torcheer.encoding import TYPES, bytes_of, from_bytes
from torcheer.errors import ArchiveDamaged, BadArgument

MAX_HEADER_BYTES = 100_000_000  # the limit of other readers
_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "float32": "F32", "float64": "F64", "complex64": "C64",
    "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip
_TYPES = {safetensors_name: name for name, safetensors_name in _NAMES.items()}


def write(file: Path, source: ExportSource) -> None:
    """Write the values after a gap for the header, then the header, which holds their checksums."""
    names = source.names()
    # Widest types first: then each array begins at a multiple of its item size, as readers prefer.
    order = sorted(range(len(names)), key=lambda place: -TYPES[source.infos[place].type].itemsize)
    header_bytes = len(_make_header(source, names, order))
    if header_bytes > MAX_HEADER_BYTES:
        raise BadArgument(
            f"{len(names)} values make a header of {header_bytes} bytes, and readers of safetensors stop at "
            f"{MAX_HEADER_BYTES}; export to .parquet, .arrow or .npz"
        )
    with open(file, "wb") as out:
        out.seek(8 + header_bytes)
        for place in order:
            out.write(source.read_bytes(place))
        out.seek(0)
        out.write(struct.pack("<Q", header_bytes) + _make_header(source, names, order))


def _make_header(source: ExportSource, names: list[str], order: list[int]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {**MADE_BY, KEY: source.manifest(names)}}
    end = 0
    for place in order:
        kind, shape = _stored_type(source.infos[place])
        begin, end = end, end + bytes_of(_TYPES[kind], shape)
        header[names[place]] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def _stored_type(info: ValueInfo) -> tuple[str, tuple[int, ...]]:
    """Return the type and shape in safetensors; it lacks complex128, which is stored as pairs."""
    return ("F64", (*info.shape, 2)) if info.type == "complex128" else (_NAMES[info.type], info.shape)


@contextmanager
def read(file: Path) -> Iterator[ImportContent]:
    """Read a file, one that export wrote or any other safetensors file."""
    with read_errors(file):
        data = np.memmap(file, np.uint8, "r")
    header, body = _split_file(data, file)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise ArchiveDamaged(f"{file}: its __metadata__ is no object")
    values, spans = {}, []
    for name, description in header.items():
        values[name], span = _open_array(name, description, body, file)
        spans.append(span)
    _check_contiguous(sorted(spans), len(body), file)
    manifest = pop_manifest(metadata, file)
    yield named_content(file, manifest, values, {"metadata": metadata} if metadata else {})


def _split_file(data: NDArray[np.uint8], file: Path) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    header_bytes = int.from_bytes(data[:8].tobytes(), "little")
    if len(data) < 8 or header_bytes > min(MAX_HEADER_BYTES, len(data) - 8):
        raise ArchiveDamaged(f"{file} is no safetensors file, or is cut: its header would be {header_bytes} bytes long")
    header = strict_json(data[8 : 8 + header_bytes].tobytes(), f"{file}: its header")
    if not isinstance(header, dict):
        raise ArchiveDamaged(f"{file}: its header is no object")
    return header, data[8 + header_bytes :]


def _open_array(name: str, description: Any, body: NDArray[np.uint8], file: Path) -> tuple[LazyArray, tuple[int, int]]:
    try:
        kind, shape, (begin, end) = description["dtype"], tuple(description["shape"]), description["data_offsets"]
        is_valid = all(type(number) is int and number >= 0 for number in (*shape, begin, end)) and isinstance(kind, str)
    except (KeyError, TypeError, ValueError):
        is_valid = False
    if not is_valid:
        raise ArchiveDamaged(f"{file}: {name!r} cannot be read: {str(description)[:300]}")
    if kind not in _TYPES:
        raise BadArgument(f"{file}: {name!r} is of type {kind}, which cannot be kept; known are {', '.join(_TYPES)}")
    dtype = _TYPES[kind]
    if not begin <= end <= len(body) or end - begin != bytes_of(dtype, shape):
        raise ArchiveDamaged(f"{file}: {name!r} lies outside of the file, or has another size than its shape")
    return LazyArray(dtype, shape, lambda: from_bytes(dtype, shape, body[begin:end])), (begin, end)


def _check_contiguous(spans: list[tuple[int, int]], size: int, file: Path) -> None:
    """Check that values neither overlap nor leave gaps, as safetensors requires."""
    at = 0
    for begin, end in spans:
        if begin != at:
            raise ArchiveDamaged(
                f"{file}: its values {'overlap' if begin < at else 'leave gaps'} at byte {min(at, begin)}"
            )
        at = end
    if at != size:
        raise ArchiveDamaged(f"{file}: {size - at} bytes at its end belong to no value")
