"""Operations with several results.

One joint node for the operation, and a node per result that passes its gradient to the joint one.
"""

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
    """The gradients of several results of one operation, by the index of the result."""

    shape, dtype, _base = torch.Size([0]), torch.float32, None  # as reported by the joint node

    def __init__(self, parts: dict[int, Tensor]) -> None:
        self.parts = parts

    def __add__(self, other: Bundle) -> Bundle:
        common = self.parts.keys() & other.parts.keys()
        return Bundle(
            {**self.parts, **other.parts, **{place: self.parts[place] + other.parts[place] for place in common}}
        )


JointRule = Callable[
    ..., tuple[Any, ...]
]  # (gradient of each result, None where there is none; arguments) -> gradients


def record_joint(
    tape: Tape, name: str, rule: JointRule, results: list[Any], args: Any, frame: FrameType, borrowed: bool = False
) -> None:
    """Record nodes for `results`, None for those without a gradient.

    `rule` is called once for all of them.
    """
    places = [place for place, result in enumerate(results) if result is not None]
    if len(places) == 1:
        single = _single_rule(rule, places[0], len(results))
        tape.record(Rule(name, single, borrowed), lambda *_: results[places[0]], args, {}, frame)
        _drop_function(node_of(results[places[0]]))
        return
    placeholder = torch.empty(0, dtype=torch.float32)
    tape.record(Rule(name, _joint_rule(rule, len(results)), borrowed), lambda *_: placeholder, args, {}, frame)
    joint = node_of(placeholder)
    if joint is None:
        return
    _drop_function(joint)
    for place in places:
        node = Node(Rule(f"{name}[{place}]", _part_rule(place)), None, [joint], {}, [], results[place])
        node.scope, node.site = joint.scope, joint.site
        results[place]._torcheer = node


def _drop_function(node: Node | None) -> None:
    if node is not None:
        node.function = None  # its closure holds the result, which holds the node


def _single_rule(rule: JointRule, place: int, count: int) -> Any:
    def single(g: Tensor, *args: Any) -> Any:
        return rule([g if index == place else None for index in range(count)], *args)

    single.__doc__ = rule.__doc__
    return single


def _joint_rule(rule: JointRule, count: int) -> Any:
    def joint(g: Bundle, *args: Any) -> Any:
        return rule([g.parts.get(place) for place in range(count)], *args)

    joint.__doc__ = rule.__doc__
    return joint


def _part_rule(place: int) -> Any:
    def part(g: Tensor, joint: Shape) -> Any:
        r"""$\bar x_i = \bar y$: one of several results, whose gradient is passed on with the others'."""
        return lambda: Bundle({place: g})

    return part
