"""safetensors files, read and written with one value in memory at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
from torcheer.encoding import TYPES, from_bytes
from torcheer.errors import BadArgument
from torcheer.safetensors_header import MOST_BYTES, Entry, make_header, read_header


def write(file: Path, source: ExportSource) -> None:
    """Write the values after a gap for the header, then the header, which holds their checksums."""
    names = source.names()
    # Widest types first: then each array begins at a multiple of its item size, as readers prefer.
    order = sorted(range(len(names)), key=lambda place: -TYPES[source.infos[place].type].itemsize)
    header_bytes = len(_make_header(source, names, order))
    if header_bytes > MOST_BYTES:
        raise BadArgument(
            f"{len(names)} values make a header of {header_bytes} bytes, and readers of safetensors stop at "
            f"{MOST_BYTES}; export to .parquet, .arrow or .npz"
        )
    with open(file, "wb") as out:
        out.seek(header_bytes)
        for place in order:
            out.write(source.read_bytes(place))
        out.seek(0)
        out.write(_make_header(source, names, order))


def _make_header(source: ExportSource, names: list[str], order: list[int]) -> bytes:
    values = [(names[place], *_stored_type(source.infos[place])) for place in order]
    return make_header(values, {**MADE_BY, KEY: source.manifest(names)})


def _stored_type(info: ValueInfo) -> tuple[str, tuple[int, ...]]:
    """Return the type and shape in safetensors; it lacks complex128, which is stored as pairs."""
    return ("float64", (*info.shape, 2)) if info.type == "complex128" else (info.type, info.shape)


@contextmanager
def read(file: Path) -> Iterator[ImportContent]:
    """Read a file, one that export wrote or any other safetensors file."""
    with read_errors(file), open(file, "rb") as opened:
        size = os.path.getsize(file)
        entries, metadata = read_header(opened.read, size, file)
        body = np.memmap(file, np.uint8, "r")[opened.tell() :]
    values = {entry.name: _open_array(entry, body) for entry in entries}
    manifest = pop_manifest(metadata, file)
    yield named_content(file, manifest, values, {"metadata": metadata} if metadata else {})


def _open_array(entry: Entry, body: NDArray[np.uint8]) -> LazyArray:
    _, kind, shape, begin, end = entry
    return LazyArray(kind, shape, lambda: from_bytes(kind, shape, body[begin:end]))
