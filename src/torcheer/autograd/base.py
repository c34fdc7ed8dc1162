"""`Operator`: an operation as a class, with a forward and optionally its own backward.

class Double(Operator):
    def forward(self, x):
        return 2 * x

    def backward(self, grad):
        r\"\"\"$\\bar x = 2\\,\\bar y$: the slope of doubling is two.\"\"\"
        return 2 * grad
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

import torch
from numpy import ndarray
from torch import Tensor, ones_like, zeros_like
from torch.nn import Module

from torcheer.autograd.tape.nodes import node_of
from torcheer.autograd.tape.operator_calls import run_as_one_node
from torcheer.autograd.tape.tape import current
from torcheer.autograd.tape.torch_grad_off import unrecorded
from torcheer.autograd.tape.traced_tensor import as_plain, tracer
from torcheer.errors import BadArgument, NotTraced

Function = Callable[..., Any]
Tracer = tracer  # torchtrace's base of it
__all__ = ["Back", "End", "Input", "Operator", "Pass", "Tracer", "ones_like", "zeros_like"]


def Pass(call: Function) -> Function:
    """Decorate `__call__` of an operator: its body is the forward."""

    @wraps(call)
    def traced(self: Operator, *args: Any, **kwargs: Any) -> Any:
        return self._run(call.__get__(self), args, kwargs)

    return traced


def End(call: Function) -> Function:
    """Decorate `__call__` of a loss.

    Here a loss is an operator like any other, and may be followed by more; `is_leaf()` is True for its result.
    """

    @wraps(call)
    def traced(self: Operator, *args: Any, **kwargs: Any) -> Any:
        return self._run(call.__get__(self), args, kwargs).end()

    return traced


def Back(backward: Function) -> Function:
    """Decorate `backward(self, grad, show=False)`, which returns the input's gradient.

    In it `self._father.getOutput()` is the input and `self._out_x` the output of that call, and what it assigns to
    `.grad` of a weight is added to the weight's gradient. The engine calls it: it need not call other operators; one
    that returns nothing and calls `self._father.backward(gradient)` does the same.
    """
    return backward


class Operator:
    """An operation as a class, with a `forward(x, …)`.

    With `backward(grad)` it is one step; without, its parts are traced.
    """

    Pass, End, Back = staticmethod(Pass), staticmethod(End), staticmethod(Back)

    _name: str = ""  # printed instead of the class name
    training: bool = True
    ends_chain: bool = False  # a loss: what it returns is where backward starts
    backward: Any = None
    _last_output: Any = None
    _father: Any = None
    _son: Any = None
    _out_x: Any

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the operator's result."""
        raise NotImplementedError(f"{type(self).__name__} needs a forward(self, x), or a __call__ under Operator.Pass")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self.forward, args, kwargs)

    def _run(self, forward: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args = tuple([tracer(arg) if isinstance(arg, ndarray) else arg for arg in args])
        if not torch.is_grad_enabled():
            return tracer.wrap(forward(*args, **kwargs))
        if self.backward is not None:
            forward, args, kwargs = run_as_one_node, (self, forward, args, kwargs), {}
        out = tracer.wrap(current().inside(repr(self), forward, args, kwargs, owner=self))
        if isinstance(out, tracer):
            out.store(self)
            self._last_output = as_plain(out) if self.training else None
        return out

    # Printing

    def set_name(self, name: str) -> Operator:
        """Set the name to print."""
        self._name = name
        return self

    def line(self, output_shape: torch.Size, input_shape: torch.Size) -> str:
        """Return its line in `backward(show=True)`, from the shapes of its gradients."""
        return str(self)

    def __str__(self) -> str:
        return self._name or f"{type(self).__name__}()"

    def __repr__(self) -> str:
        return str(self)

    # Weights

    def parts(self) -> Iterable[Any]:
        """Return the operators among its attributes, and in lists and dicts there."""
        return _operators(vars(self).values())

    def parameters(self) -> Iterator[Any]:
        """Yield every weight once, its own before those of its parts."""
        weights: dict[int, Any] = {id(value): value for value in vars(self).values() if _is_weight(value)}
        for part in self.parts():
            weights |= {id(weight): weight for weight in part.parameters() if id(weight) not in weights}
        yield from (weight for weight in weights.values() if weight is not None)

    def seq_list(self) -> list[Any]:
        """Return the weights, in order, for `save` and `load_seq_list`; `copy.deepcopy` keeps their numbers."""
        return list(self.parameters())

    def load_seq_list(self, seq_list: Iterable[Any]) -> Operator:
        """Copy the weights from a list as `seq_list()` returns it."""
        weights, values = list(self.parameters()), [torch.as_tensor(value) for value in seq_list]
        if len(weights) != len(values):
            raise BadArgument(
                f"load_seq_list: {len(values)} tensors for {len(weights)} weights; is the list of this model?"
            )
        for place, (weight, value) in enumerate(zip(weights, values)):
            if weight.shape != value.shape:
                raise BadArgument(
                    f"load_seq_list: tensor {place} has shape {tuple(value.shape)}, its weight {tuple(weight.shape)}; "
                    f"is the list of this model, and in its order?"
                )
        with unrecorded():
            for weight, value in zip(weights, values):
                weight.copy_(value)
        return self

    def zero_grad(self) -> None:
        """Set all gradients to None."""
        for weight in self.parameters():
            weight.grad = None

    def to(self, *args: Any, **kwargs: Any) -> Operator:
        """Move or convert the weights and their gradients, with the arguments of `Tensor.to`."""
        with unrecorded():
            for weight in self.parameters():
                grad, weight.grad = weight.grad, None
                weight.data = weight.data.to(*args, **kwargs)
                weight.grad = None if grad is None else grad.to(*args, **kwargs)
        return self

    def train(self, training: bool = True) -> Operator:
        """Switch to training mode, or out of it with False."""
        self.training, self._last_output = training, None
        for part in self.parts():
            part.train(training)
        return self

    def eval(self) -> Operator:
        """Switch to evaluation mode."""
        return self.train(False)

    # The chain

    def getOutput(self) -> Any:
        """Return the output of the last call, without its past; inside `backward`, that of the call it belongs to."""
        if "_out_x" in vars(self):
            return self._out_x
        if not self.training:
            raise NotTraced(f"{self} is in evaluation mode, where no output is kept; call train() before the pass")
        return self._last_output

    def connect(self, father: Operator) -> None:
        """Set the operator before this one; backward does not need it."""
        self._father = father
        father.branch(self)

    def branch(self, son: Operator) -> None:
        """Set the operator after this one."""
        self._son = son

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_last_output"}


class Input(Operator):
    """The start of a chain: holds the input of an operator.

    - `value`: the input; it may be set later.
    """

    _name = "Input"

    def __init__(self, value: Any = None) -> None:
        self._out_x = value

    def forward(self, x: Any) -> Any:
        """Return `x`, as a tensor."""
        return x if isinstance(x, Tensor) else tracer(x)


def __getattr__(name: str) -> Any:
    """Find the names that torchtrace has in this module, and others here."""
    if name in ("Gather_last", "View", "Sum"):
        from torcheer.autograd import nn

        return getattr(nn, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _operators(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (Operator, Module)):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _operators(value)
        elif isinstance(value, dict):
            yield from _operators(value.values())


def _is_weight(value: Any) -> bool:
    """True for a leaf that requires a gradient.

    A frozen weight counts by its name, so the order stays the same.
    """
    if not isinstance(value, Tensor) or node_of(value) is not None:
        return False
    return value.requires_grad or bool(getattr(value, "name", ""))
