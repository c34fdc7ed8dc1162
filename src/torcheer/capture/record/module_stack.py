"""The module stack: which module call each operation belongs to.

While a capture runs, `_traced_call` replaces `nn.Module._call_impl` and `_watched_compile` replaces `torch.compile`
(`torch_state.Swaps`). So is the `forward` of classes that choose a fused kernel, and of the classes below a module
whose code calls a `.forward` directly: such a call counts as a module call. A parameter registration hook of torch
reports assigned parameters; `torch.utils.swap_tensors` is replaced, to follow the contents that it swaps. Module hooks
would be the public way; they cost four times as much per call.
(`__call__` would do as well, but replacing a dunder makes Python update every subclass of nn.Module: 50 µs, or
milliseconds once transformers is imported.)
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from inspect import getattr_static
from types import FrameType, FunctionType, GeneratorType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from torcheer.capture import process_groups
from torcheer.capture.record.forward_calls import calls_forward
from torcheer.capture.record.function_twins import FUSED_MODULES, forward_of
from torcheer.capture.record.module_values import add_outputs, argument_refs, find_assigned_buffers, note_replacement
from torcheer.capture.record.recorder import Recorder
from torcheer.capture.record.source_lines import at_user_line
from torcheer.capture.special_cases import distributed_tensors, fused_attention, gathered_weights
from torcheer.capture.special_cases.generator_forward import scoped_generator
from torcheer.capture.torch_state import (
    CAPTURE,
    CONTENT_SWAP,
    GLOBAL_HOOKS,
    MEMORY_SWAP,
    PARAMETER_HOOKS,
    POOLING,
    TENSOR_SWAP,
    Swap,
    Swaps,
    is_usable,
    originals,
    require,
    tracing_state,
)
from torcheer.capture.values.swapped_tensors import follow_swap, run_swap

CallWrapper = Callable[[Module, Callable[[], Any]], Any]

_SCOPE_WIDTH = 4
_original_call = Module._call_impl
_original_compile = torch.compile
_original_forward = originals.get
_global_forward_hooks, _global_forward_pre_hooks, _global_backward_hooks, _global_backward_pre_hooks = GLOBAL_HOOKS
_ident = threading.get_ident
_frame = sys._getframe
_tracing = tracing_state
_compiling = torch.compiler.is_dynamo_compiling  # False, except to dynamo


def start(recorder: Recorder) -> None:
    """Report the module calls of this thread to a recorder."""
    require(CAPTURE)
    is_usable(POOLING)
    _CAPTURES.start(recorder)
    if recorder.distributed:
        process_groups.MESSAGES.start(recorder)
        gathered_weights.start(recorder)
        distributed_tensors.start(recorder)
    if recorder.inputs_from_call and recorder.model is not None:  # any code may call its forward
        _watch_forward(type(recorder.model))


def stop(recorder: Recorder) -> None:
    """Undo `start`; the last recorder to stop restores torch."""
    if recorder.distributed:
        distributed_tensors.stop(recorder)
        gathered_weights.stop(recorder)
        process_groups.MESSAGES.stop(recorder)
    _CAPTURES.stop(recorder)


@contextmanager
def paused() -> Iterator[None]:
    """Ignore this thread's module calls inside the block: dynamo makes some while it traces."""
    recorders = _active.get(_ident(), [])
    recorders_before = recorders[:]
    recorders.clear()
    try:
        yield
    finally:
        recorders += recorders_before


@contextmanager
def set_aside() -> Iterator[None]:
    """Set this thread's captures aside, so that another may begin and end inside the block."""
    aside = -_ident()
    if _ident() not in _active:
        yield
        return
    _active[aside] = _active.pop(_ident())  # the module calls stay replaced for them
    try:
        yield
    finally:
        _active[_ident()] = _active.pop(aside)


def watch(wrapper: CallWrapper) -> None:
    """Run every module call of this thread through `wrapper(module, call)`, without a recorder."""
    _WRAPPERS.start(wrapper)


def unwatch(wrapper: CallWrapper) -> None:
    """Undo `watch`."""
    _WRAPPERS.stop(wrapper)


