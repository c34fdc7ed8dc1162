"""Zarr 3 in a folder or zip: one uncompressed array per value, in chunks of at most 64 MB."""

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

from torcheer.archive.exchange.guards import (
    check_member_name,
    check_unpacked_size,
    check_zip_end,
    missing_package,
    read_errors,
    total_bytes,
)
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
from torcheer.encoding import TYPES
from torcheer.errors import ArchiveDamaged, BadArgument

_CHUNK_BYTES = 64 << 20
_METADATA = ("zarr.json", ".zarray", ".zgroup")  # the last two are zarr 2
# Codecs that may be decoded: numcodecs also has "pickle", which would execute code from the file.
_CODECS = {"bytes", "transpose", "gzip", "zstd", "blosc", "crc32c", "sharding_indexed", "zlib", "lz4", "bz2", "lzma",
           "shuffle", "delta", "bitround", "fixedscaleoffset", "quantize"}  # fmt: skip


def write(file: Path, source: ExportSource) -> None:
    """Write a group of arrays in a folder; types that zarr lacks are stored as their bits."""
    zarr = _import_zarr(file)
    names = source.names(as_folders=True)  # a zarr array cannot contain arrays
    group = zarr.create_group(zarr.storage.LocalStore(file), zarr_format=3)
    for place, name in enumerate(names):
        info = source.infos[place]
        array = group.create_array(
            name, shape=info.shape, dtype=TYPES[info.type], chunks=_chunk_shape(info), compressors=None, fill_value=0,
            attributes={"type": info.type},
            config={"write_empty_chunks": True},  # or -0.0 would come back as 0.0
        )  # fmt: skip
        array[...] = np.frombuffer(source.read_bytes(place), TYPES[info.type]).reshape(info.shape)
    group.attrs.update({**MADE_BY, KEY: source.manifest(names)})


def write_zip(file: Path, source: ExportSource) -> None:
    """Write the folder beside the target, then pack it into a zip."""
    folder = file.with_name(f"{file.name}.folder")
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed export
    try:
        write(folder, source)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as out:
            for member in sorted(folder.rglob("*")):
                if member.is_file():
                    out.write(member, member.relative_to(folder).as_posix())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _import_zarr(file: Path) -> Any:
    try:
        import zarr
        import zarr.storage
    except ImportError:
        raise missing_package("zarr", file) from None
    return zarr


def _chunk_shape(info: ValueInfo) -> tuple[int, ...]:
    """Return a chunk of whole rows, as many as fit in 64 MB."""
    if not info.shape:
        return ()
    first, *inner = (max(1, length) for length in info.shape)
    row = TYPES[info.type].itemsize * math.prod(inner)
    return (min(first, max(1, _CHUNK_BYTES // row)), *inner)


@contextmanager
def read(file: Path) -> Iterator[ImportContent]:
    """Read a folder or zip, one that export wrote or any other zarr."""
    zarr, size = _import_zarr(file), total_bytes(file)
    with read_errors(file):
        nodes = _list_nodes(file, size)
        make, options = (zarr.storage.ZipStore, {"mode": "r"}) if file.is_file() else (zarr.storage.LocalStore, {})
        store = make(file, read_only=True, **options)
        # Consolidated metadata could name arrays that are elsewhere: only what is found in the folder is read.
        objects = {node: zarr.open(store, path=node, mode="r", use_consolidated=False) for node in nodes}
        attributes = dict(objects[""].attrs)
        # A single array at the root takes the file's name.
        arrays = {
            node or file.name.split(".")[0]: stored for node, stored in objects.items() if hasattr(stored, "shape")
        }
        values = {node: _open_array(node, array, size, file) for node, array in arrays.items()}
    manifest = pop_manifest(attributes, file)
    try:
        yield named_content(file, manifest, values, {"metadata": attributes} if attributes else {})
    finally:
        store.close()


def _list_nodes(file: Path, size: int) -> list[str]:
    """List the paths of all groups and arrays, outermost first."""
    if file.is_file():
        with zipfile.ZipFile(file) as archive:
            check_zip_end(archive, file)
            members = archive.infolist()
        check_unpacked_size(sum(member.file_size for member in members), size, file)
        names = [check_member_name(member.filename, file) for member in members]
    else:
        names = [member.relative_to(file).as_posix() for member in file.rglob("*")]
    if len(set(names)) < len(names):
        raise ArchiveDamaged(f"{file} names a member twice")
    folders = {folder for folder, _, last in (name.rpartition("/") for name in names) if last in _METADATA}
    if "" not in folders:
        raise ArchiveDamaged(f"{file} is no zarr: there is no zarr.json in it")
    return sorted(folders)


def _open_array(name: str, array: Any, size: int, file: Path) -> LazyArray:
    codecs = set(_codec_names(array.metadata.to_dict()))
    if not codecs <= _CODECS:
        raise BadArgument(
            f"{file}: {name!r} is packed with {', '.join(sorted(codecs - _CODECS))}, which is not undone here"
        )
    if array.dtype.name not in TYPES:
        raise BadArgument(f"{file}: {name!r} is of type {array.dtype}, which cannot be kept")
    chunk = array.dtype.itemsize * math.prod(array.shards or array.chunks)
    check_unpacked_size(chunk, size, file)  # a chunk is unpacked whole, even if the array uses little of it

    def load() -> NDArray[Any]:
        return np.asarray(array[...])

    return LazyArray(array.dtype.name, tuple(array.shape), load)


def _codec_names(metadata: Any) -> Iterator[str]:
    """Yield the names of all codecs in the metadata, nested ones included."""
    for key in ("codecs", "index_codecs", "filters", "compressor"):
        codecs = metadata.get(key) or ()
        for codec in [codecs] if isinstance(codecs, dict) else codecs:
            yield str(codec.get("name", codec.get("id")))
            yield from _codec_names(codec.get("configuration") or {})
