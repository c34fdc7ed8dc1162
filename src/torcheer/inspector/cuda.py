"""Values on a GPU: summed up there, fetched without anyone waiting."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torcheer.inspector.records import Summary
from torcheer.inspector.tensors import Takes, describe, offer, part

_Waiting = tuple[dict[str, Any], int, Tensor]  # what a record says, of how many numbers, and what is to be fetched
_WIDE = (torch.int32, torch.int64, torch.uint32, torch.uint64)
_SUMS = 8  # numbers that `reduce` returns


def reduce(tensor: Tensor, of: Tensor | None = None) -> Tensor:
    """The sums that a `Summary` is made of, as one small tensor where the numbers are; nothing is waited for.

    As few operations as there can be: on a GPU each costs its start, whatever the size. Where `tensor` is a sample,
    `of` is all of it, and only asked whether it is finite.
    """
    numbers = _plain(tensor)
    if not numbers.numel():
        return torch.zeros(_SUMS, dtype=torch.float64, device=numbers.device)
    norm, greatest = torch.linalg.vector_norm, torch.finfo(numbers.dtype).max
    finite = torch.nan_to_num(numbers, 0.0, 0.0, 0.0)
    strange = norm(numbers - numbers, 0, dtype=torch.float64)  # infinity less itself is no number, and that is not zero
    return torch.stack([
        finite.sum(dtype=torch.float64),
        norm(finite, dtype=torch.float64),
        norm(finite, 0, dtype=torch.float64),
        (numbers != numbers).sum(dtype=torch.float64),
        torch.nan_to_num(numbers, greatest, greatest, greatest).amin().double(),
        torch.nan_to_num(numbers, -greatest, -greatest, -greatest).amax().double(),
        strange,
        strange if of is None else _largest(of),
    ])  # fmt: skip


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


class Fetcher:
    """What is on its way from the devices; sent to the ring once it is here."""

    def __init__(self, link: Takes) -> None:
        self._link = link
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
        sampled = stride > 1 and minus is None
        sums = reduce(value if minus is None else value - minus, tensor if sampled else None)
        self._reduced.append((told, value.numel(), sums))

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
        for waiting, send in ((self._numbers, self._send_numbers), (self._reduced, self._send_sums)):
            for device in {value.device for *_, value in waiting}:
                there = [one for one in waiting if one[-1].device == device]
                self._fetch(torch.stack([value for *_, value in there]), partial(send, there))
            waiting.clear()

    def _send_sums(self, there: list[_Waiting], here: Tensor) -> None:
        for (about, count, _), sums in zip(there, here.tolist()):
            about["summary"] = asdict(summary_of(sums, count, about["stride"]))
            if about["stride"] > 1:
                about["finite"] = math.isfinite(sums[-1])
            self._link.offer(about, 0, lambda view: None)

    def _send_numbers(self, there: list[_Waiting], here: Tensor) -> None:
        for (about, *_), number in zip(there, here):
            offer(self._link, number, **about)

    def harvest(self, wait: bool = False) -> None:
        """Send what has arrived; with `wait`, all that was begun."""
        if self._reduced or self._numbers:
            self.dispatch()
        while self._coming and (wait or self._coming[0][0].query()):
            arrived, then = self._coming.pop(0)
            arrived.synchronize()
            then()

    @property
    def busy(self) -> bool:
        """Whether anything is on its way."""
        return bool(self._coming or self._reduced or self._numbers)
