"""Apply the user's style function to every item, to change its look or skip it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from torcheer.drawing.items.item import FLOWS, Item, net_kind
from torcheer.drawing.looks.style import Style
from torcheer.network.fold import Net


class StyleNode(NamedTuple):
    """An item as the user's style function receives it."""

    name: str  # "conv1", "" for a function
    address: str  # "layer1.0.conv1"
    kind: str  # "Conv2d", "relu"
    look: str  # "module", "op", "input", …
    family: str  # "conv", "linear", "norm", …
    labels: tuple[str, ...]  # the names in the history, "conv2d_3_7"
    shapes: tuple[tuple[int, ...], ...]
    parameters: int


def restyle(items: list[Item], style: Style, labels: Callable[[Item], tuple[str, ...]]) -> list[Item]:
    """Apply the user's function to every item and bridge the skipped ones.

    `labels` returns an item's labels.
    """
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
            (net, name) for parent, name in item.parents for net in _drawn_sources(items, parent, skipped, set())
        )
        item.parents = [((number[net[0]], net[1]), name) for net, name in bridged]
    for position, item in enumerate(kept):
        item.number, item.pair = position, number.get(item.pair, -1)
    return kept


def node_of(item: Item, labels: tuple[str, ...]) -> StyleNode:
    """Return what the user's function receives for an item."""
    around = ".".join(part for part in (item.path[-1].address if item.path else "", item.name) if part)
    count = sum(entry.count for entry in item.stored if entry.kind == "parameter")
    return StyleNode(item.name, around, item.kind, item.look, item.family, labels, item.shapes, count)


def _drawn_sources(items: list[Item], net: Net, skipped: set[int], visited: set[int]) -> Iterator[Net]:
    """Yield the nearest results of drawn items, upstream of skipped ones."""
    stack = [net]
    while stack:
        net = stack.pop()
        if net[0] not in skipped:
            yield net
        elif net[0] not in visited:
            visited.add(net[0])
            kind = max(net_kind(items, net), FLOWS)  # values are bridged to values, gradients to gradients
            sources = [source for source, _ in reversed(items[net[0]].parents)]
            stack.extend(source for source in sources if max(net_kind(items, source), FLOWS) == kind)
