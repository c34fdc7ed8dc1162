"""A user's function is asked about every item: it changes what it likes, and skips what it will not see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from torcheer.drawing.items.item import FLOWS, Item, Net, carried
from torcheer.drawing.looks.style import Style


class Node(NamedTuple):
    """What a user's function is asked about."""

    name: str  # "conv1", "" for a function
    address: str  # "layer1.0.conv1"
    kind: str  # "Conv2d", "relu"
    look: str  # "module", "op", "input", …
    family: str  # "conv", "linear", "norm", …
    labels: tuple[str, ...]  # the names in the history, "conv2d_3_7"
    shapes: tuple[tuple[int, ...], ...]
    parameters: int


def restyled(items: list[Item], style: Style, labels: Callable[[Item], tuple[str, ...]]) -> list[Item]:
    """Ask the user's function about every item; what it skips is bridged. `labels` are an item's names."""
    assert style.node is not None
    skipped: set[int] = set()
    for item in items:
        answer = style.ask(node_of(item, labels(item)))
        if answer is False:
            skipped.add(item.number)
        elif answer:
            for key, value in answer.items():
                setattr(item, "name" if key == "title" else key, value)
    if not skipped:
        return items
    kept = [item for item in items if item.number not in skipped]
    number = {item.number: position for position, item in enumerate(kept)}
    for item in kept:
        bridged = dict.fromkeys(
            (net, name) for parent, name in item.parents for net in _behind(items, parent, skipped, set())
        )
        item.parents = [((number[net[0]], net[1]), name) for net, name in bridged]
    for position, item in enumerate(kept):
        item.number, item.pair = position, number.get(item.pair, -1)
    return kept


def node_of(item: Item, labels: tuple[str, ...]) -> Node:
    """An item as a user's function sees it."""
    around = ".".join(part for part in (item.path[-1].address if item.path else "", item.name) if part)
    count = sum(one.count for one in item.stored if one.kind == "parameter")
    return Node(item.name, around, item.kind, item.look, item.family, labels, item.shapes, count)


def _behind(items: list[Item], net: Net, skipped: set[int], seen: set[int]) -> Iterator[Net]:
    """The nearest results that are drawn, seen through skipped items."""
    stack = [net]
    while stack:
        net = stack.pop()
        if net[0] not in skipped:
            yield net
        elif net[0] not in seen:
            seen.add(net[0])
            kind = max(carried(items, net), FLOWS)  # values are bridged to values, gradients to gradients
            stack.extend(one for one, _ in reversed(items[net[0]].parents) if max(carried(items, one), FLOWS) == kind)
