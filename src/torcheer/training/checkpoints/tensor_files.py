"""Write and read safetensors files of torch tensors in one pass, with their checksum."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from torcheer.disk import strict_json
from torcheer.encoding import crc32, cut
from torcheer.errors import ArchiveDamaged, BadArgument

MOST_HEADER_BYTES = 100_000_000  # the limit of other readers
_NAMES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.uint16: "U16", torch.int16: "I16",
    torch.uint32: "U32", torch.int32: "I32", torch.uint64: "U64", torch.int64: "I64", torch.float16: "F16",
    torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e8m0fnu: "F8_E8M0",
}  # fmt: skip
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


class ChecksumFile:
    """A file that counts the bytes read or written, and their CRC-32."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.bytes, self.crc32 = 0, 0

    def write(self, data: Any) -> None:
        remaining = memoryview(data)
        self._count(remaining)
        while remaining:
            remaining = remaining[self._file.write(remaining) :]

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._count(data)
        return data

    def fill(self, data: memoryview) -> None:
        """Fill a buffer from the file; raise where the file is shorter."""
        offset = 0
        while offset < len(data):
            count = self._file.readinto(data[offset:])  # type: ignore[attr-defined]
            if not count:
                raise ArchiveDamaged(f"{self._file.name} ends after {self.bytes + offset} bytes")
            offset += count
        self._count(data)

    def _count(self, data: Any) -> None:
        self.bytes += len(data)
        self.crc32 = crc32(data, self.crc32)


def write_tensors(file: ChecksumFile, tensors: Mapping[str, Tensor]) -> None:
    """Write a complete safetensors file."""
    # The widest dtypes first: then each tensor begins at a multiple of its item size.
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


def read_tensors(file: ChecksumFile, path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file, each into its own memory.

    Damage raises before more memory than the file's size is allocated.
    """
    size = os.path.getsize(path)
    header_bytes = int.from_bytes(file.read(8), "little")
    if header_bytes > min(MOST_HEADER_BYTES, size - 8):
        raise ArchiveDamaged(f"{path} is no safetensors file, or is cut: its header would be {header_bytes} bytes long")
    header = strict_json(file.read(header_bytes), f"{path}: its header")
    if not isinstance(header, dict):
        raise ArchiveDamaged(f"{path}: its header is no object")
    header.pop("__metadata__", None)
    entries = [(*_parse_entry(name, entry, path), name) for name, entry in header.items()]
    tensors, position = {}, 0
    for begin, end, dtype, shape, name in sorted(entries, key=lambda entry: entry[:2]):
        if begin != position or end > size - 8 - header_bytes:
            raise ArchiveDamaged(f"{path}: {cut(name)} does not follow the tensor before it, or lies outside")
        tensors[name] = torch.empty(shape, dtype=dtype)
        file.fill(_bytes(tensors[name]))
        position = end
    if position != size - 8 - header_bytes:
        raise ArchiveDamaged(f"{path}: {size - 8 - header_bytes - position} bytes at its end belong to no tensor")
    return tensors


def _parse_entry(name: str, entry: Any, path: Path) -> tuple[int, int, torch.dtype, list[int]]:
    try:
        dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], list(entry["shape"]), entry["data_offsets"]
        is_valid = all(type(number) is int and 0 <= number < 2**63 for number in (*shape, begin, end))
        is_valid = is_valid and end - begin == math.prod(shape) * dtype.itemsize
        is_valid = is_valid and math.prod(length or 1 for length in shape) < 2**60
    except (LookupError, TypeError, ValueError):
        is_valid = False
    if not is_valid:
        raise ArchiveDamaged(f"{path}: {cut(name)} cannot be read: {cut(entry)}")
    return begin, end, dtype, shape


def _bytes(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor."""
    if not tensor.numel():
        return memoryview(b"")
    return tensor.reshape(-1).view(torch.uint8).numpy().data
