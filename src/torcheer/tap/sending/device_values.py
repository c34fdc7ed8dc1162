"""Values on a GPU: reduced there, a whole batch with few launches where that is possible, and fetched later."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torcheer.samples import Key
from torcheer.tap.reduction.cuda_statistics import Fetcher, Taken
from torcheer.tap.reduction.fused_batch import FusedValue, Moment, row_of, snapshots
from torcheer.tap.reduction.noted_values import Layout, Note, signature_of
from torcheer.tap.sending.byte_limits import ByteLimits
from torcheer.tap.sending.sent_keys import SentKeys
from torcheer.tap.tensor_copies import is_wrapped, refusal, subsample

_LAST_OUTPUTS = 4  # outputs before the loss
_new_tuple = tuple.__new__  # without the function of a named tuple, which costs as much as all else
_PLAIN = (False, ())  # of a row: a sample of its numbers is kept, and it has no flags
Flags = tuple[str, ...]  # true fields of a `Delivery`


class DeviceValues:
    """Sends the values of a device; a header is made only for those that cannot be part of a batch."""

    def __init__(self, fetcher: Fetcher, limits: ByteLimits, keys: SentKeys) -> None:
        self._fetcher, self._limits, self._keys = fetcher, limits, keys
        self._loss_neighbours = LossNeighbours()
        self._message = ""
        fetcher.resolve = self._resolve

    @property
    def message(self) -> str:
        """What the user wants to see beside the values."""
        return self._message

    @message.setter
    def message(self, text: str) -> None:
        if text != self._message:
            self._fetcher.set_message(text)
            self._message = text

    def begin(self) -> None:
        """Begin a watched step."""
        self._fetcher.take_noted()
        self._loss_neighbours.begin()

    def send(self, tensor: Tensor, key: Key, step: int, minus: Tensor | None, flags: Flags, **extras: Any) -> None:
        """Reduce a value on its device, or fetch all of it."""
        if is_capturing(tensor):
            return
        layout = self._fetcher.layout_of(tensor, key) if minus is None and not is_wrapped(tensor) else None
        if layout is not None and not (flags or extras):
            self._fetcher.noted.add(tensor, key, step)
            return
        self._fetcher.take_noted()
        now_secs = time.time()
        if layout is None:
            self._send_new(tensor, key, step, now_secs, minus, flags, extras)
            return
        taken = self._taken(tensor, key, layout, step, now_secs, flags, extras)
        if isinstance(taken, FusedValue) and "only_nonfinite" in extras:
            self._fetcher.fetch_if_nonfinite(taken)
        else:
            self._fetcher.take_alike([taken])

    def _resolve(self, notes: list[Note]) -> list[Taken]:
        """What has to be fetched of values that were noted; one that fails is disabled, as any other."""
        taken: list[Taken] = []
        layouts, disabled = self._fetcher.layouts, self._keys.disabled
        for tensor, _, key, step, secs in notes:
            if key in disabled:
                continue
            try:
                layout = layouts.get(key)
                if layout is None or layout.signature != signature_of(tensor) or is_wrapped(tensor):
                    taken.append(partial(self._send_new, tensor, key, step, secs, None, (), {}))  # another shape
                else:
                    taken.append(self._taken(tensor, key, layout, step, secs))
            except Exception as error:
                self._keys.disable(key, error)
        return taken

    def _taken(
        self, tensor: Tensor, key: Key, layout: Layout, step: int, secs: float, flags: Flags = (), extras: Any = None
    ) -> Taken:
        """A value of a known layout as a part of a batch, or how else it is fetched."""
        near_loss, counts = self._loss_neighbours.take(key, layout.whole_count), self._keys.counts
        count = counts.get(key, 0)
        counts[key] = count + 1  # `count`, in line: it runs for every value
        kind = (near_loss, flags)
        row = layout.rows[kind] if kind in layout.rows else row_of(tensor, key, layout, flags, near_loss)
        if row is not None:
            return _new_tuple(FusedValue, (tensor, layout, row, (secs, count, step), None))
        header = self._header(key, (secs, count, step), flags, extras or {})
        if near_loss:
            return partial(
                self._fetcher.fetch_statistics, tensor, limit_bytes=layout.limit_bytes, fetch_all=True, **header
            )
        return tensor, None, layout.limit_bytes, header

    def _send_new(
        self, tensor: Tensor, key: Key, step: int, secs: float, minus: Tensor | None, flags: Flags,
        extras: dict[str, Any],
    ) -> None:  # fmt: skip
        """Send a value of a key that was not sent before, has another shape now, or is less another."""
        if reason := refusal(tensor):
            self._keys.refuse(key, tensor, f"{key[0]} ({key[1]}) is not sent: {reason}")
            return
        header = self._header(key, (secs, self._keys.count(key), step), flags, extras)
        limit = self._limits.limit(tensor, key, minus)
        if key[1] == "metric":
            self._fetcher.fetch_number(tensor, **header)
        elif key in self._limits.full_keys:
            self._fetcher.fetch_tensor(tensor, minus, limit_bytes=limit, **header)
        else:
            near_loss = self._loss_neighbours.take(key, tensor.numel())
            self._fetcher.fetch_statistics(tensor, minus, limit_bytes=limit, fetch_all=near_loss, **header)

    def _header(self, key: Key, moment: Moment, flags: Flags, extras: dict[str, Any]) -> dict[str, Any]:
        header = {"layer": key[0], "variable": key[1], **extras, **dict.fromkeys(flags, True)}
        header["time_secs"], header["count"], header["step"] = moment
        return header | {"message": self.message} if self.message else header

    def send_together(self, values: Sequence[tuple[Tensor, Key, Tensor | None, Flags]], step: int) -> None:
        """Reduce many values: (tensor, key, its snapshot, flags) of each."""
        if not values or is_capturing(values[0][0]):
            return
        fused: list[FusedValue] = []
        others: list[tuple[Tensor, Tensor | None, int | None, dict[str, Any]]] = []
        now_secs, layouts, counts = time.time(), self._fetcher.layouts, self._keys.counts
        for tensor, key, minus, flags in values:  # in one loop without calls: the device waits for the host meanwhile
            layout = layouts.get(key)
            if layout is None or layout.signature != signature_of(tensor):
                if reason := refusal(tensor):
                    self._keys.refuse(key, tensor, f"{key[0]} ({key[1]}) is not sent: {reason}")
                    continue
                layout = self._fetcher.make_layout(tensor, key, self._limits.limit(tensor, key, minus))
            count = counts.get(key, 0)
            counts[key] = count + 1
            moment, kind = (now_secs, count, step), (False, flags)
            row = layout.rows[kind] if kind in layout.rows else row_of(tensor, key, layout, flags)
            if row is not None and (minus is None or (minus.numel() == layout.count and minus.dtype == tensor.dtype)):
                fused.append(_new_tuple(FusedValue, (tensor, layout, row, moment, minus)))
            else:
                limit = self._limits.limit(tensor, key, minus)
                others.append((tensor, minus, limit, self._header(key, moment, flags, {})))
        if fused:
            self._fetcher.fetch_fused_together(fused)
        if others:
            self._fetcher.fetch_together(others)

    def snapshots(self, values: Sequence[tuple[Tensor, Key]]) -> list[Tensor]:
        """Copy what would be reduced of many tensors, with few calls."""
        copies: dict[int, Tensor] = {}
        alike: dict[Any, list[tuple[int, Tensor, Layout]]] = {}  # device, type and whether they can be fused
        known = self._fetcher.layouts
        for place, (tensor, key) in enumerate(values):
            layout = known.get(key)
            if layout is None or layout.signature != signature_of(tensor):
                layout = self._fetcher.make_layout(tensor, key, self._limits.snapshot_limit(tensor, key))
            can_fuse = (layout.rows[_PLAIN] if _PLAIN in layout.rows else row_of(tensor, key, layout)) is not None
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
