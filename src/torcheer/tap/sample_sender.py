"""One door to the ring for all probes: what goes whole, what as a sample, what is summed up where it is."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from numbers import Real
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from torcheer.tap.cuda_statistics import Fetcher, looked_at_bytes
from torcheer.tap.ring_turns import Takes, Turns
from torcheer.tap.tensor_copies import Report, all_finite, is_wrapped, local, offer, part, refusal

_PLANNED_BYTES = 64 << 10  # at least, of each tensor, however many are foreseen
_LEAST_BYTES = 4 << 10  # of each tensor, however many there are
_ROOM = 5  # shares of the ring, which has eight, that a look may fill: the child may not have read all of the last one
_LAST = 4  # outputs before the loss
_NUMBER = struct.Struct("<d")
_TWINS = {"weight": "update", "update": "weight"}  # are compared with each other: of both the same numbers are sent


class Sender:
    """Sends values, never raises; a key that fails is reported and left out from then on."""

    def __init__(
        self, link: Takes, *, limit_bytes: int, share_bytes: int, whole: Sequence[str] = (), report: Report
    ) -> None:
        self.limit_bytes, self.message = limit_bytes, ""
        self.devices = frozenset({"cuda"})  # where values are summed up, and not waited for
        self.scaled = False  # whether a GradScaler is in use
        self._link, self._share_bytes, self._whole, self.report = link, share_bytes, tuple(whole), report
        self._turns, self._overflows = Turns(link, self._say_it_overflows), 0
        self._fetcher, self._lock, self._process = Fetcher(self._turns), threading.RLock(), os.getpid()
        self._near_the_loss = NearTheLoss()
        self._off: set[tuple[str, str]] = set()
        self._wholes: dict[tuple[str, str], bool] = {}
        self._told = False  # that a value is too large for the ring
        self._seen: Counter[tuple[str, str]] = Counter()
        self._kept: dict[tuple[str, str], int] = {}  # with which limit a value was kept
        self._planned_bytes, self._sizes = limit_bytes, list[int]()  # of what this look has brought, whole

    def send(
        self, tensor: Tensor, layer: str, variable: str, step: int, minus: Tensor | None = None, **extras: Any
    ) -> None:
        """Send a tensor, or its difference from `minus`, a `kept` one."""
        key = (layer, variable)
        if key in self._off or self._process != os.getpid():
            return
        about: dict[str, Any] = {"layer": layer, "variable": variable, "step": step, "time_secs": time.time()}
        about |= {"count": self._seen[key], **extras}
        self._seen[key] += 1
        if self.message:
            about["message"] = self.message
        if variable == "weight" and not tensor.requires_grad:
            about["frozen"] = True
        if variable == "update" and self.scaled:
            about["scaled"] = True
        try:
            with self._lock:
                plain = local(tensor)
                if self.is_on_device(plain):
                    self._send_from_device(plain, minus, about)
                else:
                    limit = self._limit_of(plain, key, minus)
                    offer(self._turns, plain, minus=minus, limit_bytes=limit, report=self._refused(key, plain), **about)
                    if key not in self._off:
                        self._sizes.append(plain.nbytes)
        except Exception as error:  # whatever it is, the model has nothing to do with it
            self._off.add(key)
            self.report(f"{layer} ({variable}) is no longer watched: {type(error).__name__}: {error}")

    def is_on_device(self, tensor: Tensor) -> bool:
        """Whether a tensor is summed up where it is, and nobody waits for the numbers."""
        return tensor.device.type in self.devices

    def send_if_strange(self, tensor: Tensor, layer: str, variable: str, step: int) -> None:
        """Send a tensor where a number of it is NaN or infinite; on a GPU, that is found out later."""
        if self.is_on_device(tensor):
            self.send(tensor, layer, variable, step, only_strange=True)
        elif tensor.is_cpu and not all_finite(tensor.detach()):
            self.send(tensor, layer, variable, step)

    def _send_from_device(self, tensor: Tensor, minus: Tensor | None, about: dict[str, Any]) -> None:
        key = (about["layer"], about["variable"])
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return  # a graph would repeat our copies for ever
        if reason := refusal(tensor):
            self._refused(key, tensor)(f"{key[0]} ({key[1]}) is not sent: {reason}")
            return
        limit = self._limit_of(tensor, key, minus)
        if about["variable"] == "metric":
            self._fetcher.number(tensor, **about)
        elif self._is_whole(*key):
            self._fetcher.whole(tensor, minus, limit_bytes=limit, **about)
        else:
            is_whole = self._near_the_loss.take(*key, tensor.numel())
            self._fetcher.reduced(tensor, minus, limit_bytes=limit, is_whole=is_whole, **about)

    def _refused(self, key: tuple[str, str], tensor: Tensor) -> Report:
        def report(text: str) -> None:
            if not is_wrapped(tensor):  # in its next pass it may have values
                self._off.add(key)
            self.report(text)

        return report

    def number(self, name: str, value: Any, step: int) -> None:
        """Send a metric; one that is still being computed is not waited for."""
        if isinstance(value, Tensor):
            if value.numel() == 1:
                self.send(value, name, "metric", step)
            else:
                self.report(f"metric {name!r} is a tensor of shape {tuple(value.shape)}, not one number")
            return
        if not isinstance(value, Real) and not hasattr(value, "__float__"):
            self.report(f"metric {name!r} is a {type(value).__name__}, not a number")
            return
        about = {"layer": name, "variable": "metric", "item": -1, "type": "float64", "shape": [], "step": step}
        about["count"] = self._seen[name, "metric"]
        self._seen[name, "metric"] += 1
        try:
            number = float(value)
            self._link.offer({**about, "time_secs": time.time()}, 8, lambda view: _NUMBER.pack_into(view, 0, number))
        except Exception as error:
            self.report(f"metric {name!r} cannot be sent: {type(error).__name__}: {error}")

    def kept(self, tensor: Tensor, layer: str, variable: str) -> Tensor | None:
        """A copy of what would be sent, to be the `minus` of a later value; None where nothing would be."""
        plain = local(tensor)
        if (layer, variable) in self._off or refusal(plain):
            return None
        limit = self._kept[layer, variable] = self.limit_of(plain, layer, variable)
        return part(plain.detach(), limit)[0].clone()

    def begin(self) -> None:
        """Another look begins: where the last one overfilled the ring, less of each tensor is sent.

        A layer that is called 200 times in a pass has 200 values, which nobody foresaw. What still has no room, for it
        is wanted whole or the child is slow, comes at another look.
        """
        self._near_the_loss.begin()
        sizes, self._sizes = self._sizes, []
        if sizes:
            fair = max(fair_share(sizes, _ROOM * self._share_bytes), _LEAST_BYTES)
            self.limit_bytes = min(self._planned_bytes, fair)
        self._turns.begin(lambda key, size: size if self._is_whole(*key) else min(size, self.limit_bytes))

    def limit_of(self, tensor: Tensor, layer: str, variable: str) -> int:
        """How many bytes of a key are looked at, or travel."""
        if self._is_whole(layer, variable):
            if not refusal(tensor) and tensor.nbytes > self._share_bytes:
                self._say_it_is_sampled(tensor, layer, variable)
            return self._share_bytes
        return looked_at_bytes(tensor) if self.is_on_device(tensor) else self.limit_bytes

    def _limit_of(self, tensor: Tensor, key: tuple[str, str], minus: Tensor | None) -> int:
        """The same; of what is compared with a kept value, as much as was kept."""
        return self._kept[key] if minus is not None and key in self._kept else self.limit_of(tensor, *key)

    def _say_it_is_sampled(self, tensor: Tensor, layer: str, variable: str) -> None:
        """What is wanted whole and has no room comes as a flat sample; who wants it should know, once."""
        if not self._told:
            self._told = True
            self.report(
                f"{layer} ({variable}) has {tensor.nbytes:,} bytes, more than an eighth of the ring: only every n-th "
                f"is sent, and so of others. Transport(bytes={_ring_for(tensor.nbytes)}) has room for all of them"
            )

    def _say_it_overflows(self, look_bytes: int) -> None:
        """Say once that a look is larger than the ring; where the child is only slow, closing says what was dropped."""
        ring_bytes = 8 * self._share_bytes
        if look_bytes > ring_bytes and not self._overflows:
            self._overflows = look_bytes
            self.report(
                f"one look has {look_bytes:,} bytes, and the ring {ring_bytes:,}: not all of its values find room. "
                "They take turns, so that each comes at some looks; `w.drops` says how many of each did not. "
                f"Transport(bytes={_ring_for(look_bytes // 6)}) has room for all of them"
            )

    def _is_whole(self, layer: str, variable: str) -> bool:
        """Whether somebody wants the array itself."""
        found = self._wholes.get((layer, variable))
        if found is None:
            names = {f"{layer}/{variable}", f"{layer}/{_TWINS.get(variable, variable)}"}
            found = any(fnmatchcase(name, pattern) for name in names for pattern in self._whole)
            self._wholes[layer, variable] = found
        return found

    @property
    def variables(self) -> set[str]:
        """What kinds of values there were."""
        return {variable for _, variable in self._seen}

    def unmet(self) -> list[str]:
        """Patterns of what was wanted whole that no value has met."""
        seen = [f"{layer}/{variable}" for layer, variable in self._seen]
        looked = bool(self.variables - {"metric"})
        return [one for one in self._whole if looked and not any(fnmatchcase(name, one) for name in seen)]

    def guard(self, what: str) -> Guard:
        """Report what goes wrong, instead of raising it into the model."""
        return Guard(self.report, what)

    def later(self, event: Any, then: Callable[[], None]) -> None:
        """Do something once a device has come to an event; nobody waits for it."""
        self._fetcher.when(event, then)

    def harvest(self, wait: bool = False) -> None:
        """Send on what has come from the devices."""
        if not self._fetcher.busy:
            return
        cuda: Any = torch.cuda  # it is not all annotated
        if cuda.is_initialized() and cuda.is_current_stream_capturing():
            return  # even a look at an event would spoil a graph that is being captured
        with self.guard("values on a device"), self._lock:
            self._fetcher.harvest(wait)


def fair_bytes(values: int, share_bytes: int) -> int:
    """How many bytes of each of so many values are sent, so that all find room together, the last like the first."""
    return min(max(share_bytes * 4 // max(values, 1), _PLANNED_BYTES), share_bytes)


def fair_share(sizes: Sequence[int], room: int) -> int:
    """The most that each of several may have, so that all together fit; those that need less leave it to others."""
    for number, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - number)
        if size > share:
            return share
        room -= size
    return max(sizes)


def _ring_for(size_bytes: int) -> str:
    """A ring that has room for such a value, in a way that people write."""
    megabytes = 1
    while megabytes << 20 < 8 * size_bytes + (1 << 20):
        megabytes *= 2
    return f"{megabytes} << 20"


class NearTheLoss:
    """The last layers, as the first gradient of a look tells them: what the loss does to them shows in all numbers."""

    def __init__(self) -> None:
        self._outputs: deque[tuple[str, int]] = deque(maxlen=_LAST)  # of this look: layers, and how many numbers
        self._had_gradient = False
        self._near: frozenset[tuple[str, int]] = frozenset()

    def begin(self) -> None:
        """Another look begins."""
        self._outputs.clear()
        self._had_gradient = False

    def take(self, layer: str, variable: str, numbers: int) -> bool:
        """Note a value; whether it is an output near the loss, or the gradient of one, by what the last look had."""
        if variable == "output":
            self._outputs.append((layer, numbers))
        elif variable == "grad" and not self._had_gradient:
            self._had_gradient = True
            self._near = frozenset({(layer, numbers), *(one for one in self._outputs if one[1] == numbers)})
        return variable in ("output", "grad") and (layer, numbers) in self._near


class Guard:
    """Reports what goes wrong within it; at a third of what `contextmanager` costs, for it is there at every step."""

    __slots__ = ("_report", "_what")

    def __init__(self, report: Report, what: str) -> None:
        self._report, self._what = report, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        self._report(f"{self._what} could not be watched: {type(error).__name__}: {error}")
        return True
