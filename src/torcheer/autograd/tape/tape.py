"""Recording: ordinary torch code runs, and every operation on a traced tensor leaves a node behind.

A function mode sees each call. While one runs, torch's own autograd is off, so nothing it returns has a `grad_fn`; the
node hangs on the result as an attribute and lives as long as the result or anything computed from it.
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

from torcheer.autograd.backward.missing_rules import missing_rule
from torcheer.autograd.rules.rule_table import Rule
from torcheer.autograd.tape import custom_functions, optimizer_pause
from torcheer.autograd.tape.autocast import CASTS, kept_as_cast, run_cast
from torcheer.autograd.tape.function_plans import COMPOSITE, OPENED, PASS, RULE, SPECIAL, WRITE, Plan, plan_of
from torcheer.autograd.tape.inplace_writes import join_family, write
from torcheer.autograd.tape.kept_arguments import HIDDEN, keep_arguments
from torcheer.autograd.tape.nodes import FLOATS, Node, is_traced, node_of
from torcheer.autograd.tape.torch_grad_off import quietly
from torcheer.autograd.tape.torch_rules import borrowed
from torcheer.capture.record import module_stack
from torcheer.capture.record.source_lines import DIRECT, caller_of
from torcheer.capture.record.tensor_trees import argument_tensors, leaves
from torcheer.errors import BadArgument, NotTraced

_set_grad, _grad_on = torch._C._set_grad_enabled, torch.is_grad_enabled
_push, _pop = torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack
_modes, _mode_at = torch._C._len_torch_function_stack, torch._C._get_function_stack_at
_autocasts, _transforms = torch._C._is_any_autocast_enabled, torch._C._are_functorch_transforms_active
_frame = sys._getframe
_local = threading.local()


class Scope:
    """A call of a module or a composite, and the call around it."""

    __slots__ = ("name", "outer", "thing")

    def __init__(self, outer: Scope | None, name: str, thing: Any = None) -> None:
        self.outer, self.name, self.thing = outer, name, thing  # thing: the module; an Operator; None


class Tape(TorchFunctionMode):
    """What is on while `record()` runs."""

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

    def run_tracers(self, kind: Any, plan: Plan, args: Any, kwargs: dict[str, Any], frame: FrameType) -> Any:
        """The same for our own kind of tensor, which has its results in kind."""
        with torch._C.DisableTorchFunctionSubclass():
            return kind.wrap(self.run(plan, args, kwargs, frame))

    def run(self, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """Run one call of any kind, and record what it means for gradients."""
        if plan.kind is RULE:
            if plan.twin is not None:  # F.relu(x, inplace)
                if kwargs.get("inplace") or True in args[1:]:
                    return self.inside(plan.name, plan.twin, args, kwargs, frame)
                args, kwargs = args[:1], {name: one for name, one in kwargs.items() if name != "inplace"}
            return self.record(plan.rule, plan.function, args, kwargs, frame, view=plan.view)
        if plan.kind is SPECIAL:
            return plan.special(self, *args, **kwargs)  # type: ignore[misc]
        if not any(is_traced(tensor) for tensor in argument_tensors(args, kwargs)):
            return quietly(plan.function, args, kwargs)
        if plan.kind is WRITE:
            return write(self, plan, args, kwargs, frame)
        if plan.kind is COMPOSITE:
            kwargs = spelled(plan.composite, kwargs) if kwargs else kwargs
            if _autocasts():
                return run_cast(self, plan, args, kwargs, frame)
            return self.inside(plan.name, plan.composite, args, kwargs, frame)
        if plan.kind is OPENED:
            return self.inside(plan.name, plan.twin, args, kwargs, frame)
        return self._unknown(plan, args, kwargs, frame)

    def record(
        self, rule: Rule, function: Any, args: Any, kwargs: dict[str, Any], frame: FrameType, view: bool = False
    ) -> Any:
        """Run an operation that has a rule, and leave a node if a gradient will come back through it."""
        given, named = args, kwargs
        if kwargs:
            if not any(is_traced(tensor) for tensor in argument_tensors(args, kwargs)):
                return quietly(function, args, kwargs)
            args, kwargs = placed(rule, args, kwargs)
        kept, versions, traced = keep_arguments(rule, args)
        _set_grad(False)
        try:
            out = function(*given, **named)
        finally:
            _set_grad(True)
        if not traced:
            return out
        if not isinstance(out, Tensor):
            return self._several(rule, out, frame)
        if out.dtype not in FLOATS:
            return _refuse_complex(rule, out)
        if out is args[0] or node_of(out) is not None:
            return out  # one of the arguments, as it is: contiguous(), float()
        if _autocasts() and rule.name not in CASTS:
            kept = kept_as_cast(self, kept, args, out.dtype, frame)
        node = Node(rule, function, kept, kwargs, versions, out)
        node.site = self.site or site_of(frame)
        node.scope = self.scope
        out._torcheer = node  # type: ignore[attr-defined]
        if view and kept[0].__class__ is Node:
            join_family(node, kept[0])
        return out

    def inside(
        self, name: str, function: Any, args: Any, kwargs: Any, frame: FrameType | None = None, thing: Any = None
    ) -> Any:
        """Run a function that is made of other operations, so that each of them arrives here."""
        outer, site = self.scope, self.site
        self.scope, self.site = Scope(outer, name, thing), site or (site_of(frame) if frame is not None else None)
        sleeps = not self._is_first()
        if sleeps:
            _push(self)
        try:
            return function(*args, **kwargs)
        finally:
            if sleeps:
                _pop()
            self.scope, self.site = outer, site

    def _unknown(self, plan: Plan, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """A function without a rule: fine if its results are no numbers to differentiate."""
        out = quietly(plan.function, args, kwargs)
        if plan.constant or not any(tensor.dtype in FLOATS or tensor.is_complex() for tensor in leaves(out)):
            return out
        if not self.borrow:
            raise missing_rule(plan.name, plan.where, plan.function, frame, args)
        return borrowed(self, plan, args, kwargs, out, frame)

    def _several(self, rule: Rule, out: Any, frame: FrameType) -> Any:
        if any(tensor.dtype in FLOATS for tensor in leaves(out)):
            raise missing_rule(rule.name, f"{rule.name} in the form that returns {type(out).__name__}", None, frame)
        return out

    # Being on

    @contextmanager
    def on(self) -> Iterator[None]:
        """Once more, from within a call that it is seeing."""
        if self._is_first():
            yield
            return
        _push(self)
        try:
            yield
        finally:
            _pop()

    def _is_first(self) -> bool:
        """Whether the next call arrives here anyway: twice on the stack, it would pass through twice."""
        return bool(_modes()) and _mode_at(_modes() - 1) is self

    def __enter__(self) -> Tape:
        with ExitStack() as undo:
            undo.callback(setattr, _local, "tape", getattr(_local, "tape", None))
            _local.tape = self
            module_stack.watch(self._around)
            undo.callback(module_stack.unwatch, self._around)
            custom_functions.start(self)
            undo.callback(custom_functions.stop, self)
            super().__enter__()
            undo.push(super().__exit__)
            optimizer_pause.start()
            undo.callback(optimizer_pause.stop)
            self._undo.append(undo.pop_all())
        return self

    def __exit__(self, *problem: Any) -> None:
        self._undo.pop().__exit__(*problem)

    def _around(self, module: Module, call: Callable[[], Any]) -> Any:
        if isinstance(module, torch.jit.ScriptModule) and _grad_on():
            raise NotTraced(f"{module.original_name}: {HIDDEN}")
        outer, self.scope = self.scope, Scope(self.scope, "", module)
        try:
            return call()
        finally:
            self.scope = outer


def refuse_transformed(args: Any, kwargs: Any) -> None:
    """What runs inside torch.vmap or torch.func is wrapped; nothing recorded there would be found again outside."""
    for tensor in argument_tensors(args, kwargs or {}):
        inner = tensor
        while torch._C._functorch.is_functorch_wrapped_tensor(inner):
            inner = torch._C._functorch.get_unwrapped(inner)
        if _grad_on() and (node_of(inner) is not None or inner.requires_grad):
            raise NotTraced(
                "inside torch.vmap and the transforms of torch.func nothing can be recorded: write the loop, or the "
                "batched operation, that it stands for"
            )


def site_of(frame: FrameType) -> Any:
    """The code a person would recognise around a call, and at which instruction."""
    return (frame.f_code, frame.f_lasti) if id(frame.f_code) in DIRECT else caller_of(frame)


def current() -> Tape:
    """The tape that is on in this thread, or one for tracers that run without any."""
    tape = getattr(_local, "tape", None)
    if tape is None:
        tape = getattr(_local, "own", None)
        if tape is None:
            tape = _local.own = Tape()
    return tape


# The first two places under the names torch gives them, and numpy's names for what follows.
_PLACES = {
    "input": 0, "self": 0, "tensors": 0, "other": 1, "mat2": 1, "vec2": 1, "exponent": 1, "tensor": 1,
}  # fmt: skip
_NAMES = {"axis": "dim", "keepdims": "keepdim"}
# What changes no gradient.
_HARMLESS = frozenset("inplace out_dtype dtype memory_format generator sparse sparse_grad cudnn_enabled".split())


def placed(rule: Rule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Keyword arguments that may be tensors, moved to their places; `out=` has no place."""
    if kwargs.get("out") is not None:
        raise BadArgument(f"{rule.name}(out=…): autograd needs the result as a new tensor; leave `out` away")
    places = dict(enumerate(args))
    rest = {}
    for name, value in kwargs.items():
        name = _NAMES.get(name, name)
        place = rule.place_of(name, _PLACES.get(name, -1))
        if place >= 0 and place not in places and (leaves(value) or name in _PLACES or place >= len(rule.parameters)):
            places[place] = value
        elif name in rule.names and not leaves(value):
            rest[name] = value
        elif value is not None and not (rule.accepts_any_setting or name in _HARMLESS):
            raise BadArgument(f"{rule.name}({name}=…): its rule knows no argument of that name")
    for place in range(max(places, default=-1)):
        if place not in places:
            name = rule.parameters[place]
            places[place] = rest.pop(name, rule.defaults.get(name))
    return tuple(places[place] for place in sorted(places)), rest


def spelled(function: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments under the names that a composite has for them."""
    if kwargs.get("out") is not None:
        raise BadArgument(f"{function.__name__}(out=…): autograd needs the result as a new tensor; leave `out` away")
    first = next(iter(inspect.signature(function).parameters))
    names = {**_NAMES, "input": first, "self": first}
    return {names.get(name, name): value for name, value in kwargs.items() if name != "out"}


def _refuse_complex(rule: Rule, out: Tensor) -> Tensor:
    if out.is_complex():
        raise BadArgument(f"{rule.name} returned {out.dtype}: the rules here are for real numbers")
    return out
