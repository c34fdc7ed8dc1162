"""Values on a GPU: summed up there, fetched without anyone waiting."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torcheer.inspector.records import Summary
from torcheer.inspector.tensors import Takes, describe, offer, part

_Waiting = tuple[dict[str, Any], int, Tensor]  # what a record says, of how many numbers, and what is to be fetched
_WIDE = (torch.int32, torch.int64, torch.uint32, torch.uint64)
_SUMS = 8  # numbers that `reduce` returns
WIDTH, _ROWS = 1 << 16, 64  # of a sheet: numbers of each value, values


def looked_at_bytes(tensor: Tensor) -> int:
    """How many bytes of a tensor fit a row of a sheet."""
    return WIDTH * tensor.element_size()


def reduce(tensor: Tensor, of: Tensor | None = None, by_row: bool = False) -> Tensor:
    """The sums that a `Summary` is made of, as one small tensor where the numbers are; nothing is waited for.

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


def summary_of(sums: list[float], count: int, stride: int = 1) -> Summary:
    """What `reduce` found in so many numbers, as everybody reads it."""
    total, norm, filled, nans, minimum, maximum, strange, _ = sums
    finite = count - int(strange)
    if not finite:
        none = math.nan
        return Summary(count, none, none, none, none, none, 0, int(nans), int(strange - nans), stride=stride)
    mean = min(max(total / finite, minimum), maximum)
    std = math.sqrt(max(norm * norm / finite - mean * mean, 0.0)) if minimum < maximum else 0.0
    return Summary(
        count=count, minimum=minimum, maximum=maximum, mean=mean, std=std, norm=norm, zeros=finite - int(filled),
        nans=int(nans), infs=int(strange - nans), stride=stride,
    )  # fmt: skip


