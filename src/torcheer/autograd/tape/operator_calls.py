"""Calls of an operator with its own backward: unrecorded, with one node for the call."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import Rule, parse
from torcheer.autograd.tape.nodes import FLOATS, is_traced
from torcheer.autograd.tape.tape import current
from torcheer.autograd.tape.torch_grad_off import unrecorded
from torcheer.autograd.tape.traced_tensor import tracer
from torcheer.capture.record.tensor_trees import leaves, replace
from torcheer.errors import MissingRule, RuleMistake

if TYPE_CHECKING:
    from torcheer.autograd.base import Operator


def run_as_one_node(operator: Operator, forward: Any, args: Any, kwargs: Any) -> Any:
    """Run `forward` on plain tensors, and record a node whose rule is the operator's backward."""
    call = OperatorCall(operator, forward, len(args), tuple(kwargs))
    call.needs_grad = [any(map(is_traced, leaves(arg))) for arg in (*args, *kwargs.values())]
    rule = copy(_template)
    rule.name, rule.function = repr(operator), call.backward
    rule.formula, rule.why = parse(operator.backward.__doc__ or "")
    return current().record(rule, call.forward, (*args, *kwargs.values(), *call.weights), {}, sys._getframe(2))


class OperatorCall:
    """One call: the attributes as forward left them, as other calls may run before backward."""

    def __init__(self, operator: Operator, body: Any, places: int, names: tuple[str, ...]) -> None:
        self.operator, self.body, self.places, self.names = operator, body, places, names
        self.count = places + len(names)  # arguments of the call; the weights follow them
        self.parameters = [weight for weight in operator.parameters() if weight is not None]
        self.weights = [_leaf_of(weight) for weight in self.parameters]
        self.needs_grad: list[bool] = []  # of each argument: whether it needs a gradient
        self.arguments: list[Any] = []
        self.out: Any = None
        self.attributes: dict[str, Any] = {}  # set by forward

    def forward(self, *values: Any) -> Tensor:
        """Run the operator's code unrecorded."""
        with unrecorded():
            self.arguments = [_detach(value) for value in values[: self.count]]
            before = dict(vars(self.operator))
            named = dict(zip(self.names, self.arguments[self.places :]))
            out = self.out = self.body(*self.arguments[: self.places], **named)
            if not isinstance(out, Tensor):
                raise RuleMistake(
                    f"{self.operator} brings its own backward, so it returns one tensor; it returned "
                    f"{type(out).__name__}. Make it two operators, or leave backward away: then it is traced"
                )
            after = vars(self.operator).items()
            self.attributes = {name: value for name, value in after if before.get(name, before) is not value}
            # A new tensor object: the node is attached to it.
            return out.clone() if any(out is argument for argument in self.arguments) else out.detach()

    def backward(self, g: Tensor, y: Tensor, *values: Any) -> tuple[Any, ...]:
        """OperatorCall the operator's backward with its attributes as this call had left them."""
        with self._restored_attributes(y, values), self._weight_grads() as weight_grads:
            sent = self.operator.backward(g.clone())  # backward may write to its argument
            if sent is None and isinstance(father := vars(self.operator).get("_father"), Father):
                sent = father.gradient
        sent = tuple(sent) if isinstance(sent, (tuple, list)) else (sent,)
        self._check(sent)
        return (*sent, *[None] * (self.count - len(sent)), *weight_grads)

    @contextmanager
    def _restored_attributes(self, y: Tensor, values: Any) -> Iterator[None]:
        state = vars(self.operator)
        before = dict(state)
        restored = {name: self._tape_value(name, value, y, values) for name, value in self.attributes.items()}
        fathers = [Father(value) for value in values[: self.count]]
        restored |= {"_out_x": y, "_father": fathers[0] if fathers else Father(None), "_fathers": fathers}
        state.update(restored)
        try:
            yield
        finally:
            for name, value in restored.items():
                if state.get(name) is not value:
                    continue  # changed by backward itself
                if name in before:
                    state[name] = before[name]
                else:
                    del state[name]

    def _tape_value(self, name: str, value: Any, y: Tensor, values: Any) -> Any:
        """Return an attribute that forward set, its tensors replaced by the tape's."""
        tensors = leaves(value)
        if not tensors:
            return value
        pairs = [(self.out, y), *zip(self.arguments, values)]  # as forward saw it, as the tape has it
        matches = [next((taped for seen, taped in pairs if seen is tensor), None) for tensor in tensors]
        for tensor, match in zip(tensors, matches):
            if match is None and tensor.dtype in FLOATS and torch.is_grad_enabled():
                raise MissingRule(
                    f"{self.operator} cannot be differentiated twice: its forward keeps self.{name}, which was "
                    f"computed unseen. Keep arguments or the result and compute the rest in backward, or write none"
                )
        replacements = [tensor if match is None else match for tensor, match in zip(tensors, matches)]
        return replace(value, iter(replacements))

    @contextmanager
    def _weight_grads(self) -> Iterator[list[Any]]:
        """Collect what backward assigns to `.grad` of the weights; the engine sums it over calls."""
        before = [weight.grad for weight in self.parameters]
        collected: list[Any] = []
        try:
            for weight in self.parameters:
                weight.grad = None
            yield collected
            collected += [weight.grad for weight in self.parameters]
        finally:
            for weight, gradient in zip(self.parameters, before):
                weight.grad = gradient
        for weight, leaf, gradient in zip(self.parameters, self.weights, collected):
            if leaf is not weight and gradient is not None:  # the engine reaches the leaf only
                weight.grad = gradient if weight.grad is None else weight.grad + gradient

    def _check(self, sent: tuple[Any, ...]) -> None:
        if len(sent) > self.count or any(self.needs_grad[len(sent) :]):
            raise RuleMistake(f"backward of {self.operator} returned {len(sent)} gradients for {self.count} arguments")
        for place, (gradient, arg) in enumerate(zip(sent, self.arguments)):
            if isinstance(gradient, Tensor) and not isinstance(arg, (Tensor, list, tuple)):
                raise RuleMistake(
                    f"backward of {self.operator} returned a gradient for argument {place}, which is no tensor but "
                    f"{type(arg).__name__}: return one per argument, None where there is none"
                )


class Father:
    """The input of a call, as its operator's `backward` sees it: `self._father`."""

    gradient: Any = None

    def __init__(self, value: Any) -> None:
        self._out_x = value

    def getOutput(self) -> Any:
        """Return the input."""
        return self._out_x

    def backward(self, grad: Any, show: bool = False) -> None:
        """Take the input's gradient, where `backward` hands it on and returns nothing."""
        self.gradient = grad


def _leaf_of(weight: Tensor) -> Tensor:
    """Return a weight, or for a plain tensor that asks for no gradient a leaf that does, with the same numbers."""
    if type(weight) is not Tensor or weight.requires_grad:
        return weight
    return tracer(weight, requires_grad=True)


def _detach(value: Any) -> Any:
    """Return the value with its tensors detached."""
    return replace(value, iter([tensor.detach() for tensor in leaves(value)]))


_template = Rule("", lambda g, y, *values: None)
