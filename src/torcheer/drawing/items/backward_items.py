"""Build the items of a backward pass: each operation, and beside it its backward rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from math import prod
from operator import attrgetter

from torcheer.drawing.items.box_text import shape_text
from torcheer.drawing.items.families import family_of
from torcheer.drawing.items.history_items import call_name, leaf_modules, look_of, several_calls
from torcheer.drawing.items.item import FLOWS, GRADIENT, KEPT, STILL, SUM, Item, Net
from torcheer.history.text.latex_text import equations
from torcheer.records import ModuleCall, Step

VALUE = 0  # an item's results: VALUE, its value; KEPT, its value again, for backward; GRADIENT, its gradient
BORROWED_RULE = "torch’s own rule"

Path = tuple[ModuleCall, ...]


def _holds(call: ModuleCall, step: Step) -> bool:
    return bool(call.address) and step.name.startswith(f"{call.address}.")


class BackwardFlow:
    """Where gradients flow in a backward pass, and which values are saved for it."""

    def __init__(self, steps: Sequence[Step]) -> None:
        steps = _drop_redundant_boxes(sorted(steps, key=attrgetter("index")))
        self.steps = {step.index: step for step in steps}
        self.loss = steps[-1].index if steps else -1
        differentiable: set[int] = set()  # parameters, and operations that depend on one
        for step in steps:
            if step.kind == "parameter" or (
                step.kind == "op" and any(edge.parent in differentiable for edge in step.parents)
            ):
                differentiable.add(step.index)
        self.reached = {self.loss} & differentiable  # steps that get a gradient
        self.sent: dict[int, list[int]] = {}  # operation -> the parents that it sends a gradient to
        for step in reversed(steps):
            if step.index in self.reached and step.kind == "op":
                self.sent[step.index] = [parent for parent in _gradient_targets(step) if parent in differentiable]
                self.reached.update(self.sent[step.index])
        self.uses = Counter(parent for parents in self.sent.values() for parent in parents)
        self.kept = dict.fromkeys(index for step in steps if step.index in self.sent for index in step.saved)

    def bytes(self, *kinds: str) -> int:
        """Return the size of the distinct values saved for backward, of these kinds of steps."""
        return sum(self.steps[index].bytes for index in self.kept if self.steps[index].kind in kinds)


def _gradient_targets(step: Step) -> list[int]:
    """Return the parents that a rule sends a gradient to; all of them if that was not recorded."""
    if not step.passed:
        return [edge.parent for edge in step.parents]
    return [edge.parent for edge, passed in zip(step.parents, step.passed) if passed is not None]


def _drop_redundant_boxes(steps: list[Step]) -> list[Step]:
    """Drop the box of a composite alone in its module: `norm` needs no `layer_norm` in it."""
    inside: dict[Path, set[ModuleCall | None]] = {}
    for step in steps:
        for depth in range(1, len(step.modules) + 1) if step.kind == "op" else ():
            inner = step.modules[depth] if depth < len(step.modules) else None
            inside.setdefault(step.modules[:depth], set()).add(inner)

    def shorten(path: Path) -> Path:
        alone = [depth for depth in range(1, len(path)) if inside.get(path[:depth]) == {path[depth]}]
        drop = {depth for depth in alone if path[depth].address == f"{path[depth - 1].address}.{path[depth].type}"}
        return tuple(call for depth, call in enumerate(path) if depth not in drop) if drop else path

    return [replace(step, modules=shorten(step.modules)) if len(step.modules) > 1 else step for step in steps]


def items_of_steps(flow: BackwardFlow, title: str) -> list[Item]:
    """Return all items, values before their readers."""
    return _StepItemBuilder(flow).build(title)


class _StepItemBuilder:
    def __init__(self, flow: BackwardFlow) -> None:
        self.steps, self.flow = flow.steps, flow
        steps = list(flow.steps.values())
        self.readers: dict[int, list[Step]] = {}
        for step in steps:
            for index in dict.fromkeys([edge.parent for edge in step.parents] + list(step.saved)):
                if index != step.index:
                    self.readers.setdefault(index, []).append(step)
        self.path = {step.index: self._path(step) for step in steps}
        self.leaves = leaf_modules(Counter(path for path in self.path.values() if path))
        with_rule = (self.path[index] for index in flow.reached)  # two items in these boxes: operation and rule
        self.leaves -= {path[-1] for path in with_rule if path}
        self.several = several_calls(call for path in set(self.path.values()) for call in path)
        self.first_op: dict[Path, int] = {}  # the first operation of each box
        for step in steps:
            for depth in range(1, len(step.modules) + 1) if step.kind == "op" else ():
                self.first_op.setdefault(step.modules[:depth], step.index)
        self.order = sorted(steps, key=lambda step: (self._start(step), step.kind == "op", step.index))
        self.items: list[Item] = []
        self.item_of: dict[int, int] = {}
        self.rule_of: dict[int, int] = {}

    def build(self, title: str) -> list[Item]:
        for step in self.order:
            if step.kind == "op":
                self._add_op(step)
            else:
                self._add_leaf(step)
        if self.order:
            self._add_loss(title)
        return self.items

    # Positions

    def _path(self, step: Step) -> Path:
        """Return the boxes around a step.

        A module's parameter or an unnamed constant is drawn in the innermost box that holds all its readers.
        """
        if step.kind == "op" or not self.readers.get(step.index):
            return step.modules
        shared, *stacks = [reader.modules for reader in self.readers[step.index]]
        for stack in stacks:
            shared = tuple(call for call, _ in takewhile(lambda pair: pair[0] == pair[1], zip(shared, stack)))
        inside = step.modules or step.name in ("", "constant") or any(_holds(call, step) for call in shared)
        return shared if inside else ()

    def _start(self, step: Step) -> int:
        """Return a step's position: a leaf's just before the box of its first reader."""
        readers = self.readers.get(step.index, ())
        if step.kind == "op" or not readers:
            return step.index
        depth = len(self.path[step.index]) + 1
        return min(self.first_op.get(reader.modules[:depth], reader.index) for reader in readers)

    # Items

    def _add(self, item: Item) -> Item:
        item.number = len(self.items)
        self.items.append(item)
        return item

    def _add_leaf(self, step: Step) -> None:
        path = self.path[step.index]
        is_parameter = step.kind == "parameter"
        prefix = f"{path[-1].address}." if path else ""
        name = (step.title or step.name).removeprefix(prefix)
        kind = "" if is_parameter else name or "constant"
        item = self._add(Item(-1, name if is_parameter else "", (), path, step.kind, kind))
        item.body = shape_text(step.shape)
        item.shapes = (step.shape,)
        item.carries = (FLOWS if step.index in self.flow.reached else STILL, STILL, KEPT, GRADIENT)
        item.notes = ("", "", "", self._sum(step))
        if is_parameter:
            item.parameters, item.states = prod(step.shape), frozenset({True})
        item.label = str(step.index)
        self.item_of[step.index] = item.number

    def _add_op(self, step: Step) -> None:
        path = self.path[step.index]
        leaf = bool(path) and path[-1] in self.leaves
        family = family_of(step.name)
        look, kind = look_of(step.name, leaf, family, "", len({edge.parent for edge in step.parents}) > 1)
        name = ""
        if leaf:
            call, around = path[-1], path[-2] if len(path) > 1 else None
            name, kind, path = call_name(call, around, self.several.get(call.address, False)), call.type, path[:-1]
        kind = kind if leaf else step.title or kind
        item = self._add(Item(-1, name, (step.index,), path, look, kind, "", family, (step.shape,)))
        reached = step.index in self.flow.reached
        item.carries = (FLOWS if reached else STILL, STILL, KEPT, GRADIENT)
        is_new_shape = any(self.steps[edge.parent].shape != step.shape for edge in step.parents)
        item.notes = (shape_text(step.shape) if is_new_shape else "", "", "", "")
        item.parents = [(net, "") for net in dict.fromkeys((self.item_of[e.parent], VALUE) for e in step.parents)]
        item.label = str(step.index)
        self.item_of[step.index] = item.number
        if reached:
            self._add_rule(step, item)

    def _add_rule(self, step: Step, forward: Item) -> None:
        """Add the item of an operation's backward rule."""
        rule = self._add(Item(-1, "", (), forward.path, "gradient", look_of(step.name, False, "", "", False)[1]))
        rule.body = "\n".join(equations(step.formula)) or (BORROWED_RULE if step.borrowed else "")
        rule.marks = ("borrowed",) if step.borrowed else ()
        rule.carries, rule.notes = forward.carries, ("", "", "", self._sum(step))
        rule.pair, forward.pair = forward.number, rule.number
        saved = [(self.item_of[index], KEPT) for index in step.saved]
        gradients = [self._gradient(parent) for parent in self.flow.sent[step.index]]
        rule.parents = [(net, "") for net in dict.fromkeys(saved + gradients)]
        rule.label = str(step.index)
        self.rule_of[step.index] = rule.number

    def _gradient(self, index: int) -> Net:
        """Return the net of the gradient of a step's value."""
        return self.rule_of.get(index, self.item_of[index]), GRADIENT

    def _sum(self, step: Step) -> str:
        return SUM if self.flow.uses[step.index] > 1 else ""

    def _add_loss(self, title: str) -> None:
        """Add the end of the forward pass, where the backward pass starts: its gradient is 1."""
        last = self.steps[self.flow.loss]
        item = self._add(Item(-1, "", (), (), "output", title))
        item.parents = [((self.item_of[last.index], VALUE), "")]
        if last.index in self.flow.reached:
            item.parents.append((self._gradient(last.index), "1"))
        item.body = number_text(last)
        item.label = str(last.index)


def number_text(step: Step) -> str:
    """Format the value of a step that holds one number; "" for any other."""
    if step.value is None or prod(step.shape) != 1:
        return ""
    try:
        return f"{float(step.value):.4g}"
    except (TypeError, ValueError, RuntimeError):  # a tensor without data, as on the meta device
        return ""
