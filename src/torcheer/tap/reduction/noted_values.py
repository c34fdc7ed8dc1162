"""How a key's values are taken on a device, and those that wait to be taken together with others."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from torcheer.samples import BatchRow, Key
from torcheer.tap.reduction.reduction_batch import ReductionBatch, stream_of
from torcheer.tap.tensor_copies import describe, subsample

_MOST, _MOST_BYTES = 64, 256 << 20  # values, and bytes of them, that wait at a time
_MEMORY_SHARE = 128  # of a GPU's memory, which may wait where that is more
_COPIED_BYTES = 64 << 20  # of a value that waits as a copy, at most: a launch for it alone costs more
_now = time.time


@dataclass(frozen=True, slots=True)
class Layout:
    """How the values of one key are taken, while their shape, type and layout in memory stay the same.

    What does not change from step to step is kept here, so that a value needs no more than a look at its tensor.
    """

    signature: tuple[Any, ...]
    header: dict[str, Any]  # what all of its records say
    limit_bytes: int | None
    count: int  # of the numbers that are reduced
    stride: int
    is_flat: bool  # whether they are every n-th number in the order of memory
    can_group: bool  # whether they can be copied and checked together with others
    whole_count: int  # of the tensor's numbers
    number_bytes: int  # of each
    rows: dict[tuple[bool, tuple[str, ...]], BatchRow | None] = field(default_factory=dict)  # in batches (`row_of`)

    @classmethod
    def of(cls, tensor: Tensor, limit_bytes: int | None) -> Layout:
        """Describe a tensor; with a limit every n-th of its numbers is taken."""
        value, stride = subsample(tensor, limit_bytes) if limit_bytes else (tensor, 1)
        header = describe(tensor, tensor.new_empty(0, device="cpu"), 1)
        header |= {"whole": list(tensor.shape), "stride": stride}
        del header["time_secs"]
        is_flat = tensor.is_contiguous()
        can_group = is_flat and tensor.is_floating_point() and tensor.element_size() > 1 and ReductionBatch.fits(value)
        return cls(
            signature_of(tensor), header, limit_bytes, value.numel(), stride, is_flat, can_group, tensor.numel(),
            tensor.element_size(),
        )  # fmt: skip

    def take(self, tensor: Tensor) -> Tensor:
        """The numbers that are reduced, as a view where there is one."""
        if self.is_flat:
            return torch.as_strided(tensor, (self.count,), (self.stride,))
        return subsample(tensor, self.limit_bytes)[0] if self.limit_bytes else tensor


def signature_of(tensor: Tensor) -> tuple[Any, ...]:
    """What a layout depends on."""
    return (type(tensor), tensor.shape, tensor.dtype, tensor.stride(), tensor.device)


# A value that waits: its tensor, without its graph; torch's count of writes to it (-1 of an inference tensor, which has
# none, and of a copy); its key; the step; the time in seconds. No named tuple: making one costs as much as all else.
Note = tuple[Tensor, int, Key, int, float]


class NotedValues:
    """Values that are taken a little later, together; each must be as it was when it was noted.

    Nothing but the tensor and the time is noted in a hook, where the interpreter is cold between two kernels: all else
    is found out in one loop over all of them. Which keys are overwritten in place so soon (a batch norm's output by an
    in-place ReLU) is learned from the first step: their values wait as copies, large ones are taken at once.
    """

    def __init__(self, take_all: Callable[[], None]) -> None:
        self._take_all = take_all  # takes what was noted
        self._notes: list[Note] = []
        self._bytes, self._device, self._raw = 0, -1, 0  # of the values' memory; their device and stream, by number
        self._stream: Any = None
        self._waiting = _WaitingKeys()
        self._allowed = self._waiting.allowed
        self.known = self._waiting.known  # keys whose values can be noted before anything else is asked

    def __len__(self) -> int:
        return len(self._notes)

    def add(self, tensor: Tensor, key: Key, step: int) -> None:
        """Note a value; all are taken now where it may be overwritten, or there is no more room."""
        device = tensor.get_device()
        raw = 0
        if device >= 0:
            if torch.cuda.is_current_stream_capturing():  # a CUDA graph would repeat our copies at every replay
                return
            raw = torch._C._cuda_getCurrentRawStream(device)
        if self._notes and (device != self._device or raw != self._raw):
            self._take_all()  # another stream computes this one
        notes = self._notes
        if not notes:
            self._device, self._raw, self._stream = device, raw, stream_of(tensor.device)
        if tensor.requires_grad:
            tensor = tensor.detach()
        version, size, may_wait = -1 if tensor.is_inference() else tensor._version, tensor.nbytes, key in self._allowed
        if not may_wait and key in self.known and size <= _COPIED_BYTES:
            with suppress(torch.OutOfMemoryError):  # then it is taken at once
                tensor, version, may_wait = tensor.clone(), -1, True
        notes.append((tensor, version, key, step, _now()))
        self._bytes += size
        if not may_wait:
            self._waiting.observe(key, tensor)
            self._take_all()
        elif len(notes) >= _MOST or (self._bytes >= _MOST_BYTES and self._bytes >= _waiting_bytes(tensor.device)):
            self._take_all()

    def take(self) -> tuple[list[Note], list[Key], Any]:
        """Remove the values: those that are as they were, the keys of those overwritten, the stream of the values."""
        notes, self._notes, self._bytes = self._notes, [], 0
        kept, lost = [], []
        for note in notes:
            if note[1] < 0 or note[0]._version == note[1]:
                kept.append(note)
            else:
                self._waiting.forbid(note[2])
                lost.append(note[2])
        is_elsewhere = self._device >= 0 and torch._C._cuda_getCurrentRawStream(self._device) != self._raw
        return kept, lost, self._stream if kept and is_elsewhere else None

    def settle(self) -> None:
        """End a step: decide which of the observed keys may wait in the next."""
        self._waiting.learn()


class _WaitingKeys:
    """The keys whose values may wait: they were observed once and not overwritten."""

    def __init__(self) -> None:
        self.allowed = set[Key]()
        self.known = set[Key]()  # keys that were observed
        self._observed: list[tuple[Key, Tensor, int]] = []
        self._bytes = 0

    def forbid(self, key: Key) -> None:
        self.allowed.discard(key)
        self.known.add(key)

    def observe(self, key: Key, tensor: Tensor) -> None:
        if key in self.known or tensor.is_inference():
            return
        if self._bytes >= _MOST_BYTES or len(self._observed) >= _MOST:
            self.learn()
        self._observed.append((key, tensor, tensor._version))
        self._bytes += tensor.nbytes

    def learn(self) -> None:
        for key, tensor, version in self._observed:
            if tensor._version != version:
                self.allowed.discard(key)
            elif key not in self.known:
                self.allowed.add(key)
            self.known.add(key)
        self._observed, self._bytes = [], 0


@cache
def _waiting_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return _MOST_BYTES
    return int(torch.cuda.get_device_properties(device).total_memory) // _MEMORY_SHARE