def _watched_compile(model: Any = None, *args: Any, **options: Any) -> Any:
    """Run the original Python instead of compiled code, with higher-order operators opened."""
    recorders = _active.get(_ident())
    if not recorders:
        return _original_compile(model, *args, **options)
    from torcheer.capture.special_cases.higher_order import call_wrapper, wrapper_of

    for recorder in recorders:
        if recorder.on_compile is not None:
            begin, recorder.on_compile = recorder.on_compile, None
            begin()
    if model is None or not wrapper_of(model):
        return _original_compile(model, *args, **options)
    return partial(call_wrapper, recorders[-1], _original_compile, len(_active) == 1, model, options)


def _on_parameter_registered(module: Module, name: str, parameter: Any) -> None:
    """Handle torch's parameter registration hook: a module is about to hold a parameter."""
    if name not in module._parameters or module._parameters[name] is None or _compiling():
        return
    frame = _frame(2)  # past register_parameter
    if frame.f_code is Module.__setattr__.__code__ and frame.f_back is not None:
        frame = frame.f_back
    for recorder in _active.get(_ident(), ()):
        note_replacement(recorder, module, name, parameter, frame)


class _ParameterHook:
    """The hook, added as torch's function for it would, in a fifth of the time."""

    def __init__(self) -> None:
        PARAMETER_HOOKS["torcheer"] = _on_parameter_registered  # torch's own keys are numbers

    def remove(self) -> None:
        del PARAMETER_HOOKS["torcheer"]


def _traced_call(self: Module, *args: Any, **kwargs: Any) -> Any:
    if _compiling():  # dynamo reads this function while it traces
        return _original_call(self, *args, **kwargs)
    if _call_wrappers and (wrappers := _call_wrappers.get(_ident())):
        return wrappers[-1](self, partial(_inner_call, self, args, kwargs))
    recorders = _active.get(_ident())
    if not recorders:
        return _original_call(self, *args, **kwargs)
    if len(recorders) > 1:
        return _nested_call(recorders, self, args, kwargs)
    recorder = recorders[0]
    scopes, outer = recorder.scopes, recorder.scope
    scope = recorder.scope = len(scopes) // _SCOPE_WIDTH
    caller = _frame(2)  # past Module.__call__
    scopes += (outer, self, caller.f_code, caller.f_lasti)
    if outer < 0:
        recorder.add_root_inputs(self, args, kwargs)
    if recorder.on_entry is not None:
        args, kwargs = recorder.on_entry(scope, self, args, kwargs)
    refs_by_id, alive = recorder.refs_by_id, recorder.alive  # `find_ref`, in line: it runs twice for every call
    if (
        len(args) == 1
        and not kwargs
        and type(args[0]) is Tensor
        and (ref := refs_by_id.get(key := id(args[0]))) is not None
        and (alive is None or ref < 0 or alive[key]() is not None)
    ):
        recorder.call_inputs.append(ref)
    else:
        recorder.call_inputs.append(None)  # before `argument_refs`, which may call modules
        recorder.call_inputs[scope] = argument_refs(recorder, args, kwargs)
    kind = type(self)
    plan = _call_plans.get(kind)
    try:
        if (  # what `_run` does of most modules, in line: each frame less is a tenth of what a module call costs
            plan is None
            or plan.simple is None
            or plan.forward_seen is not kind.forward  # replaced since
            or plan.direct
            or (plan.assigns and self._buffers)
            or self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or _global_forward_hooks
            or _global_forward_pre_hooks
            or _global_backward_hooks
            or _global_backward_pre_hooks
            or "forward" in self.__dict__
            or _tracing()
        ):
            out = _run(recorder, self, args, kwargs)
        else:
            out = plan.simple(self, *args, **kwargs)
    finally:
        recorder.scope = outer
    if type(out) is Tensor:
        ref = refs_by_id.get(key := id(out))
        if alive is not None and ref is not None and ref >= 0 and alive[key]() is None:
            ref = None
        recorder.exits += (scope, ref)
    else:
        out = _add_outputs(recorder, scope, out)
    return out if recorder.on_module is None else recorder.on_module(scope, self, out)


def _inner_call(module: Module, args: Any, kwargs: Any) -> Any:
    recorders = _active.get(_ident())
    if recorders:
        return _nested_call(recorders, module, args, kwargs)
    forward = _call_plan(type(module)).forward
    if forward is None or _needs_call_impl(module):
        return _original_call(module, *args, **kwargs)
    return forward(module, *args, **kwargs)


