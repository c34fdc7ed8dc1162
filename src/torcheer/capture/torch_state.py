"""Torch's switches and generators: read before an operation, put back when it is replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torcheer.capture.record.tensor_trees import leaves


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


def function_modes() -> tuple[Any, ...]:
    """The function modes that are on, outermost first: a default device, a mode of the user's."""
    return tuple(torch._C._get_function_stack_at(place) for place in range(torch._C._len_torch_function_stack()))


def dispatch_modes() -> tuple[Any, ...]:
    """The dispatch modes that are on, outermost first, but for our own."""
    modes = (torch._C._get_dispatch_stack_at(place) for place in range(torch._C._len_torch_dispatch_stack()))
    return tuple(mode for mode in modes if type(mode).__module__ != "torcheer.capture.record.aten_level")


@contextmanager
def modes_on(functions: Sequence[Any], dispatches: Sequence[Any]) -> Iterator[None]:
    """These modes and no others, without their own entering and leaving: a counter may begin anew when entered."""
    before = [_exchanged(stack, modes) for stack, modes in zip(_STACKS, (functions, dispatches), strict=True)]
    try:
        yield
    finally:
        for stack, modes in zip(_STACKS, before, strict=True):
            _exchanged(stack, modes)


_Stack = tuple[Callable[[], int], Callable[[], Any], Callable[[Any], Any]]  # its length, and how to take off and put on
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


def _exchanged(stack: _Stack, modes: Sequence[Any]) -> list[Any]:
    """Put these modes in the place of those that are on; the latter, outermost first."""
    count, pop, push = stack
    before = [pop() for _ in range(count())]
    for mode in modes:
        push(mode)
    return before[::-1]


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
