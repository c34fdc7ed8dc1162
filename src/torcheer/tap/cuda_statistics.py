"""Values on a GPU: summed up there, fetched without anyone waiting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torcheer.samples import Statistics
from torcheer.tap.tensor_copies import Takes, all_finite, describe, moving, part

_Waiting = tuple[dict[str, Any], int, Tensor]  # what a record says, of how many numbers, and what is to be fetched
# Of a row the same; every how manyth of its numbers is fetched, and of which type they are, if they can be.
_Told = tuple[dict[str, Any], int, int, torch.dtype | None]
_WIDE = (torch.int32, torch.int64, torch.uint32, torch.uint64)
_SUMS = 8  # numbers that `reduce` returns
WIDTH, _ROWS = 1 << 16, 64  # of a sheet: numbers of each value, values
SAMPLE = 1 << 12  # numbers of each value that are fetched, for its histogram, its percentiles and the rules


def looked_at_bytes(tensor: Tensor) -> int:
    """How many bytes of a tensor fit a row of a sheet."""
    return WIDTH * tensor.element_size()


def reduce(tensor: Tensor, of: Tensor | None = None, by_row: bool = False) -> Tensor:
    """The sums that a `Statistics` is made of, as one small tensor where the numbers are; nothing is waited for.

    As few operations as there can be: on a GPU each costs its start, whatever the size. Where `tensor` is a sample,
    `of` is all of it, and only asked whether it is finite.
    """
    numbers = _plain(tensor)
    if not numbers.numel():
        return torch.zeros(_SUMS, dtype=torch.float64, device=numbers.device)
    along, greatest = (1,) if by_row else tuple(range(numbers.dim())), torch.finfo(numbers.dtype).max
    finite = torch.nan_to_num(numbers, 0.0, 0.0, 0.0)
    # Infinity less itself is no number, and that is not zero.
    strange = _norm(numbers - numbers, 0, along)
    return torch.stack([
        finite.sum(along, dtype=torch.float64),
        _norm(finite, 2, along),
        _norm(finite, 0, along),
        (numbers != numbers).sum(along, dtype=torch.float64),
        torch.nan_to_num(numbers, greatest, greatest, greatest).amin(along).double(),
        torch.nan_to_num(numbers, -greatest, -greatest, -greatest).amax(along).double(),
        strange,
        strange if of is None else _largest(of),
    ], -1)  # fmt: skip


def _norm(numbers: Tensor, order: int, along: tuple[int, ...]) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(numbers, order, along or None, dtype=torch.float64)
    return found


def _largest(tensor: Tensor) -> Tensor:
    """The largest magnitude: finite where all numbers are, found in one pass without a copy."""
    numbers = tensor.detach()
    if not (numbers.is_floating_point() or numbers.is_complex()):
        return torch.zeros((), dtype=torch.float64, device=numbers.device)
    if numbers.element_size() == 1:
        numbers = numbers.float()  # torch has no norm of eight bits
    largest: Tensor = torch.linalg.vector_norm(numbers, math.inf)
    return largest.double()


def _plain(tensor: Tensor) -> Tensor:
    """Numbers as the child would take them: float32 where it holds them all, float64 elsewhere."""
    numbers = tensor.detach()
    if numbers.is_complex():
        numbers = numbers.abs()
    if numbers.dtype in (torch.float32, torch.float64):
        return numbers
    return numbers.to(torch.float64 if numbers.dtype in _WIDE else torch.float32)


def summary_of(sums: list[float], count: int, stride: int = 1) -> Statistics:
    """What `reduce` found in so many numbers, as everybody reads it."""
    total, norm, filled, nans, minimum, maximum, strange, _ = sums
    finite = count - int(strange)
    if not finite:
        none = math.nan
        return Statistics(count, none, none, none, none, none, 0, int(nans), int(strange - nans), stride=stride)
    mean = min(max(total / finite, minimum), maximum)
    std = math.sqrt(max(norm * norm / finite - mean * mean, 0.0)) if minimum < maximum else 0.0
    return Statistics(
        count=count, minimum=minimum, maximum=maximum, mean=mean, std=std, norm=norm, zeros=finite - int(filled),
        nans=int(nans), infs=int(strange - nans), stride=stride,
    )  # fmt: skip


class Sheet:
    """Numbers of many values of one device, a row for each, summed up together: an operation costs its start there,
    and to sum up one value takes fourteen of them."""

    def __init__(self, device: torch.device) -> None:
        self.device, self._stream, self._raw = device, _stream_of(device), _raw_stream(device)
        self._numbers = torch.full((_ROWS, WIDTH), math.nan, dtype=torch.float32, device=device)
        self._largest = torch.zeros(_ROWS, dtype=torch.float32, device=device)
        self.told: list[_Told] = []

    @staticmethod
    def takes(value: Tensor) -> bool:
        """Whether a value fits, none of its numbers changed."""
        return value.numel() <= WIDTH and value.dtype not in (*_WIDE, torch.float64, torch.complex128)

    @property
    def is_full(self) -> bool:
        """Whether another value needs another sheet."""
        return len(self.told) == _ROWS

    def add(self, value: Tensor, of: Tensor | None, about: dict[str, Any], is_whole: bool = False) -> None:
        """Copy a value; where it is a sample, ask all it is `of` whether it is finite. `is_whole`: fetch all of it."""
        row, count = len(self.told), value.numel()
        kind = None if value.is_complex() else value.dtype
        value = value.abs() if value.is_complex() else value
        self._numbers[row, :count].view(value.shape).copy_(value)
        if of is not None and (of.is_floating_point() or of.is_complex()):
            numbers = of.detach().float() if of.element_size() == 1 else of.detach()
            torch.linalg.vector_norm(numbers, math.inf, dtype=_norm_type(numbers), out=self._largest[row])
        stride = 1 if is_whole else _sample_stride(count, math.prod(about["whole"]))
        self.told.append((about, count, stride, kind))

    def sums(self) -> Tensor:
        """What `reduce` gives, a row for each value; the empty rest of a row counts as NaN."""
        used = self._numbers[: len(self.told)]
        return torch.cat([reduce(used, by_row=True)[:, :-1], self._largest[: len(self.told), None].double()], 1)

    def sample(self) -> Tensor:
        """Every n-th number of each value; behind its last one a row means nothing."""
        strides = torch.tensor([stride for _, _, stride, _ in self.told])
        if self.device.type == "cuda":  # a copy from other memory would be waited for
            strides = strides.pin_memory().to(self.device, non_blocking=True)
        places = torch.arange(SAMPLE, device=self.device) * strides[:, None]
        return self._numbers[: len(self.told)].gather(1, places.clamp_(max=WIDTH - 1))

    def wholes(self) -> list[Tensor]:
        """The values of which more is fetched than a sample."""
        return [
            self._numbers[row, :count] for row, (_, count, stride, _) in enumerate(self.told) if _more(count, stride)
        ]

    def meet(self) -> None:
        """Another stream may write or read here now: after what was begun, before the memory is somebody else's."""
        if _raw_stream(self.device) != self._raw:
            stream = _stream_of(self.device)
            stream.wait_stream(self._stream)
            self._numbers.record_stream(stream)
            self._largest.record_stream(stream)


