"""Fused attention: the model gets the kernel's result; its operations run beside it.

`nn.MultiheadAttention` and the encoder layers choose a fused kernel in eval, unless a function mode is active. Their
twins choose as if none were, so that capturing changes no number. Where the kernel would run, the explicit path is
recorded first, for readers (where that can be, its values wait until they are read: `deferred_inside`); then the kernel
runs, and the model continues with its result. Only if an edit changes an inner operation, the explicit path's result is
used. `fused=True` skips the explicit path.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from torcheer.capture.ambient_state import preserve_random_state
from torcheer.capture.record.function_twins import FUSED_MODULES, choosing_twin, forward_twin
from torcheer.capture.record.recorder import Recorder
from torcheer.capture.record.tensor_trees import leaves
from torcheer.capture.special_cases.deferred_inside import FusedCall
from torcheer.capture.torch_state import (
    ATTENTION,
    FUSED_KERNELS,
    NESTED,
    function_modes,
    is_usable,
    nested_from_mask,
    require,
)
from torcheer.errors import UnsupportedTorch
from torcheer.records import BESIDE, KERNEL

Function = Callable[..., Any]

REMARK = (
    "fused attention: the model got the fused kernels' own results; the operations inside are computed beside them, "
    "to be read; fused=True leaves them out"
)
EDITED = "an edit asked for the inside of a fused attention kernel: there the explicit path replaced it"
REPLACED = "computed in place of the fused kernel, because of an edit"


class AttentionPaths(NamedTuple):
    """The three ways to run a forward that may choose a fused kernel."""

    explicit: Function
    fused: Function  # the kernel, where plain torch would choose it
    both: Function  # the same, with the explicit path recorded beside it


class _RunningForward(NamedTuple):
    """A forward in progress that may call a fused kernel."""

    recorder: Recorder
    explicit: Function
    module: Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _ThreadState(threading.local):
    def __init__(self) -> None:
        self.running: list[_RunningForward] = []


_local = _ThreadState()


def call(
    recorder: Recorder, attention: AttentionPaths, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run a forward that may choose a fused kernel, as plain torch would."""
    if recorder.explicit_depth:
        return attention.explicit(module, *args, **kwargs)
    if recorder.fused or not is_usable(ATTENTION):
        return attention.fused(module, *args, **kwargs)
    _local.running.append(_RunningForward(recorder, attention.explicit, module, args, kwargs))
    try:
        return attention.both(module, *args, **kwargs)
    finally:
        _local.running.pop()


def _kernel(name: str) -> Function:
    """Return the function that a twin calls instead of the kernel."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        recorder = _local.running[-1].recorder
        if recorder in function_modes():
            replaced, out = _add_inside(_local.running[-1])
            if replaced:
                return out
        node = recorder.count
        out = FUSED_KERNELS[name](*args, **kwargs)
        if recorder.count == node + 1:
            recorder.notes[node] = KERNEL
        return out

    return kernel


def _add_inside(running: _RunningForward) -> tuple[bool, Any]:
    """Record the explicit path, computed at once or later; return whether an edit changed it, and its result."""
    recorder = running.recorder
    with recorder.paused():
        fused_call = FusedCall(recorder, running.module, running.args, running.kwargs)
        is_deferred = fused_call.defer()
    if is_deferred:
        _add_note(recorder, REMARK)
        return False, None
    replaced, out = _run_explicit(running)
    if out is not None:
        with recorder.paused():
            fused_call.learn()
    return replaced, out


def _add_note(recorder: Recorder, remark: str) -> None:
    if remark not in recorder.run_notes:
        recorder.run_notes.append(remark)


def _run_explicit(running: _RunningForward) -> tuple[bool, Any]:
    """Run the explicit path; return whether an edit changed it, and its result."""
    recorder, explicit, module, args, kwargs = running
    start = recorder.count
    recorder.explicit_depth += 1
    out = None
    try:
        # A dropout submodule left in training mode would draw random numbers that the kernel does not.
        with preserve_random_state() if any(part.training for part in module.modules()) else nullcontext():
            if any(tensor.is_nested for tensor in leaves((args, kwargs))):
                out = _run_padded(recorder, explicit, module, args, kwargs)
            else:
                out = explicit(module, *args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError, UnsupportedTorch) as error:
        if recorder.has_edits:
            raise
        recorder.run_notes.append(
            f"the inside of {type(module).__name__}'s fused kernel could not be computed: {error}"
        )
    finally:
        recorder.explicit_depth -= 1
    replaced = recorder.has_edits and any(node in recorder.edited for node in range(start, recorder.count))
    for node in range(start, recorder.count):
        recorder.notes.setdefault(node, REPLACED if replaced else BESIDE)
    _add_note(recorder, EDITED if replaced else REMARK)
    return replaced, out


def _run_padded(recorder: Recorder, explicit: Function, module: Module, args: Any, kwargs: Any) -> Any:
    """Run the explicit path on padded tensors with a mask: it takes no nested ones."""
    require(NESTED)
    bound = inspect.signature(explicit).bind(module, *args, **kwargs)
    nested = next(value for value in bound.arguments.values() if isinstance(value, Tensor) and value.is_nested)
    padded = nested.to_padded_tensor(0.0)
    with recorder.paused():
        lengths = torch.tensor([len(part) for part in nested.unbind()], device=padded.device)
        mask = torch.arange(padded.shape[1], device=padded.device) < lengths[:, None]
    for name, value in bound.arguments.items():
        if value is nested:
            bound.arguments[name] = padded
    bound.arguments["src_key_padding_mask" if "src" in bound.arguments else "key_padding_mask"] = ~mask
    out = explicit(*bound.args, **bound.kwargs)
    first, *others = out if isinstance(out, tuple) else (out,)
    first = nested_from_mask(first, mask, mask_check=False)
    return (first, *others) if isinstance(out, tuple) else first


def _has_mode() -> bool:
    """Whether a function mode that is not a recorder is active.

    torch.set_default_device is one, and disables the fused path.
    """
    modes = function_modes()
    return len(modes) > 1 and any(not isinstance(mode, Recorder) for mode in modes)


_HOOKS = {name: _kernel(name) for name in FUSED_KERNELS}
ATTENTION_PATHS: dict[Any, AttentionPaths] = {
    forward: AttentionPaths(
        forward_twin(forward), choosing_twin(forward, _has_mode, {}), choosing_twin(forward, _has_mode, _HOOKS)
    )
    for forward in (kind.forward for kind in FUSED_MODULES)
}
