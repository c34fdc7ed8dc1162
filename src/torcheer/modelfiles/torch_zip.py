"""Tensors of a `torch.save` file, without torch: its pickle is read as data, tensors stay in the zip, memory-mapped."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.modelfiles.file_tensor import Bytes, FileTensor, placed
from torcheer.modelfiles.model_file import ModelFile, text_of
from torcheer.modelfiles.torch_pickle import Name, Note, StoredTensor, read_pickle
from torcheer.terminal import short_repr

_MOST_PICKLE_BYTES: Final = 64 << 20
_MOST_FILES: Final = 1_000_000
_MOST_TENSORS, _MOST_METADATA, _DEEPEST = 1_000_000, 1000, 30


class TorchZip:
    """A zip of torch's: the places of its files, which are not compressed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not zipfile.is_zipfile(path):
            raise BadArgument(
                f"{path} is no zip, so it was saved by torch before 1.6, or is another pickle, which could run code: "
                f"load it where you trust it, and save its state_dict as .safetensors"
            )
        self.data: Bytes = np.memmap(path, np.uint8, "r")
        with zipfile.ZipFile(path) as file:
            infos = file.infolist()
        if len(infos) > _MOST_FILES:
            raise ArchiveDamaged(f"{path} has {len(infos):,} files in it")
        self._infos = {info.filename.partition("/")[2]: info for info in infos}

    def __contains__(self, name: str) -> bool:
        return name in self._infos

    def names(self) -> list[str]:
        """The files in it, without the folder that they all lie in."""
        return list(self._infos)

    def bytes_of(self, name: str) -> Bytes:
        """The bytes of a file in it, as they lie on disk."""
        info = self._infos.get(name)
        if info is None:
            raise ArchiveDamaged(f"{self.path} has no {short_repr(name)} in it")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise ArchiveDamaged(f"{self.path}: {short_repr(name)} is compressed, which torch never does")
        head = bytes(self.data[info.header_offset : info.header_offset + 30])
        if len(head) < 30 or head[:4] != b"PK\3\4":
            raise ArchiveDamaged(f"{self.path}: {short_repr(name)} is not where the zip says")
        name_bytes, extra_bytes = struct.unpack_from("<HH", head, 26)
        start = info.header_offset + 30 + name_bytes + extra_bytes
        if start + info.file_size > len(self.data):
            raise ArchiveDamaged(f"{self.path}: {short_repr(name)} lies outside of the file, or it is cut")
        return self.data[start : start + info.file_size]

    def text(self, name: str, most_bytes: int = _MOST_PICKLE_BYTES) -> bytes:
        """A whole file in it, if it is small."""
        data = self.bytes_of(name)
        if len(data) > most_bytes:
            raise ArchiveDamaged(f"{self.path}: {short_repr(name)} has {len(data):,} bytes")
        return bytes(data)


def read_file(path: Path) -> ModelFile:
    """Open a file of `torch.save`: a state_dict, or a dict with some in it."""
    archive = TorchZip(path)
    if "data.pkl" not in archive:
        raise BadArgument(
            f"{path} has no data.pkl, so torch.save did not write it; a program of torch.export ends in .pt2"
        )
    if "byteorder" in archive and archive.text("byteorder", 16) not in (b"little",):
        raise BadArgument(f"{path} was written on a big-endian machine, which is not read")
    root = read_pickle(archive.text("data.pkl"), str(path))
    tensors: dict[str, FileTensor] = {}
    metadata: dict[str, str] = {}
    for name, value in _leaves(root):
        if isinstance(value, StoredTensor):
            data = archive.bytes_of(f"data/{value.storage.key}")
            name = name or "tensor"
            tensors[name] = placed(name, value.shape, value.type, data, value.offset, value.strides)
        elif isinstance(value, str | int | float | bool | Note | Name) and len(metadata) < _MOST_METADATA:
            metadata[name] = str(value) if isinstance(value, Name) else text_of(getattr(value, "text", value))
        if len(tensors) > _MOST_TENSORS:
            raise ArchiveDamaged(f"{path} has more than {_MOST_TENSORS:,} tensors")
    return ModelFile(path, "torch.save", tensors, metadata)


def _leaves(root: Any) -> Iterator[tuple[str, Any]]:
    """Yield what dicts and lists hold, by dotted names; each container once, so that a cycle ends."""
    seen, stack = set[int](), [("", root, 0)]
    while stack:
        name, value, depth = stack.pop()
        if type(value) not in (dict, list, tuple):
            yield name, value
        elif id(value) not in seen and depth < _DEEPEST:
            seen.add(id(value))
            items = list(value.items() if isinstance(value, dict) else enumerate(value))
            named = [(str(key) if isinstance(key, str | int) else type(key).__name__, inner) for key, inner in items]
            stack += [(f"{name}.{key}" if name else key, inner, depth + 1) for key, inner in reversed(named)]
