"""How a key's values are taken on a device, and those that wait to be taken together with others."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from torcheer.samples import BatchRow, Key
from torcheer.tap.reduction.reduction_batch import ReductionBatch, raw_stream, stream_of
from torcheer.tap.tensor_copies import describe, subsample

_MOST, _MOST_BYTES = 64, 256 << 20  # values, and bytes of them, that wait at a time
_MEMORY_SHARE = 128  # of a GPU's memory, which may wait where that is more
Value = TypeVar("Value")


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


class Postponed(Generic[Value]):
    """Values that are taken a little later, together; each must be as it was when it was handed over.

    Which keys are overwritten in place so soon (a batch norm's output by an in-place ReLU) is learned from the first
    step: their values are taken at once.
    """

    def __init__(self) -> None:
        self._values: list[tuple[Tensor, int, Key, Value]] = []  # each with its tensor's version
        self._bytes, self._device, self._stream, self._raw = 0, torch.device("cpu"), None, 0
        self._waiting = _WaitingKeys()

    def __len__(self) -> int:
        return len(self._values)

    @property
    def first(self) -> Value:
        """The value that waits longest."""
        return self._values[0][3]

    def accepts(self, key: Key) -> bool:
        """Whether a key's value may wait."""
        return key in self._waiting.allowed

    def add(self, tensor: Tensor, key: Key, value: Value) -> bool:
        """Keep a value; returns True where all must be taken now: this one may be overwritten, or there is no room."""
        values = self._values
        if not values:
            device = self._device = tensor.device
            self._stream, self._raw = stream_of(device), raw_stream(device)
        values.append((tensor, 0 if tensor.is_inference() else tensor._version, key, value))
        self._bytes += tensor.nbytes
        if key not in self._waiting.allowed:
            self._waiting.observe(key, tensor)
            return True
        return len(values) >= _MOST or (self._bytes >= _MOST_BYTES and self._bytes >= _waiting_bytes(self._device))

    def observe(self, key: Key, tensor: Tensor) -> None:
        """Learn from a value that is taken at once whether it could have waited."""
        self._waiting.observe(key, tensor)

    def must_go_before(self, tensor: Tensor) -> bool:
        """Whether the values have to be taken before this one is added: another stream computes it."""
        return bool(self._values) and (
            (device := tensor.device) != self._device or raw_stream(device) != self._raw
        )  # fmt: skip

    def take(self) -> tuple[list[Value], list[Key], Any]:
        """Remove the values: those that are as they were, the keys of those overwritten, the stream of the values."""
        kept, lost = [], []
        for tensor, version, key, value in self._values:
            if tensor.is_inference() or tensor._version == version:
                kept.append(value)
            else:
                self._waiting.forbid(key)
                lost.append(key)
        stream = self._stream if kept and raw_stream(self._device) != self._raw else None
        self._values, self._bytes = [], 0
        return kept, lost, stream

    def settle(self) -> None:
        """End a step: decide which of the observed keys may wait in the next."""
        self._waiting.learn()


class _WaitingKeys:
    """The keys whose values may wait: they were observed once and not overwritten."""

    def __init__(self) -> None:
        self.allowed = set[Key]()
        self._known = set[Key]()  # keys that were observed
        self._observed: list[tuple[Key, Tensor, int]] = []
        self._bytes = 0

    def forbid(self, key: Key) -> None:
        self.allowed.discard(key)
        self._known.add(key)

    def observe(self, key: Key, tensor: Tensor) -> None:
        if key in self._known or tensor.is_inference():
            return
        if self._bytes >= _MOST_BYTES or len(self._observed) >= _MOST:
            self.learn()
        self._observed.append((key, tensor, tensor._version))
        self._bytes += tensor.nbytes

    def learn(self) -> None:
        for key, tensor, version in self._observed:
            if tensor._version != version:
                self.allowed.discard(key)
            elif key not in self._known:
                self.allowed.add(key)
            self._known.add(key)
        self._observed, self._bytes = [], 0


@cache
def _waiting_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return _MOST_BYTES
    return int(torch.cuda.get_device_properties(device).total_memory) // _MEMORY_SHARE
