"""Zarr 3, in a folder or a zip: an array per value, uncompressed, in chunks of at most 64 MB."""

from __future__ import annotations

import math
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.archive.exchange.guards import believable, inside, missing, size_of, understood, whole_to_its_end
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
from torcheer.encoding import TYPES
from torcheer.errors import ArchiveDamaged, BadArgument

_CHUNK_BYTES = 64 << 20
_METADATA = ("zarr.json", ".zarray", ".zgroup")  # the last two of zarr 2
# What may be undone when an array is read: numcodecs also has "pickle", which would run what it is given.
_CODECS = {"bytes", "transpose", "gzip", "zstd", "blosc", "crc32c", "sharding_indexed", "zlib", "lz4", "bz2", "lzma",
           "shuffle", "delta", "bitround", "fixedscaleoffset", "quantize"}  # fmt: skip


def write(file: Path, packing: Packing) -> None:
    """A group of arrays in a folder; types that zarr lacks are kept as their bits."""
    zarr = _zarr(file)
    names = packing.names(as_folders=True)  # an array of zarr's holds no arrays
    group = zarr.create_group(zarr.storage.LocalStore(file), zarr_format=3)
    for place, name in enumerate(names):
        facts = packing.facts[place]
        array = group.create_array(
            name, shape=facts.shape, dtype=TYPES[facts.type], chunks=_chunks(facts), compressors=None, fill_value=0,
            attributes={"type": facts.type},
            config={"write_empty_chunks": True},  # or -0.0 would come back as 0.0
        )  # fmt: skip
        array[...] = np.frombuffer(packing.bits(place), TYPES[facts.type]).reshape(facts.shape)
    group.attrs.update({**MARK, KEY: packing.manifest(names)})


def write_zip(file: Path, packing: Packing) -> None:
    """The same folder in a zip, made beside it."""
    folder = file.with_name(f"{file.name}.folder")
    shutil.rmtree(folder, ignore_errors=True)  # of an export that was killed
    try:
        write(folder, packing)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as out:
            for one in sorted(folder.rglob("*")):
                if one.is_file():
                    out.write(one, one.relative_to(folder).as_posix())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _zarr(file: Path) -> Any:
    try:
        import zarr
        import zarr.storage
    except ImportError:
        raise missing("zarr", file) from None
    return zarr


def _chunks(facts: Facts) -> tuple[int, ...]:
    """Whole rows, as many as fit."""
    if not facts.shape:
        return ()
    first, *rest = (max(1, length) for length in facts.shape)
    row = TYPES[facts.type].itemsize * math.prod(rest)
    return (min(first, max(1, _CHUNK_BYTES // row)), *rest)


@contextmanager
def read(file: Path) -> Iterator[Content]:
    """What a folder or zip holds, ours or any other."""
    zarr, size = _zarr(file), size_of(file)
    with understood(file):
        nodes = _nodes(file, size)
        make, options = (zarr.storage.ZipStore, {"mode": "r"}) if file.is_file() else (zarr.storage.LocalStore, {})
        store = make(file, read_only=True, **options)
        # Consolidated metadata could name arrays that are elsewhere: only what is found in the folder is read.
        found = {node: zarr.open(store, path=node, mode="r", use_consolidated=False) for node in nodes}
        attributes = dict(found[""].attrs)
        # An array that is all there is has no name but its file's.
        arrays = {node or file.name.split(".")[0]: one for node, one in found.items() if hasattr(one, "shape")}
        values = {node: _value(node, array, size, file) for node, array in arrays.items()}
    manifest = manifest_in(attributes, file)
    try:
        yield named_content(file, manifest, values, {"metadata": attributes} if attributes else {})
    finally:
        store.close()


def _nodes(file: Path, size: int) -> list[str]:
    """The groups and arrays there are, the outermost first."""
    if file.is_file():
        with zipfile.ZipFile(file) as found:
            whole_to_its_end(found, file)
            members = found.infolist()
        believable(sum(member.file_size for member in members), size, file)
        names = [inside(member.filename, file) for member in members]
    else:
        names = [one.relative_to(file).as_posix() for one in file.rglob("*")]
    if len(set(names)) < len(names):
        raise ArchiveDamaged(f"{file} names a member twice")
    folders = {folder for folder, _, last in (name.rpartition("/") for name in names) if last in _METADATA}
    if "" not in folders:
        raise ArchiveDamaged(f"{file} is no zarr: there is no zarr.json in it")
    return sorted(folders)


def _value(name: str, array: Any, size: int, file: Path) -> Value:
    codecs = set(_codecs(array.metadata.to_dict()))
    if not codecs <= _CODECS:
        raise BadArgument(
            f"{file}: {name!r} is packed with {', '.join(sorted(codecs - _CODECS))}, which is not undone here"
        )
    if array.dtype.name not in TYPES:
        raise BadArgument(f"{file}: {name!r} is of type {array.dtype}, which cannot be kept")
    chunk = array.dtype.itemsize * math.prod(array.shards or array.chunks)
    believable(chunk, size, file)  # it is unpacked as a whole, however little of it belongs to the array

    def load() -> NDArray[Any]:
        return np.asarray(array[...])

    return Value(array.dtype.name, tuple(array.shape), load)


def _codecs(found: Any) -> Iterator[str]:
    """The names of all codecs that metadata asks for, those inside of others too."""
    for key in ("codecs", "index_codecs", "filters", "compressor"):
        codecs = found.get(key) or ()
        for codec in [codecs] if isinstance(codecs, dict) else codecs:
            yield str(codec.get("name", codec.get("id")))
            yield from _codecs(codec.get("configuration") or {})
