"""Reads GGUF files of version 2 and 3: metadata, the table of tensors, their blocks."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.modelfiles.file_tensor import Bytes, FileTensor
from torcheer.modelfiles.gguf_codings import CODINGS
from torcheer.modelfiles.model_file import ModelFile, text_of
from torcheer.terminal import short_repr

_NUMBERS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_TEXT, _LIST = 8, 9
_SHOWN: Final = 8  # items of a list in the metadata, which may have a hundred thousand
_MOST_ENTRIES: Final = 1_000_000
_MOST_NAME, _MOST_AXES, _DEEPEST = 1 << 16, 8, 4


def read_file(path: Path) -> ModelFile:
    """Open a GGUF file."""
    data = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    reader = _Reader(data, path)
    if bytes(reader.take(4)) != b"GGUF":
        raise ArchiveDamaged(f"{path} is no GGUF file: it does not begin with GGUF")
    version = reader.number("<I")
    if version not in (2, 3):
        raise BadArgument(f"{path} is GGUF of version {version}; 2 and 3 are read, of little-endian machines")
    tensors, entries = reader.count(24), reader.count(13)
    metadata = dict(reader.entries(entries))
    table = [reader.tensor() for _ in range(tensors)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
        raise ArchiveDamaged(f"{path}: general.alignment is {short_repr(alignment)}")
    start = -(-reader.place // alignment) * alignment
    opened = {name: _open(name, rest, data, start, path) for name, *rest in table}
    if len(opened) < len(table):
        raise ArchiveDamaged(f"{path} has two tensors of the same name")
    return ModelFile(path, f"GGUF {version}", opened, {key: text_of(value) for key, value in metadata.items()})


def _open(name: str, facts: list[Any], data: Bytes, start: int, path: Path) -> FileTensor:
    shape, number, offset = facts
    if number not in CODINGS:
        raise BadArgument(f"{path}: {short_repr(name)} is of type number {number}, which is not known")
    type, coding = CODINGS[number]
    size = prod(shape) // coding.elements * coding.bytes
    if start + offset + size > len(data):
        raise ArchiveDamaged(f"{path}: {short_repr(name)} lies outside of the file, or it is cut")
    return FileTensor(name, shape, type, data[start + offset : start + offset + size], coding)


class _Reader:
    """Reads from the front of a file; every length is checked against what is left."""

    def __init__(self, data: Bytes, path: Path) -> None:
        self._data, self._path, self.place = data, path, 0

    def take(self, count: int) -> memoryview:
        if count > len(self._data) - self.place:
            raise ArchiveDamaged(f"{self._path} ends inside its header, at byte {self.place}")
        self.place += count
        part: Any = self._data[self.place - count : self.place]
        return memoryview(part)

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self, least_bytes: int) -> int:
        """A number of things that take at least so many bytes each."""
        count: int = self.number("<Q")
        if count > _MOST_ENTRIES or count * least_bytes > len(self._data):
            raise ArchiveDamaged(f"{self._path}: its header would have {count:,} entries")
        return count

    def text(self) -> str:
        return bytes(self.take(self.number("<Q"))).decode("utf-8", "replace")

    def entries(self, count: int) -> Iterator[tuple[str, Any]]:
        for _ in range(count):
            yield self.text(), self._value(self.number("<I"), 0)

    def _value(self, kind: int, depth: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind == _LIST and depth < _DEEPEST:
            return self._list(depth)
        if kind not in _NUMBERS:
            raise ArchiveDamaged(f"{self._path}: its metadata has a value of type {kind} at byte {self.place}")
        return self.number(_NUMBERS[kind])

    def _list(self, depth: int) -> str:
        """The first items and their number: the rest is skipped."""
        kind, count = self.number("<I"), self.number("<Q")
        if kind in _NUMBERS:
            form = _NUMBERS[kind]
            data = self.take(min(count, len(self._data)) * struct.calcsize(form))
            first = [value for (value,) in struct.iter_unpack(form, data[: _SHOWN * struct.calcsize(form)])]
        elif count > len(self._data) // 4:
            raise ArchiveDamaged(f"{self._path}: a list of {count:,} values would be longer than the file")
        else:
            first = []
            for number in range(count):
                value = self._value(kind, depth + 1)
                first += [value] if number < _SHOWN else []
        return f"{first}" if count <= _SHOWN else f"{first[:_SHOWN]}… {count:,} values"

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape (the fastest axis last), type and offset."""
        name, axes = self.text(), self.number("<I")
        if len(name) > _MOST_NAME or axes > _MOST_AXES:
            raise ArchiveDamaged(f"{self._path}: {short_repr(name[:80])} would have {axes} axes")
        shape = tuple(self.number("<Q") for _ in range(axes))[::-1]
        return name, shape, self.number("<I"), self.number("<Q")
