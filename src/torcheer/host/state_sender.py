"""Sends states to the viewer through the shared-memory ring.

A state is announced once all of its arrays are written.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from torcheer.control.control_records import Wants
from torcheer.encoding import refusal, to_bytes
from torcheer.host.follow.record_rate import cost, stamp
from torcheer.host.missing_values import Absence
from torcheer.network.network_records import Layer, Network
from torcheer.samples import Key, Nonfinite
from torcheer.vocabulary.variables import ON_PAGE
from torcheer.wire.ring import Ring

LEAST_RING: Final = 16 << 20
MOST_RING: Final = 256 << 20
BATCH_BYTES: Final = 1 << 20  # of a value: as many items of its batch are sent as fit
_MOST_OPEN: Final = 32  # states not yet ended, or whose device copies are in flight
_MOST_ABSENCES: Final = 1000
_MOST_READY: Final = 4096  # states waiting to be announced


@dataclass(slots=True)
class HeldMoment:
    """A state, from `begin` until it is announced."""

    id: int
    step: int
    counters: dict[str, Any]
    test: bool
    bytes: int = 0  # of ring space that it takes, or would take
    values: int = 0
    failed: bool = False  # a value did not fit into the ring
    ended: bool = False
    absences: list[Absence] = field(default_factory=list)
    late: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)  # device copies in flight, their headers
    judged: list[tuple[Key, Nonfinite | None]] = field(default_factory=list)  # in the order of arrival


class Judge(Protocol):
    """What finds NaN and infinities in the states."""

    places: dict[str, str]  # by layer, the class of its module and the line that calls it

    def nonfinite(self, tensor: Any, layer: Layer | None) -> Nonfinite | None:
        """Those of a tensor of the CPU, of a layer."""

    def see_moment(self, step: int, values: list[tuple[Key, Nonfinite | None]]) -> None:
        """Judge a state."""


class StateSender:
    """Writes states into a ring, allocated on the first subscription.

    Any thread may offer values.
    """

    def __init__(self, notify: Callable[[], None], report: Callable[[str], None]) -> None:
        self.announced = self.dropped = 0  # complete states; states that did not fit
        self.making_secs = 0.0  # spent allocating rings
        self.layers: dict[str, Layer] = {}
        self.weights: frozenset[str] = frozenset()  # variables of weights, not of units
        self._notify, self._report = notify, report
        self._lock = threading.RLock()
        self._ring: Ring | None = None
        self._size = LEAST_RING
        self.wants = Wants()  # what the viewer subscribed to
        self.judge: Judge | None = None  # of what is sent
        self._moments: dict[int, HeldMoment] = {}
        self._ready: list[HeldMoment] = []
        self._last, self._usual_bytes = -1, 0

    def use_network(self, network: Network) -> None:
        """Set the network whose layers' values are offered from now on."""
        self.layers = {layer.name: layer for layer in network.layers}
        self.weights = frozenset(variable.name for variable in network.variables if variable.of == "weight")

    def subscribe(self, wants: Wants) -> None:
        """Replace the subscription; an empty one frees the ring."""
        with self._lock:
            if not is_subscribed(wants):
                self._free_ring()
                self._moments.clear()
                self._ready.clear()
                self._size, self._usual_bytes = LEAST_RING, 0
            self.wants = wants  # last: who sees it may rely on the rest

    def _free_ring(self) -> None:
        ring, self._ring = self._ring, None
        if ring is not None:
            ring.stop_accepting()
            ring.close()

    # -- for the training thread -------------------------------------------------------------------------------------

    def begin(self, step: int, counters: Mapping[str, Any] | None = None, test: bool = False) -> int:
        """Begin a state and return its number.

        -1 without a subscription, or while the ring is full of unread states; its values are ignored then.
        """
        if not is_subscribed(self.wants):
            return -1
        try:
            moment = HeldMoment(-1, int(step), dict(counters or {}), bool(test))
        except Exception as error:
            self._report(f"step {step} cannot be shown: {type(error).__name__}: {error}")
            return -1
        with self._lock:
            if self._ring is not None and (self._size > self._ring.memory.size):
                self._free_ring()  # the next value allocates a larger one
            if self._ring is not None and self._ring.free_bytes < self._usual_bytes:
                self.dropped += 1
                return -1
            self._last += 1
            moment.id = self._last
            self._moments[self._last] = moment
            while len(self._moments) > _MOST_OPEN:
                del self._moments[next(iter(self._moments))]
                self.dropped += 1
            return self._last

    def offer(self, number: int, value: Any, layer: str, variable: str, item: int = -1) -> bool:
        """Copy a tensor or array of a state into the ring at once; False without room or a subscription to it.

        The first axis is the batch; with `item`, the value is that one batch item without a batch axis.
        """
        moment = self._moments.get(number)
        if moment is None or not self.is_wanted(variable):
            return False
        try:
            value = value if hasattr(value, "detach") else np.asarray(value)
            return self._offer(moment, value, layer, variable, item)
        except Exception as error:  # a value that cannot be copied is no reason to stop a training run
            self._report(f"{layer} ({variable}) cannot be shown: {type(error).__name__}: {error}")
            return False

    def _offer(self, moment: HeldMoment, value: Any, layer: str, variable: str, item: int) -> bool:
        if reason := refusal(value):
            self._report(f"{layer} ({variable}) is not shown: {reason}")
            return False
        sent, first = (value, -1) if self._is_weight(variable) else self._items(value, layer, item)
        moment.bytes += sent.nbytes + 512
        ring = self._ring_for(sent.nbytes)
        if ring is None:
            self._reject_too_large(moment, sent.nbytes, layer, variable)
            return False
        header: dict[str, Any] = {"layer": layer, "variable": variable, "step": moment.id}
        fits = self._put(ring, moment, sent, {**header, "item": first})
        if fits and first >= 0 and sent.ndim == value.ndim and len(sent) < len(value):  # part of the batch
            for number_in_batch in self._further_items(first, len(sent), len(value)):
                one_item = value[number_in_batch][None]
                moment.bytes += one_item.nbytes + 512
                fits = fits and self._put(ring, moment, one_item, {**header, "item": number_in_batch})
        moment.values += fits
        moment.failed |= not fits
        return fits

    def _further_items(self, first: int, sent: int, batch: int) -> list[int]:
        """Subscribed batch items outside the contiguous part that is sent."""
        return [item for item in self.wants.items if 0 <= item < batch and not first <= item < first + sent]

    def absent(self, number: int, absences: Iterable[Absence]) -> None:
        """Record layers that a state has no value of, and why."""
        if (moment := self._moments.get(number)) is not None:
            moment.absences += list(absences)[:_MOST_ABSENCES]

    def end(self, number: int) -> None:
        """Mark a state as complete: all of its values were offered."""
        with self._lock:
            if (moment := self._moments.get(number)) is None:
                return
            moment.ended = True
            if not moment.late:
                self._finish(moment)

    def is_wanted(self, variable: str) -> bool:
        """True if the viewer is subscribed to a variable."""
        wants = self.wants
        if self._is_weight(variable):
            return wants.weights or bool(wants.units or wants.inspected)
        return variable in wants.variables

    def _is_weight(self, variable: str) -> bool:
        row = ON_PAGE.get(variable.partition("[")[0])
        return (row is not None and row.of == "weight") or variable in self.weights

    # -- the ring ----------------------------------------------------------------------------------------------------

    def _ring_for(self, size_bytes: int) -> Ring | None:
        """The ring, allocated by the first value; None if a value of this size cannot fit."""
        with self._lock:
            if self._ring is None and is_subscribed(self.wants):
                while self._size < MOST_RING and (self._size // 8 < size_bytes or self._size < 3 * self._usual_bytes):
                    self._size *= 2
                began = stamp()
                self._ring = Ring(self._size)
                self.making_secs += cost(began)
                self._notify()
            ring = self._ring
        return ring if ring is not None and size_bytes <= ring.share_bytes else None

    def _reject_too_large(self, moment: HeldMoment, size_bytes: int, layer: str, variable: str) -> None:
        if size_bytes > MOST_RING // 8:
            self._report(f"{layer} ({variable}) is not shown: one item of it has {size_bytes:,} bytes; "
                         f"{MOST_RING // 8:,} is the most")  # fmt: skip
            moment.bytes -= size_bytes
            return
        moment.failed = True
        while self._size // 8 < size_bytes:  # for the next state
            self._size *= 2

    def _put(self, ring: Ring, moment: HeldMoment, sent: Any, header: dict[str, Any]) -> bool:
        if not hasattr(sent, "detach"):
            name, shape, data = to_bytes(sent)
            header |= {"type": name, "shape": list(shape)}
            return ring.offer(header, data.nbytes, lambda view: view.__setitem__(slice(None), data))
        if sent.is_cuda:
            from torcheer.tap.device_copies import host_copy

            if (copy := host_copy(sent)) is None:
                return False
            with self._lock:
                moment.late.append((copy, {**header, "device": copy.device}))
            self._notify()
            return True
        return self._write(ring, moment, sent if sent.is_cpu else sent.cpu(), header)

    def _write(self, ring: Ring, moment: HeldMoment, tensor: Any, header: dict[str, Any]) -> bool:
        """Write a tensor on the CPU into the ring; False if it does not fit."""
        from torcheer.tap.tensor_copies import offer  # late: a viewer's process loads no torch

        if self.judge is not None:
            key = header["layer"], header["variable"]
            moment.judged.append((key, self.judge.nonfinite(tensor, self.layers.get(header["layer"]))))
        return offer(ring, tensor, limit_bytes=ring.share_bytes, **header)

    def _items(self, value: Any, layer: str, item: int) -> tuple[Any, int]:
        """The part of a batch that is sent, and the number of its first item."""
        if item >= 0:
            return value[None], item  # a single item
        record = self.layers.get(layer)
        if not _has_batch(value.shape, -1 if record is None else math.prod(record.shape)):
            return value[None], 0
        batch = value.shape[0]
        if value.nbytes <= BATCH_BYTES or batch == 0:
            return value, 0
        room = min(max(BATCH_BYTES * batch // value.nbytes, 1), batch)
        first = max(min(self.wants.item // room * room, batch - room), 0)
        return value[first : first + room], first

    # -- for the host's thread ---------------------------------------------------------------------------------------

    def _finish(self, moment: HeldMoment) -> None:
        """Announce a complete state; drop one of which a value did not fit."""
        self._moments.pop(moment.id, None)
        if self.judge is not None:
            self.judge.see_moment(moment.step, moment.judged)
        self._usual_bytes = max(moment.bytes, self._usual_bytes * 3 // 4)
        while self._size < MOST_RING and self._size < 3 * moment.bytes:
            self._size *= 2
        if moment.failed:
            self.dropped += 1
        elif (moment.values or moment.absences) and len(self._ready) < _MOST_READY:
            self._ready.append(moment)
            self.announced += 1
            self._notify()

    @property
    def late(self) -> bool:
        """True while device copies are in flight."""
        return any(moment.late for moment in list(self._moments.values()))

    def harvest(self) -> None:
        """Write finished device copies into the ring, in the order of their states."""
        with self._lock:
            for moment in list(self._moments.values()):
                while moment.late and moment.late[0][0].arrived:
                    copy, header = moment.late.pop(0)
                    if self._ring is None or not self._write(self._ring, moment, copy.tensor, header):
                        moment.failed = True
                if moment.late:
                    return
                if moment.ended:
                    self._finish(moment)

    def ready(self) -> list[HeldMoment]:
        """Take the states that may be announced now."""
        with self._lock:
            moments, self._ready = self._ready, []
            return moments

    def descriptor(self, sent_token: Any) -> tuple[Any, int]:
        """The ring's token, and a new descriptor if that differs from `sent_token` (else -1)."""
        with self._lock:
            ring = self._ring
            if ring is None or ring.memory.token == sent_token:
                return sent_token, -1
            return ring.memory.token, os.dup(ring.fd)


def _has_batch(shape: tuple[int, ...], units: int) -> bool:
    """True if the first axis is the batch; `units` is the known size of one item, or -1."""
    if not shape:
        return False
    if units > 0 and shape[0] * units == math.prod(shape):
        return True
    return len(shape) > 1 and math.prod(shape) != units


def is_subscribed(wants: Wants) -> bool:
    """True while a viewer is subscribed to at least one value."""
    return bool(wants.variables or wants.weights or wants.units)
