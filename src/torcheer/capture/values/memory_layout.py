"""Memory regions of tensors: storage, offset, strides, overlap; an index of spans."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from torcheer.capture.torch_state import inner_tensor, is_wrapped

# Errors raised by tensors without plain memory: sparse, nested, wrapped, uninitialised.
NO_MEMORY = (NotImplementedError, RuntimeError, ValueError, AttributeError, TypeError)
PLAIN = (Tensor, torch.nn.Parameter)


class Geometry(NamedTuple):
    """Where in its storage a tensor lies, and how its numbers are to be read from there."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int  # in elements
    is_conj: bool
    is_neg: bool


class MemoryRegion(NamedTuple):
    """The region of its storage that a tensor covers."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int  # in elements
    itemsize: int
    first: int  # its first byte
    end: int  # the byte after its last

    @property
    def bytes(self) -> int:
        """Total size of its elements."""
        count = self.itemsize
        for size in self.sizes:
            count *= size
        return count


def storage_of(tensor: Tensor) -> int:
    """Return an id of a tensor's storage; of the tensor itself if it has no plain memory."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except NO_MEMORY:
        return storage_of(unwrap(tensor)) if is_wrapped(tensor) else id(tensor)


def unwrap(tensor: Tensor) -> Tensor:
    """Return the tensor inside torch.func's wrappers; itself if there are none."""
    while isinstance(tensor, Tensor) and is_wrapped(tensor):
        tensor = inner_tensor(tensor)
    return tensor


def geometry(tensor: Tensor) -> Geometry | None:
    """Return sizes, strides and offset of a tensor; None if it has no plain memory."""
    tensor = unwrap(tensor)
    try:
        where = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
        return Geometry(*where, tensor.is_conj(), tensor.is_neg())
    except NO_MEMORY:
        return None


def overlap_of(tensors: list[Tensor], written: list[Tensor]) -> tuple[Geometry | None, ...] | None:
    """Return where the arguments of an operation lie that share memory with what it writes; None without such."""
    storages = set(map(storage_of, written))
    shared = [storage_of(tensor) in storages for tensor in tensors]
    if sum(shared) <= len(written):
        return None
    return tuple(geometry(tensor) if is_shared else None for tensor, is_shared in zip(tensors, shared, strict=True))


def region_of(tensor: Tensor) -> MemoryRegion | None:
    """Return the region of its storage that a tensor covers; None if it has no plain memory."""
    if is_wrapped(tensor):
        tensor = unwrap(tensor)
    try:
        if tensor.is_nested:
            return None
        sizes, strides, offset = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
        itemsize = tensor.element_size()
    except NO_MEMORY:
        return None
    if 0 in sizes:
        return MemoryRegion(sizes, strides, offset, itemsize, offset * itemsize, offset * itemsize)
    end = offset + 1
    for size, stride in zip(sizes, strides, strict=True):
        end += (size - 1) * stride
    return MemoryRegion(sizes, strides, offset, itemsize, offset * itemsize, end * itemsize)


def are_disjoint(first: MemoryRegion | None, second: MemoryRegion | None) -> bool:
    """Whether two regions of one storage certainly share no element."""
    if first is None or second is None:
        return False
    if first.end <= second.first or second.end <= first.first:
        return True
    return first.itemsize == second.itemsize and _on_other_lattice_points(first, second)


def _on_other_lattice_points(first: MemoryRegion, second: MemoryRegion) -> bool:
    """Whether windows of one dense tensor (columns, patches) interleave without overlap."""
    steps = sorted({step for region in (first, second) for size, step in zip(*region[:2], strict=True) if size > 1})[
        ::-1
    ]
    if not steps or steps[-1] <= 0 or any(wide % narrow for wide, narrow in itertools.pairwise(steps)):
        return False
    ranges = [_ranges(region, steps) for region in (first, second)]
    if ranges[0] is None or ranges[1] is None:
        return False
    return any(a + m <= b or b + n <= a for (a, m), (b, n) in zip(*ranges, strict=True))


def _ranges(region: MemoryRegion, steps: list[int]) -> list[tuple[int, int]] | None:
    """Return first index and count along each step; None if a window crosses the end of a row."""
    counts = {step: size for size, step in zip(*region[:2], strict=True) if size > 1}
    if len(counts) != sum(size > 1 for size in region.sizes):
        return None
    ranges, remainder, room = [], region.offset, 0
    for step in steps:
        start, remainder = divmod(remainder, step)
        count = counts.get(step, 1)
        if room and start + count > room // step:
            return None
        ranges.append((start, count))
        room = step
    return [*ranges, (remainder, 1)]


def is_inside(inner: Tensor, outer: Tensor) -> bool:
    """Whether `inner` lies within the span of `outer`."""
    a, b = region_of(inner), region_of(outer)
    return a is not None and b is not None and b.first <= a.first and a.end <= b.end and a.itemsize == b.itemsize


def is_empty(tensor: Tensor) -> bool:
    """Whether a tensor has no elements."""
    try:
        return tensor.numel() == 0
    except NO_MEMORY:
        return False