def _add_outputs(recorder: Recorder, scope: int, out: Any) -> Any:
    """Record the outputs of a module call; wrap a generator so that it runs in its scope."""
    if type(out) is GeneratorType:
        return scoped_generator(recorder, scope, out)
    add_outputs(recorder, scope, out)
    return out


def _run(recorder: Recorder, module: Module, args: Any, kwargs: Any) -> Any:
    """Call a module as `_call_impl` does, through the twin of its forward if there is one."""
    plan = _call_plan(type(module))
    if plan.assigns and module._buffers:
        find_assigned_buffers(recorder, module)
    if plan.direct and id(module) not in recorder.watched_modules:
        _watch_below(recorder, module)
    if plan.simple is not None and not _needs_call_impl(module):
        return plan.simple(module, *args, **kwargs)
    if plan.scripted:
        from torcheer.capture.special_cases.aten_level import aten_recording

        with aten_recording(recorder):
            return _original_call(module, *args, **kwargs)
    if plan.attention is None or _needs_call_impl(module):
        if recorder.explicit_depth:  # a fused kernel calls no hooks
            return module.forward(*args, **kwargs)
        return _original_call(module, *args, **kwargs)
    return fused_attention.call(recorder, plan.attention, module, args, kwargs)


# -- direct calls of `.forward` --------------------------------------------------------------------------------------


def _watch_below(recorder: Recorder, module: Module) -> None:
    """Watch every forward below a module whose code calls some `.forward` directly."""
    kinds: set[type] = set()
    parts: list[Module | None] = [module]
    while parts:  # `modules()` takes ten times as long
        part = parts.pop()
        if part is not None and id(part) not in recorder.watched_modules:
            recorder.watched_modules.add(id(part))
            kinds.add(type(part))
            parts += part._modules.values()
    for kind in kinds:
        _watch_forward(kind)


def _watch_forward(kind: type) -> None:
    owner = next(owner for owner in kind.__mro__ if "forward" in vars(owner))
    if owner is not Module and type(vars(owner)["forward"]) is FunctionType:
        _CAPTURES.swap(owner, "forward", _watch_direct_calls)


def _watch_direct_calls(forward: Any) -> Callable[..., Any]:
    """Wrap a forward so that a direct call of it counts as a module call."""

    @wraps(forward)
    def _direct_call(self: Module, *args: Any, **kwargs: Any) -> Any:
        recorders = None if _compiling() else _active.get(_ident())
        if not recorders:
            return forward(self, *args, **kwargs)
        recorder, run = recorders[-1], partial(_run_forward, forward)
        if recorder.scope >= 0 and recorder.scopes[_SCOPE_WIDTH * recorder.scope + 1] is self:
            return run(recorder, self, args, kwargs)
        return _nested_call(recorders, self, args, kwargs, run, _frame(1))

    return _direct_call


def _watch_tensor_swap(swap: Any) -> Any:
    def swap_tensors(first: Tensor, second: Tensor) -> Any:
        recorders = _active.get(_ident())
        return run_swap(recorders, swap, first, second) if recorders else swap(first, second)

    return swap_tensors


def _watch_content_swap(swap: Any) -> Any:
    def swap_contents(first: Tensor, second: Tensor) -> Any:
        return follow_swap(_active.get(_ident(), ()), swap, first, second)

    return swap_contents


