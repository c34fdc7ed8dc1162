"""From a history to things to draw: items with a face, in a tree of boxes, joined by nets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from torcheer.drawing.families import PLAIN_RESHAPES, family_of
from torcheer.drawing.style import Style
from torcheer.drawing.words import (
    PARAMETRISED,
    argument_names,
    body_text,
    parameter_text,
    shape_text,
)
from torcheer.history import ModelHistory
from torcheer.records import ModuleCall, Op, Stored

Net = tuple[int, int]  # an item and which of its results


class Face(NamedTuple):
    """All that is seen of an item or a folded box, but for its name: equal faces look the same."""

    look: str  # "module", "op", "pill", "merge", "input", "output", "parameter", "buffer", "stop"
    kind: str  # the class or function
    body: str = ""
    family: str = ""
    times: int = 1  # passes of a rolled layer
    entries: tuple[str, ...] = ()  # the name at each entry, "" for none
    exits: tuple[str, ...] = ()  # the shape at each exit, "" for none
    badge: str = ""  # shared weights carry the same one
    mark: str = ""  # "frozen", "partly frozen", "edited", "unseen", "stopped"
    fill: str = ""  # colours a user's function asked for
    stroke: str = ""
    folded: bool = False  # a box with something in it


@dataclass(slots=True, eq=False)
class Item:
    """One operation, layer, input, output, or bare parameter."""

    number: int
    name: str  # the user's name for it, "" for a function
    ops: tuple[int, ...]  # all passes, where passes are rolled
    path: tuple[ModuleCall, ...]  # the boxes around it, outermost first
    look: str
    kind: str
    body: str = ""
    family: str = ""
    stored: tuple[Stored, ...] = ()
    parents: list[tuple[Net, str]] = field(default_factory=list)  # and the name of the argument
    shapes: tuple[tuple[int, ...], ...] = ()
    grad: tuple[bool, ...] = ()  # whether gradients flow through each result
    badge: str = ""
    mark: str = ""
    fill: str = ""
    stroke: str = ""
    label: str = ""  # its name in the history, "conv2d_3_7"

    @property
    def plain(self) -> bool:
        """Whether it only gives its input another form."""
        return self.look == "pill" and self.kind.rstrip("_") in PLAIN_RESHAPES


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


def items_of(history: ModelHistory, *, rolled: bool, style: Style) -> list[Item]:
    """Everything to draw, parents before children except where a rolled loop closes."""
    maker = _Maker(history, rolled)
    items = maker.items()
    _share(items)
    return _restyled(history, items, style) if style.node else items


class _Maker:
    def __init__(self, history: ModelHistory, rolled: bool) -> None:
        self.facts = history.facts
        self.info = history.info
        self.rolled = rolled
        ops = self.facts.ops
        calls = {op.root_call for op in ops if op.kind == "op"}
        self.boxed_root = len(calls) > 1
        self.upkeep = {index for index, op in enumerate(ops) if _is_upkeep(op) and not self.facts.children[index]}
        self.leaf_modules = _leaf_modules(ops, self.upkeep)
        self.found: list[Item] = []
        self.item_of: list[int] = [-1] * len(ops)
        self.bare: dict[tuple[str, tuple[ModuleCall, ...]], int] = {}

    def items(self) -> list[Item]:
        ops = self.facts.ops
        groups = [layer.ops for layer in self.facts.layers.all] if self.rolled else [[n] for n in range(len(ops))]
        for members in groups:
            if members[0] in self.upkeep and ops[members[0]].modules[-1] in self.leaf_modules:
                continue  # told in the box of the module it belongs to
            bare = self._bare_of(ops[members[0]])
            item = self._item(ops[members[0]], tuple(members))
            self.found.append(item)
            item.number = len(self.found) - 1
            for member in members:
                self.item_of[member] = item.number
            item.parents = [((number, 0), name) for number, name in bare]
        for item in self.found:
            if item.ops:
                item.parents = self._parents(item) + item.parents
        if self.info.stopped and self.found:
            self._stop()
        return self.found

    def _item(self, op: Op, members: tuple[int, ...]) -> Item:
        look, name, kind, path = self._who(op)
        family = "" if look in ("input", "output") else family_of(op.name)
        held = tuple(one for one in op.stored if look == "module" or family in PARAMETRISED)
        body = body_text(op) if op.kind == "op" else ""
        if (params := parameter_text(held)) and look not in ("pill", "merge"):
            body = f"{body} · {params}" if body else params
        states = {one.trainable for one in held if one.kind == "parameter"}
        mark = "" if states <= {True} else "frozen" if states == {False} else "partly frozen"
        layers = self.facts.layers
        return Item(
            -1, name, members, path, look, kind, body, family, held,
            shapes=tuple(meta.shape for meta in op.outputs),
            grad=tuple(meta.requires_grad for meta in op.outputs),
            mark="edited" if op.edited else "unseen" if op.kind == "unseen" else mark,
            label=layers.all[layers.of[op.index]].label if self.rolled else layers.label(op.index),
        )  # fmt: skip

    def _who(self, op: Op) -> tuple[str, str, str, tuple[ModuleCall, ...]]:
        """Look, name, kind and the boxes around: a module of one operation is drawn as that operation."""
        path = self._path(op)
        if op.kind in ("input", "output"):
            return op.kind, "", op.name, ()
        if op.modules and op.modules[-1] in self.leaf_modules:
            call = op.modules[-1]
            inert = op.name == "dropout" and body_text(op) in ("off", "p 0")
            return (
                "pill" if inert else "module",
                self._name(call, path[-2] if len(path) > 1 else None),
                call.type,
                path[:-1],
            )
        name = op.name.strip("_") if op.name.startswith("__") else op.name
        family = family_of(op.name)
        if family == "reshape" and len(op.parents) + len(op.stored) < 2:
            return "pill", "", name, path
        if len(op.parents) + len(op.stored) > 1 and family in ("arithmetic", "reshape"):
            return "merge", "", name, path
        return "op", "", name, path

    def _path(self, op: Op) -> tuple[ModuleCall, ...]:
        path = op.modules
        if self.boxed_root and op.root_call and op.kind == "op":
            path = (ModuleCall("", op.root_call, self.info.model), *path)
        if self.rolled:
            path = tuple(ModuleCall(call.address, 1, call.type) for call in path)
        return path

    def _name(self, call: ModuleCall, around: ModuleCall | None) -> str:
        return call_name(call, around, not self.rolled and self.facts.module_calls.get(call.address, 1) > 1)

    def _bare_of(self, op: Op) -> list[tuple[int, str]]:
        """Small items for parameters and buffers that enter a plain function."""
        path = self._path(op)
        if (
            op.kind != "op"
            or (op.modules and op.modules[-1] in self.leaf_modules)
            or family_of(op.name) in PARAMETRISED
        ):
            return []
        entering = []
        for one in op.stored:
            key = (one.name, path)
            if key not in self.bare:
                inside = f"{path[-1].address}." if path else ""
                words = parameter_text((one,))
                self.bare[key] = len(self.found)
                frozen = one.kind == "parameter" and not one.trainable
                item = Item(len(self.found), one.name.removeprefix(inside), (), path, one.kind, "", words)
                item.stored, item.shapes, item.grad = (one,), (one.shape,), (one.trainable,)
                item.mark = "frozen" if frozen else ""
                self.found.append(item)
            entering.append((self.bare[key], ""))
        return entering

    def _parents(self, item: Item) -> list[tuple[Net, str]]:
        found: dict[Net, list[str]] = {}
        for index in item.ops:
            op = self.facts.ops[index]
            names = argument_names(op) if item.look not in ("input", "output") else {}
            for edge in op.parents:
                net = (self.item_of[edge.parent], edge.output)
                labels = found.setdefault(net, [])
                label = names.get(edge.where, "")
                if label and label not in labels and len(labels) < 3:
                    labels.append(label)
        return [(net, ", ".join(labels)) for net, labels in found.items()]

    def _stop(self) -> None:
        last = next((item for item in reversed(self.found) if item.ops), self.found[-1])
        words = self.info.stopped
        short = words if len(words) <= 90 else words[:89] + "…"
        stop = Item(len(self.found), "stopped", (), (), "stop", "", short, label=words)
        stop.parents = [((last.number, 0), "")]
        self.found.append(stop)


def call_name(call: ModuleCall, around: ModuleCall | None, several: bool) -> str:
    """A module's name as seen from the box around it, with its call where it was called several times."""
    inside = f"{around.address}." if around and around.address else ""
    return (call.address.removeprefix(inside) or call.type) + (f":{call.call}" if several else "")


