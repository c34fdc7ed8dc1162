"""Looking below the functions: what the dispatcher runs.

Needed where no function is called (TorchScript), and on request (`level="aten"`). A dispatch mode costs three times as
much as the function mode and 1.7 s of imports at its first use, so it is off unless something needs it.
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

from torcheer.capture.record.function_table import Call, learn
from torcheer.capture.record.recorder import Recorder
from torcheer.capture.record.source_lines import user_frame
from torcheer.capture.record.tensor_facts import meta_of
from torcheer.capture.record.tensor_trees import leaves
from torcheer.records import TensorMeta


class Below(TorchDispatchMode):
    """Sees every aten operation; records those that no recorded function accounts for."""

    supports_higher_order_operators = True  # they arrive here as calls: without a rule registered in torch

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        recorder = self.recorder
        with torch._C.DisableTorchFunction(), _as_called(func):
            if recorder.resting:
                return func(*args, **(kwargs or {}))
            if recorder.inside:
                start = perf_counter_ns()
                out = func(*args, **(kwargs or {}))
                recorder.below.append((recorder.count, func, out_metas(out), perf_counter_ns() - start))
                return out
            return recorder.record(aten_call(func), args, kwargs or {}, user_frame(sys._getframe(1)))


def _as_called(function: Any) -> AbstractContextManager[None]:
    """In inference mode composite operations arrive whole: what they do inside must not see that a mode was on.

    Torch calls us with ADInplaceOrView excluded, under which a view of a parameter does not require grad, and `linear`
    then multiplies in another order.
    """
    if not torch.is_inference_mode_enabled() or not _is_composite(function):
        return nullcontext()
    keys = torch._C._dispatch_tls_local_exclude_set().remove(torch._C.DispatchKey.ADInplaceOrView)
    guard: AbstractContextManager[None] = torch._C._ForceDispatchKeyGuard(
        torch._C._dispatch_tls_local_include_set(), keys
    )
    return guard


@functools.cache
def _is_composite(function: Any) -> bool:
    """Whether an operation is made of others and computes something; views have gone through that key already."""
    if not isinstance(function, torch._ops.OpOverload):
        return False
    is_view = any(result.alias_info is not None for result in function._schema.returns)
    return not is_view and torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), "CompositeImplicitAutograd")


def out_metas(out: Any) -> tuple[TensorMeta, ...]:
    """What is known of a result, without keeping it."""
    return tuple(meta_of(tensor) for tensor in leaves(out))


_calls: dict[Any, Call] = {}


def aten_call(function: Any) -> Call:
    """An aten operation as the recorder treats it."""
    call = _calls.get(function)
    if call is None:
        known = learn(function)
        call = Call(function, known.name, known.where)
        call.writes, call.random, call.view, call.switch = known.writes, known.random, known.view, known.switch
        call.level, call.late = "aten", True
        _calls[function] = call
    return call


@contextmanager
def looking_below(recorder: Recorder) -> Iterator[None]:
    """Record the dispatcher's operations too, for the time of the block."""
    if recorder.careful:
        yield
        return
    recorder.careful = True
    try:
        with Below(recorder):
            yield
    finally:
        recorder.careful = False
