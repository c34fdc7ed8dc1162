"""Write and read safetensors files of torch tensors in one pass, with their checksum."""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from torcheer.encoding import crc32
from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.safetensors_header import make_header, read_header
from torcheer.vocabulary.dtypes import DTYPES, torch_types

_SUMMED = torch_types(row for row in DTYPES.values() if row.kind in ("float", "complex") and row.has_arithmetic)


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


def has_nan(tensors: Mapping[str, Tensor]) -> bool:
    """Whether any number is NaN; infinities, as in attention masks, are none."""
    numbers = [tensor.detach() for tensor in tensors.values() if tensor.dtype in _SUMMED]
    return any(bool(torch.isnan(tensor.sum())) and bool(torch.isnan(tensor).any()) for tensor in numbers)


def write_tensors(file: ChecksumFile, tensors: Mapping[str, Tensor]) -> None:
    """Write a complete safetensors file."""
    # The widest dtypes first: then each tensor begins at a multiple of its item size.
    names = sorted(tensors, key=lambda name: -tensors[name].element_size())
    values = [(name, _type(name, tensors[name]), tuple(tensors[name].shape)) for name in names]
    file.write(make_header(values, {"format": "pt"}))
    for name in names:
        file.write(_bytes(tensors[name].detach().cpu().contiguous()))


def read_tensors(file: ChecksumFile, path: Path, size: int | None = None) -> dict[str, Tensor]:
    """Read the tensors of a file of `size` bytes, by default that of `path`, each into its own memory.

    Damage raises before more memory than the file's size is allocated.
    """
    try:
        entries, _ = read_header(file.read, os.path.getsize(path) if size is None else size, path)
    except BadArgument as error:  # a type that no checkpoint has
        raise ArchiveDamaged(str(error)) from error
    tensors = {}
    for entry in sorted(entries, key=attrgetter("begin", "end")):
        tensors[entry.name] = torch.empty(entry.shape, dtype=getattr(torch, entry.type))
        file.fill(_bytes(tensors[entry.name]))
    return tensors


def _type(name: str, tensor: Tensor) -> str:
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in DTYPES or not DTYPES[kind].safetensors:
        raise BadArgument(f"{name} is of type {tensor.dtype}, which safetensors does not have")
    if DTYPES[kind].numbers > 1 and not tensor.dim():
        raise BadArgument(f"{name} is a single element of type {tensor.dtype}, which safetensors has only in rows")
    return kind


def _bytes(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor."""
    if not tensor.numel():
        return memoryview(b"")
    return tensor.reshape(-1).view(torch.uint8).numpy().data
