"""Random generators and autocast settings: read while recording, restored for replay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torcheer.capture.record.tensor_trees import leaves


def autocast_settings() -> tuple[tuple[str, bool, Any], ...]:
    """Return (device type, enabled, dtype) of autocast for each device type."""
    kinds = ("cpu", "cuda") if torch.cuda.is_initialized() else ("cpu",)
    return tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)


def random_state(args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the states of the generators that a random op may draw from."""
    generator = kwargs.get("generator")
    if generator is not None:
        return {"generator": (generator, generator.get_state())}
    states: dict[str, Any] = {"cpu": torch.get_rng_state()}
    devices = {tensor.device for tensor in leaves((args, kwargs))} | {torch.device(kwargs.get("device") or "cpu")}
    for device in devices:
        if device.type == "cuda" and not torch.cuda.is_current_stream_capturing():  # a CUDA graph keeps its own state
            states[str(device)] = torch.cuda.get_rng_state(device)
    return states


def restore_random(states: dict[str, Any]) -> None:
    """Restore generators to these states."""
    for device, state in states.items():
        if device == "generator":
            state[0].set_state(state[1])
        elif device == "cpu":
            torch.set_rng_state(state)
        else:
            torch.cuda.set_rng_state(state, device)


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Restore the user's random generators after the block: replay draws random numbers."""
    before = RandomState()
    try:
        yield
    finally:
        before.restore()


class RandomState:
    """The state of torch's random generators when this was made."""

    def __init__(self) -> None:
        self._cpu = torch.get_rng_state()
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
        self._devices = [torch.cuda.get_rng_state(device) for device in devices]

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        for device, state in enumerate(self._devices):
            torch.cuda.set_rng_state(state, device)
