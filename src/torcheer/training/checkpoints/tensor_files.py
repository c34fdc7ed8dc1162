"""safetensors files of torch's tensors, written and read in one pass each, their checksum taken on the way."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from torcheer.archive.format.index_frames import strict_json
from torcheer.encoding import crc32, cut
from torcheer.errors import ArchiveDamaged, BadArgument

MOST_HEADER_BYTES = 100_000_000  # what other readers take
_NAMES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.uint16: "U16", torch.int16: "I16",
    torch.uint32: "U32", torch.int32: "I32", torch.uint64: "U64", torch.int64: "I64", torch.float16: "F16",
    torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e8m0fnu: "F8_E8M0",
}  # fmt: skip
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


class Summed:
    """A file that knows how many bytes went through it, and their CRC-32."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.bytes, self.crc32 = 0, 0

    def write(self, data: Any) -> None:
        rest = memoryview(data)
        self._count(rest)
        while rest:
            rest = rest[self._file.write(rest) :]

    def read(self, size: int) -> bytes:
        found = self._file.read(size)
        self._count(found)
        return found

    def fill(self, data: memoryview) -> None:
        """Read as much as fits; raises where there is less."""
        at = 0
        while at < len(data):
            count = self._file.readinto(data[at:])  # type: ignore[attr-defined]
            if not count:
                raise ArchiveDamaged(f"{self._file.name} ends after {self.bytes + at} bytes")
            at += count
        self._count(data)

    def _count(self, data: Any) -> None:
        self.bytes += len(data)
        self.crc32 = crc32(data, self.crc32)


def write_tensors(file: Summed, tensors: Mapping[str, Tensor]) -> None:
    """A whole safetensors file."""
    # The largest types first: then each begins at a multiple of its own width.
    names = sorted(tensors, key=lambda name: -tensors[name].element_size())
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        tensor = tensors[name]
        if tensor.dtype not in _NAMES:
            raise BadArgument(f"{name} is of type {tensor.dtype}, which safetensors does not have")
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in names:
        file.write(_bytes(tensors[name].detach().cpu().contiguous()))


def read_tensors(file: Summed, path: Path) -> dict[str, Tensor]:
    """The tensors of a file, each in memory of its own; damage raises before more than the file's size is taken."""
    size = os.path.getsize(path)
    room = int.from_bytes(file.read(8), "little")
    if room > min(MOST_HEADER_BYTES, size - 8):
        raise ArchiveDamaged(f"{path} is no safetensors file, or is cut: its header would be {room} bytes long")
    header = strict_json(file.read(room), f"{path}: its header")
    if not isinstance(header, dict):
        raise ArchiveDamaged(f"{path}: its header is no object")
    header.pop("__metadata__", None)
    found = [(*_described(name, one, path), name) for name, one in header.items()]
    tensors, at = {}, 0
    for begin, end, dtype, shape, name in sorted(found, key=lambda one: one[:2]):
        if begin != at or end > size - 8 - room:
            raise ArchiveDamaged(f"{path}: {cut(name)} does not follow the tensor before it, or lies outside")
        tensors[name] = torch.empty(shape, dtype=dtype)
        file.fill(_bytes(tensors[name]))
        at = end
    if at != size - 8 - room:
        raise ArchiveDamaged(f"{path}: {size - 8 - room - at} bytes at its end belong to no tensor")
    return tensors


def _described(name: str, found: Any, path: Path) -> tuple[int, int, torch.dtype, list[int]]:
    try:
        dtype, shape, (begin, end) = _DTYPES[found["dtype"]], list(found["shape"]), found["data_offsets"]
        good = all(type(number) is int and 0 <= number < 2**63 for number in (*shape, begin, end))
        good = good and end - begin == math.prod(shape) * dtype.itemsize
        good = good and math.prod(length or 1 for length in shape) < 2**60
    except (LookupError, TypeError, ValueError):
        good = False
    if not good:
        raise ArchiveDamaged(f"{path}: {cut(name)} cannot be read: {cut(found)}")
    return begin, end, dtype, shape


def _bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor."""
    if not tensor.numel():
        return memoryview(b"")
    return tensor.reshape(-1).view(torch.uint8).numpy().data
