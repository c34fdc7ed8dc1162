"""Tensors of a `torch.save` file, without torch: its pickle is read as data, tensors stay in the zip, memory-mapped."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.foreign.readers.reading import Reading, plain_text
from torcheer.foreign.readers.weights.torch_pickle import Name, Note, StoredTensor, read_pickle
from torcheer.terminal import short_repr

_END: Final = struct.Struct("<4s4H2LH")  # of the directory: what follows it
_END64, _LOCATOR = struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
_ENTRY: Final = struct.Struct("<4s6H3L5H2L")
_FILE_BYTES: Final = 30  # before the name of a file in the zip
_FULL: Final = 0xFFFFFFFF  # a number that stands in an extra field, as it has 64 bits
_MOST_METADATA, _DEEPEST = 1000, 30


class TorchZip:
    """A zip of torch's: the places of its files, which are not compressed."""

    def __init__(self, reading: Reading) -> None:
        self.reading, self.number = reading, reading.file(reading.name)
        self._data = reading.data(self.number)
        self._files: dict[
            str, tuple[int, int, bool]
        ] = {}  # name -> where its head lies, its bytes, whether they are plain
        for path, begin, size, is_plain in self._directory():
            name = path.partition("/")[2]
            if name in self._files:
                raise ArchiveDamaged(f"two files in it are called {short_repr(name)}")
            self._files[name] = begin, size, is_plain

    def _directory(self) -> Iterator[tuple[str, int, int, bool]]:
        """Yield what the directory at its end says of each file."""
        tail_begin = max(0, len(self._data) - (1 << 16) - _END.size)
        tail = bytes(self._data[tail_begin:])
        end = tail.rfind(b"PK\5\6")
        if end < 0 or len(tail) - end < _END.size:
            raise BadArgument(
                "it is no zip, so it was saved by torch before 1.6, or is another pickle, which could run code: load "
                "it where you trust it, and save its state_dict as .safetensors"
            )
        *_, size, place, _ = _END.unpack_from(tail, end)
        if end >= _LOCATOR.size and tail[end - _LOCATOR.size :].startswith(b"PK\6\7"):
            at = _LOCATOR.unpack_from(tail, end - _LOCATOR.size)[2]
            *_, size, place = _END64.unpack(self._part(at, _END64.size, "the end of its directory"))
        directory = self._part(place, size, "its directory")
        self.reading.budget.spend("bytes", size, "its directory")
        at = 0
        while at < len(directory):
            yield (entry := _entry(bytes(directory[at : at + (1 << 18)]), at))[:4]
            self.reading.budget.spend("items", 1, "its directory")
            at += entry[4]

    def _part(self, begin: int, size: int, what: str) -> memoryview:
        if begin + size > len(self._data):
            raise ArchiveDamaged(f"{what} would lie at byte {begin:,}, outside of the file, or it is cut")
        return self._data[begin : begin + size]

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def names(self) -> list[str]:
        """The files in it, without the folder that they all lie in."""
        return list(self._files)

    def place(self, name: str) -> tuple[int, int]:
        """Where the bytes of a file in it begin and end."""
        if name not in self._files:
            raise ArchiveDamaged(f"it has no {short_repr(name)} in it")
        begin, size, is_plain = self._files[name]
        if not is_plain:
            raise ArchiveDamaged(f"{short_repr(name)} is compressed, which torch never does")
        head = bytes(self._part(begin, _FILE_BYTES, short_repr(name)))
        if head[:4] != b"PK\3\4":
            raise ArchiveDamaged(f"{short_repr(name)} is not where the zip says, at byte {begin:,}")
        name_bytes, extra_bytes = struct.unpack_from("<HH", head, 26)
        start = begin + _FILE_BYTES + name_bytes + extra_bytes
        self._part(start, size, short_repr(name))
        return start, start + size

    def text(self, name: str) -> bytes:
        """A whole file in it."""
        return self.reading.read(self.number, *self.place(name))


def _entry(data: bytes, at: int) -> tuple[str, int, int, bool, int]:
    """Name of a file in a zip, where its head lies, its bytes, whether they are plain; and the bytes of this entry."""
    if len(data) < _ENTRY.size or data[:4] != b"PK\1\2":
        raise ArchiveDamaged(f"byte {at:,} of its directory is no entry")
    facts = _ENTRY.unpack_from(data)
    flags, method, packed, size, name_bytes, extra_bytes, note_bytes = *facts[3:5], *facts[8:13]
    begin = facts[16]
    name = data[_ENTRY.size : _ENTRY.size + name_bytes].decode("utf-8" if flags & 0x800 else "cp437", "replace")
    extra = data[_ENTRY.size + name_bytes : _ENTRY.size + name_bytes + extra_bytes]
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<HH", extra)
        if kind == 1:
            long = [number for (number,) in struct.iter_unpack("<Q", extra[4 : 4 + length // 8 * 8])]
            size, packed, begin = (
                (long or [_FULL]).pop(0) if each == _FULL else each for each in (size, packed, begin)
            )
        extra = extra[4 + length :]
    is_plain = method == 0 and packed == size and not flags & 1
    return name, begin, size, is_plain, _ENTRY.size + name_bytes + extra_bytes + note_bytes


def read(reading: Reading) -> dict[str, Any]:
    """Read a file of `torch.save`: a state_dict, or a dict with some in it."""
    archive = TorchZip(reading)
    if "data.pkl" not in archive:
        raise BadArgument("it has no data.pkl, so torch.save did not write it; a program of torch.export ends in .pt2")
    if "byteorder" in archive and archive.text("byteorder") != b"little":
        raise BadArgument("it was written on a big-endian machine, which is not read")
    root = read_pickle(archive.text("data.pkl"), reading.budget)
    tensors: dict[str, list[Any]] = {}
    metadata: dict[str, str] = {}
    places: dict[str, tuple[int, int]] = {}
    for name, value in _leaves(root):
        if isinstance(value, StoredTensor):
            key = value.storage.key
            if key not in places:
                places[key] = archive.place(f"data/{key}")
            name = name or "tensor"
            reading.budget.spend("items", 1, "its list of tensors")
            tensors[name] = [name, value.type, value.shape, archive.number, *places[key], value.offset, value.strides]
        elif isinstance(value, str | int | float | bool | Note | Name) and len(metadata) < _MOST_METADATA:
            metadata[name] = str(value) if isinstance(value, Name) else plain_text(getattr(value, "text", value))
    return {"format": "torch.save", "tensors": list(tensors.values()), "metadata": metadata}


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
