"""numpy's npz: a zip of plain arrays; nothing pickled is ever read."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.archive.exchange.guards import inside, understood, whole_to_its_end
from torcheer.archive.exchange.value_manifest import (
    FORMAT,
    KEY,
    MARK,
    Content,
    Packing,
    Value,
    manifest_in,
    named_content,
)
from torcheer.encoding import TYPES
from torcheer.errors import ArchiveDamaged, BadArgument

_MANIFEST = f"{KEY}.json"
_PIECE_BYTES = 16 << 20
_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def write(file: Path, packing: Packing) -> None:
    """One member per value, uncompressed; types that numpy lacks are kept as their bits."""
    names = packing.names()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as out:
        for place, name in enumerate(names):
            facts = packing.facts[place]
            array = np.frombuffer(packing.bits(place), TYPES[facts.type]).reshape(facts.shape)
            with out.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        out.writestr(zipfile.ZipInfo(_MANIFEST), packing.manifest(names))
        out.comment = FORMAT.encode()


@contextmanager
def read(file: Path) -> Iterator[Content]:
    """What a file holds, ours or any other."""
    with understood(file):
        archive = zipfile.ZipFile(file)
    with archive:
        whole_to_its_end(archive, file)
        members = {inside(one.filename, file): one for one in archive.infolist()}
        if len(members) != len(archive.infolist()):
            raise ArchiveDamaged(f"{file} names a member twice")
        own = members.pop(_MANIFEST, None)
        values = {}
        for name, member in members.items():
            if name.endswith("/"):
                continue  # a folder, as zip tools leave them
            if not name.endswith(".npy"):
                raise BadArgument(f"{file}: {name!r} is no array")
            values[name.removesuffix(".npy")] = _value(archive, member, file)
        with understood(file, "what it says of its values"):
            found = {KEY: archive.read(own).decode()} if own else {}
        found |= MARK if archive.comment == FORMAT.encode() else {}
        yield named_content(file, manifest_in(found, file), values, {})


def _value(archive: zipfile.ZipFile, member: zipfile.ZipInfo, file: Path) -> Value:
    with understood(file, f"its member {member.filename!r}"):
        with archive.open(member) as stream:
            shape, columns_first, kind = _header(stream)
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
            data = _all(stream, needed)
        flat: NDArray[Any] = np.frombuffer(data, kind)
        return flat.reshape(shape[::-1]).T if columns_first else flat.reshape(shape)

    return Value(kind.name, shape, load)


def _all(stream: Any, count: int) -> bytearray:
    """The rest of a member, piece by piece: read at once, it would be in memory twice."""
    data = bytearray(count)
    at = 0
    while at < count:
        part = stream.read(min(count - at, _PIECE_BYTES))
        if not part:
            raise EOFError(f"it ends after {at} of {count} bytes")
        data[at : at + len(part)] = part
        at += len(part)
    return data


def _header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise BadArgument(f"it is an array of version {version}, which holds named fields")
    found: tuple[tuple[int, ...], bool, np.dtype[Any]] = _HEADERS[version](stream)
    return found
