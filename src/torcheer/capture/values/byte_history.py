"""The past of one storage: the bytes that each write replaced, so that old values are made when they are asked for.

A buffer filled in a thousand steps has a thousand values. To copy it before each write would cost the square; the
bytes under each write cost what the write cost. A value is the memory of today with the later writes taken back, and
the moment that was asked for last is kept: reading all values, in either direction, takes back each write once.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from torcheer.capture.values.memory_layout import Place
from torcheer.capture.values.value_copies import restrided
from torcheer.errors import ValueUnavailable

ALIGNMENT = 16  # of the first byte, so that numbers of every type can be read


class _Patch:
    """The bytes on the other side of one write: those before it, or, once it was taken back, those after it."""

    __slots__ = ("dtype", "held", "index", "place")

    def __init__(self, place: Place, dtype: torch.dtype, index: Any, held: Tensor) -> None:
        self.place = place
        self.dtype = dtype
        self.index = index  # None: the whole place
        self.held = held

    def swap(self, memory: Tensor, first: int) -> None:
        """Take the write back, or do it again."""
        window = window_at(memory.untyped_storage(), self.place, self.dtype, first)
        if self.index is None:
            other = window.clone()
            window.copy_(self.held)
        else:
            other = window[self.index]
            window[self.index] = self.held
        self.held = other


class Film:
    """The writes to one storage since a value in it was first put off."""

    def __init__(self, tensor: Tensor) -> None:
        self._live: Any = tensor.untyped_storage()  # None: it is in other hands
        self._patches: list[_Patch] = []
        self._first, self._end = 1 << 62, 0  # the bytes that matter
        self._memory: Tensor | None = None  # these bytes as they were after `_at` writes
        self._at = 0
        self._lock = threading.Lock()
        self.waiting: list[int] = []  # refs of the values that can be had from here; they hold us, so no cycle
        self.bytes = 0  # of all of these

    def defer(self, ref: int, place: Place, dtype: torch.dtype, anchor: Tensor | None) -> Deferred:
        """A value as it is now, to be made when it is asked for."""
        self._reach(place)
        self.bytes += place.bytes
        self.waiting.append(ref)
        return Deferred(self, len(self._patches), place, dtype, anchor)

    def about_to_write(self, part: Tensor, place: Place, index: Any) -> int:
        """Keep the bytes that a write will replace; how many."""
        if self._memory is not None:
            with self._lock, torch.inference_mode(False):
                self._go_to(len(self._patches))  # every patch holds the past again
                self._memory = None
        part = part.detach() if part.requires_grad else part
        if index is not None:
            index = tuple(item.clone() if type(item) is Tensor else item for item in index)
        held = part.clone() if index is None else part[index]
        self._patches.append(_Patch(place, part.dtype, index, held))
        self._reach(place)
        return held.numel() * held.element_size()

    def seal(self) -> None:
        """Depend on the live memory no longer: it is in other hands from now on."""
        with self._lock, torch.inference_mode(False):
            if self._memory is None:
                with suppress(ValueUnavailable):  # whoever asks for a value will hear of it
                    self._copy_memory()
            self._live = None

    def read(self, position: int, place: Place, dtype: torch.dtype) -> Tensor:
        """What lay in a place before the write number `position`."""
        with self._lock, torch.inference_mode(False):
            if self._memory is None:
                self._copy_memory()
            self._go_to(position)
            assert self._memory is not None
            window = window_at(self._memory.untyped_storage(), place, dtype, self._first)
            return restrided(window.clone(), window)

    def _reach(self, place: Place) -> None:
        self._first = min(self._first, place.first // ALIGNMENT * ALIGNMENT)
        self._end = max(self._end, place.end)

    def _copy_memory(self) -> None:
        if self._live is None or self._live.nbytes() < self._end:
            raise ValueUnavailable("its memory was freed by the model, unseen, before its value was needed")
        size = self._end - self._first
        place = Place((size,), (1,), self._first, 1, self._first, self._end)
        self._memory = window_at(self._live, place, torch.uint8, 0).clone()
        self._at = len(self._patches)

    def _go_to(self, position: int) -> None:
        assert self._memory is not None
        while self._at > position:
            self._at -= 1
            self._patches[self._at].swap(self._memory, self._first)
        while self._at < position:
            self._patches[self._at].swap(self._memory, self._first)
            self._at += 1


class Deferred:
    """A value that is made from its film when it is asked for."""

    __slots__ = ("_anchor", "_dtype", "_film", "_made", "_place", "_position")

    def __init__(self, film: Film, position: int, place: Place, dtype: torch.dtype, anchor: Tensor | None) -> None:
        self._film = film
        self._position = position
        self._place = place
        self._dtype = dtype
        self._anchor = anchor  # of the autograd graph: where gradients go on to
        self._made: weakref.ref[Tensor] | None = None

    @property
    def requires_grad(self) -> bool:
        """Whether gradients go on from it."""
        return self._anchor is not None

    def value(self) -> Tensor:
        """The value, the same tensor as long as somebody holds it."""
        made = self._made() if self._made is not None else None
        if made is None:
            made = self._film.read(self._position, self._place, self._dtype)
            if self._anchor is not None:
                with torch.inference_mode(False), torch.enable_grad():
                    data, made = made, torch.ops.aten._unsafe_view.default(self._anchor, self._place.sizes)
                made.data = data
            self._made = weakref.ref(made)
        return made


def anchor_of(tensor: Tensor) -> Tensor | None:
    """A tensor without memory of its own that leads into the graph of another as it is now; None where none is kept."""
    try:
        with torch.inference_mode(False), torch.enable_grad():
            anchor: Tensor = torch.ops.aten._unsafe_view.default(tensor, tensor.shape)
    except RuntimeError:
        return None
    return anchor if anchor.requires_grad else None


def window_at(storage: Any, place: Place, dtype: torch.dtype, first: int) -> Tensor:
    """A place of a storage, in memory that begins at its byte `first`."""
    window = torch.empty(0, dtype=dtype, device=storage.device)
    offset = place.offset - first // place.itemsize
    return window.set_(storage, offset, place.sizes, place.strides)
