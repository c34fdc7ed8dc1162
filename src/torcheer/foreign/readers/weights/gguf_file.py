"""Reads GGUF files of version 2 and 3: metadata, the table of tensors, their blocks."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import prod
from typing import Any, Final

from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.foreign.readers.reading import Reading, plain_text
from torcheer.terminal import short_repr
from torcheer.vocabulary.dtypes import codes

_TYPES: Final = codes("gguf")
_NUMBERS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_TEXT, _LIST = 8, 9
_SHOWN: Final = 8  # items of a list in the metadata, which may have a hundred thousand
_MOST_NAME, _MOST_AXES, _DEEPEST = 1 << 16, 8, 4


def read(reading: Reading) -> dict[str, Any]:
    """Read a GGUF file."""
    number = reading.file(reading.name)
    header = _Header(reading, number)
    if bytes(header.take(4)) != b"GGUF":
        raise ArchiveDamaged("it is no GGUF file: it does not begin with GGUF")
    version = header.number("<I")
    if version not in (2, 3):
        raise BadArgument(f"it is GGUF of version {version}; 2 and 3 are read, of little-endian machines")
    tensors, entries = header.count(24), header.count(13)
    pairs = list(header.entries(entries))
    metadata = dict(pairs)
    if len(metadata) < len(pairs):
        raise ArchiveDamaged("its metadata has two values of the same name")
    table = [header.tensor() for _ in range(tensors)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
        raise ArchiveDamaged(f"general.alignment is {short_repr(alignment)}")
    start, size = -(-header.place // alignment) * alignment, len(reading.data(number))
    if len({name for name, *_ in table}) < len(table):
        raise ArchiveDamaged("it has two tensors of the same name")
    return {
        "format": f"GGUF {version}",
        "tensors": [_placed(name, rest, number, start, size) for name, *rest in table],
        "metadata": {key: plain_text(value) for key, value in metadata.items()},
    }


def _placed(name: str, facts: list[Any], number: int, start: int, file_bytes: int) -> list[Any]:
    shape, kind, offset = facts
    if kind not in _TYPES:
        raise BadArgument(f"{short_repr(name)} is of type number {kind}, which is not known")
    type = _TYPES[kind]
    begin, size = start + offset, prod(shape) // type.numbers * type.bytes
    if begin + size > file_bytes:
        raise ArchiveDamaged(f"{short_repr(name)} lies outside of the file, or it is cut")
    return [name, type.name, shape, number, begin, begin + size, 0, None]


class _Header:
    """Reads from the front of a file; every length is checked against what is left."""

    def __init__(self, reading: Reading, number: int) -> None:
        self._reading, self._data, self.place = reading, reading.data(number), 0

    def take(self, count: int) -> memoryview:
        if count > len(self._data) - self.place:
            raise ArchiveDamaged(f"it ends inside its header, at byte {self.place:,}")
        self.place += count
        return self._data[self.place - count : self.place]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self, least_bytes: int) -> int:
        """A number of things that take at least so many bytes each."""
        count: int = self.number("<Q")
        if count * least_bytes > len(self._data):
            raise ArchiveDamaged(f"its header would have {count:,} entries, which is more than the file has room for")
        self._reading.budget.spend("items", count, "its header")
        return count

    def text(self) -> str:
        length = self.number("<Q")
        self._reading.budget.spend("bytes", min(length, len(self._data)), "its header")
        return bytes(self.take(length)).decode("utf-8", "replace")

    def entries(self, count: int) -> Iterator[tuple[str, Any]]:
        for _ in range(count):
            yield self.text(), self._value(self.number("<I"), 0)

    def _value(self, kind: int, depth: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind == _LIST and depth < _DEEPEST:
            return self._list(depth)
        if kind not in _NUMBERS:
            raise ArchiveDamaged(f"its metadata has a value of type {kind} at byte {self.place:,}")
        return self.number(_NUMBERS[kind])

    def _list(self, depth: int) -> str:
        """The first items and their number: the rest is skipped."""
        kind, count = self.number("<I"), self.number("<Q")
        if kind in _NUMBERS:
            form = _NUMBERS[kind]
            data = self.take(min(count, len(self._data)) * struct.calcsize(form))
            first = [value for (value,) in struct.iter_unpack(form, data[: _SHOWN * struct.calcsize(form)])]
        elif count > len(self._data) // 4:
            raise ArchiveDamaged(f"a list of {count:,} values would be longer than the file")
        else:
            self._reading.budget.spend("steps", count, "its metadata")
            first = []
            for number in range(count):
                value = self._value(kind, depth + 1)
                first += [value] if number < _SHOWN else []
        return f"{first}" if count <= _SHOWN else f"{first[:_SHOWN]}… {count:,} values"

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape (the fastest axis last), type and offset."""
        name, axes = self.text(), self.number("<I")
        if len(name) > _MOST_NAME or axes > _MOST_AXES:
            raise ArchiveDamaged(f"{short_repr(name[:80])} would have {axes} axes")
        shape = tuple(self.number("<Q") for _ in range(axes))[::-1]
        return name, shape, self.number("<I"), self.number("<Q")