def _is_upkeep(op: Op) -> bool:
    """A counter kept in a buffer, such as batch norm's `num_batches_tracked += 1`."""
    return bool(op.modules and op.stored and not op.parents and op.name.endswith("_") and op.stored[0].kind == "buffer")


def _leaf_modules(ops: list[Op], upkeep: set[int]) -> set[ModuleCall]:
    """Module calls in which exactly one operation ran, directly; upkeep of buffers aside."""
    count: dict[ModuleCall, int] = {}
    inner: set[ModuleCall] = set()
    for index, op in enumerate(ops):
        if index in upkeep:
            continue
        for call in op.modules:
            count[call] = count.get(call, 0) + 1
        inner.update(op.modules[:-1])
    return {call for call, number in count.items() if number == 1 and call not in inner}


def _share(items: list[Item]) -> None:
    """Weights that several items use get a badge, the same on each."""
    users: dict[str, list[Item]] = {}
    for item in items:
        for one in item.stored:
            if one.kind == "parameter":
                users.setdefault(one.name, []).append(item)
    badges: dict[tuple[int, ...], str] = {}
    for members in users.values():
        if len(members) > 1:
            badge = badges.setdefault(tuple(item.number for item in members), _letters(len(badges)))
            for item in members:
                item.badge = item.badge or badge


