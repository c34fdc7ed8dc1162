"""Time operations by an accelerator's own events, with `timing="device"`: the host's clock sees only their launch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from torcheer.capture.record.function_table import CALLS, lookup_call
from torcheer.capture.record.recorder import Recorder
from torcheer.errors import BadArgument

TIMINGS = ("host", "device")


def check_timing(timing: str) -> None:
    """Refuse a timing that does not exist, or that this machine cannot take."""
    if timing not in TIMINGS:
        raise BadArgument(f"timing={timing!r}: 'host' reads the host's clock, 'device' events of the accelerator")
    if timing == "device" and not torch.accelerator.is_available():
        raise BadArgument(
            "timing='device' needs an accelerator, and torch finds none here; on the CPU timing='host' measures the "
            "operations themselves"
        )


def timed_event(device: torch.device) -> Any:
    """Record an event on the current stream of a device."""
    event = torch.Event(device, enable_timing=True)
    event.record()
    return event


class DeviceTimes(TorchFunctionMode):
    """A function mode below the recorder: an event before and after each call, which are read once at the end.

    - `begin_event`: records an event on a device.
    """

    def __init__(self, recorder: Recorder, begin_event: Callable[[torch.device], Any] = timed_event) -> None:
        self._recorder, self._begin_event = recorder, begin_event
        self._events: dict[int, tuple[Any, Any]] = {}  # node -> before and after it
        self._default = torch.accelerator.current_accelerator() or torch.device("cpu")

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if (CALLS.get(func) or lookup_call(func)).skip:
            return func(*args, **(kwargs or {}))
        device = self._device_of(args)
        before = self._begin_event(device)
        out = func(*args, **(kwargs or {}))
        # The row is appended next; of a call that is not recorded, the next one takes its place.
        self._events[self._recorder.count] = before, self._begin_event(device)
        return out

    def _device_of(self, args: tuple[Any, ...]) -> torch.device:
        """The accelerator that an operation runs on: that of its first argument there, or the current one."""
        for value in args:
            for part in value if type(value) in (list, tuple) else (value,):
                if isinstance(part, Tensor) and part.device.type == self._default.type:
                    return part.device
        return self._default

    def read(self) -> dict[int, float]:
        """Wait for the device, and return the seconds of each operation; of one in a graph capture there are none."""
        seconds: dict[int, float] = {}
        for node, (before, after) in self._events.items():
            with suppress(RuntimeError):
                after.synchronize()  # the first waits for the device, the others have happened
                seconds[node] = before.elapsed_time(after) / 1e3
        self._events.clear()
        return seconds
