"""The module stack: which module call each operation belongs to.

This is the one place where torch is changed, and only while a capture runs: `nn.Module._call_impl` is replaced by
`_traced_call`, and `torch.compile` by `_watched_compile`; where there is a process group, so are its methods
(`process_groups`). So is the `forward` of classes that choose a fused kernel, and of those below a module whose code
calls a `.forward` itself: such a call is a module call too. One of torch's hooks hears of parameters that are assigned.
All of them do nothing in threads that capture nothing. Module hooks would be the public way; they cost four times as
much per call.
(`__call__` itself would do as well, but replacing a dunder makes Python update every subclass of nn.Module: 50 µs, or
milliseconds once transformers is imported.)
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from types import CodeType, FrameType, FunctionType, GeneratorType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
    _global_parameter_registration_hooks,
)

from torcheer.capture import process_groups
from torcheer.capture.record import fused_attention
from torcheer.capture.record.function_twins import FUSED_MODULES, forward_of
from torcheer.capture.record.generator_forward import followed
from torcheer.capture.record.module_values import exchanged, meet_buffers, received, returned
from torcheer.capture.record.recorder import Recorder
from torcheer.capture.record.source_lines import is_users

Around = Callable[[Module, Callable[[], Any]], Any]

_SCOPE_WIDTH = 4
_original = Module._call_impl
_original_compile = torch.compile
_active: dict[int, list[Recorder]] = {}  # thread -> its recorders, outermost first
_around: dict[int, list[Around]] = {}  # thread -> who wants to stand around its module calls, outermost first
_forwards: dict[Any, Any] = {}  # class -> its own forward, while it is watched
_watched: dict[Any, Any] = {}  # what stands in its place -> its own forward
_lock = threading.Lock()
_OURS: Any = "torcheer"  # the key of our hook among torch's, whose keys are numbers
_ident = threading.get_ident
_frame = sys._getframe
_tracing = torch._C._get_tracing_state
_compiling = torch.compiler.is_dynamo_compiling  # False, except to dynamo


def start(recorder: Recorder) -> None:
    """Let a recorder see the module calls of this thread."""
    with _lock:
        _active.setdefault(_ident(), []).append(recorder)
        Module._call_impl = _traced_call  # type: ignore[method-assign]
        torch.compile = _watched_compile
        _global_parameter_registration_hooks[_OURS] = _registering
        for kind, own, watched in _CHOOSING:
            if kind.forward is own:  # else somebody wrote another
                kind.forward = watched
        if recorder.distributed:
            process_groups.watch()
        if recorder.inputs_from_call and recorder.model is not None:  # any code may call its forward
            _watch_forward(type(recorder.model))


def stop(recorder: Recorder) -> None:
    """Undo `start`; with the last recorder torch is as it was found."""
    with _lock:
        for thread, recorders in list(_active.items()):
            if recorder in recorders:
                recorders.remove(recorder)
                if not recorders:
                    del _active[thread]
        _restore()


@contextmanager
def resting() -> Iterator[None]:
    """Module calls of this thread are nobody's, for the time of the block: dynamo makes some of its own."""
    recorders = _active.get(_ident(), [])
    waiting = recorders[:]
    recorders.clear()
    try:
        yield
    finally:
        recorders += waiting


def watch(around: Around) -> None:
    """Let `around(module, call)` run every module call of this thread, where no recorder is wanted."""
    with _lock:
        _around.setdefault(_ident(), []).append(around)
        Module._call_impl = _traced_call  # type: ignore[method-assign]


def unwatch(around: Around) -> None:
    """Undo `watch`."""
    with _lock:
        for thread, waiting in list(_around.items()):
            if around in waiting:
                waiting.remove(around)
            if not waiting:
                del _around[thread]
        _restore()


def _restore() -> None:
    if not _active:
        torch.compile = _original_compile
        _global_parameter_registration_hooks.pop(_OURS, None)
        process_groups.unwatch()
        for kind, own, watched in _CHOOSING:
            if kind.forward is watched:
                kind.forward = own
        if _forwards:
            _put_back()
    if not _active and not _around:
        Module._call_impl = _original  # type: ignore[method-assign]
        _mend_dynamo()


def _mend_dynamo() -> None:
    """Dynamo remembers `_call_impl` as it finds it, and may be imported while a capture runs."""
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        known = sys.modules.get(name)
        if getattr(known, "unpatched_nn_module_call_impl", None) is _traced_call:
            known.unpatched_nn_module_call_impl = _original  # type: ignore[union-attr]


