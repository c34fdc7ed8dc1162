"""How a key's values are taken on a device, and those that wait to be taken together with others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from torcheer.samples import Key
from torcheer.tap.reduction.reduction_batch import ReductionBatch, raw_stream, stream_of
from torcheer.tap.tensor_copies import describe, subsample

_MOST, _MOST_BYTES = 64, 256 << 20  # values, and bytes of them, that wait at a time
_MEMORY_SHARE = 128  # of a GPU's memory, which may wait where that is more
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Layout:
    """How the values of one key are taken, while their shape, type and layout in memory stay the same."""

    signature: tuple[Any, ...]
    header: dict[str, Any]  # what all of its records say
    limit_bytes: int | None
    count: int  # of the numbers that are reduced
    stride: int
    is_flat: bool  # whether they are every n-th number in the order of memory
    can_group: bool  # whether they can be copied and checked together with others

    @classmethod
    def of(cls, tensor: Tensor, limit_bytes: int | None) -> Layout:
        """Describe a tensor; with a limit every n-th of its numbers is taken."""
        value, stride = subsample(tensor, limit_bytes) if limit_bytes else (tensor, 1)
        header = describe(tensor, tensor.new_empty(0, device="cpu"), 1)
        header |= {"whole": list(tensor.shape), "stride": stride}
        del header["time_secs"]
        is_flat = tensor.is_contiguous()
        can_group = is_flat and tensor.is_floating_point() and tensor.element_size() > 1 and ReductionBatch.fits(value)
        return cls(_signature(tensor), header, limit_bytes, value.numel(), stride, is_flat, can_group)

    def fits(self, tensor: Tensor) -> bool:
        """Whether it describes a tensor."""
        return self.signature == _signature(tensor)

    def take(self, tensor: Tensor) -> Tensor:
        """The numbers that are reduced, as a view where there is one."""
        if self.is_flat:
            return torch.as_strided(tensor, (self.count,), (self.stride,))
        return subsample(tensor, self.limit_bytes)[0] if self.limit_bytes else tensor


def _signature(tensor: Tensor) -> tuple[Any, ...]:
    return (type(tensor), tensor.shape, tensor.dtype, tensor.stride(), tensor.device)


class Postponed(Generic[Value]):
    """Values that are taken a little later, together; each must be as it was when it was handed over.

    Which keys are overwritten in place so soon (a batch norm's output by an in-place ReLU) is learned from the first
    step: their values are taken at once.
    """

    def __init__(self) -> None:
        self._values: list[tuple[Tensor, int, Key, Value]] = []  # each with its tensor's version
        self._bytes, self._stream, self._raw = 0, None, 0
        self._waiting = _WaitingKeys()

    def __len__(self) -> int:
        return len(self._values)

    @property
    def first(self) -> Value:
        """The value that waits longest."""
        return self._values[0][3]

    def accepts(self, key: Key) -> bool:
        """Whether a key's value may wait."""
        return self._waiting.may_wait(key)

    def add(self, tensor: Tensor, key: Key, value: Value) -> None:
        """Keep a value."""
        if not self._values:
            self._stream, self._raw = stream_of(tensor.device), raw_stream(tensor.device)
        self._values.append((tensor, _version(tensor), key, value))
        self._bytes += tensor.nbytes

    def observe(self, key: Key, tensor: Tensor) -> None:
        """Learn from a value that is taken at once whether it could have waited."""
        self._waiting.observe(key, tensor)

    def must_go_before(self, tensor: Tensor) -> bool:
        """Whether the values have to be taken before this one is added: another stream computes it."""
        return bool(self._values) and (
            raw_stream(tensor.device) != self._raw or tensor.device != self._values[0][0].device
        )

    @property
    def is_full(self) -> bool:
        """Whether they hold as much memory as they may."""
        return len(self._values) >= _MOST or (
            self._bytes >= _MOST_BYTES and self._bytes >= _waiting_bytes(self._values[0][0].device)
        )

    def take(self) -> tuple[list[Value], list[Key], Any]:
        """Remove the values: those that are as they were, the keys of those overwritten, the stream of the values."""
        kept, lost = [], []
        for tensor, version, key, value in self._values:
            if _version(tensor) == version:
                kept.append(value)
            else:
                self._waiting.forbid(key)
                lost.append(key)
        stream = self._stream if kept and raw_stream(self._values[0][0].device) != self._raw else None
        self._values, self._bytes = [], 0
        return kept, lost, stream

    def settle(self) -> None:
        """End a step: decide which of the observed keys may wait in the next."""
        self._waiting.learn()


class _WaitingKeys:
    """The keys whose values may wait: they were observed once and not overwritten."""

    def __init__(self) -> None:
        self._known, self._hasty = set[Key](), set[Key]()  # keys that were observed; that were overwritten
        self._observed: list[tuple[Key, Tensor, int]] = []
        self._bytes = 0

    def may_wait(self, key: Key) -> bool:
        return key in self._known and key not in self._hasty

    def forbid(self, key: Key) -> None:
        self._hasty.add(key)

    def observe(self, key: Key, tensor: Tensor) -> None:
        if key in self._known or tensor.is_inference():
            return
        if self._bytes >= _MOST_BYTES or len(self._observed) >= _MOST:
            self.learn()
        self._observed.append((key, tensor, tensor._version))
        self._bytes += tensor.nbytes

    def learn(self) -> None:
        for key, tensor, version in self._observed:
            self._known.add(key)
            if tensor._version != version:
                self._hasty.add(key)
        self._observed, self._bytes = [], 0


@cache
def _waiting_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return _MOST_BYTES
    return int(torch.cuda.get_device_properties(device).total_memory) // _MEMORY_SHARE


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
