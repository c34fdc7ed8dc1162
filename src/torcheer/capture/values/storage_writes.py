"""What is known of a storage that was written: who lies where in it, who wrote, and what can be taken back."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torcheer.capture.values.byte_history import Film
from torcheer.capture.values.memory_layout import PLAIN, Place, Spans, apart, is_wrapped, place_of, weak_storage
from torcheer.capture.values.written_regions import Window


class Entry:
    """A tensor of a written storage that no write has reached."""

    __slots__ = ("missed", "place", "ref", "weak")

    def __init__(self, ref: int, weak: Any, place: Place | None) -> None:
        self.ref = ref
        self.weak = weak
        self.place = place
        self.missed = 0  # how many writes went to cells between its own


class Reached(NamedTuple):
    """A value that a write reaches."""

    ref: int
    tensor: Tensor
    place: Place | None


MOST_MISSES = 8  # then a tensor is taken as written: to ask for ever would cost the square


class Block:
    """A storage that was written: who lies where in it, and what was written."""

    __slots__ = ("chain", "entries", "film", "stale", "storage", "writes")

    def __init__(self, tensor: Tensor) -> None:
        self.storage = weak_storage(tensor)  # held weakly: its number is not used again meanwhile
        self.entries = Spans()  # an Entry each
        self.writes = Spans()  # (ref, geometry of the tensor written, place), in order
        self.chain: dict[int, int] = {}  # count of writes now -> the first from which on we saw every one
        self.film: Film | None = None
        self.stale: list[int] = []  # ids of stale tensors

    def saw(self, before: int, after: int) -> None:
        """A write that we saw took torch's count from one number to another."""
        start = self.chain.get(before, before)
        self.chain[after] = min(start, self.chain.get(after, start))

    def accounts_for(self, before: int, now: int) -> bool:
        """Whether we saw every write since the count was `before`."""
        return self.chain.get(now, now + 1) <= before


class Stale(NamedTuple):
    """A tensor whose memory was written under another name."""

    tensor: weakref.ref[Tensor]
    ref: int  # the value it had
    block: Block
    since: int  # the first write to the block that changed it


def writes_to(tensor: Tensor, stale: Stale) -> list[tuple[int, Any, Place | None]]:
    """The writes that reached a stale tensor; from the last on whose tensor holds all of it."""
    place, found = place_of(tensor), []
    for number in reversed(stale.block.writes.overlapping(place, stale.since)):
        write = stale.block.writes.items[number]
        if apart(place, write[2]):
            continue
        found.append(write)
        if place is not None and covers(write[1], place):
            break
    return found[::-1]


def covers(writer: Any, place: Place) -> bool:
    """Whether a dense tensor holds every byte of a place."""
    if writer is None:
        return False
    sizes, strides, offset = writer
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return bool(offset * place.itemsize <= place.first and place.end <= (offset + expected) * place.itemsize)


def can_wait(window: Window) -> bool:
    """Whether what a write replaces can be remembered apart from the tensor it belongs to."""
    place = window.place
    if place is None or not place.bytes or not is_raw(window.tensor, place):
        return False
    return place.end <= window.tensor.untyped_storage().nbytes()


def is_raw(tensor: Tensor, place: Place) -> bool:
    """Whether a tensor is nothing but numbers in memory, each in a place of its own."""
    if type(tensor) not in PLAIN or tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        return False
    if tensor.is_conj() or tensor.is_neg() or is_wrapped(tensor):
        return False
    return 0 not in place.strides or all(size == 1 for size, step in zip(*place[:2], strict=True) if step == 0)


def nbytes(tensor: Tensor) -> int:
    """What its elements take; 0 where that is not to be had."""
    try:
        return tensor.numel() * tensor.element_size()
    except (NotImplementedError, RuntimeError):
        return 0
