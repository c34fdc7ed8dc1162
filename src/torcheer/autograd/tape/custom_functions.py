"""Users' own `torch.autograd.Function`s: their forward runs unrecorded, their backward is the rule.

No function mode sees `apply`, so it is replaced while a tape is on, for the tape's own thread only. So is the call of a
scripted function, which can only be refused, and `Tensor.backward`, which would not take `show=True`.
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

from torcheer.autograd.tape.kept_arguments import HIDDEN
from torcheer.autograd.tape.multiple_outputs import record_joint
from torcheer.autograd.tape.nodes import CHANGED, FLOATS, is_traced, node_of
from torcheer.capture.record.tensor_trees import leaves
from torcheer.errors import MissingRule, NotTraced, RuleMistake, SavedValueChanged

_original = Function.__dict__["apply"]
_script_call = torch._C.ScriptFunction.__call__
_tensor_backward = Tensor.backward
_tapes: dict[int, list[Any]] = {}  # thread -> its tapes, innermost last
_lock = threading.Lock()


def start(tape: Any) -> None:
    """Let a tape see the custom functions of this thread."""
    with _lock:
        _tapes.setdefault(threading.get_ident(), []).append(tape)
        Function.apply = classmethod(_apply)  # type: ignore[method-assign, assignment]
        torch._C.ScriptFunction.__call__ = _scripted  # type: ignore[method-assign, assignment]
        Tensor.backward = showing_backward  # type: ignore[method-assign, assignment]


def stop(tape: Any) -> None:
    """Undo `start`; with the last tape torch is as it was found."""
    with _lock:
        for thread, tapes in list(_tapes.items()):
            if tape in tapes:
                tapes.remove(tape)
            if not tapes:
                del _tapes[thread]
        if not _tapes:
            Function.apply = _original  # type: ignore[method-assign]
            torch._C.ScriptFunction.__call__ = _script_call  # type: ignore[method-assign]
            Tensor.backward = _tensor_backward  # type: ignore[method-assign]


def _apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    tapes = _tapes.get(threading.get_ident())
    traced = tapes and torch.is_grad_enabled() and any(is_traced(tensor) for tensor in leaves((args, kwargs)))
    if not traced or not tapes:
        return _original.__get__(None, cls)(*args, **kwargs)
    return run_function(tapes[-1], cls, args, kwargs, sys._getframe(1))


@wraps(_tensor_backward)
def showing_backward(tensor: Tensor, *args: Any, **kwargs: Any) -> None:
    """The same, and in a thread with a tape `show=True` and `expand=True` print it."""
    if threading.get_ident() not in _tapes or not kwargs.keys() & {"show", "expand"}:
        _tensor_backward(tensor, *args, **kwargs)
        return
    from torcheer.autograd.backward.derivatives import backward  # it needs the tape

    given = dict(zip(("gradient", "retain_graph", "create_graph", "inputs"), args, strict=False))
    backward(tensor, **given, **kwargs)


def _scripted(function: Any, *args: Any, **kwargs: Any) -> Any:
    """TorchScript runs where no recorder can look."""
    if threading.get_ident() in _tapes and torch.is_grad_enabled():
        if any(is_traced(tensor) for tensor in leaves((args, kwargs))):
            raise NotTraced(f"{function.name}: {HIDDEN}")
    return _script_call(function, *args, **kwargs)


class Context:
    """What a custom function's forward and backward share."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._saved: list[Any] = []
        self._versions: list[int] = []  # torch's counts of writes to them
        self._places: list[int | None] = []  # of each saved tensor: which result it is, None for anything else
        self._nodes: list[Any] = []  # weak references to the results' nodes
        self.needs_input_grad: tuple[bool, ...] = ()
        self.materialize = True
        self.flat: set[int] = set()  # ids of results without a gradient

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for backward."""
        self._saved = list(tensors)

    def settle(self, results: list[Any]) -> None:
        """Keep results under another name: they hold their nodes, which hold this."""
        found = [next((n for n, r in enumerate(results) if r is one and one is not None), None) for one in self._saved]
        self._places = found
        self._saved = [one if place is None else one.detach() for one, place in zip(self._saved, found)]
        self._versions = [one._version if isinstance(one, Tensor) else 0 for one in self._saved]
        self._nodes = [None if (node := node_of(one)) is None else weakref.ref(node) for one in results]

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was kept, each with its past, for gradients of gradients."""
        for one, version in zip(self._saved, self._versions):
            if isinstance(one, Tensor) and one._version != version:
                raise SavedValueChanged(CHANGED.format(self.name, tuple(one.shape)))
        return tuple([self._with_past(one, place) for one, place in zip(self._saved, self._places)])

    def _with_past(self, tensor: Any, place: int | None) -> Any:
        node = None if place is None or self._nodes[place] is None else self._nodes[place]()
        if node is not None:
            tensor = tensor.detach()
            tensor._torcheer = node
        return tensor

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Results without a gradient."""
        self.flat = {id(one) for one in tensors}

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Arguments that were written to."""
        raise MissingRule("a custom Function that writes to its arguments (mark_dirty) cannot be recorded")

    def set_materialize_grads(self, value: bool) -> None:
        """Whether missing gradients arrive as zeros."""
        self.materialize = value


def run_function(tape: Any, cls: Any, args: Any, kwargs: Any, frame: Any) -> Any:
    """Run a custom function, and leave a node at each of its results."""
    ctx = Context(cls.__name__)
    ctx.needs_input_grad = tuple(isinstance(arg, Tensor) and is_traced(arg) for arg in args)
    with torch.no_grad(), tape.on():
        if cls.setup_context is not Function.setup_context:
            out = cls.forward(*args, **kwargs)
            cls.setup_context(ctx, args, out)
        else:
            out = cls.forward(ctx, *args, **kwargs)
    made = as_list(out)
    results = [one.detach() if any(one is arg for arg in args) else one for one in made]
    wanted = [
        result if isinstance(result, Tensor) and result.dtype in FLOATS and id(one) not in ctx.flat else None
        for one, result in zip(made, results)
    ]
    if any(one is not None for one in wanted):
        record_joint(tape, cls.__name__, _rule(tape, cls, ctx, results), wanted, args, frame)
    ctx.settle(results)
    return tuple(results) if isinstance(out, (tuple, list)) else results[0]


def as_list(out: Any) -> list[Any]:
    """What a function returned, one thing or several."""
    return list(out) if isinstance(out, (tuple, list)) else [out]


def _rule(tape: Any, cls: Any, ctx: Context, results: list[Any]) -> Any:
    shapes = [(one.shape, one.dtype, one.device) if isinstance(one, Tensor) else None for one in results]

    def custom(gradients: list[Any], *args: Any) -> tuple[Any, ...]:
        if ctx.materialize:
            gradients = [
                torch.zeros(made[0], dtype=made[1], device=made[2]) if one is None and made is not None else one
                for one, made in zip(gradients, shapes)
            ]
        with torch._C._EnableTorchFunction(), tape.on():  # a checkpoint runs its forward again in here, and goes back
            found = as_list(cls.backward(ctx, *gradients))
        if len(found) < len(args) or any(one is not None for one in found[len(args) :]):
            raise RuleMistake(f"{cls.__name__}.backward returned {len(found)} gradients for {len(args)} arguments")
        return tuple(found[: len(args)])

    custom.__doc__ = cls.backward.__doc__ or "The user's own backward."
    return custom
