"""The sender of all probes: what is on the CPU goes into the ring at once, what is on a GPU is reduced there."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from torcheer.encoding import Offer
from torcheer.samples import Key
from torcheer.tap.reduction.cuda_statistics import Fetcher
from torcheer.tap.ring_turns import Turns
from torcheer.tap.sending.byte_limits import ByteLimits, FullKeys
from torcheer.tap.sending.device_values import DeviceValues
from torcheer.tap.sending.finite_checks import CheckedArrivals, NonfiniteValues
from torcheer.tap.sending.logged_values import LoggedValues
from torcheer.tap.sending.sent_keys import SentKeys
from torcheer.tap.tensor_copies import (
    ErrorGuard,
    GroupSink,
    Report,
    all_finite,
    local_shard,
    record_of,
    refusal,
    subsample,
)

_TOGETHER_BYTES = 256 << 10  # at most, of values that are sent as one record
_FLAGGED = frozenset({"weight", "update"})  # variables with `flags`


class Sender:
    """Sends values and never raises; a key that fails is reported and disabled from then on.

    `whole` has patterns of "layer/variable" that are sent in full, up to `share_bytes`, an eighth of the ring.
    `backlog` tells which share of the ring waits to be read.
    """

    def __init__(
        self, link: GroupSink, *, limit_bytes: int, share_bytes: int, whole: Sequence[str] = (), report: Report,
        backlog: Callable[[], float] = lambda: 0.0,
    ) -> None:  # fmt: skip
        self.report, self._keys, self._backlog = report, SentKeys(report), backlog
        self.limits = ByteLimits(limit_bytes, share_bytes, FullKeys(whole), report)
        self._turns = Turns(link, self.limits.report_overflow)
        self.nonfinite = NonfiniteValues()
        self._fetcher = Fetcher(CheckedArrivals(self._turns, self.nonfinite))
        self._noted = self._fetcher.noted
        self._device_values = DeviceValues(self._fetcher, self.limits, self._keys)
        self._logged = LoggedValues(link, self._fetcher, self.limits, self._keys)
        self._lock, self._process = threading.RLock(), os.getpid()
        self.scaled = False  # whether a GradScaler is in use

    @property
    def message(self) -> str:
        """What the user wants to see beside the values."""
        return self._device_values.message

    @message.setter
    def message(self, text: str) -> None:
        self._device_values.message = text

    def send(
        self, tensor: Tensor, layer: str, variable: str, step: int, minus: Tensor | None = None, **extras: Any
    ) -> None:
        """Send a tensor, or its difference from `minus`, a `snapshot`."""
        key = (layer, variable)
        if self._process != os.getpid():
            return
        try:
            with self._lock:
                if key in self._noted.known and minus is None and not extras and type(tensor) is Tensor:
                    if tensor.device.type in self.limits.devices:
                        self._noted.add(tensor, key, step)  # all else is found out later, with others
                        return
                if key in self._keys.disabled:
                    return
                plain = local_shard(tensor)
                flags = self._flags(tensor, variable) if variable in _FLAGGED else ()
                if plain.device.type in self.limits.devices:
                    self._device_values.send(plain, key, step, minus, flags, **extras)
                elif (record := self._host_record(plain, key, step, minus, flags, extras)) is not None:
                    self._turns.offer(*record)
        except Exception as error:  # no error here may reach the model
            self._keys.disable(key, error)

    def _host_record(
        self, tensor: Tensor, key: Key, step: int, minus: Tensor | None, flags: tuple[str, ...], extras: dict[str, Any]
    ) -> Offer | None:
        """What to offer of a value in the host's memory; counts it, and looks at it where a loop may stop for it."""
        keys, message, count = self._keys, self._device_values.message, self._keys.counts.get(key, 0)
        keys.counts[key] = count + 1  # `count`, in line: it runs for every value
        header: dict[str, Any] = {"layer": key[0], "variable": key[1], "step": step, "time_secs": time.time()}
        header |= {"count": count, **extras}
        if message:
            header["message"] = message
        for flag in flags:
            header[flag] = True
        limit = self.limits.limit(tensor, key, minus)
        record = record_of(
            tensor, minus=minus, limit_bytes=limit, report=lambda text: keys.refuse(key, tensor, text), **header
        )
        if key not in keys.disabled:
            self.limits.note(tensor.nbytes)
            if self.nonfinite.found is not None:  # also where the ring had no room for it
                self.nonfinite.check(tensor, key, step)
        return record

    def _flags(self, tensor: Tensor, variable: str) -> tuple[str, ...]:
        if variable == "weight" and not tensor.requires_grad:
            return ("frozen",)
        return ("scaled",) if variable == "update" and self.scaled else ()

    def send_together(self, values: Sequence[tuple[Tensor, str, Tensor | None]], variable: str, step: int) -> None:
        """Send one variable of many layers: (tensor, layer, its snapshot) of each; with few calls and records."""
        if self._process != os.getpid():
            return
        together, disabled, has_flags = [], self._keys.disabled, variable in _FLAGGED
        records: list[Offer] = []
        in_full = self.limits.keys_in_full
        for tensor, layer, minus in values:
            plain, key = tensor if type(tensor) is Parameter else local_shard(tensor), (layer, variable)
            if key in disabled:
                continue
            if plain.device.type not in self.limits.devices:
                self._add_record(records, plain, key, step, minus, self._flags(tensor, variable) if has_flags else ())
            elif key not in in_full:
                together.append((plain, key, minus, self._flags(tensor, variable) if has_flags else ()))
            else:
                self.send(tensor, layer, variable, step, minus)
        if records:
            with self.guard(f"{variable} of {len(records):,} tensors"), self._lock:
                self._offer_together(records)
        try:
            with self._lock:
                self._device_values.send_together(together, step)
        except Exception as error:
            for _, key, _, _ in together:
                self._keys.disable(key, error)

    def _add_record(
        self, records: list[Offer], tensor: Tensor, key: Key, step: int, minus: Tensor | None, flags: tuple[str, ...]
    ) -> None:
        try:
            with self._lock:
                record = self._host_record(tensor, key, step, minus, flags, {})
        except Exception as error:
            self._keys.disable(key, error)
            return
        if record is not None:
            records.append(record)

    def _offer_together(self, records: list[Offer]) -> None:
        """Send values as few records of the ring, in their order; singly, where there is no room for all of one."""
        begin, size_bytes = 0, 0
        for end, (_, next_bytes, _) in enumerate([*records[1:], records[0]], 1):
            size_bytes += records[end - 1][1]
            if end == len(records) or size_bytes + next_bytes > _TOGETHER_BYTES:
                group, begin, size_bytes = records[begin:end], end, 0
                if len(group) < 2 or not self._turns.offer_together(group):
                    for record in group:
                        self._turns.offer(*record)

    def send_if_nonfinite(self, tensor: Tensor, layer: str, variable: str, step: int) -> None:
        """Send a tensor that has a NaN or infinite number; on a GPU that is decided later."""
        if tensor.device.type in self.limits.devices:
            self.send(tensor, layer, variable, step, only_nonfinite=True)
        elif tensor.is_cpu and not all_finite(tensor.detach()):
            self.send(tensor, layer, variable, step)

    def send_metric(self, name: str, value: Any, step: int) -> None:
        """Send a metric; does not wait for one that is still being computed."""
        if not isinstance(value, Tensor):
            number = self._logged.send_number(name, value, step)
            self.nonfinite.check_number(number, name, step)
        elif value.numel() == 1:
            self.send(value, name, "metric", step)
        else:
            self._logged.report_shape(name, value)

    def send_media(self, array: Any, layer: str, variable: str, step: int, *, item: int, media: dict[str, Any]) -> None:
        """Send something that a person logged, whole; does not wait for one that is on a GPU."""
        with self._lock:
            self._logged.send_media(array, layer, variable, step, item=item, media=media)

    def snapshot(self, tensor: Tensor, layer: str, variable: str) -> Tensor | None:
        """Copy what would be sent, as the `minus` of a later value; None where nothing would be sent."""
        plain, key = local_shard(tensor), (layer, variable)
        if key in self._keys.disabled or refusal(plain):
            return None
        return subsample(plain.detach(), self.limits.snapshot_limit(plain, key))[0].clone()

    def snapshots(self, values: Sequence[tuple[Tensor, str]], variable: str) -> list[Tensor | None]:
        """Take the snapshots of many (tensor, layer), those on a GPU with few calls."""
        copies: list[Tensor | None] = [None] * len(values)
        together, in_full = [], self.limits.keys_in_full
        for place, (tensor, layer) in enumerate(values):
            plain, key = tensor if type(tensor) is Parameter else local_shard(tensor), (layer, variable)
            is_on_device = plain.device.type in self.limits.devices and key not in in_full
            is_known = is_on_device and self._fetcher.layout_of(plain, key) is not None
            if is_on_device and key not in self._keys.disabled and (is_known or not refusal(plain)):
                together.append((place, (plain, key)))
            else:
                copies[place] = self.snapshot(tensor, layer, variable)
        made = self._device_values.snapshots([value for _, value in together])
        for (place, _), copy in zip(together, made):
            copies[place] = copy
        return copies

    def begin(self) -> None:
        """Begin a watched step; what is left of the one before is sent now."""
        self._device_values.begin()
        if self._fetcher.busy:
            with self._lock:
                self._fetcher.send_arrived()
        self.limits.begin(self._backlog())
        self._turns.begin(self.limits.expected)

    @property
    def variables(self) -> set[str]:
        """The variables sent so far."""
        return self._keys.variables

    def unmatched_patterns(self) -> list[str]:
        """Patterns of values to be sent in full that no value has matched, once there were values."""
        if not self.variables - {"metric"}:
            return []
        return self.limits.full_keys.unmatched(self._keys.counts)

    def guard(self, what: str) -> ErrorGuard:
        """A context that reports errors instead of raising them into the model."""
        return ErrorGuard(self.report, what)

    def run_after(self, event: Any, action: Callable[[], None]) -> None:
        """Call `action` once a device has reached an event, without waiting for it."""
        self._fetcher.run_after(event, action)

    @property
    def is_busy(self) -> bool:
        """Whether values are on their way from a device."""
        return self._fetcher.busy

    def harvest(self, wait: bool = False) -> None:
        """Send what has arrived from the devices."""
        if not self._fetcher.busy:
            return
        cuda: Any = torch.cuda  # it is not all annotated
        if cuda.is_initialized() and cuda.is_current_stream_capturing():
            return  # even querying an event would invalidate a CUDA graph that is being captured
        with self.guard("values on a device"), self._lock:
            self._fetcher.harvest(wait)