class Sheet:
    """Numbers of many values of one device, a row for each, summed up together: an operation costs its start there,
    and to sum up one value takes fourteen of them."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._numbers = torch.full((_ROWS, WIDTH), math.nan, dtype=torch.float32, device=device)
        self._largest = torch.zeros(_ROWS, dtype=torch.float32, device=device)
        self.told: list[tuple[dict[str, Any], int]] = []  # what a record says, and of how many numbers

    @staticmethod
    def takes(value: Tensor) -> bool:
        """Whether a value fits, none of its numbers changed."""
        return value.numel() <= WIDTH and value.dtype not in (*_WIDE, torch.float64, torch.complex128)

    @property
    def is_full(self) -> bool:
        """Whether another value needs another sheet."""
        return len(self.told) == _ROWS

    def add(self, value: Tensor, of: Tensor | None, about: dict[str, Any]) -> None:
        """Copy a value; where it is a sample, ask all it is `of` whether it is finite."""
        row, count = len(self.told), value.numel()
        value = value.abs() if value.is_complex() else value
        self._numbers[row, :count].view(value.shape).copy_(value)
        if of is not None and (of.is_floating_point() or of.is_complex()):
            numbers = of.detach().float() if of.element_size() == 1 else of.detach()
            torch.linalg.vector_norm(numbers, math.inf, dtype=_norm_type(numbers), out=self._largest[row])
        self.told.append((about, count))

    def sums(self) -> Tensor:
        """What `reduce` gives, a row for each value; the empty rest of a row counts as NaN."""
        used = self._numbers[: len(self.told)]
        return torch.cat([reduce(used, by_row=True)[:, :-1], self._largest[: len(self.told), None].double()], 1)


def _norm_type(tensor: Tensor) -> torch.dtype:
    return torch.complex64 if tensor.is_complex() else torch.float32


class Fetcher:
    """What is on its way from the devices; sent to the ring once it is here."""

    def __init__(self, link: Takes) -> None:
        self._link = link
        self._sheets: list[Sheet] = []  # this step's, the last one not yet full
        self._reduced: list[_Waiting] = []  # this step's, still on their device
        self._numbers: list[_Waiting] = []
        self._coming: list[tuple[Any, Callable[[], None]]] = []  # an event, and what to do then
        self._streams: dict[torch.device, Any] = {}

    def reduced(
        self, tensor: Tensor, minus: Tensor | None = None, *, limit_bytes: int | None = None, **about: Any
    ) -> None:
        """Sum a tensor up where it is, less `minus`; with a limit only every n-th of its numbers."""
        value, stride = part(tensor.detach(), limit_bytes) if limit_bytes else (tensor.detach(), 1)
        told = describe(tensor, tensor.new_empty(0, device="cpu"), 1, **about)
        told |= {"whole": list(tensor.shape), "stride": stride}
        of = tensor if stride > 1 and minus is None else None
        value = value if minus is None else value - minus
        if Sheet.takes(value):
            self._sheet(value.device).add(value, of, told)
        else:
            self._reduced.append((told, value.numel(), reduce(value, of)))

    def _sheet(self, device: torch.device) -> Sheet:
        for sheet in self._sheets:
            if sheet.device == device and not sheet.is_full:
                return sheet
        self._sheets.append(Sheet(device))
        return self._sheets[-1]

    def number(self, tensor: Tensor, **about: Any) -> None:
        """Fetch a metric, together with others."""
        value = tensor.detach().reshape(()).to(torch.float64, copy=True)
        self._numbers.append(({**about, "device": str(tensor.device)}, 1, value))

    def whole(self, tensor: Tensor, *, limit_bytes: int, **about: Any) -> None:
        """Fetch all of a tensor: copied on its device at once, the copy fetched beside what computes."""
        copy = tensor.detach().clone()
        device = str(copy.device)

        def send(here: Tensor) -> None:
            offer(self._link, here, limit_bytes=limit_bytes, **{**about, "device": device})

        self._fetch(copy, send)

    def _fetch(self, there: Tensor, then: Callable[[Tensor], None]) -> None:
        if not there.is_cuda:  # the same road without the wait, for devices that have no streams
            then(there.cpu())
            return
        cuda: Any = torch.cuda  # it is not all annotated
        side = self._streams.get(there.device) or cuda.Stream(there.device)
        self._streams[there.device] = side
        here = torch.empty(there.shape, dtype=there.dtype, pin_memory=True)
        side.wait_stream(cuda.current_stream(there.device))
        with cuda.stream(side):
            here.copy_(there, non_blocking=True)
            arrived = cuda.Event()
            arrived.record(side)
        there.record_stream(side)
        self._coming.append((arrived, lambda: then(here)))

    def dispatch(self) -> None:
        """Begin to fetch what was summed up, all of a device at once."""
        for sheet in self._sheets:
            self._fetch(sheet.sums(), partial(self._send_sheet, sheet.told))
        self._sheets.clear()
        for waiting, send in ((self._numbers, self._send_numbers), (self._reduced, self._send_sums)):
            for device in {value.device for *_, value in waiting}:
                there = [one for one in waiting if one[-1].device == device]
                self._fetch(torch.stack([value for *_, value in there]), partial(send, there))
            waiting.clear()

    def _send_sums(self, there: list[_Waiting], here: Tensor) -> None:
        for (about, count, _), sums in zip(there, here.tolist()):
            self._send_summary(about, count, sums)

    def _send_summary(self, about: dict[str, Any], count: int, sums: list[float]) -> None:
        about["summary"] = summary_of(sums, count, about["stride"])
        if about["stride"] > 1:
            about["finite"] = math.isfinite(sums[-1])
        self._link.offer(about, 0, lambda view: None)

    def _send_sheet(self, told: list[tuple[dict[str, Any], int]], here: Tensor) -> None:
        for (about, count), sums in zip(told, here.tolist()):
            empty = WIDTH - count
            self._send_summary(about, count, [*sums[:3], sums[3] - empty, *sums[4:6], sums[6] - empty, sums[7]])

    def _send_numbers(self, there: list[_Waiting], here: Tensor) -> None:
        for (about, *_), number in zip(there, here):
            offer(self._link, number, **about)

    def harvest(self, wait: bool = False) -> None:
        """Send what has arrived; with `wait`, all that was begun."""
        if self._sheets or self._reduced or self._numbers:
            self.dispatch()
        while self._coming and (wait or self._coming[0][0].query()):
            arrived, then = self._coming.pop(0)
            arrived.synchronize()
            then()

    @property
    def busy(self) -> bool:
        """Whether anything is on its way."""
        return bool(self._coming or self._sheets or self._reduced or self._numbers)
