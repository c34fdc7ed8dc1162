"""Torch's switches and generators: read before an operation, put back when it is replayed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from torcheer.capture.trees import leaves


def version_of(tensor: Tensor) -> int:
    """Torch's count of writes to a tensor's memory; inference tensors have none."""
    try:
        return tensor._version
    except (RuntimeError, ValueError):
        return 0


def autocast_settings() -> tuple[tuple[str, bool, Any], ...]:
    """Which devices autocast now, and to what."""
    kinds = ("cpu", "cuda") if torch.cuda.is_initialized() else ("cpu",)
    return tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)


def random_state(args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The generators a random op may draw from, as they stand before it."""
    generator = kwargs.get("generator")
    if generator is not None:
        return {"generator": (generator, generator.get_state())}
    states: dict[str, Any] = {"cpu": torch.get_rng_state()}
    devices = {tensor.device for tensor in leaves((args, kwargs))} | {torch.device(kwargs.get("device") or "cpu")}
    for device in devices:
        if device.type == "cuda" and not torch.cuda.is_current_stream_capturing():  # a graph keeps its own
            states[str(device)] = torch.cuda.get_rng_state(device)
    return states


def restore_random(states: dict[str, Any]) -> None:
    """Put the generators where they stood."""
    for device, state in states.items():
        if device == "generator":
            state[0].set_state(state[1])
        elif device == "cpu":
            torch.set_rng_state(state)
        else:
            torch.cuda.set_rng_state(state, device)


@contextmanager
def random_kept() -> Iterator[None]:
    """Replay draws random numbers; the user's generators do not notice."""
    before = torch.get_rng_state()
    devices = (
        [torch.cuda.get_rng_state(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_initialized() else []
    )
    try:
        yield
    finally:
        torch.set_rng_state(before)
        for number, state in enumerate(devices):
            torch.cuda.set_rng_state(state, number)


class Unseen:
    """As `DisableTorchFunction`, and our dispatch mode looks away too."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self._disabled = torch._C.DisableTorchFunction()

    def __enter__(self) -> None:
        self._outer, self._recorder.resting = self._recorder.resting, True
        self._disabled.__enter__()

    def __exit__(self, *problem: Any) -> None:
        self._disabled.__exit__(*problem)
        self._recorder.resting = self._outer
