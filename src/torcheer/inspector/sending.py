"""One door to the ring for all probes: what goes whole, what as a sample, what is summed up where it is."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from torcheer.inspector.cuda import Fetcher, looked_at_bytes
from torcheer.inspector.tensors import Report, Takes, local, offer, part, refusal

_NUMBER = struct.Struct("<d")
_TWINS = {"weight": "update", "update": "weight"}  # are compared with each other: of both the same numbers are sent


class Sender:
    """Sends values, never raises; a key that fails is reported and left out from then on."""

    def __init__(
        self, link: Takes, *, limit_bytes: int, share_bytes: int, whole: Sequence[str] = (), report: Report
    ) -> None:
        self.limit_bytes, self.message = limit_bytes, ""
        self._link, self._share_bytes, self._whole, self.report = link, share_bytes, tuple(whole), report
        self._fetcher, self._lock, self._process = Fetcher(link), threading.RLock(), os.getpid()
        self._off: set[tuple[str, str]] = set()
        self._wholes: dict[tuple[str, str], bool] = {}

    def send(self, tensor: Tensor, layer: str, variable: str, step: int, minus: Tensor | None = None) -> None:
        """Send a tensor, or its difference from `minus`, a `kept` one."""
        key = (layer, variable)
        if key in self._off or self._process != os.getpid():
            return
        about: dict[str, Any] = {"layer": layer, "variable": variable, "step": step, "time_secs": time.time()}
        if self.message:
            about["message"] = self.message
        try:
            with self._lock:
                plain = local(tensor)
                if plain.is_cuda:
                    self._send_from_device(plain, minus, about)
                else:
                    limit = self.limit_of(plain, layer, variable)
                    offer(self._link, plain, minus=minus, limit_bytes=limit, report=self._refused(key), **about)
        except Exception as error:  # whatever it is, the model has nothing to do with it
            self._off.add(key)
            self.report(f"{layer} ({variable}) is no longer watched: {type(error).__name__}: {error}")

    def _send_from_device(self, tensor: Tensor, minus: Tensor | None, about: dict[str, Any]) -> None:
        key = (about["layer"], about["variable"])
        if torch.cuda.is_current_stream_capturing():
            return  # a graph would repeat our copies for ever
        if reason := refusal(tensor):
            self._refused(key)(f"{key[0]} ({key[1]}) is not sent: {reason}")
            return
        limit = self.limit_of(tensor, *key)
        if about["variable"] == "metric":
            self._fetcher.number(tensor, **about)
        elif self._is_whole(*key):
            value = tensor if minus is None else part(tensor.detach(), limit)[0] - minus
            self._fetcher.whole(value, limit_bytes=limit, **about)
        else:
            self._fetcher.reduced(tensor, minus, limit_bytes=limit, **about)

    def _refused(self, key: tuple[str, str]) -> Report:
        def report(text: str) -> None:
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
        return part(plain.detach(), self.limit_of(plain, layer, variable))[0].clone()

    def limit_of(self, tensor: Tensor, layer: str, variable: str) -> int:
        """How many bytes of a key are looked at, or travel."""
        if self._is_whole(layer, variable):
            return self._share_bytes
        return looked_at_bytes(tensor) if tensor.is_cuda else self.limit_bytes

    def _is_whole(self, layer: str, variable: str) -> bool:
        """Whether somebody wants the array itself."""
        found = self._wholes.get((layer, variable))
        if found is None:
            names = {f"{layer}/{variable}", f"{layer}/{_TWINS.get(variable, variable)}"}
            found = any(fnmatchcase(name, pattern) for name in names for pattern in self._whole)
            self._wholes[layer, variable] = found
        return found

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Report what goes wrong, instead of raising it into the model."""
        try:
            yield
        except Exception as error:
            self.report(f"{what} could not be watched: {type(error).__name__}: {error}")

    def harvest(self, wait: bool = False) -> None:
        """Send on what has come from the devices."""
        if not self._fetcher.busy:
            return
        cuda: Any = torch.cuda  # it is not all annotated
        if cuda.is_initialized() and cuda.is_current_stream_capturing():
            return  # even a look at an event would spoil a graph that is being captured
        with self.guard("values on a device"), self._lock:
            self._fetcher.harvest(wait)
