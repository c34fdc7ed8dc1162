"""Aten-level recording: a dispatch mode that sees the operations below torch's functions.

Needed where no Python function is called (TorchScript), and for `level="aten"`. A dispatch mode costs three times as
much as the function mode and 1.7 s of imports at its first use, so it is off unless needed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torcheer.capture.record.function_table import TorchCall, lookup_call
from torcheer.capture.record.recorder import Recorder
from torcheer.capture.record.source_lines import user_frame
from torcheer.capture.record.tensor_facts import meta_of
from torcheer.capture.record.tensor_trees import leaves
from torcheer.capture.torch_state import (
    SCRIPTED,
    DisableTorchFunction,
    OpOverload,
    composite_guard,
    has_kernel,
    is_usable,
)
from torcheer.records import TensorMeta


class AtenMode(TorchDispatchMode):
    """A dispatch mode that records the aten operations that run outside of recorded functions."""

    supports_higher_order_operators = True  # they arrive here as calls, without a rule registered in torch

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        recorder = self.recorder
        with DisableTorchFunction(), _composite_guard(func):
            if recorder.dispatch_paused:
                return func(*args, **(kwargs or {}))
            if recorder.call_depth:
                start = perf_counter_ns()
                out = func(*args, **(kwargs or {}))
                recorder.aten_calls.append((recorder.count, func, out_metas(out), perf_counter_ns() - start))
                return out
            return recorder.record(aten_call(func), args, kwargs or {}, user_frame(sys._getframe(1)))


def _composite_guard(function: Any) -> AbstractContextManager[None]:
    """Return a guard that runs a composite in inference mode as if no dispatch mode were active.

    In inference mode composites are dispatched as one operation, and torch calls the mode with ADInplaceOrView
    excluded: under it a view of a parameter does not require grad, and `linear` then multiplies in another order.
    """
    if not torch.is_inference_mode_enabled() or not _is_composite(function):
        return nullcontext()
    guard: AbstractContextManager[None] = composite_guard()
    return guard


@functools.cache
def _is_composite(function: Any) -> bool:
    """Whether an operation is a composite, and not a view.

    Views have passed the ADInplaceOrView key already.
    """
    if not isinstance(function, OpOverload):
        return False
    is_view = any(result.alias_info is not None for result in function._schema.returns)
    return not is_view and has_kernel(function.name(), "CompositeImplicitAutograd")


def out_metas(out: Any) -> tuple[TensorMeta, ...]:
    """Return the metadata of a result's tensors."""
    return tuple(meta_of(tensor) for tensor in leaves(out))


_calls: dict[Any, TorchCall] = {}


def aten_call(function: Any) -> TorchCall:
    """Return the table entry of an aten operation."""
    call = _calls.get(function)
    if call is None:
        function_call = lookup_call(function)
        call = TorchCall(function, function_call.name, function_call.where)
        call.writes, call.random, call.view, call.switch = (
            function_call.writes,
            function_call.random,
            function_call.view,
            function_call.switch,
        )
        call.level, call.late = "aten", True
        _calls[function] = call
    return call


@contextmanager
def aten_recording(recorder: Recorder) -> Iterator[None]:
    """Record aten operations, too, inside the block."""
    if recorder.dispatch_mode_on or not is_usable(SCRIPTED):
        yield
        return
    recorder.dispatch_mode_on = recorder.always_special = True
    try:
        with AtenMode(recorder):
            yield
    finally:
        recorder.dispatch_mode_on = recorder.always_special = False