def _more(count: int, stride: int) -> bool:
    """Whether so many numbers, every one of them, are more than a sample has."""
    return stride == 1 and count > SAMPLE


def _sample_stride(count: int, whole: int) -> int:
    """A step through so many of a value's numbers that takes at most `SAMPLE`, and some of each of its columns."""
    stride = -(-count // SAMPLE) or 1
    while stride > 1 and math.gcd(stride, whole) > 1:
        stride += 1
    return stride


def _stream_of(device: torch.device) -> Any:
    """The stream that works for us now; None where a device has none."""
    cuda: Any = torch.cuda  # it is not all annotated
    return cuda.current_stream(device) if device.type == "cuda" else None


def _raw_stream(device: torch.device) -> int:
    """The same as a number, which costs a tenth."""
    return torch._C._cuda_getCurrentRawStream(device.index) if device.type == "cuda" else 0


def _filling(here: Tensor) -> Callable[[memoryview], None]:
    if not here.numel():
        return lambda view: None
    if here.is_contiguous() and not (here.is_conj() or here.is_neg()):
        return lambda view: moving(here.data_ptr(), here.nbytes)(view)  # holds the tensor, whose memory it reads later
    return lambda view: _copy(here, view)


def _copy(here: Tensor, view: memoryview) -> None:
    torch.frombuffer(view, dtype=here.dtype).view(here.shape).copy_(here)


def _norm_type(tensor: Tensor) -> torch.dtype:
    return torch.complex64 if tensor.is_complex() else torch.float32


class _Here:
    """The event of what has not to be waited for."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


_HERE = _Here()


class Fetcher:
    """What is on its way from the devices; sent to the ring once it is here."""

    def __init__(self, link: Takes) -> None:
        self._link = link
        self._sheets: list[Sheet] = []  # this step's, the last one not yet full
        self._reduced: list[_Waiting] = []  # this step's, still on their device
        self._numbers: list[_Waiting] = []
        self._coming: list[tuple[Any, Callable[[], None]]] = []  # an event, and what to do then
        self._taken = self._settled = 0  # values, of which each gets a number; up to which it is known when they go on
        self._here: list[tuple[int, dict[str, Any], int, Callable[[memoryview], None]]] = []  # not yet in their order
        self._streams: dict[torch.device, Any] = {}
        self._made: dict[torch.device, dict[int, Any]] = {}  # the streams that work on this step's, by their numbers

    def reduced(
        self, tensor: Tensor, minus: Tensor | None = None, *, limit_bytes: int | None = None, is_whole: bool = False,
        **about: Any,
    ) -> None:  # fmt: skip
        """Sum a tensor up where it is, less `minus`; with a limit only every n-th of its numbers.

        `is_whole` fetches all numbers that are summed up, where they fit a sheet, and not a sample of them.
        """
        value, stride = part(tensor.detach(), limit_bytes) if limit_bytes else (tensor.detach(), 1)
        told = describe(tensor, tensor.new_empty(0, device="cpu"), 1, **about)
        told |= {"whole": list(tensor.shape), "stride": stride, "order": self._next()}
        of = tensor if stride > 1 and minus is None else None
        value = value if minus is None else value - minus
        self._note_stream(value.device)
        if Sheet.takes(value):
            self._sheet(value.device).add(value, of, told, is_whole)
        else:
            self._reduced.append((told, value.numel(), reduce(value, of)))

    def _next(self) -> int:
        self._taken += 1
        return self._taken

    def offer(self, about: dict[str, Any], size_bytes: int, fill: Callable[[memoryview], None], /) -> bool:
        """Take a value that is here; it goes on when all that were taken before it are here, too."""
        self._here.append((about.pop("order"), about, size_bytes, fill))
        return True

    def _send_on(self) -> None:
        """In the order in which they were taken: who looks for a cause goes by what came first."""
        here, self._here = sorted(self._here, key=lambda one: one[0]), []
        for _, about, size_bytes, fill in here:
            if not about.pop("only_strange", False) or _is_strange(about):
                self._link.offer(about, size_bytes, fill)

    def _note_stream(self, device: torch.device) -> None:
        streams, raw = self._made.setdefault(device, {}), _raw_stream(device)
        if raw not in streams:
            streams[raw] = _stream_of(device)

    def _sheet(self, device: torch.device) -> Sheet:
        for sheet in self._sheets:
            if sheet.device == device and not sheet.is_full:
                sheet.meet()
                return sheet
        self._sheets.append(Sheet(device))
        return self._sheets[-1]

    def number(self, tensor: Tensor, **about: Any) -> None:
        """Fetch a metric, together with others."""
        value = tensor.detach().reshape(()).to(torch.float64, copy=True)
        self._note_stream(value.device)
        self._numbers.append(({**about, "device": str(tensor.device), "order": self._next()}, 1, value))

    def whole(self, tensor: Tensor, minus: Tensor | None = None, *, limit_bytes: int, **about: Any) -> None:
        """Fetch a tensor, less `minus`, or every n-th of its numbers: copied there, and the copy fetched."""
        plain = tensor.detach()
        value, stride = part(plain, limit_bytes)
        told = describe(plain, value, stride, order=self._next(), **about)
        if minus is None:
            copy = value.clone()
        else:
            copy = (value.float() - minus.float()).to(value.dtype) if value.element_size() == 1 else value - minus
        largest = [_largest(plain)] if stride > 1 and minus is None else []
        self._fetch([copy, *largest], partial(self._send_whole, told))

    def _send_whole(self, about: dict[str, Any], here: Tensor, largest: Tensor | None = None) -> None:
        if largest is not None:
            about["finite"] = math.isfinite(largest.item())
        elif about.get("only_strange"):
            about["finite"] = all_finite(here)
        self.offer(about, here.nbytes, _filling(here))

    def _fetch(self, there: Sequence[Tensor], then: Callable[..., None]) -> None:
        """Bring tensors of one device here, beside what it computes, and then do something with them."""
        device = there[0].device
        if device.type != "cuda":  # the same road without the wait, for devices that have no streams
            then(*(one.cpu() for one in there))
            return
        cuda: Any = torch.cuda  # it is not all annotated
        side = self._streams.get(device) or cuda.Stream(device)
        self._streams[device] = side
        here = [torch.empty(one.shape, dtype=one.dtype, pin_memory=True) for one in there]
        side.wait_stream(cuda.current_stream(device))
        with cuda.stream(side):
            for one, place in zip(there, here):
                place.copy_(one, non_blocking=True)
            arrived = cuda.Event()
            arrived.record(side)
        for one in there:
            one.record_stream(side)
        self._coming.append((arrived, lambda: then(*here)))

    def when(self, event: Any, then: Callable[[], None]) -> None:
        """Do something once a device has come to an event."""
        self._coming.append((event, then))

    def dispatch(self) -> None:
        """Begin to fetch what was summed up, all of a device at once."""
        for device, streams in self._made.items():
            self._join(device, set(streams.values()))
        self._made.clear()
        for sheet in self._sheets:
            self._fetch([sheet.sums(), sheet.sample(), *sheet.wholes()], partial(self._send_sheet, sheet.told))
        self._sheets.clear()
        for waiting, send in ((self._numbers, self._send_numbers), (self._reduced, self._send_sums)):
            for device in {value.device for *_, value in waiting}:
                there = [one for one in waiting if one[-1].device == device]
                self._fetch([torch.stack([value for *_, value in there])], partial(send, there))
            waiting.clear()

    def _join(self, device: torch.device, streams: set[Any]) -> None:
        """Have the stream of now wait for those that others worked on, and keep what they made until it has read it."""
        now = _stream_of(device)
        for stream in streams - {now}:
            now.wait_stream(stream)
        for sheet in self._sheets:
            if sheet.device == device:
                sheet.meet()
        if streams - {now}:
            for *_, value in (*self._reduced, *self._numbers):
                if value.device == device:
                    value.record_stream(now)

    def _send_sums(self, there: list[_Waiting], here: Tensor) -> None:
        for (about, count, _), sums in zip(there, here.tolist()):
            self._send_summary(about, count, sums)

    def _send_summary(
        self, about: dict[str, Any], count: int, sums: list[float], sample: Tensor | None = None, stride: int = 1
    ) -> None:
        about["summary"] = summary_of(sums, count, about["stride"])
        if about["stride"] > 1:
            about["finite"] = math.isfinite(sums[-1])
        if sample is None:
            self.offer(about, 0, lambda view: None)
            return
        about["stride"] *= stride
        about["shape"] = about["whole"] if about["stride"] == 1 else [sample.numel()]
        self.offer(about, sample.nbytes, _filling(sample))

    def _send_sheet(self, told: list[_Told], all_sums: Tensor, samples: Tensor, *wholes: Tensor) -> None:
        rest = iter(wholes)
        for (about, count, stride, kind), sums, sample in zip(told, all_sums.tolist(), samples):
            sample = next(rest) if _more(count, stride) else sample
            empty = WIDTH - count
            sums[3], sums[6] = sums[3] - empty, sums[6] - empty
            some = None if kind is None else sample[: -(-count // stride)].to(kind)
            self._send_summary(about, count, sums, some, stride)

    def _send_numbers(self, there: list[_Waiting], here: Tensor) -> None:
        for (about, *_), number in zip(there, here):
            told = describe(number, number, 1, **about)
            self.offer(told, number.nbytes, _filling(number))

    def harvest(self, wait: bool = False) -> None:
        """Send what has arrived; with `wait`, all that was begun."""
        if self._sheets or self._reduced or self._numbers:
            self.dispatch()
        if self._taken > self._settled:
            self._settled = self._taken
            self._coming.append((self._coming[-1][0] if self._coming else _HERE, self._send_on))
        while self._coming and (wait or self._coming[0][0].query()):
            arrived, then = self._coming.pop(0)
            arrived.synchronize()
            then()

    @property
    def busy(self) -> bool:
        """Whether anything is on its way."""
        return bool(self._coming or self._here or self._sheets or self._reduced or self._numbers)


def _is_strange(about: dict[str, Any]) -> bool:
    """Whether a value has numbers that are NaN or infinite, as far as is known."""
    summary: Statistics | None = about.get("summary")
    return about.get("finite") is False or (summary is not None and bool(summary.nans or summary.infs))
