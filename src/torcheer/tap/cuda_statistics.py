"""Reduce values to statistics on the GPU and fetch the results asynchronously."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from torcheer.samples import Statistics
from torcheer.tap.device_copies import READY, copy_to_host, host_copy
from torcheer.tap.tensor_copies import SampleSink, all_finite, describe, memory_writer, subsample

_Pending = tuple[dict[str, Any], int, Tensor]  # record header, count of numbers, the tensor to fetch
# Record header, count of numbers, stride of the fetched sample, its type (None: no sample can be sent).
_BatchRow = tuple[dict[str, Any], int, int, torch.dtype | None]
_WIDE = (torch.int32, torch.int64, torch.uint32, torch.uint64)
_SUMS = 8  # numbers that `reduce` returns
WIDTH, _ROWS = 1 << 16, 64  # of a batch: numbers per value, values
SAMPLE = 1 << 12  # numbers per value that are fetched, for its histogram, its percentiles and the rules


def row_bytes(tensor: Tensor) -> int:
    """How many bytes of a tensor fit a row of a batch."""
    return WIDTH * tensor.element_size()


def reduce(tensor: Tensor, source: Tensor | None = None, by_row: bool = False) -> Tensor:
    """Compute the sums of a `Statistics`, as one small tensor on the same device, without synchronizing.

    As few operations as possible: on a GPU each costs its launch, whatever the size. Where `tensor` is a sample,
    `source` is the full tensor, and only checked for being finite.
    """
    numbers = _as_float(tensor)
    if not numbers.numel():
        return torch.zeros(_SUMS, dtype=torch.float64, device=numbers.device)
    dims, greatest = (1,) if by_row else tuple(range(numbers.dim())), torch.finfo(numbers.dtype).max
    finite = torch.nan_to_num(numbers, 0.0, 0.0, 0.0)
    # Infinity minus infinity is NaN, which counts as nonzero.
    nonfinite = _norm(numbers - numbers, 0, dims)
    return torch.stack([
        finite.sum(dims, dtype=torch.float64),
        _norm(finite, 2, dims),
        _norm(finite, 0, dims),
        (numbers != numbers).sum(dims, dtype=torch.float64),
        torch.nan_to_num(numbers, greatest, greatest, greatest).amin(dims).double(),
        torch.nan_to_num(numbers, -greatest, -greatest, -greatest).amax(dims).double(),
        nonfinite,
        nonfinite if source is None else _largest(source),
    ], -1)  # fmt: skip


def _norm(numbers: Tensor, order: int, dims: tuple[int, ...]) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(numbers, order, dims or None, dtype=torch.float64)
    return norm


def _largest(tensor: Tensor) -> Tensor:
    """The largest magnitude, in one pass without a copy; it is finite where all numbers are."""
    numbers = tensor.detach()
    if not (numbers.is_floating_point() or numbers.is_complex()):
        return torch.zeros((), dtype=torch.float64, device=numbers.device)
    if numbers.element_size() == 1:
        numbers = numbers.float()  # torch has no norm for eight-bit types
    largest: Tensor = torch.linalg.vector_norm(numbers, math.inf)
    return largest.double()


def _as_float(tensor: Tensor) -> Tensor:
    """The numbers as the child would convert them: float32 where that is exact, float64 elsewhere."""
    numbers = tensor.detach()
    if numbers.is_complex():
        numbers = numbers.abs()
    if numbers.dtype in (torch.float32, torch.float64):
        return numbers
    return numbers.to(torch.float64 if numbers.dtype in _WIDE else torch.float32)


def summary_of(sums: list[float], count: int, stride: int = 1) -> Statistics:
    """Convert the result of `reduce` over `count` numbers to a `Statistics`."""
    total, norm, nonzero, nans, minimum, maximum, nonfinite, _ = sums
    finite = count - int(nonfinite)
    if not finite:
        none = math.nan
        return Statistics(count, none, none, none, none, none, 0, int(nans), int(nonfinite - nans), stride=stride)
    mean = min(max(total / finite, minimum), maximum)
    std = math.sqrt(max(norm * norm / finite - mean * mean, 0.0)) if minimum < maximum else 0.0
    return Statistics(
        count=count, minimum=minimum, maximum=maximum, mean=mean, std=std, norm=norm, zeros=finite - int(nonzero),
        nans=int(nans), infs=int(nonfinite - nans), stride=stride,
    )  # fmt: skip


class ReductionBatch:
    """Many values of one device, one per row, reduced together.

    A GPU operation costs its launch, and reducing one value takes fourteen of them.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self._stream, self._raw = device, _stream_of(device), _raw_stream(device)
        self._numbers = torch.full((_ROWS, WIDTH), math.nan, dtype=torch.float32, device=device)
        self._largest = torch.zeros(_ROWS, dtype=torch.float32, device=device)
        self.rows: list[_BatchRow] = []

    @staticmethod
    def fits(value: Tensor) -> bool:
        """Whether a value fits into a row without loss of precision."""
        return value.numel() <= WIDTH and value.dtype not in (*_WIDE, torch.float64, torch.complex128)

    @property
    def is_full(self) -> bool:
        """Whether another value needs another batch."""
        return len(self.rows) == _ROWS

    def add(self, value: Tensor, source: Tensor | None, header: dict[str, Any], fetch_all: bool = False) -> None:
        """Copy a value; of a sample, check its `source` for being finite. `fetch_all`: fetch the value in full."""
        row, count = len(self.rows), value.numel()
        kind = None if value.is_complex() else value.dtype
        value = value.abs() if value.is_complex() else value
        self._numbers[row, :count].view(value.shape).copy_(value)
        if source is not None and (source.is_floating_point() or source.is_complex()):
            numbers = source.detach().float() if source.element_size() == 1 else source.detach()
            torch.linalg.vector_norm(numbers, math.inf, dtype=_norm_type(numbers), out=self._largest[row])
        stride = 1 if fetch_all else _sample_stride(count, math.prod(header["whole"]))
        self.rows.append((header, count, stride, kind))

    def sums(self) -> Tensor:
        """The result of `reduce`, one row per value; the unused end of a row counts as NaN."""
        used = self._numbers[: len(self.rows)]
        return torch.cat([reduce(used, by_row=True)[:, :-1], self._largest[: len(self.rows), None].double()], 1)

    def sample(self) -> Tensor:
        """Every n-th number of each value; a row is undefined behind its value's last number."""
        strides = torch.tensor([stride for _, _, stride, _ in self.rows])
        if self.device.type == "cuda":  # a copy from pageable memory would synchronize
            strides = strides.pin_memory().to(self.device, non_blocking=True)
        indices = torch.arange(SAMPLE, device=self.device) * strides[:, None]
        return self._numbers[: len(self.rows)].gather(1, indices.clamp_(max=WIDTH - 1))

    def full_values(self) -> list[Tensor]:
        """The values that are fetched in full, not as a sample."""
        return [
            self._numbers[row, :count]
            for row, (_, count, stride, _) in enumerate(self.rows)
            if _exceeds_sample(count, stride)
        ]

    def join_stream(self) -> None:
        """Let the current stream use this memory: after the work queued so far, before the allocator may reuse it."""
        if _raw_stream(self.device) != self._raw:
            stream = _stream_of(self.device)
            stream.wait_stream(self._stream)
            self._numbers.record_stream(stream)
            self._largest.record_stream(stream)


