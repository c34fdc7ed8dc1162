"""How a key's values are taken on a device, and those that wait to be taken together with others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torcheer.samples import Key
from torcheer.tap.reduction.reduction_batch import ReductionBatch, raw_stream, stream_of
from torcheer.tap.tensor_copies import describe, subsample

_MOST, _MOST_BYTES = 64, 256 << 20  # values, and bytes of them, that wait at a time


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


class Postponed:
    """Values that are taken a little later, together; each must be as it was when it was handed over.

    Which keys are overwritten in place so soon (a batch norm's output by an in-place ReLU) is learned from the first
    step: their values are taken at once.
    """

    def __init__(self) -> None:
        self.values: list[tuple[Tensor, Layout, dict[str, Any]]] = []
        self._versions: list[int] = []
        self._bytes, self._stream, self._raw = 0, None, 0
        self._known, self._hasty = set[Key](), set[Key]()  # keys that were tried; that failed
        self._tried: list[tuple[Key, Tensor, int]] = []

    def accepts(self, key: Key, layout: Layout) -> bool:
        """Whether a key's value may wait."""
        return layout.can_group and key in self._known and key not in self._hasty

    def add(self, tensor: Tensor, layout: Layout, header: dict[str, Any]) -> None:
        """Keep a value."""
        if not self.values:
            self._stream, self._raw = stream_of(tensor.device), raw_stream(tensor.device)
        self.values.append((tensor, layout, header))
        self._versions.append(tensor._version)
        self._bytes += tensor.nbytes

    def observe(self, key: Key, tensor: Tensor) -> None:
        """Learn from a value that was taken at once whether it could have waited."""
        if key not in self._known and not tensor.is_inference():
            self._tried.append((key, tensor, tensor._version))
            self._bytes += tensor.nbytes

    def must_go_before(self, tensor: Tensor) -> bool:
        """Whether the values have to be taken before this one is added: another stream computes it."""
        return bool(self.values) and (
            raw_stream(tensor.device) != self._raw or tensor.device != self.values[0][0].device
        )

    @property
    def is_full(self) -> bool:
        """Whether they hold as much memory as they may."""
        return self._bytes >= _MOST_BYTES or len(self.values) + len(self._tried) >= _MOST

    def take_all(self) -> tuple[list[tuple[Tensor, Layout, dict[str, Any]]], list[dict[str, Any]], Any]:
        """Empty it: the values, the headers of those that were overwritten meanwhile, and the values' stream."""
        for key, tensor, version in self._tried:
            (self._known if tensor._version == version else self._hasty).add(key)
        self._known |= self._hasty
        kept, lost = [], []
        for entry, version in zip(self.values, self._versions):
            if entry[0]._version == version:
                kept.append(entry)
            else:
                self._hasty.add((entry[2]["layer"], entry[2]["variable"]))
                lost.append(entry[2])
        stream = self._stream if kept and raw_stream(kept[0][0].device) != self._raw else None
        self.values, self._versions, self._tried, self._bytes = [], [], [], 0
        return kept, lost, stream
