"""The tape: a function mode that records a node for every operation on a traced tensor.

While a call runs, torch's own autograd is off, so its results have no `grad_fn`; the node is an attribute of the result
and lives as long as the result or anything computed from it.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode

from torcheer.autograd.gradients.missing_rules import missing_rule
from torcheer.autograd.rules.rule_table import Rule
from torcheer.autograd.tape import optimizer_pause
from torcheer.autograd.tape.autocast import CASTS, cast_arguments, run_cast
from torcheer.autograd.tape.custom_functions import TAPES
from torcheer.autograd.tape.function_plans import COMPOSITE, OPENED, PASS, RULE, SPECIAL, WRITE, FunctionPlan, plan_of
from torcheer.autograd.tape.inplace_writes import join_family, write
from torcheer.autograd.tape.kept_arguments import HIDDEN_TEXT, keep_arguments
from torcheer.autograd.tape.nodes import FLOATS, Node, is_traced, node_of
from torcheer.autograd.tape.optimizer_pause import PAUSES
from torcheer.autograd.tape.torch_grad_off import call_without_grad
from torcheer.autograd.tape.torch_rules import record_borrowed
from torcheer.capture.record import module_stack
from torcheer.capture.record.source_lines import DIRECT, caller_of
from torcheer.capture.record.tensor_trees import argument_tensors, leaves
from torcheer.capture.torch_state import (
    AUTOGRAD,
    CAPTURE,
    DisableTorchFunctionSubclass,
    are_transforms_active,
    function_mode_at,
    function_mode_count,
    inner_tensor,
    is_autocasting,
    is_wrapped,
    pop_function_mode,
    push_function_mode,
    require,
    set_grad_enabled,
)
from torcheer.errors import BadArgument, NotTraced
from torcheer.public_names import PublicClass

_set_grad, _grad_on = set_grad_enabled, torch.is_grad_enabled
_push, _pop = push_function_mode, pop_function_mode
_modes, _mode_at = function_mode_count, function_mode_at
_autocasts, _transforms = is_autocasting, are_transforms_active
_frame = sys._getframe
_local = threading.local()


class Scope:
    """A call of a module or a composite, and the call around it."""

    __slots__ = ("name", "outer", "owner")

    def __init__(self, outer: Scope | None, name: str, owner: Any = None) -> None:
        self.outer, self.name, self.owner = outer, name, owner  # owner: the module or Operator; None for a composite


class Tape(TorchFunctionMode, metaclass=PublicClass):
    """The function mode that is active inside `record()`."""

    __slots__ = ("borrow", "scope", "site")

    def __init__(self, borrow: bool = False) -> None:
        self.borrow = borrow
        self.scope: Scope | None = None
        self.site: Any = None  # while a composite runs: where it was called
        self._undo: list[ExitStack] = []

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        plan = plan_of(func)
        if _transforms():
            refuse_transformed(args, kwargs)
        if plan.kind is PASS or (plan.kind is not SPECIAL and not _grad_on()):
            return func(*args, **kwargs) if kwargs else func(*args)
        for kind in types:
            if getattr(kind, "is_tracer", False):
                return self.run_tracers(kind, plan, args, kwargs or {}, _frame(1))
        return self.run(plan, args, kwargs or {}, _frame(1))

    def run_tracers(self, kind: Any, plan: FunctionPlan, args: Any, kwargs: dict[str, Any], frame: FrameType) -> Any:
        """Run a call with tracers among its arguments; its results are tracers too."""
        with DisableTorchFunctionSubclass():
            return kind.wrap(self.run(plan, args, kwargs, frame))

    def run(self, plan: FunctionPlan, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """Run one call of any kind, and record it if a gradient can flow through it."""
        if plan.kind is RULE:
            if plan.twin is not None:  # F.relu(x, inplace)
                if kwargs.get("inplace") or True in args[1:]:
                    return self.inside(plan.name, plan.twin, args, kwargs, frame)
                args, kwargs = args[:1], {name: value for name, value in kwargs.items() if name != "inplace"}
            return self.record(plan.rule, plan.function, args, kwargs, frame, view=plan.view)
        if plan.kind is SPECIAL:
            return plan.special(self, *args, **kwargs)  # type: ignore[misc]
        if not any(is_traced(tensor) for tensor in argument_tensors(args, kwargs)):
            return call_without_grad(plan.function, args, kwargs)
        if plan.kind is WRITE:
            return write(self, plan, args, kwargs, frame)
        if plan.kind is COMPOSITE:
            kwargs = rename_keywords(plan.composite, kwargs) if kwargs else kwargs
            if _autocasts():
                return run_cast(self, plan, args, kwargs, frame)
            return self.inside(plan.name, plan.composite, args, kwargs, frame)
        if plan.kind is OPENED:
            return self.inside(plan.name, plan.twin, args, kwargs, frame)
        return self._run_without_rule(plan, args, kwargs, frame)

    def record(
        self, rule: Rule, function: Any, args: Any, kwargs: dict[str, Any], frame: FrameType, view: bool = False
    ) -> Any:
        """Run an operation that has a rule, and record a node if an argument is traced."""
        call_args, call_kwargs = args, kwargs
        if kwargs:
            if not any(is_traced(tensor) for tensor in argument_tensors(args, kwargs)):
                return call_without_grad(function, args, kwargs)
            args, kwargs = move_keywords(rule, args, kwargs)
        kept, versions, traced = keep_arguments(rule, args)
        _set_grad(False)
        try:
            out = function(*call_args, **call_kwargs)
        finally:
            _set_grad(True)
        if not traced:
            return out
        if not isinstance(out, Tensor):
            return self._refuse_several(rule, out, frame)
        if out.dtype not in FLOATS:
            return _refuse_complex(rule, out)
        if out is args[0] or node_of(out) is not None:
            return out  # an argument, unchanged: contiguous(), float()
        if _autocasts() and rule.name not in CASTS:
            kept = cast_arguments(self, kept, args, out.dtype, frame)
        node = Node(rule, function, kept, kwargs, versions, out)
        node.site = self.site or site_of(frame)
        node.scope = self.scope
        out._torcheer = node  # type: ignore[attr-defined]
        if view and kept[0].__class__ is Node:
            join_family(node, kept[0])
        return out

    def inside(
        self, name: str, function: Any, args: Any, kwargs: Any, frame: FrameType | None = None, owner: Any = None
    ) -> Any:
        """Run a function made of other operations with the tape on, to record each of them."""
        outer, site = self.scope, self.site
        self.scope, self.site = Scope(outer, name, owner), site or (site_of(frame) if frame is not None else None)
        is_popped = not self._is_first()
        if is_popped:
            _push(self)
        try:
            return function(*args, **kwargs)
        finally:
            if is_popped:
                _pop()
            self.scope, self.site = outer, site

    def _run_without_rule(self, plan: FunctionPlan, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """Run a function without a rule: allowed if no result is differentiable, or with `borrow`."""
        out = call_without_grad(plan.function, args, kwargs)
        if plan.constant or not any(tensor.dtype in FLOATS or tensor.is_complex() for tensor in leaves(out)):
            return out
        if not self.borrow:
            raise missing_rule(plan.name, plan.where, plan.function, frame, args)
        return record_borrowed(self, plan, args, kwargs, out, frame)

    def _refuse_several(self, rule: Rule, out: Any, frame: FrameType) -> Any:
        if any(tensor.dtype in FLOATS for tensor in leaves(out)):
            raise missing_rule(rule.name, f"{rule.name} in the form that returns {type(out).__name__}", None, frame)
        return out

    # Activation

    @contextmanager
    def on(self) -> Iterator[None]:
        """Activate the tape again inside a call that it is handling."""
        if self._is_first():
            yield
            return
        _push(self)
        try:
            yield
        finally:
            _pop()

    def _is_first(self) -> bool:
        """True if the tape is the innermost mode: pushed twice, it would see each call twice."""
        return bool(_modes()) and _mode_at(_modes() - 1) is self

    def __enter__(self) -> Tape:
        for feature in (CAPTURE, AUTOGRAD):
            require(feature)
        with ExitStack() as undo:
            undo.callback(setattr, _local, "tape", getattr(_local, "tape", None))
            _local.tape = self
            module_stack.watch(self._enter_module)
            undo.callback(module_stack.unwatch, self._enter_module)
            TAPES.start(self)
            undo.callback(TAPES.stop, self)
            super().__enter__()
            undo.push(super().__exit__)
            PAUSES.start(self)
            undo.callback(PAUSES.stop, self)
            undo.callback(optimizer_pause.resume)
            self._undo.append(undo.pop_all())
        return self

    def __exit__(self, *problem: Any) -> None:
        self._undo.pop().__exit__(*problem)

    def _enter_module(self, module: Module, call: Callable[[], Any]) -> Any:
        if isinstance(module, torch.jit.ScriptModule) and _grad_on():
            raise NotTraced(f"{module.original_name}: {HIDDEN_TEXT}")
        outer, self.scope = self.scope, Scope(self.scope, "", module)
        try:
            return call()
        finally:
            self.scope = outer


def refuse_transformed(args: Any, kwargs: Any) -> None:
    """Refuse traced tensors inside torch.vmap and torch.func, where nodes would be lost."""
    for tensor in argument_tensors(args, kwargs or {}):
        inner = tensor
        while is_wrapped(inner):
            inner = inner_tensor(inner)
        if _grad_on() and (node_of(inner) is not None or inner.requires_grad):
            raise NotTraced(
                "inside torch.vmap and the transforms of torch.func nothing can be recorded: write the loop, or the "
                "batched operation, that it stands for"
            )


def site_of(frame: FrameType) -> Any:
    """Return the user's code around a call, and the instruction."""
    return (frame.f_code, frame.f_lasti) if id(frame.f_code) in DIRECT else caller_of(frame)