def _watched_compile(model: Any = None, *args: Any, **options: Any) -> Any:
    """`torch.compile`: compiled code runs as the Python it was made from, torch's higher-order operators opened."""
    recorders = _active.get(_ident())
    if not recorders:
        return _original_compile(model, *args, **options)
    from torcheer.capture.record.higher_order import call_wrapper, wrapper_of

    for recorder in recorders:
        if recorder.on_compile is not None:
            begin, recorder.on_compile = recorder.on_compile, None
            begin()
    if model is None or not wrapper_of(model):
        return _original_compile(model, *args, **options)
    return partial(call_wrapper, recorders[-1], _original_compile, len(_active) == 1, model, options)


def _registering(module: Module, name: str, parameter: Any) -> None:
    """Torch's own hook: a module is about to hold a parameter."""
    if name not in module._parameters or module._parameters[name] is None or _compiling():
        return
    frame = _frame(2)  # past register_parameter
    if frame.f_code is Module.__setattr__.__code__ and frame.f_back is not None:
        frame = frame.f_back
    for recorder in _active.get(_ident(), ()):
        exchanged(recorder, module, name, parameter, frame)


def _traced_call(self: Module, *args: Any, **kwargs: Any) -> Any:
    if _compiling():  # dynamo reads this function while it traces
        return _original(self, *args, **kwargs)
    if _around and (waiting := _around.get(_ident())):
        return waiting[-1](self, partial(_inner_call, self, args, kwargs))
    recorders = _active.get(_ident())
    if not recorders:
        return _original(self, *args, **kwargs)
    if len(recorders) > 1:
        return _nested_call(recorders, self, args, kwargs)
    recorder = recorders[0]
    scopes, outer = recorder.scopes, recorder.scope
    scope = recorder.scope = len(scopes) // _SCOPE_WIDTH
    caller = _frame(2)  # past Module.__call__
    scopes += (outer, self, caller.f_code, caller.f_lasti)
    if outer < 0:
        recorder.entered(self, args, kwargs)
    if (
        len(args) == 1
        and not kwargs
        and type(args[0]) is Tensor
        and (ref := recorder.known.get(id(args[0]))) is not None
    ):
        recorder.given.append(ref)
    else:
        recorder.given.append(None)  # before `received`, which may call modules
        recorder.given[scope] = received(recorder, args, kwargs)
    try:
        out = _run(recorder, self, args, kwargs)
    finally:
        recorder.scope = outer
    if type(out) is Tensor:
        recorder.exits += (scope, recorder.known.get(id(out)))
    else:
        out = _returned(recorder, scope, out)
    return out if recorder.after_module is None else recorder.after_module(scope, self, out)


def _inner_call(module: Module, args: Any, kwargs: Any) -> Any:
    recorders = _active.get(_ident())
    if recorders:
        return _nested_call(recorders, module, args, kwargs)
    forward = _plan_of(type(module)).forward
    if forward is None or _has_ways_of_its_own(module):
        return _original(module, *args, **kwargs)
    return forward(module, *args, **kwargs)


def _returned(recorder: Recorder, scope: int, out: Any) -> Any:
    """Note what a module call returned; a generator runs inside the call that made it."""
    if type(out) is GeneratorType:
        return followed(recorder, scope, out)
    returned(recorder, scope, out)
    return out


def _run(recorder: Recorder, module: Module, args: Any, kwargs: Any) -> Any:
    """Call a module the way `_call_impl` does, through the twin of its forward where there is one."""
    plan = _plan_of(type(module))
    if plan.simple is not None and not _has_ways_of_its_own(module):
        return plan.simple(module, *args, **kwargs)
    if plan.assigns and module._buffers:
        meet_buffers(recorder, module)
    if plan.direct and id(module) not in recorder.watched:
        _watch_below(recorder, module)
    if plan.scripted:
        from torcheer.capture.record.aten_level import looking_below

        with looking_below(recorder):
            return _original(module, *args, **kwargs)
    if plan.forward is None or _has_ways_of_its_own(module):
        if recorder.beside:  # a kernel calls nobody's hooks
            return module.forward(*args, **kwargs)
        return _original(module, *args, **kwargs)
    if plan.choice is not None:
        return fused_attention.call(recorder, plan.choice, module, args, kwargs)
    return plan.forward(module, *args, **kwargs)


# -- forwards that are called directly -------------------------------------------------------------------------------


def _watch_below(recorder: Recorder, module: Module) -> None:
    """Code of this module calls some `.forward`: watch those it may mean."""
    recorder.watched.add(id(module))
    with _lock:
        for kind in {type(part) for part in module.modules()}:
            _watch_forward(kind)


def _watch_forward(kind: type) -> None:
    owner = next(owner for owner in kind.__mro__ if "forward" in vars(owner))
    forward = vars(owner)["forward"]
    if owner is Module or forward in _watched or type(forward) is not FunctionType:
        return
    watched = _directly(forward)
    _forwards[owner], _watched[watched] = forward, forward
    owner.forward = watched  # type: ignore[attr-defined]


