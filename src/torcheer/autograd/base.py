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
from torch import Tensor
from torch.nn import Module

from torcheer.autograd.tape.nodes import node_of
from torcheer.autograd.tape.operator_calls import run_as_one_node
from torcheer.autograd.tape.tape import current
from torcheer.autograd.tape.torch_grad_off import unrecorded
from torcheer.autograd.tape.traced_tensor import tracer
from torcheer.errors import BadArgument

Function = Callable[..., Any]


def Pass(call: Function) -> Function:
    """Decorate `__call__` of an operator: its body is the forward."""

    @wraps(call)
    def traced(self: Operator, *args: Any, **kwargs: Any) -> Any:
        return self._run(call.__get__(self), args, kwargs)

    return traced


def End(call: Function) -> Function:
    """Decorate `__call__` of a loss.

    Here a loss is an operator like any other, and may be followed by more.
    """
    return Pass(call)


def Back(backward: Function) -> Function:
    """Decorate `backward(self, grad, show=False)`, which returns the input's gradient.

    In it `self._father.getOutput()` is the input and `self._out_x` the output of that call, and what it assigns to
    `.grad` of a weight is added to the weight's gradient. The engine calls it: it need not call other operators.
    """
    return backward


class Operator:
    """An operation as a class, with a `forward(x, …)`.

    With `backward(grad)` it is one step; without, its parts are traced.
    """

    Pass, End, Back = staticmethod(Pass), staticmethod(End), staticmethod(Back)

    _name: str = ""  # printed instead of the class name
    training: bool = True
    backward: Any = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the operator's result."""
        raise NotImplementedError(f"{type(self).__name__} needs a forward(self, x), or a __call__ under Operator.Pass")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self.forward, args, kwargs)

    def _run(self, forward: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not torch.is_grad_enabled():
            return tracer.wrap(forward(*args, **kwargs))
        if self.backward is None:
            return tracer.wrap(current().inside(str(self), forward, args, kwargs, owner=self))
        return tracer.wrap(current().inside(str(self), run_as_one_node, (self, forward, args, kwargs), {}, owner=self))

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

    __repr__ = __str__

    # Weights

    def parts(self) -> Iterable[Any]:
        """Return the operators among its attributes, and in lists and dicts there."""
        return _operators(vars(self).values())

    def parameters(self) -> Iterator[Any]:
        """Yield every weight once, its own before those of its parts."""
        weights: dict[int, Any] = {id(value): value for value in vars(self).values() if _is_weight(value)}
        for part in self.parts():
            weights |= {id(weight): weight for weight in part.parameters() if id(weight) not in weights}
        yield from weights.values()

    def seq_list(self) -> list[Tensor]:
        """Return a copy of every weight, in order, for `save` and `load_seq_list`."""
        with unrecorded():
            return [weight.detach().clone() for weight in self.parameters()]

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
        self.training = training
        for part in self.parts():
            part.train(training)
        return self

    def eval(self) -> Operator:
        """Switch to evaluation mode."""
        return self.train(False)

    def getOutput(self) -> Any:
        """Return the output of the call; for use inside `backward`."""
        return getattr(self, "_out_x", None)


class Input(Operator):
    """The start of a chain: holds the input of an operator.

    - `value`: the input; it may be set later.
    """

    _name = "Input"

    def __init__(self, value: Any = None) -> None:
        self._out_x = value

    def forward(self, x: Any) -> Any:
        """Return `x` unchanged."""
        return x


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
