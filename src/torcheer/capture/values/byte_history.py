"""The undo log of a storage: the bytes each write replaced, to rebuild old values on demand.

A buffer filled in a thousand steps has a thousand values. Copying it before each write would cost quadratic time; the
replaced bytes cost as much as the writes. A value is the current memory with the later writes undone, and the position
that was read last is kept: reading all values, in either direction, undoes each write once.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from torcheer.capture.torch_state import UNDONE_WRITES, require, unsafe_view
from torcheer.capture.values.memory_layout import MemoryRegion
from torcheer.capture.values.value_copies import laid_out
from torcheer.errors import ValueUnavailable

ROUNDING = 16  # of the first byte, so that numbers of every type can be read


class _UndoRecord:
    """The other bytes of one write: those before it, or, while it is undone, those after it."""

    __slots__ = ("data", "dtype", "index", "region")

    def __init__(self, region: MemoryRegion, dtype: torch.dtype, index: Any, data: Tensor) -> None:
        self.region = region
        self.dtype = dtype
        self.index = index  # None: the whole region
        self.data = data

    def swap(self, memory: Tensor, first: int) -> None:
        """Undo the write, or redo it."""
        window = window_at(memory.untyped_storage(), self.region, self.dtype, first)
        if self.index is None:
            replaced = window.clone()
            window.copy_(self.data)
        else:
            replaced = window[self.index]
            window[self.index] = self.data
        self.data = replaced


class UndoLog:
    """The writes to one storage since a value in it was first deferred."""

    def __init__(self, tensor: Tensor) -> None:
        self._live: Any = tensor.untyped_storage()  # None once sealed
        self._begin = self._live.data_ptr()  # its address
        self._undo_records: list[_UndoRecord] = []
        self._first, self._end = 1 << 62, 0  # range of the bytes involved
        self._memory: Tensor | None = None  # a copy of these bytes, after `_at` writes
        self._at = 0
        self._lock = threading.Lock()
        self.waiting: list[int] = []  # refs of the deferred values; they hold this log, so only refs: no cycle
        self.bytes = 0  # total size of the deferred values

    def defer(self, ref: int, region: MemoryRegion, dtype: torch.dtype, anchor: Tensor | None) -> DeferredValue:
        """Return a deferred copy of the value now in a region."""
        self._extend_range(region)
        self.bytes += region.bytes
        self.waiting.append(ref)
        return DeferredValue(self, len(self._undo_records), region, dtype, anchor)

    def record_write(self, part: Tensor, region: MemoryRegion, index: Any) -> int:
        """Keep the bytes that a write will replace; return how many."""
        if self._memory is not None:
            with self._lock, torch.inference_mode(False):
                self._go_to(len(self._undo_records))  # every record holds the bytes before its write again
                self._memory = None
        part = part.detach() if part.requires_grad else part
        if index is not None:  # an index of 0-dimensional tensors alone would give a view, and not copies
            index = tuple(torch.atleast_1d(item).clone() if type(item) is Tensor else item for item in index)
        data = part.clone() if index is None else part[index]
        self._undo_records.append(_UndoRecord(region, part.dtype, index, data))
        self._extend_range(region)
        return data.numel() * data.element_size()

    def seal(self) -> None:
        """Copy the live memory, which may change unseen from now on."""
        with self._lock, torch.inference_mode(False):
            if self._memory is None:
                with suppress(ValueUnavailable):  # raised again when a value is read
                    self._copy_memory()
            self._live = None

    def read(self, position: int, region: MemoryRegion, dtype: torch.dtype) -> Tensor:
        """Return the content of a region before write number `position`."""
        with self._lock, torch.inference_mode(False):
            if self._memory is None:
                self._copy_memory()
            self._go_to(position)
            assert self._memory is not None
            window = window_at(self._memory.untyped_storage(), region, dtype, self._first)
            return laid_out(window.clone(), window, self._begin + region.first)

    def _extend_range(self, region: MemoryRegion) -> None:
        self._first = min(self._first, region.first // ROUNDING * ROUNDING)
        self._end = max(self._end, region.end)

    def _copy_memory(self) -> None:
        if self._live is None or self._live.nbytes() < self._end:
            raise ValueUnavailable("its memory was freed by the model, unseen, before its value was needed")
        size = self._end - self._first
        region = MemoryRegion((size,), (1,), self._first, 1, self._first, self._end)
        self._memory = window_at(self._live, region, torch.uint8, 0).clone()
        self._at = len(self._undo_records)

    def _go_to(self, position: int) -> None:
        assert self._memory is not None
        while self._at > position:
            self._at -= 1
            self._undo_records[self._at].swap(self._memory, self._first)
        while self._at < position:
            self._undo_records[self._at].swap(self._memory, self._first)
            self._at += 1


class DeferredValue:
    """A value that is rebuilt from the undo log when it is read."""

    __slots__ = ("_anchor", "_cached", "_dtype", "_position", "_region", "_undo_log")

    def __init__(
        self, undo_log: UndoLog, position: int, region: MemoryRegion, dtype: torch.dtype, anchor: Tensor | None
    ) -> None:
        self._undo_log = undo_log
        self._position = position
        self._region = region
        self._dtype = dtype
        self._anchor = anchor  # the node of the autograd graph that gradients flow to
        self._cached: weakref.ref[Tensor] | None = None

    @property
    def requires_grad(self) -> bool:
        """Whether the value is part of an autograd graph."""
        return self._anchor is not None

    def value(self) -> Tensor:
        """Return the value; the same tensor as long as a caller holds it."""
        value = self._cached() if self._cached is not None else None
        if value is None:
            value = self._undo_log.read(self._position, self._region, self._dtype)
            if self._anchor is not None:
                with torch.inference_mode(False), torch.enable_grad():
                    data, value = value, unsafe_view(self._anchor, self._region.sizes)
                value.data = data
            self._cached = weakref.ref(value)
        return value


def anchor_of(tensor: Tensor) -> Tensor | None:
    """Return a view that keeps a tensor's current autograd node; None if there is none."""
    require(UNDONE_WRITES)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            anchor = unsafe_view(tensor, tensor.shape)
    except RuntimeError:
        return None
    return anchor if anchor.requires_grad else None


def window_at(storage: Any, region: MemoryRegion, dtype: torch.dtype, first: int) -> Tensor:
    """Return a region of a storage as a tensor; `storage` begins at the original's byte `first`."""
    window = torch.empty(0, dtype=dtype, device=storage.device)
    offset = region.offset - first // region.itemsize
    return window.set_(storage, offset, region.sizes, region.strides)