def _put_back() -> None:
    for owner, forward in _forwards.items():
        if vars(owner).get("forward") in _watched:  # else somebody replaced it since
            owner.forward = forward
    _forwards.clear()
    _watched.clear()
    _watched.update((watched, own) for _, own, watched in _CHOOSING)


def _directly(own: Any) -> Callable[..., Any]:
    """A forward that knows whether it was called as part of a module call, or instead of one."""

    @wraps(own)
    def _direct_call(self: Module, *args: Any, **kwargs: Any) -> Any:
        recorders = None if _compiling() else _active.get(_ident())
        if not recorders:
            return own(self, *args, **kwargs)
        recorder, run = recorders[-1], partial(_run_forward, own)
        if recorder.scope >= 0 and recorder.scopes[_SCOPE_WIDTH * recorder.scope + 1] is self:
            return run(recorder, self, args, kwargs)
        return _nested_call(recorders, self, args, kwargs, run, _frame(1))

    return _direct_call


_CHOOSING: list[tuple[Any, Any, Any]] = [(kind, kind.forward, _directly(kind.forward)) for kind in FUSED_MODULES]
_watched.update((watched, own) for _, own, watched in _CHOOSING)


def _run_forward(own: Any, recorder: Recorder, module: Module, args: Any, kwargs: Any) -> Any:
    plan = _plan_of(type(module))
    if plan.assigns and module._buffers:
        meet_buffers(recorder, module)
    if plan.direct and id(module) not in recorder.watched:
        _watch_below(recorder, module)
    choice = fused_attention.CHOICES.get(own)
    return (
        own(module, *args, **kwargs) if choice is None else fused_attention.call(recorder, choice, module, args, kwargs)
    )


def _calls_forward(kind: type) -> bool:
    """Whether a person's code in a class, or a function that it names, calls some `.forward`."""
    for owner in kind.__mro__:
        if not owner.__module__.startswith(("torch.nn.modules.", "builtins")):
            functions = (getattr(value, "__func__", value) for value in vars(owner).values())
            if any(_mentions_forward(function, 2) for function in functions if type(function) is FunctionType):
                return True
    return False


def _mentions_forward(function: FunctionType, depth: int) -> bool:
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    if "forward" in names or not depth:
        return "forward" in names
    named = (function.__globals__.get(name) for name in names)
    helpers = [value for value in named if type(value) is FunctionType and is_users(value.__code__)]
    return any(_mentions_forward(helper, depth - 1) for helper in helpers)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions within it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


# -- what is known of a class ----------------------------------------------------------------------------------------


def _has_ways_of_its_own(module: Module) -> bool:
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


class _Plan:
    """How modules of one type are called."""

    __slots__ = ("assigns", "choice", "direct", "forward", "own", "scripted", "simple")

    def __init__(self, kind: type) -> None:
        forward = getattr(kind, "forward", None)
        self.own = forward = _watched.get(forward, forward)
        self.assigns = not kind.__module__.startswith("torch.nn.modules.")  # torch's own write buffers in place
        self.choice = fused_attention.CHOICES.get(forward)
        self.direct = _calls_forward(kind)
        self.scripted = _is_scripted(kind)
        self.forward = forward_of(forward)
        special = self.assigns or self.direct or self.scripted or self.choice is not None
        self.simple = None if special else self.forward  # most of torch's own: nothing to ask at each call


_plans: dict[type, _Plan] = {}


def _plan_of(kind: type) -> _Plan:
    plan, forward = _plans.get(kind), getattr(kind, "forward", None)  # a scripted class has none
    if plan is None or (forward is not plan.own and _watched.get(forward) is not plan.own):  # somebody wrote another
        plan = _plans[kind] = _Plan(kind)
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
    """A module call seen by several captures at once: each keeps a scope of its own."""
    caller = caller or _frame(3)
    outers = [recorder.scope for recorder in recorders]
    for recorder in recorders:
        outer = recorder.scope
        recorder.scope = len(recorder.scopes) // _SCOPE_WIDTH
        recorder.scopes += (outer, module, caller.f_code, caller.f_lasti)
        if outer < 0:
            recorder.entered(module, args, kwargs)
        recorder.given.append(None)
        recorder.given[recorder.scope] = received(recorder, args, kwargs)
        if recorder is not recorders[-1]:  # `_run` sees to that one
            meet_buffers(recorder, module)
    mine = [recorder.scope for recorder in recorders]
    try:
        out = run(recorders[-1], module, args, kwargs)
    finally:
        for recorder, outer in zip(recorders, outers, strict=True):
            recorder.scope = outer
    for recorder, scope in zip(recorders, mine, strict=True):
        out = _returned(recorder, scope, out)
        if recorder.after_module is not None:
            out = recorder.after_module(scope, module, out)
    return out
