"""Tensors of a `torch.save` file, without torch and without its pickle: only what makes tensors is understood.

A pickle is a program. This reader runs it with a table of a few names, each of which makes plain data of ours;
any other name ends the reading. Tensors stay in the zip, where they are memory-mapped.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.modelfiles.file_tensor import Bytes, FileTensor, plain_coding
from torcheer.modelfiles.model_file import ModelFile, text_of
from torcheer.terminal import short_repr

_MOST_PICKLE_BYTES: Final = 64 << 20
_MOST_FILES: Final = 1_000_000
_MOST_TENSORS, _DEEPEST = 1_000_000, 30
STORAGES: Final = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64", "UntypedStorage": "uint8",
}  # fmt: skip


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
    root = _Unpickler(archive).load_checked()
    tensors: dict[str, FileTensor] = {}
    metadata: dict[str, str] = {}
    for name, value in _leaves(root):
        if isinstance(value, _Tensor):
            tensors[name or "tensor"] = _open(archive, name or "tensor", value)
        elif isinstance(value, str | int | float | bool) and len(metadata) < 1000:
            metadata[name] = text_of(value)
        if len(tensors) > _MOST_TENSORS:
            raise ArchiveDamaged(f"{path} has more than {_MOST_TENSORS:,} tensors")
    return ModelFile(path, "torch.save", tensors, metadata)


def _leaves(root: Any) -> Iterator[tuple[str, Any]]:
    """Yield what dicts and lists hold, by dotted names; each container once, so that a cycle ends."""
    seen, stack = set[int](), [("", root, 0)]
    while stack:
        name, value, depth = stack.pop()
        if not isinstance(value, dict | list | tuple) or isinstance(value, _Tensor | _Storage):
            yield name, value
        elif id(value) not in seen and depth < _DEEPEST:
            seen.add(id(value))
            items = list(value.items() if isinstance(value, dict) else enumerate(value))
            named = [(str(key) if isinstance(key, str | int) else type(key).__name__, inner) for key, inner in items]
            stack += [(f"{name}.{key}" if name else key, inner, depth + 1) for key, inner in reversed(named)]


def _open(archive: TorchZip, name: str, tensor: _Tensor) -> FileTensor:
    data, size = archive.bytes_of(f"data/{tensor.storage.key}"), plain_coding(tensor.storage.type).bytes
    strides = [prod(tensor.shape[axis + 1 :]) for axis in range(len(tensor.shape))]
    start, stop = tensor.offset * size, (tensor.offset + prod(tensor.shape)) * size
    if [stride for stride, length in zip(tensor.strides, tensor.shape) if length > 1] != [
        stride for stride, length in zip(strides, tensor.shape) if length > 1
    ]:
        return _strided(name, tensor, data, size)
    if not 0 <= start <= stop <= len(data):
        raise ArchiveDamaged(f"{archive.path}: {short_repr(name)} lies outside of its storage")
    return FileTensor(name, tensor.shape, tensor.storage.type, data[start:stop], plain_coding(tensor.storage.type))


def _strided(name: str, tensor: _Tensor, data: Bytes, size: int) -> FileTensor:
    """A view with other strides, copied: a transposed weight, say."""
    last = tensor.offset + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.strides) if length)
    if min(tensor.strides) < 0 or (last + 1) * size > len(data) or prod(tensor.shape) * size > len(data):
        raise ArchiveDamaged(f"{short_repr(name)} lies outside of its storage")
    items = data[tensor.offset * size :]
    strides = [*(stride * size for stride in tensor.strides), 1]
    view = np.lib.stride_tricks.as_strided(items, (*tensor.shape, size), strides, writeable=False)
    copied = np.ascontiguousarray(view).reshape(-1)
    return FileTensor(name, tensor.shape, tensor.storage.type, copied, plain_coding(tensor.storage.type))


# -- the pickle --------------------------------------------------------------------------------------------------------


class _Storage(NamedTuple):
    key: str
    type: str


@dataclass(frozen=True, slots=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _StorageType:
    """A class of storages in the pickle, by the type of its numbers."""

    type: str


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    numbers = [offset, *shape, *strides]
    if not isinstance(storage, _Storage) or not all(type(number) is int and number >= 0 for number in numbers):
        raise ArchiveDamaged("a tensor in it is described by no numbers")
    if len(shape) != len(strides) or len(shape) > 32:
        raise ArchiveDamaged("a tensor in it has a shape and strides that do not fit")
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _empty_dict(*given: Any) -> OrderedDict[Any, Any]:
    if given:  # torch fills it afterwards; copies of a long list, again and again, would fill the memory
        raise ArchiveDamaged("a dict in it is made of another object")
    return OrderedDict()


def _size(numbers: Any = ()) -> tuple[Any, ...]:
    if len(numbers) > 32:
        raise ArchiveDamaged("a shape in it has more than 32 axes")
    return tuple(numbers)


def _rebuild_parameter(tensor: Any, *_: Any) -> Any:
    return tensor


_NAMES: Final[dict[tuple[str, str], Any]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("collections", "OrderedDict"): _empty_dict,
    ("torch", "Size"): _size,
    **{("torch", name): _StorageType(type) for name, type in STORAGES.items()},
    ("torch.storage", "UntypedStorage"): _StorageType("uint8"),
}


class _Unpickler(pickle.Unpickler):
    """Runs torch's pickle with names of ours alone."""

    def __init__(self, archive: TorchZip) -> None:
        super().__init__(io.BytesIO(archive.text("data.pkl")), encoding="utf-8")
        self._path = archive.path

    def load_checked(self) -> Any:
        try:
            return self.load()
        except (pickle.UnpicklingError, EOFError, ImportError, IndexError, KeyError) as error:
            raise ArchiveDamaged(f"{self._path}: its pickle cannot be read: {str(error)[:200]}") from error

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise BadArgument(
                f"{self._path} holds more than tensors: it names {short_repr(f'{module}.{name}')}, which could run "
                f"code and is not looked up. Load it where you trust it, and save its state_dict as .safetensors"
            )
        return _NAMES[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        if not (isinstance(pid, tuple) and len(pid) >= 3 and pid[0] == "storage" and isinstance(pid[1], _StorageType)):
            raise ArchiveDamaged(f"{self._path}: a storage in it is described by {short_repr(pid)}")
        return _Storage(str(pid[2]), pid[1].type)
