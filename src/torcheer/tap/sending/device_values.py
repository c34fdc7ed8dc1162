"""Values on a GPU: reduced there, a whole batch with few launches where that is possible, and fetched later."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torcheer.samples import Key
from torcheer.tap.reduction.cuda_statistics import Fetcher
from torcheer.tap.reduction.fused_batch import FusedValue, Moment, snapshots
from torcheer.tap.reduction.postponed_values import Layout
from torcheer.tap.sending.byte_limits import ByteLimits
from torcheer.tap.sending.sent_keys import SentKeys
from torcheer.tap.tensor_copies import is_wrapped, refusal, subsample

_LAST_OUTPUTS = 4  # outputs before the loss
Flags = tuple[str, ...]  # true fields of a `Delivery`


class DeviceValues:
    """Sends the values of a device; a header is made only for those that cannot be part of a batch."""

    def __init__(self, fetcher: Fetcher, limits: ByteLimits, keys: SentKeys) -> None:
        self._fetcher, self._limits, self._keys = fetcher, limits, keys
        self._loss_neighbours = LossNeighbours()
        self.message = ""  # what the user wants to see beside the values

    def begin(self) -> None:
        """Begin a watched step."""
        self._loss_neighbours.begin()

    def send(self, tensor: Tensor, key: Key, step: int, minus: Tensor | None, flags: Flags, **extras: Any) -> None:
        """Reduce a value on its device, or fetch all of it."""
        if is_capturing(tensor):
            return
        layout = self._fetcher.layout_of(tensor, key) if minus is None and not is_wrapped(tensor) else None
        if layout is None:
            self._send_new(tensor, key, step, minus, flags, extras)
            return
        near_loss = self._loss_neighbours.take(key, tensor.numel())
        moment = Moment.now(self._keys.count(key), step)
        value = self._fetcher.fused_value(tensor, key, layout, moment, flags=flags, keep_all=near_loss)
        if value is not None:
            fetch = self._fetcher.fetch_if_nonfinite if "only_nonfinite" in extras else self._fetcher.fetch_fused
            fetch(value, self.message)
        elif near_loss:
            header = self._header(key, moment, flags, extras)
            self._fetcher.fetch_statistics(tensor, limit_bytes=layout.limit_bytes, fetch_all=True, **header)
        else:
            self._fetcher.fetch_soon(tensor, layout, self._header(key, moment, flags, extras))

    def _send_new(
        self, tensor: Tensor, key: Key, step: int, minus: Tensor | None, flags: Flags, extras: dict[str, Any]
    ) -> None:
        """Send a value of a key that was not sent before, has another shape now, or is less another."""
        if reason := refusal(tensor):
            self._keys.refuse(key, tensor, f"{key[0]} ({key[1]}) is not sent: {reason}")
            return
        header = self._header(key, Moment.now(self._keys.count(key), step), flags, extras)
        limit = self._limits.limit(tensor, key, minus)
        if key[1] == "metric":
            self._fetcher.fetch_number(tensor, **header)
        elif key in self._limits.full_keys:
            self._fetcher.fetch_tensor(tensor, minus, limit_bytes=limit, **header)
        else:
            near_loss = self._loss_neighbours.take(key, tensor.numel())
            self._fetcher.fetch_statistics(tensor, minus, limit_bytes=limit, fetch_all=near_loss, **header)

    def _header(self, key: Key, moment: Moment, flags: Flags, extras: dict[str, Any]) -> dict[str, Any]:
        header = {"layer": key[0], "variable": key[1], **moment.header(), **extras, **dict.fromkeys(flags, True)}
        return header | {"message": self.message} if self.message else header

    def send_together(self, values: Sequence[tuple[Tensor, Key, Tensor | None, Flags]], step: int) -> None:
        """Reduce many values: (tensor, key, its snapshot, flags) of each."""
        if not values or is_capturing(values[0][0]):
            return
        fused: list[FusedValue] = []
        others: list[tuple[Tensor, Tensor | None, int | None, dict[str, Any]]] = []
        for tensor, key, minus, flags in values:
            layout = self._fetcher.layout_of(tensor, key)
            if layout is None and (reason := refusal(tensor)):
                self._keys.refuse(key, tensor, f"{key[0]} ({key[1]}) is not sent: {reason}")
                continue
            moment = Moment.now(self._keys.count(key), step)
            limit = self._limits.limit(tensor, key, minus)
            layout = layout or self._fetcher.make_layout(tensor, key, limit)
            value = self._fetcher.fused_value(tensor, key, layout, moment, minus=minus, flags=flags)
            if value is not None:
                fused.append(value)
            else:
                others.append((tensor, minus, limit, self._header(key, moment, flags, {})))
        if fused:
            self._fetcher.fetch_fused_together(fused, self.message)
        if others:
            self._fetcher.fetch_together(others)

    def snapshots(self, values: Sequence[tuple[Tensor, Key]]) -> list[Tensor]:
        """Copy what would be reduced of many tensors, with few calls."""
        copies: dict[int, Tensor] = {}
        alike: dict[Any, list[tuple[int, Tensor, Layout]]] = {}  # device, type and whether they can be fused
        for place, (tensor, key) in enumerate(values):
            layout = self._fetcher.layout_of(tensor, key)
            if layout is None:
                layout = self._fetcher.make_layout(tensor, key, self._limits.snapshot_limit(tensor, key))
            can_fuse = self._fetcher.can_fuse(tensor, key, layout)
            alike.setdefault((tensor.device, tensor.dtype, can_fuse), []).append((place, tensor, layout))
        for (*_, can_fuse), group in alike.items():
            places, tensors, layouts = zip(*group)
            made = snapshots(tensors, layouts) if can_fuse else _copies(tensors, layouts)
            copies |= zip(places, made)
        return [copies[place] for place in range(len(values))]


def is_capturing(tensor: Tensor) -> bool:
    """Whether a CUDA graph is being captured, which would repeat our copies at every replay."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _copies(tensors: Sequence[Tensor], layouts: Sequence[Layout]) -> list[Tensor]:
    """Copies of what is reduced of tensors of one device and type, in one piece of memory."""
    views = [
        subsample(tensor.detach(), layout.limit_bytes or tensor.nbytes)[0] for tensor, layout in zip(tensors, layouts)
    ]
    sizes = [view.numel() for view in views]
    memory = torch.empty(sum(sizes), dtype=tensors[0].dtype, device=tensors[0].device)
    targets = [flat.view(view.shape) for flat, view in zip(torch.split(memory, sizes), views)]
    torch._foreach_copy_(targets, views)
    return targets


class LossNeighbours:
    """The layers next to the loss, known from the first gradient of a step: the rules need all of their numbers."""

    def __init__(self) -> None:
        self._outputs: deque[tuple[str, int]] = deque(maxlen=_LAST_OUTPUTS)  # of this step: layer, count of numbers
        self._had_gradient = False
        self._near: frozenset[tuple[str, int]] = frozenset()

    def begin(self) -> None:
        """Begin a watched step."""
        self._outputs.clear()
        self._had_gradient = False

    def take(self, key: Key, numbers: int) -> bool:
        """Record a value; whether it is an output next to the loss, or its gradient, judging by the last step."""
        layer, variable = key
        if variable == "output":
            self._outputs.append((layer, numbers))
        elif variable == "grad" and not self._had_gradient:
            self._had_gradient = True
            self._near = frozenset({(layer, numbers), *(output for output in self._outputs if output[1] == numbers)})
        return variable in ("output", "grad") and (layer, numbers) in self._near
