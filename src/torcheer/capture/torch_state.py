"""Torch's global state (autocast, random generators, modes): read, and restored for replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torcheer.capture.record.tensor_trees import leaves


def version_of(tensor: Tensor) -> int:
    """Return torch's version counter of a tensor; 0 for inference tensors, which have none."""
    try:
        return tensor._version
    except (RuntimeError, ValueError):
        return 0


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


def function_modes() -> tuple[Any, ...]:
    """Return the active function modes, outermost first: a default device, a user's mode."""
    return tuple(torch._C._get_function_stack_at(place) for place in range(torch._C._len_torch_function_stack()))


def dispatch_modes() -> tuple[Any, ...]:
    """Return the active dispatch modes, outermost first, without torcheer's own."""
    modes = (torch._C._get_dispatch_stack_at(place) for place in range(torch._C._len_torch_dispatch_stack()))
    return tuple(mode for mode in modes if type(mode).__module__ != "torcheer.capture.special_cases.aten_level")


@contextmanager
def exact_modes(functions: Sequence[Any], dispatches: Sequence[Any]) -> Iterator[None]:
    """Activate exactly these modes.

    Without calling `__enter__`: a counter mode may restart when entered.
    """
    before = [_replace_modes(stack, modes) for stack, modes in zip(_STACKS, (functions, dispatches), strict=True)]
    try:
        yield
    finally:
        for stack, modes in zip(_STACKS, before, strict=True):
            _replace_modes(stack, modes)


_Stack = tuple[Callable[[], int], Callable[[], Any], Callable[[Any], Any]]  # length, pop, push
_STACKS: tuple[_Stack, _Stack] = (
    (
        torch._C._len_torch_function_stack,
        torch._C._pop_torch_function_stack,
        torch._C._push_on_torch_function_stack,
    ),
    (
        torch._C._len_torch_dispatch_stack,
        partial(torch._C._pop_torch_dispatch_stack, None),
        torch._C._push_on_torch_dispatch_stack,
    ),
)


def _replace_modes(stack: _Stack, modes: Sequence[Any]) -> list[Any]:
    """Replace the active modes; return the previous ones, outermost first."""
    count, pop, push = stack
    before = [pop() for _ in range(count())]
    for mode in modes:
        push(mode)
    return before[::-1]


class PausedRecording:
    """A context like `DisableTorchFunction` that pauses a recorder's dispatch mode, too."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self._disabled = torch._C.DisableTorchFunction()

    def __enter__(self) -> None:
        self._outer, self._recorder.dispatch_paused = self._recorder.dispatch_paused, True
        self._disabled.__enter__()

    def __exit__(self, *problem: Any) -> None:
        self._disabled.__exit__(*problem)
        self._recorder.dispatch_paused = self._outer