def current() -> Tape:
    """Return this thread's active tape, or a default one for tracers used without `record()`."""
    tape = getattr(_local, "tape", None)
    if tape is None:
        tape = getattr(_local, "default_tape", None)
        if tape is None:
            tape = _local.default_tape = Tape()
    return tape


# Torch's names of the first two arguments, and numpy's names of further ones.
_PLACES = {
    "input": 0, "self": 0, "tensors": 0, "other": 1, "mat2": 1, "vec2": 1, "exponent": 1, "tensor": 1,
}  # fmt: skip
_NAMES = {"axis": "dim", "keepdims": "keepdim"}
# Settings that do not change the gradient.
_HARMLESS = frozenset("inplace out_dtype dtype memory_format generator sparse sparse_grad cudnn_enabled".split())


def move_keywords(rule: Rule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Move keyword arguments that may be tensors to their positions; `out=` is refused."""
    if kwargs.get("out") is not None:
        raise BadArgument(f"{rule.name}(out=…): autograd needs the result as a new tensor; leave `out` away")
    places = dict(enumerate(args))
    settings = {}
    for name, value in kwargs.items():
        name = _NAMES.get(name, name)
        place = rule.place_of(name, _PLACES.get(name, -1))
        if place >= 0 and place not in places and (leaves(value) or name in _PLACES or place >= len(rule.parameters)):
            places[place] = value
        elif name in rule.names and not leaves(value):
            settings[name] = value
        elif value is not None and not (rule.accepts_any_setting or name in _HARMLESS):
            raise BadArgument(f"{rule.name}({name}=…): its rule knows no argument of that name")
    for place in range(max(places, default=-1)):
        if place not in places:
            name = rule.parameters[place]
            places[place] = settings.pop(name, rule.defaults.get(name))
    return tuple(places[place] for place in sorted(places)), settings


def rename_keywords(function: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Rename keyword arguments to the composite's parameter names."""
    if kwargs.get("out") is not None:
        raise BadArgument(f"{function.__name__}(out=…): autograd needs the result as a new tensor; leave `out` away")
    first = next(iter(inspect.signature(function).parameters))
    names = {**_NAMES, "input": first, "self": first}
    return {names.get(name, name): value for name, value in kwargs.items() if name != "out"}


def _refuse_complex(rule: Rule, out: Tensor) -> Tensor:
    if out.is_complex():
        raise BadArgument(f"{rule.name} returned {out.dtype}: the rules here are for real numbers")
    return out
