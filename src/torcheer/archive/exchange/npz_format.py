"""numpy's npz format: a zip of plain arrays; pickled objects are never read."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.archive.exchange.guards import check_member_name, check_zip_end, read_errors
from torcheer.archive.exchange.value_manifest import (
    FORMAT,
    KEY,
    MADE_BY,
    ExportSource,
    ImportContent,
    LazyArray,
    named_content,
    pop_manifest,
)
from torcheer.encoding import TYPES
from torcheer.errors import ArchiveDamaged, BadArgument

_MANIFEST = f"{KEY}.json"
_PIECE_BYTES = 16 << 20
_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def write(file: Path, source: ExportSource) -> None:
    """Write one uncompressed member per value; types that numpy lacks are stored as their bits."""
    names = source.names()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as out:
        for place, name in enumerate(names):
            info = source.infos[place]
            array = np.frombuffer(source.read_bytes(place), TYPES[info.type]).reshape(info.shape)
            with out.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        out.writestr(zipfile.ZipInfo(_MANIFEST), source.manifest(names))
        out.comment = FORMAT.encode()


@contextmanager
def read(file: Path) -> Iterator[ImportContent]:
    """Read a file, one that export wrote or any other npz."""
    with read_errors(file):
        archive = zipfile.ZipFile(file)
    with archive:
        check_zip_end(archive, file)
        members = {check_member_name(member.filename, file): member for member in archive.infolist()}
        if len(members) != len(archive.infolist()):
            raise ArchiveDamaged(f"{file} names a member twice")
        manifest_member = members.pop(_MANIFEST, None)
        values = {}
        for name, member in members.items():
            if name.endswith("/"):
                continue  # a folder, as zip tools leave them
            if not name.endswith(".npy"):
                raise BadArgument(f"{file}: {name!r} is no array")
            values[name.removesuffix(".npy")] = _open_array(archive, member, file)
        with read_errors(file, "what it says of its values"):
            metadata = {KEY: archive.read(manifest_member).decode()} if manifest_member else {}
        metadata |= MADE_BY if archive.comment == FORMAT.encode() else {}
        yield named_content(file, pop_manifest(metadata, file), values, {})


def _open_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, file: Path) -> LazyArray:
    with read_errors(file, f"its member {member.filename!r}"):
        with archive.open(member) as stream:
            shape, columns_first, kind = _read_header(stream)
            start = stream.tell()
        if kind.hasobject:
            raise BadArgument(f"{file}: {member.filename!r} holds pickled objects, which are never read")
        if kind.name not in TYPES:
            raise BadArgument(f"{file}: {member.filename!r} is of type {kind}, which cannot be kept")
        needed = kind.itemsize * math.prod(shape)
        if any(length < 0 for length in shape) or member.file_size != start + needed:
            raise ArchiveDamaged(f"{file}: {member.filename!r} is cut, or has another size than its shape")

    def load() -> NDArray[Any]:
        with archive.open(member) as stream:
            stream.read(start)
            data = _read_in_pieces(stream, needed)
        flat: NDArray[Any] = np.frombuffer(data, kind)
        return flat.reshape(shape[::-1]).T if columns_first else flat.reshape(shape)

    return LazyArray(kind.name, shape, load)


def _read_in_pieces(stream: Any, count: int) -> bytearray:
    """Read `count` bytes in pieces: read at once, they would be in memory twice."""
    data = bytearray(count)
    at = 0
    while at < count:
        part = stream.read(min(count - at, _PIECE_BYTES))
        if not part:
            raise EOFError(f"it ends after {at} of {count} bytes")
        data[at : at + len(part)] = part
        at += len(part)
    return data


def _read_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise BadArgument(f"it is an array of version {version}, which holds named fields")
    header: tuple[tuple[int, ...], bool, np.dtype[Any]] = _HEADERS[version](stream)
    return header
