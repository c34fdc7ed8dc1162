"""User-defined `torch.autograd.Function`s: forward runs unrecorded, backward is the rule.

No function mode sees `apply`, so it is replaced while a tape is on (`torch_state.Swaps`). So is the call of a
scripted function, which can only be refused, and `Tensor.backward`, which would not accept `show=True`.
"""

from __future__ import annotations

import sys
import threading
import weakref
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from torcheer.autograd.tape.kept_arguments import HIDDEN_TEXT
from torcheer.autograd.tape.multiple_outputs import record_joint
from torcheer.autograd.tape.nodes import CHANGED_TEXT, FLOATS, is_traced, node_of
from torcheer.capture.record.tensor_trees import leaves
from torcheer.capture.torch_state import EnableTorchFunction, Swaps
from torcheer.errors import MissingRule, NotTraced, RuleMistake, SavedValueChanged

_original_apply = Function.__dict__["apply"]
_original_script_call = torch.jit.ScriptFunction.__call__
_original_backward = Tensor.backward


def _apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    tapes = _tapes.get(threading.get_ident())
    traced = tapes and torch.is_grad_enabled() and any(is_traced(tensor) for tensor in leaves((args, kwargs)))
    if not traced or not tapes:
        return _original_apply.__get__(None, cls)(*args, **kwargs)
    return run_function(tapes[-1], cls, args, kwargs, sys._getframe(1))


@wraps(_original_backward)
def backward_with_show(tensor: Tensor, *args: Any, **kwargs: Any) -> None:
    """`Tensor.backward`; in a thread with a tape it also takes `show=True` and `expand=True`."""
    if threading.get_ident() not in _tapes or not kwargs.keys() & {"show", "expand"}:
        _original_backward(tensor, *args, **kwargs)
        return
    from torcheer.autograd.gradients.derivatives import backward  # it needs the tape

    named = dict(zip(("gradient", "retain_graph", "create_graph", "inputs"), args, strict=False))
    backward(tensor, **named, **kwargs)


def _call_scripted(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse a scripted function of traced tensors: no mode sees inside TorchScript."""
    if threading.get_ident() in _tapes and torch.is_grad_enabled():
        if any(is_traced(tensor) for tensor in leaves((args, kwargs))):
            raise NotTraced(f"{function.name}: {HIDDEN_TEXT}")
    return _original_script_call(function, *args, **kwargs)


TAPES = Swaps(
    "see custom functions",
    (Function, "apply", lambda _: classmethod(_apply)),
    (torch.jit.ScriptFunction, "__call__", lambda _: _call_scripted),
    (Tensor, "backward", lambda _: backward_with_show),
)
_tapes = TAPES.by_thread


class FunctionContext:
    """The `ctx` that a custom function's forward and backward share."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._saved: list[Any] = []
        self._versions: list[int] = []  # their version counters when saved
        self._places: list[int | None] = []  # of each saved tensor: its index among the results, None if it is none
        self._nodes: list[Any] = []  # weak references to the results' nodes
        self.needs_input_grad: tuple[bool, ...] = ()
        self.materialize = True
        self.non_differentiable: set[int] = set()  # ids of results without a gradient

    def save_for_backward(self, *tensors: Any) -> None:
        """Save tensors for backward."""
        self._saved = list(tensors)

    def detach_results(self, results: list[Any]) -> None:
        """Detach saved results: a result holds its node, which holds this context (a cycle)."""
        self._places = [
            next((place for place, result in enumerate(results) if result is saved and saved is not None), None)
            for saved in self._saved
        ]
        self._saved = [saved if place is None else saved.detach() for saved, place in zip(self._saved, self._places)]
        self._versions = [saved._version if isinstance(saved, Tensor) else 0 for saved in self._saved]
        self._nodes = [None if (node := node_of(result)) is None else weakref.ref(node) for result in results]

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The saved tensors, each with its node, for gradients of gradients."""
        for saved, version in zip(self._saved, self._versions):
            if isinstance(saved, Tensor) and saved._version != version:
                raise SavedValueChanged(CHANGED_TEXT.format(self.name, tuple(saved.shape)))
        return tuple([self._attach_node(saved, place) for saved, place in zip(self._saved, self._places)])

    def _attach_node(self, tensor: Any, place: int | None) -> Any:
        node = None if place is None or self._nodes[place] is None else self._nodes[place]()
        if node is not None:
            tensor = tensor.detach()
            tensor._torcheer = node
        return tensor

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Mark results that have no gradient."""
        self.non_differentiable = {id(tensor) for tensor in tensors}

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Refuse in-place writes to arguments."""
        raise MissingRule("a custom Function that writes to its arguments (mark_dirty) cannot be recorded")

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether missing gradients are passed to backward as zeros."""
        self.materialize = value


def run_function(tape: Any, cls: Any, args: Any, kwargs: Any, frame: Any) -> Any:
    """Run a custom function and record a node for each of its results."""
    ctx = FunctionContext(cls.__name__)
    ctx.needs_input_grad = tuple(isinstance(arg, Tensor) and is_traced(arg) for arg in args)
    with torch.no_grad(), tape.on():
        if cls.setup_context is not Function.setup_context:
            out = cls.forward(*args, **kwargs)
            cls.setup_context(ctx, args, out)
        else:
            out = cls.forward(ctx, *args, **kwargs)
    returned = as_list(out)
    results = [result.detach() if any(result is arg for arg in args) else result for result in returned]
    differentiable = [
        result
        if isinstance(result, Tensor) and result.dtype in FLOATS and id(original) not in ctx.non_differentiable
        else None
        for original, result in zip(returned, results)
    ]
    if any(result is not None for result in differentiable):
        record_joint(tape, cls.__name__, _make_rule(tape, cls, ctx, results), differentiable, args, frame)
    ctx.detach_results(results)
    return tuple(results) if isinstance(out, (tuple, list)) else results[0]


def as_list(out: Any) -> list[Any]:
    """Return a list of one or several results."""
    return list(out) if isinstance(out, (tuple, list)) else [out]


def _make_rule(tape: Any, cls: Any, ctx: FunctionContext, results: list[Any]) -> Any:
    layouts = [
        (result.shape, result.dtype, result.device) if isinstance(result, Tensor) else None for result in results
    ]

    def custom(gradients: list[Any], *args: Any) -> tuple[Any, ...]:
        if ctx.materialize:
            gradients = [
                torch.zeros(layout[0], dtype=layout[1], device=layout[2])
                if gradient is None and layout is not None
                else gradient
                for gradient, layout in zip(gradients, layouts)
            ]
        with EnableTorchFunction(), tape.on():  # a checkpoint reruns its forward in here, then its backward
            returned = as_list(cls.backward(ctx, *gradients))
        if len(returned) < len(args) or any(gradient is not None for gradient in returned[len(args) :]):
            raise RuleMistake(f"{cls.__name__}.backward returned {len(returned)} gradients for {len(args)} arguments")
        return tuple(returned[: len(args)])

    custom.__doc__ = cls.backward.__doc__ or "The user's own backward."
    return custom