def is_freed(tensor: Tensor) -> bool:
    """Whether a tensor's storage is too small to be read; reading it would crash the process."""
    try:
        if type(tensor) not in PLAIN or tensor.layout is not torch.strided:
            tensor = unwrap(tensor)
            parts = parts_of(tensor)
            if parts:
                return any(is_freed(part) for part in parts)
        if tensor.numel() == 0 or tensor.device.type == "meta":
            return False
        region = region_of(tensor)
        return region is not None and region.end > tensor.untyped_storage().nbytes()
    except NO_MEMORY:
        return False


_SPARSE_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), ("crow_indices", "col_indices", "values")),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), ("ccol_indices", "row_indices", "values")),
}


def parts_of(tensor: Tensor) -> list[Tensor]:
    """Return the tensors that a sparse tensor or a wrapper (DTensor, masked, jagged) is made of."""
    if tensor.layout in _SPARSE_PARTS:
        return [getattr(tensor, name)() for name in _SPARSE_PARTS[tensor.layout]]
    flatten = getattr(tensor, "__tensor_flatten__", None)
    return [getattr(tensor, name) for name in flatten()[0]] if flatten is not None else []


def weak_storage(tensor: Tensor) -> StorageWeakRef | None:
    """Return a weak reference to a tensor's storage; None if it has no plain memory."""
    try:
        return StorageWeakRef(unwrap(tensor).untyped_storage())
    except NO_MEMORY:
        return None


def addresses_of(tensor: Tensor) -> range:
    """Return the addresses of a tensor's storage; none if it has no plain memory."""
    try:
        storage = unwrap(tensor).untyped_storage()
        first = storage.data_ptr()
        return range(first, first + storage.nbytes()) if first else range(0)
    except NO_MEMORY:
        return range(0)


def is_foreign(tensor: Tensor) -> bool:
    """Whether a tensor lies in memory that torch did not allocate (dlpack, numpy, a mapped file)."""
    try:
        return not tensor.untyped_storage().resizable()
    except NO_MEMORY:
        return False


def is_being_recorded_into_a_graph(tensor: Tensor) -> bool:
    """Whether a CUDA graph is being recorded.

    No value exists yet, and reading one would end the recording.
    """
    return tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing()


# -- an index of spans -----------------------------------------------------------------------------------------------

FAN = 16
NOWHERE = (1 << 62, -1)  # the span of a removed item
EVERYWHERE = (-1, 1 << 62)


class SpanIndex:
    """Items in insertion order, each with a byte span; finds overlaps without a full scan.

    Each level holds the common span of every sixteen spans of the level below, so that whole groups are skipped.
    """

    __slots__ = ("_levels", "_removed", "items")

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._levels: list[list[tuple[int, int]]] = [[]]
        self._removed = 0

    def append(self, region: MemoryRegion | None, item: Any) -> None:
        """Add an item; without a region it overlaps everything.

        Renumbers the items if most were removed.
        """
        if self._removed > FAN and 2 * self._removed > len(self.items):
            self._pack()
        first, end = _span(region)
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
            self._levels.append(_merge_level(self._levels[-1]))

    def remove(self, number: int) -> None:
        """Remove an item; the numbers of the others stay."""
        self.items[number] = None
        self._removed += 1
        self._levels[0][number] = NOWHERE
        for below, level in zip(self._levels, self._levels[1:], strict=False):
            number //= FAN
            level[number] = _common(below[number * FAN : (number + 1) * FAN])

    def _pack(self) -> None:
        remaining = [pair for pair in zip(self.items, self._levels[0], strict=True) if pair[0] is not None]
        self.items, self._removed = [item for item, _ in remaining], 0
        self._levels = [[span for _, span in remaining]]
        while len(self._levels[-1]) > FAN:
            self._levels.append(_merge_level(self._levels[-1]))

    def overlapping(self, region: MemoryRegion | None, since: int = 0) -> list[int]:
        """Return the numbers, from `since` on, of the items whose span overlaps a region."""
        first, end = _span(region)
        numbers = list(range(len(self._levels[-1])))
        for height in range(len(self._levels) - 1, -1, -1):
            level, size = self._levels[height], FAN**height
            numbers = [n for n in numbers if level[n][0] < end and first < level[n][1] and (n + 1) * size > since]
            if height:
                count = len(self._levels[height - 1])
                numbers = [below for n in numbers for below in range(n * FAN, min(n * FAN + FAN, count))]
        return numbers


def _span(region: MemoryRegion | None) -> tuple[int, int]:
    """Return the byte span of a region; never empty, so that an empty tensor finds itself."""
    return (
        EVERYWHERE if region is None else (region.first, region.end if region.end > region.first else region.first + 1)
    )


def _merge_level(level: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the common span of every sixteen spans."""
    return [_common(level[start : start + FAN]) for start in range(0, len(level), FAN)]


def _common(spans: list[tuple[int, int]]) -> tuple[int, int]:
    return min(first for first, _ in spans), max(end for _, end in spans)
