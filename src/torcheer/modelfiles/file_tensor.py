"""A tensor of a model file: memory-mapped, read or decoded only where somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import bytes_of, from_bytes, numbers_of
from torcheer.errors import ArchiveDamaged, ValueUnavailable
from torcheer.ranks import Shard, assemble
from torcheer.terminal import human_shape, short_repr
from torcheer.vocabulary.array_statistics import Summation
from torcheer.vocabulary.dtypes import DTYPES

Array = NDArray[Any]
Bytes = NDArray[np.uint8]
_CHUNK: Final = 1 << 22  # numbers that are decoded at a time
_MOST_DIMENSIONS: Final = 32
_MOST_EXPANDED_BYTES: Final = 16 << 20  # of a tensor that has more numbers than its storage: `x.expand(1000)`


@dataclass(frozen=True, slots=True)
class Coding:
    """How numbers lie in a file: `elements` of them in each block of `bytes`."""

    elements: int
    bytes: int
    decode: Callable[[Bytes], Array] | None  # (blocks, bytes) -> (blocks, elements); None: it cannot be decoded


def plain_coding(type: str) -> Coding:
    """The coding of an ordinary type."""
    dtype = DTYPES[type]

    def decode(blocks: Bytes) -> Array:
        if type == "bool":  # numpy does not know a truth value of another byte than 0 and 1
            return np.asarray(blocks != 0)
        return numbers_of(type, from_bytes(type, (len(blocks), 1), np.ascontiguousarray(blocks)))

    return Coding(dtype.numbers, dtype.bytes, decode)


class FileTensor:
    """A tensor of a file, `tensor[0]`, `tensor[10:20, 3]`, `tensor.numpy()`; `shape`, `type`, `nbytes`."""

    def __init__(self, name: str, shape: tuple[int, ...], type: str, data: Bytes, coding: Coding) -> None:
        """`data` are its bytes in the file; raises `ArchiveDamaged` where they cannot be those of its shape."""
        self.name, self.shape, self.type = name, shape, type
        self._data, self._coding = data, coding
        numbers, width = prod(shape), shape[-1] if shape else 1
        if len(shape) > _MOST_DIMENSIONS or prod(length or 1 for length in shape) >= 2**48:
            raise ArchiveDamaged(f"{short_repr(name)} would have the shape {human_shape(shape[:8])}")
        if width % coding.elements or len(data) != numbers // coding.elements * coding.bytes:
            raise ArchiveDamaged(
                f"{short_repr(name)} has {len(data):,} bytes, which is not what {type} {human_shape(shape)} takes"
            )

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Its bytes in the file."""
        return len(self._data)

    @property
    def is_readable(self) -> bool:
        """Whether its numbers can be decoded."""
        return self._coding.decode is not None

    def __repr__(self) -> str:
        return f"FileTensor({self.name!r}, {human_shape(self.shape)}, {self.type})"

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 1

    def __getitem__(self, key: Any) -> Array:
        """A part of it; of the first axis only what is asked for is read."""
        first, rest = (key[0], key[1:]) if isinstance(key, tuple) and key else (key, ())
        if not self.shape or not isinstance(first, int | slice | np.integer):
            return np.asarray(self.numpy()[key])
        if isinstance(first, slice):
            start, stop, step = first.indices(len(self))
            if step > 0:
                return np.asarray(self._range(start, max(start, stop))[(slice(None, None, step), *rest)])
            return np.asarray(self.numpy()[key])
        place = int(first) + (len(self) if first < 0 else 0)
        if not 0 <= place < len(self):
            raise IndexError(f"{self.name}[{first}]: it has {len(self)}")
        return np.asarray(self._range(place, place + 1)[(0, *rest)])

    def numpy(self) -> Array:
        """All of it, decoded."""
        return self._range(0, len(self)) if self.shape else self.rows(0, 1).reshape(())

    def mapped(self) -> Array:
        """All of it; of an ordinary type a view of the file, of which only what is read comes into memory."""
        if self.type not in DTYPES or self.type == "bool" or self._coding.elements > 1:
            return self.numpy()
        return numbers_of(self.type, from_bytes(self.type, self.shape, self._data))  # a copy where ml_dtypes is missing

    def _range(self, start: int, stop: int) -> Array:
        rows = prod(self.shape[1:-1]) if len(self.shape) > 1 else 1
        if len(self.shape) == 1:
            return self.rows(0, 1).reshape(-1)[start:stop]
        return self.rows(start * rows, stop * rows).reshape(stop - start, *self.shape[1:])

    # -- rows of its last axis ---------------------------------------------------------------------------------------

    @property
    def row_shape(self) -> tuple[int, int]:
        """How many rows it has, seen as a matrix of its last axis, and how long they are."""
        width = self.shape[-1] if self.shape else 1
        return (prod(self.shape[:-1]), width)

    def rows(self, start: int, stop: int, step: int = 1) -> Array:
        """Some rows of its last axis, decoded."""
        if self._coding.decode is None:
            raise ValueUnavailable(f"{self.name} is of type {self.type}, which is not decoded")
        count, width = self.row_shape
        blocks = width // self._coding.elements
        matrix = self._data.reshape(count, blocks, self._coding.bytes)[start:stop:step]
        if not matrix.size:
            return np.zeros((len(matrix), width), np.float32)
        with np.errstate(all="ignore"):  # NaN and infinities are numbers of a file like others
            decoded = self._coding.decode(np.ascontiguousarray(matrix).reshape(-1, self._coding.bytes))
        return decoded.reshape(len(matrix), width)

    def preview(self, most: int) -> Array:
        """At most about `most` numbers, evenly spread over rows and columns; all of a small tensor, in its shape."""
        if self.size <= most:
            return self.numpy()
        row_step, column_step = self.preview_steps(most)
        return self.rows(0, self.row_shape[0], row_step)[:, ::column_step]

    def preview_steps(self, most: int) -> tuple[int, int]:
        """From one row, and one column, of a preview to the next."""
        count, width = self.row_shape
        side = max(1, int(most**0.5))
        columns = ceil(width / ceil(width / max(side, most // max(1, count))))
        return max(1, ceil(count / max(1, most // columns))), max(1, ceil(width / columns))

    def chunks(self) -> Iterator[Array]:
        """All rows, some megabytes at a time."""
        count, width = self.row_shape
        step = max(1, _CHUNK // max(1, width))
        for start in range(0, count if self.size else 0, step):
            yield self.rows(start, start + step)

    def statistics(self) -> dict[str, Any]:
        """Exact statistics of all its numbers, in bounded memory, by the names of `array_statistics.TABLE`."""
        summation = Summation()
        for chunk in self.chunks():
            summation.add(chunk)
        return summation.finish().facts()


def placed(
    name: str, shape: tuple[int, ...], type: str, storage: Bytes, offset: int, strides: Sequence[int]
) -> FileTensor:
    """A tensor of an ordinary type, by where its numbers lie in a storage.

    - `storage`: the bytes of the storage, mapped.
    - `shape`, `offset`, `strides`: in elements, as torch counts.

    Raises `ArchiveDamaged` where it does not lie in its storage.
    """
    coding = plain_coding(type)
    if len(shape) != len(strides) or len(shape) > _MOST_DIMENSIONS or min((offset, *shape, *strides)) < 0:
        raise ArchiveDamaged(f"{short_repr(name)} has a place that no tensor has")
    count = prod(shape)
    last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides)) if count else 0
    if count and (last + 1) * coding.bytes > len(storage):
        raise ArchiveDamaged(f"{short_repr(name)} lies outside of its storage")
    if count * coding.bytes > max(len(storage), _MOST_EXPANDED_BYTES):
        raise ArchiveDamaged(f"{short_repr(name)} has {count:,} numbers in a storage of {len(storage):,} bytes")
    steps = [stride for stride, length in zip(strides, shape) if length > 1]
    if not count or steps == [prod(shape[axis + 1 :]) for axis, length in enumerate(shape) if length > 1]:
        start = offset * coding.bytes if count else 0
        data = storage[start : start + count * coding.bytes]
        return FileTensor(name, DTYPES[type].in_numbers(shape), type, data, coding)
    return StridedTensor(name, shape, type, storage[offset * coding.bytes :], strides)


class StridedTensor(FileTensor):
    """A tensor whose numbers lie in another order, a transposed weight, say; put in order when it is first read."""

    def __init__(self, name: str, shape: tuple[int, ...], type: str, storage: Bytes, strides: Sequence[int]) -> None:
        """`shape`: of its elements; `storage`: its bytes from the first on; `placed` has checked that it lies there."""
        self.name, self.shape, self.type = name, DTYPES[type].in_numbers(shape), type
        self._coding, self._storage, self._strides, self._elements = plain_coding(type), storage, strides, shape

    @property
    def nbytes(self) -> int:
        """Its bytes, put in order."""
        return bytes_of(self.type, self._elements)

    @cached_property
    def _data(self) -> Bytes:  # type: ignore[override]
        size = self._coding.bytes
        steps = [*(stride * size for stride in self._strides), 1]
        view = np.lib.stride_tricks.as_strided(self._storage, (*self._elements, size), steps, writeable=False)
        return np.ascontiguousarray(view).reshape(-1)


class ShardedTensor(FileTensor):
    """A tensor whose parts lie in the files of several ranks; put together when it is first read."""

    def __init__(self, shape: tuple[int, ...], parts: Sequence[tuple[str, tuple[int, ...], FileTensor]]) -> None:
        """`shape`: of its elements; `parts`: the file of each, where it begins in the whole, and itself."""
        first = parts[0][2]
        self.name, self.shape, self.type = first.name, DTYPES[first.type].in_numbers(shape), first.type
        self._coding, self._parts, self._elements = plain_coding(first.type), parts, shape

    @property
    def nbytes(self) -> int:
        """Its bytes in all files."""
        return bytes_of(self.type, self._elements)

    @cached_property
    def _data(self) -> Bytes:  # type: ignore[override]
        dtype = DTYPES[self.type]
        item = np.dtype((np.void, dtype.bytes))
        parts = []
        for file, at, part in self._parts:
            shape = dtype.in_elements(part.shape)
            parts.append((file, Shard(self._elements, at, shape, ""), part._data.view(item).reshape(shape)))
        return np.ascontiguousarray(assemble(parts, self.name, len(parts))).reshape(-1).view(np.uint8)