def _exceeds_sample(count: int, stride: int) -> bool:
    """Whether a value is fetched in full and is larger than a sample."""
    return stride == 1 and count > SAMPLE


def _sample_stride(count: int, source_count: int) -> int:
    """A stride that takes at most `SAMPLE` of `count` numbers, and some of each column of the source."""
    stride = -(-count // SAMPLE) or 1
    while stride > 1 and math.gcd(stride, source_count) > 1:
        stride += 1
    return stride


def _stream_of(device: torch.device) -> Any:
    """The current stream; None for a device without streams."""
    cuda: Any = torch.cuda  # it is not all annotated
    return cuda.current_stream(device) if device.type == "cuda" else None


def _raw_stream(device: torch.device) -> int:
    """The current stream as a number, at a tenth of the cost."""
    return torch._C._cuda_getCurrentRawStream(device.index) if device.type == "cuda" else 0


def _host_writer(tensor: Tensor) -> Callable[[memoryview], None]:
    if not tensor.numel():
        return lambda view: None
    if tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
        # The lambda keeps the tensor alive, whose memory is read later.
        return lambda view: memory_writer(tensor.data_ptr(), tensor.nbytes)(view)
    return lambda view: _copy(tensor, view)


def _copy(tensor: Tensor, view: memoryview) -> None:
    torch.frombuffer(view, dtype=tensor.dtype).view(tensor.shape).copy_(tensor)


def _norm_type(tensor: Tensor) -> torch.dtype:
    return torch.complex64 if tensor.is_complex() else torch.float32


class Fetcher:
    """Fetches values from the devices and sends them to the ring once they have arrived."""

    def __init__(self, link: SampleSink) -> None:
        self._link = link
        self._batches: list[ReductionBatch] = []  # of this step, the last one not yet full
        self._reduced: list[_Pending] = []  # of this step, still on their device
        self._numbers: list[_Pending] = []
        self._in_flight: list[tuple[Any, Callable[[], None]]] = []  # an event, and what to call after it
        self._last_order = self._flushed_order = 0  # values are numbered in order; up to which a flush is scheduled
        self._arrived: list[tuple[int, dict[str, Any], int, Callable[[memoryview], None]]] = []  # not yet sorted
        self._used_streams: dict[torch.device, dict[int, Any]] = {}  # that computed this step's values, by number

    def fetch_statistics(
        self, tensor: Tensor, minus: Tensor | None = None, *, limit_bytes: int | None = None, fetch_all: bool = False,
        **header: Any,
    ) -> None:  # fmt: skip
        """Reduce a tensor, less `minus`, on its device; with a limit only every n-th of its numbers.

        `fetch_all` fetches all reduced numbers, where they fit a batch, instead of a sample of them.
        """
        value, stride = subsample(tensor.detach(), limit_bytes) if limit_bytes else (tensor.detach(), 1)
        description = describe(tensor, tensor.new_empty(0, device="cpu"), 1, **header)
        description |= {"whole": list(tensor.shape), "stride": stride, "order": self._next_order()}
        source = tensor if stride > 1 and minus is None else None
        value = value if minus is None else value - minus
        self._note_stream(value.device)
        if ReductionBatch.fits(value):
            self._batch(value.device).add(value, source, description, fetch_all)
        else:
            self._reduced.append((description, value.numel(), reduce(value, source)))

    def _next_order(self) -> int:
        self._last_order += 1
        return self._last_order

    def offer(self, header: dict[str, Any], size_bytes: int, fill: Callable[[memoryview], None], /) -> bool:
        """Queue a value that has arrived; it is sent once all values taken before it have arrived."""
        self._arrived.append((header.pop("order"), header, size_bytes, fill))
        return True

    def _send_in_order(self) -> None:
        """Send the arrived values in the order they were taken: rules find a cause by what came first."""
        values, self._arrived = sorted(self._arrived, key=itemgetter(0)), []
        for _, header, size_bytes, fill in values:
            if not header.pop("only_nonfinite", False) or _is_nonfinite(header):
                self._link.offer(header, size_bytes, fill)

    def _note_stream(self, device: torch.device) -> None:
        streams, raw = self._used_streams.setdefault(device, {}), _raw_stream(device)
        if raw not in streams:
            streams[raw] = _stream_of(device)

    def _batch(self, device: torch.device) -> ReductionBatch:
        for batch in self._batches:
            if batch.device == device and not batch.is_full:
                batch.join_stream()
                return batch
        self._batches.append(ReductionBatch(device))
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
            self._fetch([copy], partial(self._send_tensor, header))
        elif stride > 1:
            self._fetch([value.clone(), _largest(plain)], partial(self._send_tensor, header))
        elif (shared := host_copy(value)) is not None:
            self._in_flight.append((shared.event, partial(self._send_tensor, header, shared.tensor)))

    def _send_tensor(self, header: dict[str, Any], tensor: Tensor, largest: Tensor | None = None) -> None:
        if largest is not None:
            header["finite"] = math.isfinite(largest.item())
        elif header.get("only_nonfinite"):
            header["finite"] = all_finite(tensor)
        self.offer(header, tensor.nbytes, _host_writer(tensor))

    def _fetch(self, tensors: Sequence[Tensor], action: Callable[..., None]) -> None:
        """Copy tensors of one device to the host, then call `action` with the copies."""
        copies, arrived = copy_to_host(tensors)
        self._in_flight.append((arrived, lambda: action(*copies)))

    def run_after(self, event: Any, action: Callable[[], None]) -> None:
        """Call `action` once a device has reached an event."""
        self._in_flight.append((event, action))

    def dispatch(self) -> None:
        """Start fetching what was reduced, all values of a device at once."""
        for device, streams in self._used_streams.items():
            self._join(device, set(streams.values()))
        self._used_streams.clear()
        for batch in self._batches:
            self._fetch([batch.sums(), batch.sample(), *batch.full_values()], partial(self._send_batch, batch.rows))
        self._batches.clear()
        for pending, send in ((self._numbers, self._send_numbers), (self._reduced, self._send_sums)):
            for device in {value.device for *_, value in pending}:
                on_device = [entry for entry in pending if entry[-1].device == device]
                self._fetch([torch.stack([value for *_, value in on_device])], partial(send, on_device))
            pending.clear()

    def _join(self, device: torch.device, streams: set[Any]) -> None:
        """Let the current stream wait for the others, and keep their results allocated until it has read them."""
        current = _stream_of(device)
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
        for (header, count, _), sums in zip(pending, all_sums.tolist()):
            self._send_statistics(header, count, sums)

    def _send_statistics(
        self, header: dict[str, Any], count: int, sums: list[float], sample: Tensor | None = None, stride: int = 1
    ) -> None:
        header["summary"] = summary_of(sums, count, header["stride"])
        if header["stride"] > 1:
            header["finite"] = math.isfinite(sums[-1])
        if sample is None:
            self.offer(header, 0, lambda view: None)
            return
        header["stride"] *= stride
        header["shape"] = header["whole"] if header["stride"] == 1 else [sample.numel()]
        self.offer(header, sample.nbytes, _host_writer(sample))

    def _send_batch(self, rows: list[_BatchRow], all_sums: Tensor, samples: Tensor, *full_values: Tensor) -> None:
        remaining = iter(full_values)
        for (header, count, stride, kind), sums, sample in zip(rows, all_sums.tolist(), samples):
            sample = next(remaining) if _exceeds_sample(count, stride) else sample
            empty = WIDTH - count
            sums[3], sums[6] = sums[3] - empty, sums[6] - empty
            payload = None if kind is None else sample[: -(-count // stride)].to(kind)
            self._send_statistics(header, count, sums, payload, stride)

    def _send_numbers(self, pending: list[_Pending], numbers: Tensor) -> None:
        for (header, *_), number in zip(pending, numbers):
            self.offer(describe(number, number, 1, **header), number.nbytes, _host_writer(number))

    def harvest(self, wait: bool = False) -> None:
        """Send what has arrived; with `wait`, everything in flight."""
        if self._batches or self._reduced or self._numbers:
            self.dispatch()
        if self._last_order > self._flushed_order:
            self._flushed_order = self._last_order
            self._in_flight.append((self._in_flight[-1][0] if self._in_flight else READY, self._send_in_order))
        while self._in_flight and (wait or self._in_flight[0][0].query()):
            event, action = self._in_flight.pop(0)
            event.synchronize()
            action()

    @property
    def busy(self) -> bool:
        """Whether anything is in flight."""
        return bool(self._in_flight or self._arrived or self._batches or self._reduced or self._numbers)


def _is_nonfinite(header: dict[str, Any]) -> bool:
    """Whether a value is known to have NaN or infinite numbers."""
    summary: Statistics | None = header.get("summary")
    return header.get("finite") is False or (summary is not None and bool(summary.nans or summary.infs))
