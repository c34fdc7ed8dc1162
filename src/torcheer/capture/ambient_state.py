"""What an operation depends on beside its arguments: read while recording, restored for replay.

Random generators, autocast, default dtype and device, which kernels torch may choose and with how many threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from torcheer.capture.record.tensor_trees import leaves
from torcheer.capture.torch_state import function_mode_count

if TYPE_CHECKING:
    from torcheer.capture.record.recorder import Recorder


def autocast_settings() -> tuple[tuple[str, bool, Any], ...]:
    """Return (device type, enabled, dtype) of autocast for each device type."""
    kinds = ("cpu", "cuda") if torch.cuda.is_initialized() else ("cpu",)
    return tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)


def default_device() -> torch.device | None:
    """Return the device that a `with torch.device(…)` or `torch.set_default_device` has set; None without either."""
    return torch.get_default_device() if function_mode_count() else None  # both are function modes


@contextmanager
def default_settings(recorder: Recorder, node: int) -> Iterator[None]:
    """Have the default dtype and device of when a row ran, and the kernels of attention that were allowed."""
    dtype, before = recorder.default_dtypes.get(node, recorder.default_dtype), torch.get_default_dtype()
    with ExitStack() as stack:
        if dtype is not before:
            stack.callback(torch.set_default_dtype, before)
            torch.set_default_dtype(dtype)
        if node in recorder.default_devices:
            stack.enter_context(recorder.default_devices[node])
        if node in recorder.attention_backends:
            stack.enter_context(recorder.attention_backends[node].active())
        yield


# What chooses among torch's kernels: how it is read, and how it is set.
_BACKENDS: tuple[tuple[Any, Any], ...] = (
    (torch.get_num_threads, torch.set_num_threads),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
    (
        lambda: torch.backends.mkldnn.enabled,
        lambda on: torch.backends.mkldnn.set_flags(_enabled=on, _fp32_precision=None),
    ),
    (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda state: torch.use_deterministic_algorithms(state[0], warn_only=state[1]),
    ),
)


class BackendState:
    """Which kernels torch might choose, and with how many threads, when this was made."""

    def __init__(self) -> None:
        self._settings = [read() for read, _ in _BACKENDS]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BackendState) and self._settings == other._settings

    __hash__ = None  # type: ignore[assignment]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Have all of it inside the block as it was then."""
        before = BackendState()
        before._exchange(self)
        try:
            yield
        finally:
            self._exchange(before)

    def _exchange(self, other: BackendState) -> None:
        """Set what differs in another state, as it is there."""
        for (_, write), mine, theirs in zip(_BACKENDS, self._settings, other._settings, strict=True):
            if mine != theirs:
                write(theirs)


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