def _letters(number: int) -> str:
    """A, B, …, Z, AA, …"""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(65 + rest) + text
    return text


def node_of(history: ModelHistory, item: Item) -> Node:
    """An item as a user's function sees it."""
    labels = tuple(history.facts.layers.label(index) for index in item.ops)
    around = ".".join(part for part in (item.path[-1].address if item.path else "", item.name) if part)
    count = sum(one.count for one in item.stored if one.kind == "parameter")
    return Node(item.name, around, item.kind, item.look, item.family, labels, item.shapes, count)


def _restyled(history: ModelHistory, items: list[Item], style: Style) -> list[Item]:
    """Ask the user's function about every item; what it skips is bridged."""
    assert style.node is not None
    skipped: set[int] = set()
    for item in items:
        answer = style.ask(node_of(history, item))
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
        item.number = position
    return kept


def _behind(items: list[Item], net: Net, skipped: set[int], seen: set[int]) -> Iterator[Net]:
    """The nearest results that are drawn, seen through skipped items."""
    stack = [net]
    while stack:
        net = stack.pop()
        if net[0] not in skipped:
            yield net
        elif net[0] not in seen:
            seen.add(net[0])
            stack.extend(parent for parent, _ in reversed(items[net[0]].parents))


def face_of(item: Item, entries: tuple[str, ...], exits: tuple[int, ...], changed: bool) -> Face:
    """What is seen of an item; `exits` are the results that somebody reads."""
    several = len(item.shapes) > 1 and len(exits) > 1
    notes = tuple(
        (f"{output}: " if several else "") + shape_text(item.shapes[output])
        if changed and output < len(item.shapes)
        else ""
        for output in exits
    )
    times = len(item.ops) if len(item.ops) > 1 else 1
    return Face(
        item.look,
        item.kind,
        item.body,
        item.family,
        times,
        entries,
        notes,
        item.badge,
        item.mark,
        item.fill,
        item.stroke,
    )
