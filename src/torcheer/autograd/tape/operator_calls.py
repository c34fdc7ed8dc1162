"""One call of an operator that brings its own backward: forward runs unseen, and one node is left for all of it."""

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
from torcheer.capture.record.tensor_trees import leaves, replace
from torcheer.errors import MissingRule, RuleMistake

if TYPE_CHECKING:
    from torcheer.autograd.base import Operator


def run_whole(operator: Operator, forward: Any, args: Any, kwargs: Any) -> Any:
    """Run `forward` on plain tensors, and leave a node whose rule is the operator's backward."""
    call = Call(operator, forward, len(args), tuple(kwargs))
    call.asked = [any(map(is_traced, leaves(one))) for one in (*args, *kwargs.values())]
    rule = copy(_pattern)
    rule.name, rule.function = str(operator), call.backward
    rule.formula, rule.why = parse(operator.backward.__doc__ or "")
    return current().record(rule, call.forward, (*args, *kwargs.values(), *call.weights), {}, sys._getframe(2))


class Call:
    """What forward left on the operator, kept until backward asks: an operator may be used many times in between."""

    def __init__(self, operator: Operator, body: Any, places: int, names: tuple[str, ...]) -> None:
        self.operator, self.body, self.places, self.names = operator, body, places, names
        self.count = places + len(names)  # arguments of the call; the weights follow them
        self.weights = list(operator.parameters())
        self.asked: list[bool] = []  # of each argument: whether a gradient may come to it
        self.given: list[Any] = []
        self.out: Any = None
        self.left: dict[str, Any] = {}  # attributes that forward set

    def forward(self, *everything: Any) -> Tensor:
        """Run the operator's own code where no tape sees it."""
        with unrecorded():
            self.given = [_plainly(one) for one in everything[: self.count]]
            before = dict(vars(self.operator))
            named = dict(zip(self.names, self.given[self.places :]))
            out = self.out = self.body(*self.given[: self.places], **named)
            if not isinstance(out, Tensor):
                raise RuleMistake(
                    f"{self.operator} brings its own backward, so it returns one tensor; it returned "
                    f"{type(out).__name__}. Make it two operators, or leave backward away: then it is traced"
                )
            self.left = {name: one for name, one in vars(self.operator).items() if before.get(name, before) is not one}
            # As a tensor of its own: the node hangs on it.
            return out.clone() if any(out is one for one in self.given) else out.detach()

    def backward(self, g: Tensor, y: Tensor, *values: Any) -> tuple[Any, ...]:
        """Ask the operator, with everything on it as this call had left it."""
        with self._remembered(y, values), self._weighed() as found:
            sent = self.operator.backward(g.clone())  # it may write to what it is given
        sent = tuple(sent) if isinstance(sent, (tuple, list)) else (sent,)
        self._check(sent)
        return (*sent, *[None] * (self.count - len(sent)), *found)

    @contextmanager
    def _remembered(self, y: Tensor, values: Any) -> Iterator[None]:
        from torcheer.autograd.base import Input

        state = vars(self.operator)
        before = dict(state)
        then = {name: self._now(name, one, y, values) for name, one in self.left.items()}
        fathers = [Input(one) for one in values[: self.count]]
        then |= {"_out_x": y, "_father": fathers[0] if fathers else Input(), "_fathers": fathers}
        state.update(then)
        try:
            yield
        finally:
            for name, one in then.items():
                if state.get(name) is not one:
                    continue  # backward itself has changed it
                if name in before:
                    state[name] = before[name]
                else:
                    del state[name]

    def _now(self, name: str, kept: Any, y: Tensor, values: Any) -> Any:
        """What forward kept; where that is an argument or the result, as the tape has it: it may have a past."""
        tensors = leaves(kept)
        if not tensors:
            return kept
        known = [(self.out, y), *zip(self.given, values)]
        found = [next((now for then, now in known if then is one), None) for one in tensors]
        for one, now in zip(tensors, found):
            if now is None and one.dtype in FLOATS and torch.is_grad_enabled():
                raise MissingRule(
                    f"{self.operator} cannot be differentiated twice: its forward keeps self.{name}, which was "
                    f"computed unseen. Keep arguments or the result and compute the rest in backward, or write none"
                )
        return replace(kept, iter([one if now is None else now for one, now in zip(tensors, found)]))

    @contextmanager
    def _weighed(self) -> Iterator[list[Any]]:
        """What backward assigns to `.grad` of a weight is its gradient from this call; the engine adds it up."""
        before = [weight.grad for weight in self.weights]
        found: list[Any] = []
        try:
            for weight in self.weights:
                weight.grad = None
            yield found
            found += [weight.grad for weight in self.weights]
        finally:
            for weight, one in zip(self.weights, before):
                weight.grad = one

    def _check(self, sent: tuple[Any, ...]) -> None:
        if len(sent) > self.count or any(self.asked[len(sent) :]):
            raise RuleMistake(f"backward of {self.operator} returned {len(sent)} gradients for {self.count} arguments")
        for place, (gradient, arg) in enumerate(zip(sent, self.given)):
            if isinstance(gradient, Tensor) and not isinstance(arg, (Tensor, list, tuple)):
                raise RuleMistake(
                    f"backward of {self.operator} returned a gradient for argument {place}, which is no tensor but "
                    f"{type(arg).__name__}: return one per argument, None where there is none"
                )


def _plainly(value: Any) -> Any:
    """The same with tensors of torch's own kind that have no past."""
    return replace(value, iter([one.detach() for one in leaves(value)]))


_pattern = Rule("", lambda g, y, *values: None)
