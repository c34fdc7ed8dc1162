"""The sender of all probes: decides what is sent in full, what subsampled, what reduced on its device."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from torcheer.encoding import to_bytes
from torcheer.selection import matches_value
from torcheer.tap.reduction.cuda_statistics import Fetcher
from torcheer.tap.reduction.reduction_batch import row_bytes
from torcheer.tap.ring_turns import RingSink, Turns
from torcheer.tap.tensor_copies import (
    ErrorGuard,
    Report,
    all_finite,
    is_wrapped,
    local_shard,
    offer,
    refusal,
    subsample,
)

_PLANNED_BYTES = 64 << 10  # at least, per tensor, however many are expected
_LEAST_BYTES = 4 << 10  # at least, per tensor, however many there are
_STEP_SHARES = 5  # eighths of the ring that a watched step may fill: the child may not have read all of the last one
_LAST_OUTPUTS = 4  # outputs before the loss
_NUMBER = struct.Struct("<d")
_TWINS = {"weight": "update", "update": "weight"}  # compared with each other: the same numbers of both are sent


class Sender:
    """Sends values and never raises; a key that fails is reported and disabled from then on.

    `whole` has patterns of "layer/variable" that are sent in full, up to `share_bytes`, an eighth of the ring.
    """

    def __init__(
        self, link: RingSink, *, limit_bytes: int, share_bytes: int, whole: Sequence[str] = (), report: Report
    ) -> None:
        self.limit_bytes, self.message = limit_bytes, ""
        self.devices = frozenset({"cuda"})  # types of devices on which values are reduced, without waiting
        self.scaled = False  # whether a GradScaler is in use
        self._link, self._share_bytes, self._full_patterns, self.report = link, share_bytes, tuple(whole), report
        self._turns, self._overflow_bytes = Turns(link, self._report_overflow), 0
        self._fetcher, self._lock, self._process = Fetcher(self._turns), threading.RLock(), os.getpid()
        self._loss_neighbours = LossNeighbours()
        self._disabled: set[tuple[str, str]] = set()
        self._sent_in_full: dict[tuple[str, str], bool] = {}
        self._sampling_reported = False  # that a value is too large for the ring
        self._counts: Counter[tuple[str, str]] = Counter()
        self._snapshot_limits: dict[tuple[str, str], int] = {}  # the byte limit of a key's last snapshot
        self._planned_bytes, self._sizes = limit_bytes, list[int]()  # of this step's tensors, in full

    def send(
        self, tensor: Tensor, layer: str, variable: str, step: int, minus: Tensor | None = None, **extras: Any
    ) -> None:
        """Send a tensor, or its difference from `minus`, a `snapshot`."""
        key = (layer, variable)
        if key in self._disabled or self._process != os.getpid():
            return
        header = self._header(tensor, key, step, extras)
        try:
            with self._lock:
                plain = local_shard(tensor)
                if plain.device.type in self.devices:  # `is_on_device`, in line: it runs for every value
                    self._send_from_device(plain, minus, header)
                else:
                    limit = self._byte_limit(plain, key, minus)
                    offer(
                        self._turns,
                        plain,
                        minus=minus,
                        limit_bytes=limit,
                        report=self._disable_and_report(key, plain),
                        **header,
                    )
                    if key not in self._disabled:
                        self._sizes.append(plain.nbytes)
        except Exception as error:  # no error here may reach the model
            self._disable(key, error)

    def send_together(self, values: Sequence[tuple[Tensor, str, Tensor | None]], variable: str, step: int) -> None:
        """Send one variable of many layers: (tensor, layer, its snapshot) of each; on a GPU with few calls."""
        if self._process != os.getpid():
            return
        together = []
        for tensor, layer, minus in values:
            plain, key = local_shard(tensor), (layer, variable)
            if key in self._disabled:
                continue
            if plain.device.type not in self.devices or self._is_full(*key) or refusal(plain):
                self.send(tensor, layer, variable, step, minus)
                continue
            header = self._header(tensor, key, step, {})
            together.append((plain, minus, self._byte_limit(plain, key, minus), header))
        if not together or self._is_capturing(together[0][0]):
            return
        try:
            with self._lock:
                self._fetcher.fetch_together(together)
        except Exception as error:
            for *_, header in together:
                self._disable((header["layer"], variable), error)

    def _header(self, tensor: Tensor, key: tuple[str, str], step: int, extras: dict[str, Any]) -> dict[str, Any]:
        layer, variable = key
        header: dict[str, Any] = {"layer": layer, "variable": variable, "step": step, "time_secs": time.time()}
        header |= {"count": self._counts[key], **extras}
        self._counts[key] += 1
        if self.message:
            header["message"] = self.message
        if variable == "weight" and not tensor.requires_grad:
            header["frozen"] = True
        if variable == "update" and self.scaled:
            header["scaled"] = True
        return header

    def _disable(self, key: tuple[str, str], error: Exception) -> None:
        self._disabled.add(key)
        self.report(f"{key[0]} ({key[1]}) is no longer watched: {type(error).__name__}: {error}")

    @staticmethod
    def _is_capturing(tensor: Tensor) -> bool:
        """Whether a CUDA graph is being captured, which would repeat our copies at every replay."""
        return tensor.is_cuda and torch.cuda.is_current_stream_capturing()

    def is_on_device(self, tensor: Tensor) -> bool:
        """Whether a tensor is reduced on its device, asynchronously."""
        return tensor.device.type in self.devices

    def send_if_nonfinite(self, tensor: Tensor, layer: str, variable: str, step: int) -> None:
        """Send a tensor that has a NaN or infinite number; on a GPU that is decided later."""
        if self.is_on_device(tensor):
            self.send(tensor, layer, variable, step, only_nonfinite=True)
        elif tensor.is_cpu and not all_finite(tensor.detach()):
            self.send(tensor, layer, variable, step)

    def _send_from_device(self, tensor: Tensor, minus: Tensor | None, header: dict[str, Any]) -> None:
        key = (header["layer"], header["variable"])
        if self._is_capturing(tensor):
            return
        layout = self._fetcher.layout_of(tensor, *key) if minus is None and not is_wrapped(tensor) else None
        if layout is not None and self._loss_neighbours.take(*key, tensor.numel()):
            self._fetcher.fetch_statistics(tensor, limit_bytes=layout.limit_bytes, fetch_all=True, **header)
            return
        if layout is not None:
            self._fetcher.fetch_soon(tensor, layout, header)
            return
        if reason := refusal(tensor):
            self._disable_and_report(key, tensor)(f"{key[0]} ({key[1]}) is not sent: {reason}")
            return
        limit = self._byte_limit(tensor, key, minus)
        if header["variable"] == "metric":
            self._fetcher.fetch_number(tensor, **header)
        elif self._is_full(*key):
            self._fetcher.fetch_tensor(tensor, minus, limit_bytes=limit, **header)
        else:
            near_loss = self._loss_neighbours.take(*key, tensor.numel())
            self._fetcher.fetch_statistics(tensor, minus, limit_bytes=limit, fetch_all=near_loss, **header)

    def _disable_and_report(self, key: tuple[str, str], tensor: Tensor) -> Report:
        def report(text: str) -> None:
            if not is_wrapped(tensor):  # in its next pass it may have values
                self._disabled.add(key)
            self.report(text)

        return report

    def send_metric(self, name: str, value: Any, step: int) -> None:
        """Send a metric; does not wait for one that is still being computed."""
        if isinstance(value, Tensor):
            if value.numel() == 1:
                self.send(value, name, "metric", step)
            else:
                self.report(f"metric {name!r} is a tensor of shape {tuple(value.shape)}, not one number{_hint(value)}")
            return
        if not isinstance(value, Real) and not hasattr(value, "__float__"):
            self.report(f"metric {name!r} is a {type(value).__name__}, not a number{_hint(value)}")
            return
        header = {"layer": name, "variable": "metric", "item": -1, "type": "float64", "shape": [], "step": step}
        header["count"] = self._counts[name, "metric"]
        self._counts[name, "metric"] += 1
        try:
            number = float(value)
            self._link.offer({**header, "time_secs": time.time()}, 8, lambda view: _NUMBER.pack_into(view, 0, number))
        except Exception as error:
            self.report(f"metric {name!r} cannot be sent: {type(error).__name__}: {error}")

    def send_media(self, array: Any, layer: str, variable: str, step: int, *, item: int, media: dict[str, Any]) -> None:
        """Send something that a person logged, whole; does not wait for one that is on a GPU."""
        header: dict[str, Any] = {"layer": layer, "variable": variable, "item": item, "step": step, "media": media}
        header["time_secs"] = time.time()
        if array.nbytes > self._share_bytes:
            self.report(
                f"{variable} {layer!r} has {array.nbytes:,} bytes, more than an eighth of the ring: it is not sent. "
                f"Transport(bytes={_ring_for(array.nbytes)}) has room for it"
            )
            return
        try:
            with self._lock:
                if isinstance(array, Tensor) and self.is_on_device(array := local_shard(array)):
                    if array.is_cuda and torch.cuda.is_current_stream_capturing():
                        self.report(f"{variable} {layer!r} is not sent: a CUDA graph is being captured")
                        return
                    self._fetcher.fetch_tensor(array, limit_bytes=array.nbytes, **header)
                    return
                header["type"], header["shape"], payload = to_bytes(array)
                self._link.offer(header, payload.nbytes, partial(_write_payload, payload))
        except Exception as error:
            self.report(f"{variable} {layer!r} cannot be sent: {type(error).__name__}: {error}")

    def snapshot(self, tensor: Tensor, layer: str, variable: str) -> Tensor | None:
        """Copy what would be sent, as the `minus` of a later value; None where nothing would be sent."""
        plain = local_shard(tensor)
        if (layer, variable) in self._disabled or refusal(plain):
            return None
        limit = self._snapshot_limits[layer, variable] = self.byte_limit(plain, layer, variable)
        return subsample(plain.detach(), limit)[0].clone()

    def snapshots(self, values: Sequence[tuple[Tensor, str]], variable: str) -> list[Tensor | None]:
        """Take the snapshots of many (tensor, layer), those on a GPU with few calls."""
        copies: list[Tensor | None] = []
        alike: dict[Any, list[int]] = {}  # device and type -> places in `copies` of views that are still to be copied
        for tensor, layer in values:
            plain = local_shard(tensor)
            if plain.device.type not in self.devices or (layer, variable) in self._disabled or refusal(plain):
                copies.append(self.snapshot(tensor, layer, variable))
                continue
            limit = self._snapshot_limits[layer, variable] = self.byte_limit(plain, layer, variable)
            alike.setdefault((plain.device, plain.dtype), []).append(len(copies))
            copies.append(subsample(plain.detach(), limit)[0])
        for (device, kind), places in alike.items():
            views = [view for place in places if (view := copies[place]) is not None]
            sizes = [view.numel() for view in views]
            targets = [
                flat.view(view.shape)
                for flat, view in zip(torch.split(torch.empty(sum(sizes), dtype=kind, device=device), sizes), views)
            ]
            torch._foreach_copy_(targets, views)
            for place, target in zip(places, targets):
                copies[place] = target
        return copies

    def begin(self) -> None:
        """Begin a watched step: where the last one overflowed the ring, send less of each tensor.

        A layer that is called 200 times in a pass has 200 values, which the plan did not expect. What still does not
        fit, because it is sent in full or the child is slow, is sent at another step.
        """
        self._loss_neighbours.begin()
        sizes, self._sizes = self._sizes, []
        if sizes:
            fair = max(fair_share(sizes, _STEP_SHARES * self._share_bytes), _LEAST_BYTES)
            self.limit_bytes = min(self._planned_bytes, fair)
        self._turns.begin(lambda key, size: size if self._is_full(*key) else min(size, self.limit_bytes))

    def byte_limit(self, tensor: Tensor, layer: str, variable: str) -> int:
        """How many bytes of a key's tensor are sent, or reduced on its device."""
        if self._is_full(layer, variable):
            if not refusal(tensor) and tensor.nbytes > self._share_bytes:
                self._report_sampling(tensor, layer, variable)
            return self._share_bytes
        return row_bytes(tensor) if tensor.device.type in self.devices else self.limit_bytes

    def _byte_limit(self, tensor: Tensor, key: tuple[str, str], minus: Tensor | None) -> int:
        """The same; where a snapshot is subtracted, the limit that it was taken with."""
        return (
            self._snapshot_limits[key]
            if minus is not None and key in self._snapshot_limits
            else self.byte_limit(tensor, *key)
        )

    def _report_sampling(self, tensor: Tensor, layer: str, variable: str) -> None:
        """Report once that a value to be sent in full does not fit and is sent as a flat subsample."""
        if not self._sampling_reported:
            self._sampling_reported = True
            self.report(
                f"{layer} ({variable}) has {tensor.nbytes:,} bytes, more than an eighth of the ring: only every n-th "
                f"is sent, and so of others. Transport(bytes={_ring_for(tensor.nbytes)}) has room for all of them"
            )

    def _report_overflow(self, step_bytes: int) -> None:
        """Report once that a step is larger than the ring; where the child is only slow, closing reports the drops."""
        ring_bytes = 8 * self._share_bytes
        if step_bytes > ring_bytes and not self._overflow_bytes:
            self._overflow_bytes = step_bytes
            self.report(
                f"one look has {step_bytes:,} bytes, and the ring {ring_bytes:,}: not all of its values find room. "
                "They take turns, so that each comes at some looks; `w.drops` says how many of each did not. "
                f"Transport(bytes={_ring_for(step_bytes // 6)}) has room for all of them"
            )

    def _is_full(self, layer: str, variable: str) -> bool:
        """Whether a key is to be sent in full."""
        is_full = self._sent_in_full.get((layer, variable))
        if is_full is None:
            variables = {variable, _TWINS.get(variable, variable)}
            is_full = any(matches_value(p, layer, each) for each in variables for p in self._full_patterns)
            self._sent_in_full[layer, variable] = is_full
        return is_full

    @property
    def variables(self) -> set[str]:
        """The variables sent so far."""
        return {variable for _, variable in self._counts}

    def unmatched_patterns(self) -> list[str]:
        """Patterns of values to be sent in full that no value has matched, once there were values."""
        if not self.variables - {"metric"}:
            return []
        return [p for p in self._full_patterns if not any(matches_value(p, *key) for key in self._counts)]

    def guard(self, what: str) -> ErrorGuard:
        """A context that reports errors instead of raising them into the model."""
        return ErrorGuard(self.report, what)

    def run_after(self, event: Any, action: Callable[[], None]) -> None:
        """Call `action` once a device has reached an event, without waiting for it."""
        self._fetcher.run_after(event, action)

    def harvest(self, wait: bool = False) -> None:
        """Send what has arrived from the devices."""
        if not self._fetcher.busy:
            return
        cuda: Any = torch.cuda  # it is not all annotated
        if cuda.is_initialized() and cuda.is_current_stream_capturing():
            return  # even querying an event would invalidate a CUDA graph that is being captured
        with self.guard("values on a device"), self._lock:
            self._fetcher.harvest(wait)