def _watch_memory_swap(set_: Any) -> Any:
    @wraps(set_)
    def give_memory(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        for recorder in _active.get(_ident(), ()):
            recorder.memory.keep_before_exchange(tensor)
        return set_(tensor, *args, **kwargs)

    return give_memory


_watched_fused = {kind.forward: _watch_direct_calls(kind.forward) for kind in FUSED_MODULES}
_TRACED_CALL: Swap = (Module, "_call_impl", lambda _: _traced_call)
_CAPTURES = Swaps(
    "record module calls",
    _TRACED_CALL,
    (torch, "compile", lambda _: _watched_compile),
    (warnings, "showwarning", at_user_line),
    (*TENSOR_SWAP, _watch_tensor_swap),
    (*CONTENT_SWAP, _watch_content_swap),
    (*MEMORY_SWAP, _watch_memory_swap),
    *((kind, "forward", _watched_fused.get) for kind in FUSED_MODULES),  # None where other code replaced it
    hooks=[_ParameterHook],
)
_WRAPPERS = Swaps("wrap module calls", _TRACED_CALL)
_active: dict[int, list[Recorder]] = _CAPTURES.by_thread
_call_wrappers: dict[int, list[CallWrapper]] = _WRAPPERS.by_thread


def _run_forward(forward: Any, recorder: Recorder, module: Module, args: Any, kwargs: Any) -> Any:
    plan = _call_plan(type(module))
    if plan.assigns and module._buffers:
        find_assigned_buffers(recorder, module)
    if plan.direct and id(module) not in recorder.watched_modules:
        _watch_below(recorder, module)
    attention = fused_attention.ATTENTION_PATHS.get(forward)
    return (
        forward(module, *args, **kwargs)
        if attention is None
        else fused_attention.call(recorder, attention, module, args, kwargs)
    )


# -- how modules of a class are called -------------------------------------------------------------------------------


def _needs_call_impl(module: Module) -> bool:
    """Whether `_call_impl` would do more than call the forward of the module's class."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or _global_forward_hooks
        or _global_forward_pre_hooks
        or _global_backward_hooks
        or _global_backward_pre_hooks
        or "forward" in module.__dict__
        or _tracing()
    )


class _CallPlan:
    """How modules of one type are called."""

    __slots__ = ("assigns", "attention", "class_forward", "direct", "forward", "forward_seen", "scripted", "simple")

    def __init__(self, kind: type) -> None:
        forward = getattr(kind, "forward", None)
        self.forward_seen: Any = forward  # what the class held when this plan was last right
        self.class_forward = forward = _original_forward(forward, forward)
        self.assigns = not kind.__module__.startswith("torch.nn.modules.")  # torch's own modules write buffers in place
        self.attention = fused_attention.ATTENTION_PATHS.get(forward)
        self.direct = calls_forward(kind)
        self.scripted = _is_scripted(kind)
        self.forward = forward_of(forward)
        is_method = type(getattr_static(kind, "forward", None)) is FunctionType  # a staticmethod takes no module
        plain = self.forward or (forward if is_method else None)
        self.simple = plain if self.attention is None and not self.scripted else None  # called without `_call_impl`


_call_plans: dict[type, _CallPlan] = {}


def _call_plan(kind: type) -> _CallPlan:
    plan, forward = _call_plans.get(kind), getattr(kind, "forward", None)  # a scripted class has none
    if plan is None or (
        forward is not plan.class_forward and _original_forward(forward) is not plan.class_forward
    ):  # its forward was replaced
        plan = _call_plans[kind] = _CallPlan(kind)
    plan.forward_seen = forward
    return plan


def _is_scripted(kind: type) -> bool:
    """Whether calling this module may run TorchScript, which no function mode sees."""
    if issubclass(kind, torch.jit.ScriptModule):
        return True
    names = getattr(sys.modules.get(kind.__module__), "__dict__", {})
    return any(isinstance(value, torch.jit.ScriptFunction) for value in list(names.values()))


def _nested_call(
    recorders: list[Recorder],
    module: Module,
    args: Any,
    kwargs: Any,
    run: Callable[..., Any] = _run,
    caller: FrameType | None = None,
) -> Any:
    """Run a module call for several nested captures: each gets its own scope."""
    caller = caller or _frame(3)
    outers = [recorder.scope for recorder in recorders]
    for recorder in recorders:
        outer = recorder.scope
        recorder.scope = len(recorder.scopes) // _SCOPE_WIDTH
        recorder.scopes += (outer, module, caller.f_code, caller.f_lasti)
        if outer < 0:
            recorder.add_root_inputs(module, args, kwargs)
        if recorder.on_entry is not None:
            args, kwargs = recorder.on_entry(recorder.scope, module, args, kwargs)
        recorder.call_inputs.append(None)
        recorder.call_inputs[recorder.scope] = argument_refs(recorder, args, kwargs)
        if recorder is not recorders[-1]:  # `_run` does it for the last one
            find_assigned_buffers(recorder, module)
    scopes = [recorder.scope for recorder in recorders]
    try:
        out = run(recorders[-1], module, args, kwargs)
    finally:
        for recorder, outer in zip(recorders, outers, strict=True):
            recorder.scope = outer
    for recorder, scope in zip(recorders, scopes, strict=True):
        out = _add_outputs(recorder, scope, out)
        if recorder.on_module is not None:
            out = recorder.on_module(scope, module, out)
    return out
