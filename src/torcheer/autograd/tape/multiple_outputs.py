"""Operations with several results: one node for the operation, and one for each result that hands its gradient in."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import Rule, Shape
from torcheer.autograd.tape.nodes import Node, node_of

if TYPE_CHECKING:
    from torcheer.autograd.tape.tape import Tape


class Bundle:
    """The gradients of several results, on their way to the operation that made them."""

    shape, dtype, _base = torch.Size([0]), torch.float32, None  # what the operation's own node says of itself

    def __init__(self, parts: dict[int, Tensor]) -> None:
        self.parts = parts

    def __add__(self, other: Bundle) -> Bundle:
        both = self.parts.keys() & other.parts.keys()
        return Bundle(
            {**self.parts, **other.parts, **{place: self.parts[place] + other.parts[place] for place in both}}
        )


Joint = Callable[..., tuple[Any, ...]]  # (gradient of each result, None where none came; arguments) -> gradients


def record_joint(
    tape: Tape, name: str, rule: Joint, results: list[Any], args: Any, frame: FrameType, borrowed: bool = False
) -> None:
    """Leave nodes at `results`, some of which may be None for "no gradient here"; `rule` is asked once for all."""
    there = [place for place, one in enumerate(results) if one is not None]
    if len(there) == 1:
        alone = _alone(rule, there[0], len(results))
        tape.record(Rule(name, alone, borrowed), lambda *_: results[there[0]], args, {}, frame)
        _let_go(node_of(results[there[0]]))
        return
    stand_in = torch.empty(0, dtype=torch.float32)
    tape.record(Rule(name, _together(rule, len(results)), borrowed), lambda *_: stand_in, args, {}, frame)
    made = node_of(stand_in)
    if made is None:
        return
    _let_go(made)
    for place in there:
        node = Node(Rule(f"{name}[{place}]", _handing_in(place)), None, [made], {}, [], results[place])
        node.scope, node.site = made.scope, made.site
        results[place]._torcheer = node


def _let_go(node: Node | None) -> None:
    if node is not None:
        node.function = None  # it would hold the result, which holds the node


def _alone(rule: Joint, place: int, count: int) -> Any:
    def alone(g: Tensor, *args: Any) -> Any:
        return rule([g if one == place else None for one in range(count)], *args)

    alone.__doc__ = rule.__doc__
    return alone


def _together(rule: Joint, count: int) -> Any:
    def together(g: Bundle, *args: Any) -> Any:
        return rule([g.parts.get(place) for place in range(count)], *args)

    together.__doc__ = rule.__doc__
    return together


def _handing_in(place: int) -> Any:
    def hand_in(g: Tensor, made: Shape) -> Any:
        r"""$\bar x_i = \bar y$: one of several results, whose gradient is handed in with the others'."""
        return lambda: Bundle({place: g})

    return hand_in
