"""Reduce values to statistics on the GPU and fetch the results asynchronously."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from torcheer.encoding import MemoryCopy
from torcheer.samples import Key
from torcheer.tap.device_copies import host_copy
from torcheer.tap.reduction.fused_batch import FusedValue
from torcheer.tap.reduction.fused_values import FusedValues
from torcheer.tap.reduction.noted_values import Layout, Note, NotedValues, signature_of
from torcheer.tap.reduction.outbox import Outbox
from torcheer.tap.reduction.reduction_batch import (
    SAMPLE,
    WIDTH,
    ReducedRow,
    ReductionBatch,
    largest,
    raw_stream,
    reduce,
    stream_of,
    summed_rows,
)
from torcheer.tap.tensor_copies import GroupSink, all_finite, describe, subsample

_Pending = tuple[dict[str, Any], int, Tensor]  # record header, count of numbers, the tensor to fetch
_Request = tuple[Tensor, Tensor | None, int | None, dict[str, Any]]  # a tensor, less another; its limit; its header
# What a note turns out to be: a value of a batch, a request, or what has to be called for it.
Taken = FusedValue | _Request | Callable[[], None]


class Fetcher:
    """Fetches values from the devices and sends them to the ring once they have arrived."""

    def __init__(self, link: GroupSink) -> None:
        self._outbox = Outbox(link)
        self._batches: list[ReductionBatch] = []  # of this step, the last one not yet full
        self._reduced: list[_Pending] = []  # of this step, still on their device
        self._numbers: list[_Pending] = []
        self._used_streams: dict[torch.device, dict[int, Any]] = {}  # that computed this step's values, by number
        self.layouts: dict[Key, Layout] = {}
        self.noted = NotedValues(self.take_noted)
        self.resolve: Callable[[list[Note]], list[Taken]] | None = None  # set by who notes values
        self._fused = FusedValues(self._outbox)

    def fetch_statistics(
        self, tensor: Tensor, minus: Tensor | None = None, *, limit_bytes: int | None = None, fetch_all: bool = False,
        **header: Any,
    ) -> None:  # fmt: skip
        """Reduce a tensor, less `minus`, on its device; with a limit only every n-th of its numbers.

        `fetch_all` fetches all reduced numbers, where they fit a batch, instead of a sample of them.
        """
        tensor = tensor.detach()
        layout = self.make_layout(tensor, (header["layer"], header["variable"]), limit_bytes)
        value, header = layout.take(tensor), self._described(layout, header)
        source = tensor if layout.stride > 1 and minus is None else None
        value = value if minus is None else value - minus.view(value.shape)
        self._note_stream(value.device)
        if ReductionBatch.fits(value):
            self._batch(value.device, value.dtype).add(value, source, header, fetch_all)
        else:
            self._reduced.append((header, value.numel(), reduce(value, source)))

    def layout_of(self, tensor: Tensor, key: Key) -> Layout | None:
        """How a key's values are taken, where they were before and have not changed their shape since."""
        layout = self.layouts.get(key)
        return layout if layout is not None and layout.signature == signature_of(tensor) else None

    def make_layout(self, tensor: Tensor, key: Key, limit_bytes: int | None) -> Layout:
        """The same, made where there is none."""
        layout = self.layout_of(tensor, key)
        if layout is None or layout.limit_bytes != limit_bytes:
            layout = self.layouts[key] = Layout.of(tensor, limit_bytes)
        return layout

    # -- values that are sent as batches -----------------------------------------------------------------------------

    def set_message(self, message: str) -> None:
        """Send what the user wants to see beside the values, from the next one on."""
        self.take_noted()
        self._fused.message = message

    def fetch_fused_together(self, values: Sequence[FusedValue]) -> None:
        """Sum up many values at once."""
        self.take_noted()
        for device in {value.tensor.device: None for value in values}:
            self._fused.add([value for value in values if value.tensor.device == device])

    def fetch_if_nonfinite(self, value: FusedValue) -> None:
        """Sum up a value that is only sent where a number of it is not finite."""
        self.take_noted()
        self._fused.close()
        self.fetch_fused_together([value])
        self._fused.close(only_nonfinite=True)

    # -- values that wait for others ---------------------------------------------------------------------------------

    def take_noted(self) -> None:
        """Sum up the values that wait, in the order they were noted."""
        if not self.noted:
            return
        notes, lost, stream = self.noted.take()
        for layer, variable in lost:
            self._outbox.link.refuse({"layer": layer, "variable": variable})
        if stream is None:
            self._take(notes)
            return
        with torch.cuda.stream(stream):
            self._take(notes)

    def _take(self, notes: list[Note]) -> None:
        assert self.resolve is not None
        for _, alike in groupby(self.resolve(notes), type):
            self.take_alike(list(alike))

    def take_alike(self, values: list[Any]) -> None:
        """Sum up values, or fetch them in the way they ask for; all of one kind and of one device."""
        if type(values[0]) is FusedValue:
            self._fused.add(values)
        elif type(values[0]) is tuple:
            self.fetch_together(values)
        else:
            for fetch in values:
                fetch()

    def fetch_together(self, requests: Sequence[_Request]) -> None:
        """Do the same for many tensors (less others; their limits; headers), with a few calls for all of them."""
        self.take_noted()
        alike: dict[Any, list[tuple[Tensor, Tensor, Tensor | None, dict[str, Any]]]] = {}
        for tensor, minus, limit_bytes, header in requests:
            tensor = tensor.detach()
            layout = self.make_layout(tensor, (header["layer"], header["variable"]), limit_bytes)
            if layout.can_group:
                kind = (tensor.device, tensor.dtype, minus is None)
                subtracted = None if minus is None else minus.view(-1)
                value = (layout.take(tensor), tensor, subtracted, self._described(layout, header))
                alike.setdefault(kind, []).append(value)
            else:
                self.fetch_statistics(tensor, minus, limit_bytes=limit_bytes, **header)
        self._add_groups(alike)

    def _add_groups(self, groups: dict[Any, list[tuple[Tensor, Tensor, Tensor | None, dict[str, Any]]]]) -> None:
        """Add values of one device and type at once: (numbers, their source, what is subtracted, header) of each."""
        for (device, kind, is_whole), group in groups.items():
            self._note_stream(device)
            values, sources, subtracted, headers = (list(column) for column in zip(*group))
            values = values if is_whole else list(torch._foreach_sub(values, subtracted))
            sources = sources if is_whole else values
            while values:
                batch = self._batch(device, kind)
                room = batch.free_rows
                batch.add_together(values[:room], sources[:room], headers[:room])
                values, sources, headers = values[room:], sources[room:], headers[room:]

    def _described(self, layout: Layout, header: dict[str, Any]) -> dict[str, Any]:
        """The header of a value's record."""
        described = {**layout.header, "time_secs": 0.0, **header, "order": self._next_order()}
        described["time_secs"] = described["time_secs"] or time.time()
        return described

    def _next_order(self) -> int:
        """The place of a value among all; a batch that is being filled ends before it."""
        self.take_noted()
        if self._fused.is_open:
            self._fused.close()
        return self._outbox.next_order()

    def offer(self, header: dict[str, Any], size_bytes: int, fill: Callable[[memoryview], None], /) -> bool:
        """Queue a value that has arrived; it is sent once all values taken before it have arrived."""
        self._outbox.add(header.pop("order"), (header, size_bytes, fill))
        return True

    def _note_stream(self, device: torch.device) -> None:
        streams, raw = self._used_streams.setdefault(device, {}), raw_stream(device)
        if raw not in streams:
            streams[raw] = stream_of(device)

    def _batch(self, device: torch.device, kind: torch.dtype) -> ReductionBatch:
        for batch in reversed(self._batches):
            if batch.device == device and batch.kind == kind and batch.free_rows:
                batch.join_stream()
                return batch
        self._batches.append(ReductionBatch(device, kind))
        return self._batches[-1]

    def fetch_number(self, tensor: Tensor, **header: Any) -> None:
        """Fetch a metric, batched with others."""
        value = tensor.detach().reshape(()).to(torch.float64, copy=True)
        self._note_stream(value.device)
        self._numbers.append(({**header, "device": str(tensor.device), "order": self._next_order()}, 1, value))

    def fetch_tensor(self, tensor: Tensor, minus: Tensor | None = None, *, limit_bytes: int, **extras: Any) -> None:
        """Fetch a tensor, less `minus`, or every n-th of its numbers: cloned on the device, then copied to the host."""
        plain = tensor.detach()
        value, stride = subsample(plain, limit_bytes)
        header = describe(plain, value, stride, order=self._next_order(), **extras)
        if minus is not None:
            copy = (value.float() - minus.float()).to(value.dtype) if value.element_size() == 1 else value - minus
            self._outbox.fetch([copy], partial(self._send_tensor, header))
        elif stride > 1:
            self._outbox.fetch([value.clone(), largest(plain)], partial(self._send_tensor, header))
        elif (shared := host_copy(value)) is not None:
            self.run_after(shared.event, partial(self._send_tensor, header, shared.tensor))

    def _send_tensor(self, header: dict[str, Any], tensor: Tensor, greatest: Tensor | None = None) -> None:
        if greatest is not None:
            header["finite"] = math.isfinite(greatest.item())
        elif header.get("only_nonfinite"):
            header["finite"] = all_finite(tensor)
        self.offer(header, tensor.nbytes, _host_writer(tensor))

    def dispatch(self) -> None:
        """Start fetching what was reduced, all values of a device at once."""
        self.take_noted()
        self._fused.close()
        self.noted.settle()
        for device, streams in self._used_streams.items():
            self._join(device, set(streams.values()))
        self._used_streams.clear()
        for batch in self._batches:
            tensors = [batch.sums(), batch.sample(), *batch.full_values()]
            self._outbox.fetch(tensors, partial(self._send_batch, batch.rows))
        self._batches.clear()
        for pending, send in ((self._numbers, self._send_numbers), (self._reduced, self._send_sums)):
            for device in {value.device for *_, value in pending}:
                on_device = [entry for entry in pending if entry[-1].device == device]
                self._outbox.fetch([torch.stack([value for *_, value in on_device])], partial(send, on_device))
            pending.clear()

    def _join(self, device: torch.device, streams: set[Any]) -> None:
        """Let the current stream wait for the others, and keep their results allocated until it has read them."""
        current = stream_of(device)
        for stream in streams - {current}:
            current.wait_stream(stream)
        for batch in self._batches:
            if batch.device == device:
                batch.join_stream()
        if streams - {current}:
            for *_, value in (*self._reduced, *self._numbers):
                if value.device == device:
                    value.record_stream(current)

    def _send_sums(self, pending: list[_Pending], all_sums: Tensor) -> None:
        rows = summed_rows(all_sums, [count for _, count, _ in pending])
        for (header, *_), row, unsure in zip(pending, rows.tolist(), all_sums[:, -1].tolist()):
            self._send_statistics(header, row, unsure)

    def _send_statistics(
        self,
        header: dict[str, Any],
        row: list[float],
        unsure: float,
        fetched: int = 0,
        stride: int = 1,
        fill: MemoryCopy | None = None,
    ) -> None:
        """Offer what is known of a value; `fill` writes the bytes of `fetched` numbers, every `stride`-th of it.

        `unsure` is finite where all numbers of its tensor are.
        """
        header["sums"] = [header["stride"], *row]
        if header["stride"] > 1:
            header["finite"] = math.isfinite(unsure)
        if fill is None:
            self.offer(header, 0, _write_nothing)
            return
        header["stride"] *= stride
        header["shape"] = header["whole"] if header["stride"] == 1 else [fetched]
        self.offer(header, fill.size_bytes, fill)

    def _send_batch(self, rows: list[ReducedRow], all_sums: Tensor, samples: Tensor, *full_values: Tensor) -> None:
        apart, size = iter(full_values), samples.element_size()
        begin, row_size = samples.data_ptr(), samples.element_size() * SAMPLE
        summed = summed_rows(all_sums, [row.count for row in rows], WIDTH).tolist()
        for number, (row, sums, unsure) in enumerate(zip(rows, summed, all_sums[:, -1].tolist())):
            fetched = -(-row.count // row.stride)
            keep, address = (samples, begin + number * row_size)
            if row.is_fetched_apart:
                keep = next(apart)
                address = keep.data_ptr()
            fill = MemoryCopy(keep, address, fetched * size)
            self._send_statistics(row.header, sums, unsure, fetched, row.stride, fill)

    def _send_numbers(self, pending: list[_Pending], numbers: Tensor) -> None:
        for (header, *_), number in zip(pending, numbers):
            self.offer(describe(number, number, 1, **header), number.nbytes, _host_writer(number))

    def run_after(self, event: Any, action: Callable[[], None]) -> None:
        """Call `action` once a device has reached an event."""
        self._outbox.run_after(event, action)

    def send_arrived(self) -> None:
        """Send all that has arrived."""
        self._outbox.send_arrived()

    def harvest(self, wait: bool = False) -> None:
        """Send what has arrived, a part of it at each step; with `wait`, everything in flight."""
        if self._is_collecting:
            self.dispatch()
        self._outbox.harvest(wait)

    @property
    def _is_collecting(self) -> bool:
        """Whether values are still on their device."""
        return bool(self._batches or self._reduced or self._numbers or self.noted or self._fused.is_open)

    @property
    def busy(self) -> bool:
        """Whether anything is on its way."""
        return self._outbox.is_busy or self._is_collecting


def _host_writer(tensor: Tensor) -> Callable[[memoryview], None]:
    if not tensor.numel():
        return _write_nothing
    if tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
        return MemoryCopy(tensor, tensor.data_ptr(), tensor.nbytes)
    return lambda view: _copy(tensor, view)


def _write_nothing(view: memoryview) -> None:
    pass


def _copy(tensor: Tensor, view: memoryview) -> None:
    torch.frombuffer(view, dtype=tensor.dtype).view(tensor.shape).copy_(tensor)
