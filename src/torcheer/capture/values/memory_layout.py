"""Where tensors lie in their memory, and whether it is there."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

# What tensors without plain memory raise: sparse, nested, wrapped, not yet initialised.
NO_MEMORY = (NotImplementedError, RuntimeError, ValueError, AttributeError, TypeError)
PLAIN = (Tensor, torch.nn.Parameter)
Geometry = tuple[tuple[int, ...], tuple[int, ...], int]  # sizes, strides, offset


class Place(NamedTuple):
    """Where a tensor lies in its storage."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int  # in elements
    itemsize: int
    first: int  # its first byte
    end: int  # the byte after its last

    @property
    def bytes(self) -> int:
        """What its elements take."""
        count = self.itemsize
        for size in self.sizes:
            count *= size
        return count


def storage_of(tensor: Tensor) -> int:
    """A number for the memory behind a tensor; tensors without plain memory stand for themselves."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except NO_MEMORY:
        return storage_of(bare(tensor)) if is_wrapped(tensor) else id(tensor)


def is_wrapped(tensor: Tensor) -> bool:
    """Whether a tensor stands for another one inside vmap, grad or jvp."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def bare(tensor: Tensor) -> Tensor:
    """The tensor behind the wrappers of torch.func; itself where there are none."""
    while isinstance(tensor, Tensor) and is_wrapped(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def geometry(tensor: Tensor) -> Geometry | None:
    """Where in its storage a tensor lies."""
    tensor = bare(tensor)
    try:
        return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
    except NO_MEMORY:
        return None


def place_of(tensor: Tensor) -> Place | None:
    """Where in its storage a tensor lies, in bytes too; None where it has no plain memory."""
    if is_wrapped(tensor):
        tensor = bare(tensor)
    try:
        if tensor.is_nested:
            return None
        sizes, strides, offset = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
        itemsize = tensor.element_size()
    except NO_MEMORY:
        return None
    if 0 in sizes:
        return Place(sizes, strides, offset, itemsize, offset * itemsize, offset * itemsize)
    end = offset + 1
    for size, stride in zip(sizes, strides, strict=True):
        end += (size - 1) * stride
    return Place(sizes, strides, offset, itemsize, offset * itemsize, end * itemsize)


def apart(one: Place | None, other: Place | None) -> bool:
    """Whether two places of one storage surely share no element."""
    if one is None or other is None:
        return False
    if one.end <= other.first or other.end <= one.first:
        return True
    return one.itemsize == other.itemsize and _on_other_lattice_points(one, other)


def _on_other_lattice_points(one: Place, other: Place) -> bool:
    """Columns, patches and other windows of one dense tensor: their spans overlap, their indices may not."""
    steps = sorted({step for place in (one, other) for size, step in zip(*place[:2], strict=True) if size > 1})[::-1]
    if not steps or steps[-1] <= 0 or any(wide % narrow for wide, narrow in itertools.pairwise(steps)):
        return False
    ranges = [_ranges(place, steps) for place in (one, other)]
    if ranges[0] is None or ranges[1] is None:
        return False
    return any(a + m <= b or b + n <= a for (a, m), (b, n) in zip(*ranges, strict=True))


def _ranges(place: Place, steps: list[int]) -> list[tuple[int, int]] | None:
    """First index and count along each step; None if a window reaches over the end of a row."""
    counts = {step: size for size, step in zip(*place[:2], strict=True) if size > 1}
    if len(counts) != sum(size > 1 for size in place.sizes):
        return None
    found, rest, room = [], place.offset, 0
    for step in steps:
        start, rest = divmod(rest, step)
        count = counts.get(step, 1)
        if room and start + count > room // step:
            return None
        found.append((start, count))
        room = step
    return [*found, (rest, 1)]


def disjoint(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one storage surely share no element."""
    return apart(place_of(one), place_of(other))


def inside(one: Tensor, other: Tensor) -> bool:
    """Whether `one` lies within the span of `other`."""
    a, b = place_of(one), place_of(other)
    return a is not None and b is not None and b.first <= a.first and a.end <= b.end and a.itemsize == b.itemsize


def is_empty(tensor: Tensor) -> bool:
    """Whether it has no element that a write could change."""
    try:
        return tensor.numel() == 0
    except NO_MEMORY:
        return False


def is_freed(tensor: Tensor) -> bool:
    """Whether its storage is too small to be read; reading it would crash the process."""
    try:
        if type(tensor) not in PLAIN or tensor.layout is not torch.strided:
            tensor = bare(tensor)
            parts = parts_of(tensor)
            if parts:
                return any(is_freed(part) for part in parts)
        if tensor.numel() == 0 or tensor.device.type == "meta":
            return False
        place = place_of(tensor)
        return place is not None and place.end > tensor.untyped_storage().nbytes()
    except NO_MEMORY:
        return False


_SPARSE_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), ("crow_indices", "col_indices", "values")),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), ("ccol_indices", "row_indices", "values")),
}


def parts_of(tensor: Tensor) -> list[Tensor]:
    """The tensors that a sparse tensor or a wrapper (DTensor, masked, jagged) is made of."""
    if tensor.layout in _SPARSE_PARTS:
        return [getattr(tensor, name)() for name in _SPARSE_PARTS[tensor.layout]]
    flatten = getattr(tensor, "__tensor_flatten__", None)
    return [getattr(tensor, name) for name in flatten()[0]] if flatten is not None else []


def weak_storage(tensor: Tensor) -> StorageWeakRef | None:
    """A weak reference to the memory behind a tensor; None where it has no plain memory."""
    try:
        return StorageWeakRef(bare(tensor).untyped_storage())
    except NO_MEMORY:
        return None


def is_being_recorded_into_a_graph(tensor: Tensor) -> bool:
    """Whether a CUDA graph is being recorded: nothing has a value yet, and asking for one would end the recording."""
    return tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing()


# -- many places -----------------------------------------------------------------------------------------------------

FAN = 16
NOWHERE = (1 << 62, -1)  # the span of what was removed
EVERYWHERE = (-1, 1 << 62)


class Spans:
    """Things in the order they came, each with a span of bytes; those that overlap a span are found without a walk.

    Each level holds the common span of every sixteen of the level below, so that whole groups are passed over.
    """

    __slots__ = ("_levels", "_removed", "items")

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._levels: list[list[tuple[int, int]]] = [[]]
        self._removed = 0

    def append(self, place: Place | None, item: Any) -> None:
        """Add one; where its place is unknown, it overlaps everything. Numbers change if most were removed."""
        if self._removed > FAN and 2 * self._removed > len(self.items):
            self._pack()
        first, end = _span(place)
        number = len(self.items)
        self.items.append(item)
        for level in self._levels:
            if number == len(level):
                level.append((first, end))
            else:
                a, b = level[number]
                level[number] = (first if first < a else a, end if end > b else b)
            number //= FAN
        if len(self._levels[-1]) > FAN:
            self._levels.append(_above(self._levels[-1]))

    def remove(self, number: int) -> None:
        """Forget one; the numbers of the others stay."""
        self.items[number] = None
        self._removed += 1
        self._levels[0][number] = NOWHERE
        for below, level in zip(self._levels, self._levels[1:], strict=False):
            number //= FAN
            level[number] = _common(below[number * FAN : (number + 1) * FAN])

    def _pack(self) -> None:
        left = [pair for pair in zip(self.items, self._levels[0], strict=True) if pair[0] is not None]
        self.items, self._removed = [item for item, _ in left], 0
        self._levels = [[span for _, span in left]]
        while len(self._levels[-1]) > FAN:
            self._levels.append(_above(self._levels[-1]))

    def overlapping(self, place: Place | None, since: int = 0) -> list[int]:
        """The numbers, from `since` on, of all whose span overlaps that of a place."""
        first, end = _span(place)
        numbers = list(range(len(self._levels[-1])))
        for height in range(len(self._levels) - 1, -1, -1):
            level, size = self._levels[height], FAN**height
            numbers = [n for n in numbers if level[n][0] < end and first < level[n][1] and (n + 1) * size > since]
            if height:
                count = len(self._levels[height - 1])
                numbers = [below for n in numbers for below in range(n * FAN, min(n * FAN + FAN, count))]
        return numbers


def _span(place: Place | None) -> tuple[int, int]:
    """Never empty, so that a tensor without elements finds itself."""
    return EVERYWHERE if place is None else (place.first, place.end if place.end > place.first else place.first + 1)


def _above(level: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The common spans of every sixteen."""
    return [_common(level[start : start + FAN]) for start in range(0, len(level), FAN)]


def _common(spans: list[tuple[int, int]]) -> tuple[int, int]:
    return min(first for first, _ in spans), max(end for _, end in spans)
