"""Values on their way from a device: in flight, arrived, and sent in the order they were taken."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from torch import Tensor

from torcheer.encoding import Offer
from torcheer.samples import SampleBatch, has_nonfinite
from torcheer.tap.device_copies import READY, copy_to_host
from torcheer.tap.tensor_copies import GroupSink

_TOGETHER_BYTES = 1 << 20  # at most, of values that are sent as one record
_STEP_BYTES = 512 << 10  # after which a step leaves the others to the next one


class Outbox:
    """Fetches tensors and sends what is made of them, later and without waiting.

    Rules find a cause by what came first: what arrives is queued once all that was taken before it has arrived.
    """

    def __init__(self, link: GroupSink) -> None:
        self.link = link
        self._in_flight: list[tuple[Any, Callable[[], None]]] = []  # an event, and what to call after it
        self._last_order = self._flushed_order = 0  # values are numbered in order; up to which a flush is scheduled
        self._arrived: list[tuple[int, Offer | SampleBatch]] = []  # not yet sorted
        self._outgoing: deque[list[Offer] | SampleBatch] = deque()  # in order

    def next_order(self) -> int:
        """The place of a value, or a batch, among all."""
        self._last_order += 1
        return self._last_order

    def fetch(self, tensors: Sequence[Tensor], action: Callable[..., None]) -> None:
        """Copy tensors of one device to the host, then call `action` with the copies."""
        copies, arrived = copy_to_host(tensors)
        self._in_flight.append((arrived, lambda: action(*copies)))

    def run_after(self, event: Any, action: Callable[[], None]) -> None:
        """Call `action` once a device has reached an event."""
        self._in_flight.append((event, action))

    def add(self, order: int, value: Offer | SampleBatch) -> None:
        """Keep a value that has arrived."""
        self._arrived.append((order, value))

    def _queue_in_order(self) -> None:
        """Queue the arrived values in the order they were taken: rules find a cause by what came first."""
        arrived, self._arrived = sorted(self._arrived, key=itemgetter(0)), []
        together: list[Offer] = []
        room = _TOGETHER_BYTES
        for _, value in arrived:
            if isinstance(value, SampleBatch):
                self._outgoing += ([together] if together else []) + [value]
                together, room = [], _TOGETHER_BYTES
                continue
            header, size_bytes, _ = value
            if header.pop("only_nonfinite", False) and not has_nonfinite(header):
                continue
            if size_bytes > room and together:
                self._outgoing.append(together)
                together, room = [], _TOGETHER_BYTES
            together.append(value)
            room -= size_bytes
        if together:
            self._outgoing.append(together)

    def send_arrived(self, limit_bytes: float = math.inf) -> None:
        """Send what has arrived, until so many bytes were sent."""
        while self._outgoing and limit_bytes > 0:
            group = self._outgoing.popleft()
            if isinstance(group, SampleBatch):
                limit_bytes -= group.size_bytes
                group = [] if self.link.offer_batch(group) else group.offers()
            else:
                limit_bytes -= sum(size for _, size, _ in group)
            if len(group) < 2 or not self.link.offer_together(group):
                for offer in group:
                    self.link.offer(*offer)

    def harvest(self, wait: bool) -> None:
        """Send what has arrived, a part of it at each step; with `wait`, everything in flight."""
        if self._last_order > self._flushed_order:
            self._flushed_order = self._last_order
            self._in_flight.append((self._in_flight[-1][0] if self._in_flight else READY, self._queue_in_order))
        while self._in_flight and (wait or self._in_flight[0][0].query()):
            event, action = self._in_flight.pop(0)
            event.synchronize()
            action()
        self.send_arrived(math.inf if wait else _STEP_BYTES)

    @property
    def is_busy(self) -> bool:
        """Whether anything is on its way."""
        return bool(self._in_flight or self._arrived or self._outgoing)
