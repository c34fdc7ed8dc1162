"""`Operator`: an operation written as a class, with a forward and, if it likes, a backward of its own.

class Double(Operator):
    def forward(self, x):
        return 2 * x

    def backward(self, grad):
        r\"\"\"$\\bar x = 2\\,\\bar y$: twice as much out, twice as much back.\"\"\"
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
from torcheer.autograd.tape.operator_calls import run_whole
from torcheer.autograd.tape.tape import current
from torcheer.autograd.tape.torch_grad_off import unrecorded
from torcheer.autograd.tape.traced_tensor import tracer
from torcheer.errors import BadArgument

Function = Callable[..., Any]


def Pass(call: Function) -> Function:
    """Decorates `__call__` of an operator in the middle: what it computes is its forward."""

    @wraps(call)
    def traced(self: Operator, *args: Any, **kwargs: Any) -> Any:
        return self._run(call.__get__(self), args, kwargs)

    return traced


def End(call: Function) -> Function:
    """Decorates `__call__` of a loss. Here a loss is an operator like any other, and may be followed by more."""
    return Pass(call)


def Back(backward: Function) -> Function:
    """Decorates `backward(self, grad, show=False)`, which returns the gradient of what the operator was given.

    In it `self._father.getOutput()` is the input and `self._out_x` the output of the call in question, and what it
    assigns to `.grad` of a weight is added to what is there. The engine asks it: it need not call anyone itself.
    """
    return backward


class Operator:
    """An operation as a class: `forward(x, …)`; with `backward(grad)` it is one step, without, its parts are traced."""

    Pass, End, Back = staticmethod(Pass), staticmethod(End), staticmethod(Back)

    _name: str = ""  # what prints
    training: bool = True
    backward: Any = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the operator computes."""
        raise NotImplementedError(f"{type(self).__name__} needs a forward(self, x), or a __call__ under Operator.Pass")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self.forward, args, kwargs)

    def _run(self, forward: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not torch.is_grad_enabled():
            return tracer.wrap(forward(*args, **kwargs))
        if self.backward is None:
            return tracer.wrap(current().inside(str(self), forward, args, kwargs, thing=self))
        return tracer.wrap(current().inside(str(self), run_whole, (self, forward, args, kwargs), {}, thing=self))

    # How it prints

    def set_name(self, name: str) -> Operator:
        """Print under another name."""
        self._name = name
        return self

    def line(self, came: torch.Size, went: torch.Size) -> str:
        """Its line in `backward(show=True)`, given the shapes of the gradient at its result and at its input."""
        return str(self)

    def __str__(self) -> str:
        return self._name or f"{type(self).__name__}()"

    __repr__ = __str__

    # Its weights

    def parts(self) -> Iterable[Any]:
        """The operators it is made of: those among its attributes, and in lists there."""
        return _operators(vars(self).values())

    def parameters(self) -> Iterator[Any]:
        """Every weight once, its own before those of its parts."""
        found: dict[int, Any] = {id(one): one for one in vars(self).values() if _is_weight(one)}
        for part in self.parts():
            found |= {id(one): one for one in part.parameters() if id(one) not in found}
        yield from found.values()

    def seq_list(self) -> list[Tensor]:
        """A copy of every weight, in order: what `save` writes and `load_seq_list` takes."""
        with unrecorded():
            return [weight.detach().clone() for weight in self.parameters()]

    def load_seq_list(self, seq_list: Iterable[Any]) -> Operator:
        """Take the weights of a list such as `seq_list()` returns."""
        weights, given = list(self.parameters()), [torch.as_tensor(one) for one in seq_list]
        if len(weights) != len(given):
            raise BadArgument(
                f"load_seq_list: {len(given)} tensors for {len(weights)} weights; is the list of this model?"
            )
        for place, (weight, one) in enumerate(zip(weights, given)):
            if weight.shape != one.shape:
                raise BadArgument(
                    f"load_seq_list: tensor {place} has shape {tuple(one.shape)}, its weight {tuple(weight.shape)}; "
                    f"is the list of this model, and in its order?"
                )
        with unrecorded():
            for weight, one in zip(weights, given):
                weight.copy_(one)
        return self

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for weight in self.parameters():
            weight.grad = None

    def to(self, *where: Any, **how: Any) -> Operator:
        """Move or convert the weights, as torch's `Tensor.to` does."""
        with unrecorded():
            for weight in self.parameters():
                grad, weight.grad = weight.grad, None
                weight.data = weight.data.to(*where, **how)
                weight.grad = None if grad is None else grad.to(*where, **how)
        return self

    def train(self, training: bool = True) -> Operator:
        """Behave as in training."""
        self.training = training
        for part in self.parts():
            part.train(training)
        return self

    def eval(self) -> Operator:
        """Behave as in use."""
        return self.train(False)

    def getOutput(self) -> Any:
        """Its output; asked inside `backward`."""
        return getattr(self, "_out_x", None)


class Input(Operator):
    """Where a chain begins: it stands for what an operator was given."""

    _name = "Input"

    def __init__(self, value: Any = None) -> None:
        self._out_x = value

    def forward(self, x: Any) -> Any:
        """The same."""
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
    """Whether it asks for a gradient; a weight of ours that is frozen keeps its place, by its name."""
    if not isinstance(value, Tensor) or node_of(value) is not None:
        return False
    return value.requires_grad or bool(getattr(value, "name", ""))
