"""States on their way to the viewer: each a few arrays in the ring, announced when the last of them is there."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from torcheer.control.control_records import Wants
from torcheer.encoding import refusal, to_bytes
from torcheer.host.follow.record_rate import cost, stamp
from torcheer.host.missing_values import Absence
from torcheer.network.network_records import Layer, Network
from torcheer.wire.ring import Ring
from torcheer.wire.shared_memory import HEAD, TAIL

LEAST_RING: Final = 16 << 20
MOST_RING: Final = 256 << 20
BATCH_BYTES: Final = 1 << 20  # of a value: so many items of its batch are sent as fit in here
_MOST_OPEN: Final = 32  # states that were begun, and not ended or still on their way from a device
_MOST_ABSENCES: Final = 1000
_MOST_READY: Final = 4096  # that wait to be announced


@dataclass(slots=True)
class Moment:
    """A state, from its beginning until it is announced."""

    id: int
    step: int
    counters: dict[str, Any]
    test: bool
    bytes: int = 0  # that it takes in the ring, or would
    values: int = 0
    failed: bool = False  # something found no room
    ended: bool = False
    absences: list[Absence] = field(default_factory=list)
    late: list[Any] = field(default_factory=list)  # copies that are still on their way from a device


class Values:
    """The ring, made when somebody looks, and the states that are put into it. Any thread may offer."""

    def __init__(self, poke: Callable[[], None], report: Callable[[str], None]) -> None:
        self.announced = self.dropped = 0  # states that are whole, and those that found no room
        self.making_secs = 0.0  # that were spent on making rings
        self.layers: dict[str, Layer] = {}
        self.weights: frozenset[str] = frozenset()  # variables that are not of units
        self._poke, self._report = poke, report
        self._lock = threading.RLock()
        self._ring: Ring | None = None
        self._size = LEAST_RING
        self._wants = Wants()
        self._moments: dict[int, Moment] = {}
        self._ready: list[Moment] = []
        self._last, self._usual_bytes = -1, 0

    def know(self, network: Network) -> None:
        """The layers whose values come from now on."""
        self.layers = {layer.name: layer for layer in network.layers}
        self.weights = frozenset(variable.name for variable in network.variables if variable.of == "weight")

    def want(self, wants: Wants) -> None:
        """What is looked at; where that is nothing, the memory is given back."""
        with self._lock:
            self._wants = wants
            if not looks(wants):
                self._let_go()
                self._moments.clear()
                self._ready.clear()
                self._size, self._usual_bytes = LEAST_RING, 0

    def _let_go(self) -> None:
        ring, self._ring = self._ring, None
        if ring is not None:
            ring.shut()
            ring.close()

    # -- for the training thread -------------------------------------------------------------------------------------

    def begin(self, step: int, counters: Mapping[str, Any], test: bool) -> int:
        """Begin a state; -1 where nobody looks, or the viewer has not read the ones before."""
        if not looks(self._wants):
            return -1
        with self._lock:
            if self._ring is not None and (self._size > self._ring.memory.size):
                self._let_go()  # a larger one is made by the first value
            if self._ring is not None and self._free() < self._usual_bytes:
                self.dropped += 1
                return -1
            self._last += 1
            self._moments[self._last] = Moment(self._last, int(step), dict(counters), bool(test))
            while len(self._moments) > _MOST_OPEN:
                del self._moments[next(iter(self._moments))]
                self.dropped += 1
            return self._last

    def offer(self, number: int, value: Any, layer: str, variable: str, item: int) -> bool:
        """Put a value of a state into the ring."""
        moment = self._moments.get(number)
        if moment is None or not self.wanted(variable):
            return False
        if reason := refusal(value):
            self._report(f"{layer} ({variable}) is not shown: {reason}")
            return False
        sent, first = (value, -1) if self._is_weight(variable) else self._items(value, layer, item)
        moment.bytes += sent.nbytes + 512
        ring = self._fitting(sent.nbytes)
        if ring is None:
            self._too_large(moment, sent.nbytes, layer, variable)
            return False
        about: dict[str, Any] = {"layer": layer, "variable": variable, "step": number}
        good = self._put(ring, moment, sent, {**about, "item": first})
        if good and first >= 0 and sent.ndim == value.ndim and len(sent) < len(value):  # not the whole batch
            for other in self._others(first, len(sent), len(value)):
                moment.bytes += value[other].nbytes + 512
                good = good and self._put(ring, moment, value[other][None], {**about, "item": other})
        moment.values += good
        moment.failed |= not good
        return good

    def _others(self, first: int, sent: int, batch: int) -> list[int]:
        """Items that somebody looks at, beside those that are sent together."""
        return [one for one in self._wants.items if 0 <= one < batch and not first <= one < first + sent]

    def absent(self, number: int, absences: Iterable[Absence]) -> None:
        """Layers that a state has no value of, and why."""
        if (moment := self._moments.get(number)) is not None:
            moment.absences += list(absences)[:_MOST_ABSENCES]

    def end(self, number: int) -> None:
        """All of a state was offered."""
        with self._lock:
            if (moment := self._moments.get(number)) is None:
                return
            moment.ended = True
            if not moment.late:
                self._finish(moment)

    def wanted(self, variable: str) -> bool:
        """Whether somebody looks at a variable."""
        wants = self._wants
        if self._is_weight(variable):
            return wants.weights or bool(wants.units)
        return variable in wants.variables

    def _is_weight(self, variable: str) -> bool:
        return variable.partition("[")[0] in ("Wt", "DWt") or variable in self.weights

    # -- the ring ----------------------------------------------------------------------------------------------------

    def _fitting(self, size_bytes: int) -> Ring | None:
        """The ring, if a value may go into it; made by the first that comes."""
        with self._lock:
            if self._ring is None and looks(self._wants):
                while self._size < MOST_RING and (self._size // 8 < size_bytes or self._size < 3 * self._usual_bytes):
                    self._size *= 2
                began = stamp()
                self._ring = Ring(self._size)
                self.making_secs += cost(began)
                self._poke()
            ring = self._ring
        return ring if ring is not None and size_bytes <= ring.share_bytes else None

    def _too_large(self, moment: Moment, size_bytes: int, layer: str, variable: str) -> None:
        if size_bytes > MOST_RING // 8:
            self._report(f"{layer} ({variable}) is not shown: one item of it has {size_bytes:,} bytes; "
                         f"{MOST_RING // 8:,} is the most")  # fmt: skip
            moment.bytes -= size_bytes
            return
        moment.failed = True
        while self._size // 8 < size_bytes:  # for the next state
            self._size *= 2

    def _free(self) -> int:
        assert self._ring is not None
        memory = self._ring.memory
        head, tail = memory.get(HEAD), memory.get(TAIL)
        return memory.size if head is None or tail is None else memory.size - (head - tail)

    def _put(self, ring: Ring, moment: Moment, sent: Any, about: dict[str, Any]) -> bool:
        if not hasattr(sent, "detach"):
            name, shape, data = to_bytes(sent)
            about |= {"type": name, "shape": list(shape)}
            return ring.offer(about, data.nbytes, lambda view: view.__setitem__(slice(None), data))
        if sent.is_cuda:
            from torcheer.host.follow.gpu_copies import Coming

            if (coming := Coming.begin(sent, about)) is None:
                return False
            with self._lock:
                moment.late.append(coming)
            self._poke()
            return True
        from torcheer.tap.tensor_copies import offer

        return offer(ring, sent if sent.is_cpu else sent.cpu(), limit_bytes=ring.share_bytes, **about)

    def _items(self, value: Any, layer: str, item: int) -> tuple[Any, int]:
        """The part of a batch that is sent, and the number of its first item."""
        if item >= 0:
            return value[None], item  # one item, alone
        known = self.layers.get(layer)
        if not _has_batch(value.shape, -1 if known is None else math.prod(known.shape)):
            return value[None], 0
        batch = value.shape[0]
        if value.nbytes <= BATCH_BYTES or batch == 0:
            return value, 0
        room = min(max(BATCH_BYTES * batch // value.nbytes, 1), batch)
        first = max(min(self._wants.item // room * room, batch - room), 0)
        return value[first : first + room], first

    # -- for the thread that serves ----------------------------------------------------------------------------------

    def _finish(self, moment: Moment) -> None:
        """Announce a state that is whole, forget one that is not."""
        self._moments.pop(moment.id, None)
        self._usual_bytes = max(moment.bytes, self._usual_bytes * 3 // 4)
        while self._size < MOST_RING and self._size < 3 * moment.bytes:
            self._size *= 2
        if moment.failed:
            self.dropped += 1
        elif (moment.values or moment.absences) and len(self._ready) < _MOST_READY:
            self._ready.append(moment)
            self.announced += 1
            self._poke()

    @property
    def late(self) -> bool:
        """Whether something is on its way from a device."""
        return any(moment.late for moment in list(self._moments.values()))

    def harvest(self) -> None:
        """Put what has come from the devices into the ring, states in their order."""
        with self._lock:
            for moment in list(self._moments.values()):
                while moment.late and moment.late[0].arrived:
                    coming = moment.late.pop(0)
                    if self._ring is None or not coming.put(self._ring):
                        moment.failed = True
                if moment.late:
                    return
                if moment.ended:
                    self._finish(moment)

    def ready(self) -> list[Moment]:
        """The states that may be announced now."""
        with self._lock:
            found, self._ready = self._ready, []
            return found

    def descriptor(self, told: Any) -> tuple[Any, int]:
        """What the ring is known by, and a new descriptor of it where that is not what was told (-1 otherwise)."""
        with self._lock:
            ring = self._ring
            if ring is None or ring.memory.token == told:
                return told, -1
            return ring.memory.token, os.dup(ring.fd)


def _has_batch(shape: tuple[int, ...], units: int) -> bool:
    """Whether the first axis counts items; `units` of one are known, or -1."""
    if not shape:
        return False
    if units > 0 and shape[0] * units == math.prod(shape):
        return True
    return len(shape) > 1 and math.prod(shape) != units


def looks(wants: Wants) -> bool:
    """Whether anybody looks at anything."""
    return bool(wants.variables or wants.weights or wants.units)


def as_array(value: Any) -> Any:
    """A value that has a shape: a tensor as it is, all else as numpy's."""
    return value if hasattr(value, "detach") else np.asarray(value)
