"""Fused attention: the model gets the kernel's own result, and what is inside is computed beside it.

`nn.MultiheadAttention` and the encoder layers choose a fused kernel in eval, unless a function mode is on. Their twins
choose as if none were, so that capturing changes no number. Where the kernel would run, the explicit path runs first,
with the recorder on, to be read; then the kernel runs, and the model goes on with what it returns. Only an edit of the
inside makes the explicit path's result the one that counts. `fused=True` leaves the inside out.
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
from torch.overrides import _get_current_function_mode_stack

from torcheer.capture.record.function_twins import FUSED_MODULES, choosing_twin, forward_twin
from torcheer.capture.record.recorder import Recorder
from torcheer.capture.record.tensor_trees import leaves
from torcheer.capture.torch_state import random_kept
from torcheer.records import BESIDE, KERNEL

Function = Callable[..., Any]

REMARK = (
    "fused attention: the model got the fused kernels' own results; the operations inside were computed beside them, "
    "to be read; fused=True leaves them out"
)
EDITED = "an edit asked for the inside of a fused attention kernel: there the explicit path replaced it"
REPLACED = "computed in place of the fused kernel, because of an edit"


class Choice(NamedTuple):
    """The three ways to run a forward that may choose a fused kernel."""

    explicit: Function
    fused: Function  # the kernel, where plain would take it
    beside: Function  # the same, and the inside


class _Running(NamedTuple):
    """A forward that is choosing now."""

    recorder: Recorder
    explicit: Function
    module: Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Local(threading.local):
    def __init__(self) -> None:
        self.running: list[_Running] = []


_local = _Local()


def call(recorder: Recorder, choice: Choice, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a forward that may choose a fused kernel, as plain would."""
    if recorder.beside:
        return choice.explicit(module, *args, **kwargs)
    if recorder.fused:
        return choice.fused(module, *args, **kwargs)
    _local.running.append(_Running(recorder, choice.explicit, module, args, kwargs))
    try:
        return choice.beside(module, *args, **kwargs)
    finally:
        _local.running.pop()


def _kernel(name: str) -> Function:
    """What a twin calls in the kernel's place."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        recorder = _local.running[-1].recorder
        if recorder in _get_current_function_mode_stack():
            replaced, out = _look_inside(_local.running[-1])
            if replaced:
                return out
        node = recorder.count
        out = getattr(torch, name)(*args, **kwargs)
        if recorder.count == node + 1:
            recorder.notes[node] = KERNEL
        return out

    return kernel


def _look_inside(running: _Running) -> tuple[bool, Any]:
    """Run the explicit path; whether an edit wants its result, and the result."""
    recorder, explicit, module, args, kwargs = running
    start = recorder.count
    recorder.beside += 1
    out = None
    try:
        # A dropout that is in training mode by itself would draw numbers that the kernel does not.
        with random_kept() if any(part.training for part in module.modules()) else nullcontext():
            if any(tensor.is_nested for tensor in leaves((args, kwargs))):
                out = _run_padded(recorder, explicit, module, args, kwargs)
            else:
                out = explicit(module, *args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        if recorder.has_edits:
            raise
        recorder.remarks.append(f"the inside of {type(module).__name__}'s fused kernel could not be computed: {error}")
    finally:
        recorder.beside -= 1
    replaced = recorder.has_edits and any(node in recorder.edited for node in range(start, recorder.count))
    for node in range(start, recorder.count):
        recorder.notes.setdefault(node, REPLACED if replaced else BESIDE)
    remark = EDITED if replaced else REMARK
    if remark not in recorder.remarks:
        recorder.remarks.append(remark)
    return replaced, out


def _run_padded(recorder: Recorder, explicit: Function, module: Module, args: Any, kwargs: Any) -> Any:
    """The explicit path takes no nested tensors: give it padded ones with a mask, and nest what it returns."""
    bound = inspect.signature(explicit).bind(module, *args, **kwargs)
    nested = next(value for value in bound.arguments.values() if isinstance(value, Tensor) and value.is_nested)
    padded = nested.to_padded_tensor(0.0)
    with recorder.unseen():
        lengths = torch.tensor([len(part) for part in nested.unbind()], device=padded.device)
        kept = torch.arange(padded.shape[1], device=padded.device) < lengths[:, None]
    for name, value in bound.arguments.items():
        if value is nested:
            bound.arguments[name] = padded
    bound.arguments["src_key_padding_mask" if "src" in bound.arguments else "key_padding_mask"] = ~kept
    out = explicit(*bound.args, **bound.kwargs)
    first, *rest = out if isinstance(out, tuple) else (out,)
    first = torch._nested_tensor_from_mask(first, kept, mask_check=False)
    return (first, *rest) if isinstance(out, tuple) else first


def _has_mode() -> bool:
    """Whether a function mode other than ours is on: torch.set_default_device is one, and closes the fused path."""
    modes = _get_current_function_mode_stack()
    return len(modes) > 1 and any(not isinstance(mode, Recorder) for mode in modes)


_HOOKS = {name: _kernel(name) for name in ("_transformer_encoder_layer_fwd", "_native_multi_head_attention")}
CHOICES: dict[Any, Choice] = {
    forward: Choice(
        forward_twin(forward), choosing_twin(forward, _has_mode, {}), choosing_twin(forward, _has_mode, _HOOKS)
    )
    for forward in (kind.forward for kind in FUSED_MODULES)
}