def _hint(value: Any) -> str:
    """How to log what is no number."""
    return (
        "; a text is tl.Text(x)" if isinstance(value, str) else "; an image is tl.Image(x), sound tl.Audio(x, rate=…)"
    )


def _write_payload(payload: memoryview, view: memoryview) -> None:
    view[: payload.nbytes] = payload


def fair_bytes(values: int, share_bytes: int) -> int:
    """How many bytes of each of `values` values are sent, so that all of them fit into the ring."""
    return min(max(share_bytes * 4 // max(values, 1), _PLANNED_BYTES), share_bytes)


def fair_share(sizes: Sequence[int], room: int) -> int:
    """The largest share per value such that all fit into `room`; what small values leave goes to the others."""
    for number, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - number)
        if size > share:
            return share
        room -= size
    return max(sizes)


def _ring_for(size_bytes: int) -> str:
    """A ring size that has room for such a value, as one would write it: "8 << 20"."""
    megabytes = 1
    while megabytes << 20 < 8 * size_bytes + (1 << 20):
        megabytes *= 2
    return f"{megabytes} << 20"


class LossNeighbours:
    """The layers next to the loss, known from the first gradient of a step: the rules need all of their numbers."""

    def __init__(self) -> None:
        self._outputs: deque[tuple[str, int]] = deque(maxlen=_LAST_OUTPUTS)  # of this step: layer, count of numbers
        self._had_gradient = False
        self._near: frozenset[tuple[str, int]] = frozenset()

    def begin(self) -> None:
        """Begin a watched step."""
        self._outputs.clear()
        self._had_gradient = False

    def take(self, layer: str, variable: str, numbers: int) -> bool:
        """Record a value; whether it is an output next to the loss, or its gradient, judging by the last step."""
        if variable == "output":
            self._outputs.append((layer, numbers))
        elif variable == "grad" and not self._had_gradient:
            self._had_gradient = True
            self._near = frozenset({(layer, numbers), *(output for output in self._outputs if output[1] == numbers)})
        return variable in ("output", "grad") and (layer, numbers) in self._near
