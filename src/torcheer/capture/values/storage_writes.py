"""Written storages: the tensors over each, the writes to it, and its undo log."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torcheer.capture.torch_state import is_wrapped
from torcheer.capture.values.byte_history import UndoLog
from torcheer.capture.values.memory_layout import (
    PLAIN,
    MemoryRegion,
    SpanIndex,
    are_disjoint,
    region_of,
    weak_storage,
)
from torcheer.capture.values.written_regions import Window


class StorageEntry:
    """A tensor over a written storage that no write has reached."""

    __slots__ = ("missed", "ref", "region", "weak")

    def __init__(self, ref: int, weak: Any, region: MemoryRegion | None) -> None:
        self.ref = ref
        self.weak = weak
        self.region = region
        self.missed = 0  # number of writes that went to elements between its own


class OverwrittenValue(NamedTuple):
    """A value that a write will change."""

    ref: int
    tensor: Tensor
    region: MemoryRegion | None


MAX_MISSES = 8  # then a tensor counts as written: checking it for ever would cost quadratic time


class StorageBlock:
    """A written storage: the tensors over it and the writes to it."""

    __slots__ = ("chain", "entries", "stale", "storage", "undo_log", "writes")

    def __init__(self, tensor: Tensor) -> None:
        self.storage = weak_storage(tensor)  # a weak reference keeps its id from being reused
        self.entries = SpanIndex()  # of StorageEntry
        self.writes = SpanIndex()  # of (ref, geometry of the tensor written, region), in order
        self.chain: dict[int, int] = {}  # version -> the earliest version from which every write was recorded
        self.undo_log: UndoLog | None = None
        self.stale: list[int] = []  # ids of stale tensors

    def add_seen_write(self, before: int, after: int) -> None:
        """Note a recorded write that took torch's version counter from `before` to `after`."""
        start = self.chain.get(before, before)
        self.chain[after] = min(start, self.chain.get(after, start))

    def all_writes_seen(self, before: int, after: int) -> bool:
        """Whether every write between two versions was recorded."""
        return self.chain.get(after, after + 1) <= before


class StaleTensor(NamedTuple):
    """A tensor whose memory was written through another tensor."""

    tensor: weakref.ref[Tensor]
    ref: int  # the value it had
    block: StorageBlock
    since: int  # the first write to the block that changed it


def writes_to(tensor: Tensor, stale: StaleTensor) -> list[tuple[int, Any, MemoryRegion | None]]:
    """Return the writes that reached a stale tensor, from the last that covers all of it on."""
    region, writes = region_of(tensor), []
    for number in reversed(stale.block.writes.overlapping(region, stale.since)):
        write = stale.block.writes.items[number]
        if are_disjoint(region, write[2]):
            continue
        writes.append(write)
        if region is not None and covers(write[1], region):
            break
    return writes[::-1]


def covers(writer: Any, region: MemoryRegion) -> bool:
    """Whether a dense tensor covers every byte of a region."""
    if writer is None:
        return False
    sizes, strides, offset, *_ = writer
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return bool(offset * region.itemsize <= region.first and region.end <= (offset + expected) * region.itemsize)


def can_defer(window: Window) -> bool:
    """Whether the bytes that a write replaces can be kept in an undo log."""
    region = window.region
    if region is None or not region.bytes or not is_raw(window.tensor, region):
        return False
    return region.end <= window.tensor.untyped_storage().nbytes()


def is_raw(tensor: Tensor, region: MemoryRegion) -> bool:
    """Whether a tensor is plain strided memory in which no two elements overlap."""
    if type(tensor) not in PLAIN or tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        return False
    if tensor.is_conj() or tensor.is_neg() or is_wrapped(tensor):
        return False
    return 0 not in region.strides or all(size == 1 for size, step in zip(*region[:2], strict=True) if step == 0)


def nbytes(tensor: Tensor) -> int:
    """Return the total size of a tensor's elements; 0 if unknown."""
    try:
        return tensor.numel() * tensor.element_size()
    except (NotImplementedError, RuntimeError):
        return 0
