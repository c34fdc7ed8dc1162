"""Build the items of a backward pass: each operation, and beside it its backward rule."""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from math import prod

from torcheer.drawing.items.box_text import number_text
from torcheer.drawing.items.families import family_of
from torcheer.drawing.items.history_items import look_of
from torcheer.drawing.items.item import FLOWS, GRADIENT, KEPT, STILL, SUM, Item
from torcheer.history import ModelHistory
from torcheer.history.backward_flow import BORROWED_RULE, BackwardFlow
from torcheer.history.text.latex_text import equations
from torcheer.network.fold import Net
from torcheer.network.op_places import Path, call_name, leaf_modules, several_calls
from torcheer.records import BackwardStep, Op
from torcheer.terminal import human_shape

VALUE = 0  # an item's results: VALUE, its value; KEPT, its value again, for backward; GRADIENT, its gradient


def backward_items(history: ModelHistory, flow: BackwardFlow) -> list[Item]:
    """Return all items, values before their readers."""
    return _BackwardItems(history, flow).build()


class _BackwardItems:
    def __init__(self, history: ModelHistory, flow: BackwardFlow) -> None:
        self.history, self.flow, self.ops = history, flow, flow.ops
        self.readers: dict[int, list[Op]] = {}
        for op in self.ops:
            for index in dict.fromkeys([*[edge.parent for edge in op.parents], *_step(op).saved]):
                if index != op.index:
                    self.readers.setdefault(index, []).append(op)
        self.path = {op.index: self._path(op) for op in self.ops}
        self.leaves = leaf_modules(Counter(path for path in self.path.values() if path))
        with_rule = (self.path[index] for index in flow.reached)  # two items in these boxes: operation and rule
        self.leaves -= {path[-1] for path in with_rule if path}
        self.several = several_calls(call for path in set(self.path.values()) for call in path)
        self.first_op: dict[Path, int] = {}  # the first operation of each box
        for op in self.ops:
            for depth in range(1, len(op.modules) + 1) if op.kind == "op" else ():
                self.first_op.setdefault(op.modules[:depth], op.index)
        self.items: list[Item] = []
        self.item_of: dict[int, int] = {}
        self.rule_of: dict[int, int] = {}

    def build(self) -> list[Item]:
        for op in sorted(self.ops, key=lambda op: (self._start(op), op.kind == "op", op.index)):
            if op.kind == "op":
                self._add_op(op)
            else:
                self._add_leaf(op)
        self._add_loss()
        return self.items

    # Positions

    def _path(self, op: Op) -> Path:
        """Return the boxes around an op.

        A module's parameter or an unnamed constant is drawn in the innermost box that holds all its readers.
        """
        if op.kind == "op" or not self.readers.get(op.index):
            return op.modules
        shared, *stacks = [reader.modules for reader in self.readers[op.index]]
        for stack in stacks:
            shared = tuple(call for call, _ in takewhile(lambda pair: pair[0] == pair[1], zip(shared, stack)))
        is_held = any(call.address and op.name.startswith(f"{call.address}.") for call in shared)
        return shared if op.modules or op.name in ("", "constant") or is_held else ()

    def _start(self, op: Op) -> int:
        """Return an op's position: a leaf's just before the box of its first reader."""
        readers = self.readers.get(op.index, ())
        if op.kind == "op" or not readers:
            return op.index
        depth = len(self.path[op.index]) + 1
        return min(self.first_op.get(reader.modules[:depth], reader.index) for reader in readers)

    # Items

    def _add(self, item: Item, op: Op) -> Item:
        item.number, item.step = len(self.items), op.index
        self.items.append(item)
        return item

    def _add_leaf(self, op: Op) -> None:
        path, shape = self.path[op.index], op.outputs[0].shape
        is_parameter = op.kind == "parameter"
        prefix = f"{path[-1].address}." if path else ""
        name = op.name.removeprefix(prefix)
        kind = "" if is_parameter else name or "constant"
        item = self._add(Item(-1, name if is_parameter else "", (), path, op.kind, kind), op)
        item.body, item.shapes = human_shape(shape), (shape,)
        item.carries = (FLOWS if op.index in self.flow.reached else STILL, STILL, KEPT, GRADIENT)
        item.notes = ("", "", "", self._sum(op))
        if is_parameter:
            item.parameters, item.states = prod(shape), frozenset({True})
        self.item_of[op.index] = item.number

    def _add_op(self, op: Op) -> None:
        path, shape = self.path[op.index], op.outputs[0].shape
        leaf = bool(path) and path[-1] in self.leaves
        family = family_of(op.name)
        look, kind = look_of(op.name, leaf, family, "", len({edge.parent for edge in op.parents}) > 1)
        name, kind = "", _step(op).title or kind
        if leaf:
            name, kind, path = call_name(path[-1], path[:-1], self.several), path[-1].type, path[:-1]
        item = self._add(Item(-1, name, (op.index,), path, look, kind, "", family, (shape,)), op)
        reached = op.index in self.flow.reached
        item.carries = (FLOWS if reached else STILL, STILL, KEPT, GRADIENT)
        is_new_shape = any(self.ops[edge.parent].outputs[0].shape != shape for edge in op.parents)
        item.notes = (human_shape(shape) if is_new_shape else "", "", "", "")
        item.parents = [(net, "") for net in dict.fromkeys((self.item_of[e.parent], VALUE) for e in op.parents)]
        self.item_of[op.index] = item.number
        if reached:
            self._add_rule(op, _step(op), item)

    def _add_rule(self, op: Op, step: BackwardStep, forward: Item) -> None:
        """Add the item of an operation's backward rule."""
        rule = self._add(Item(-1, "", (), forward.path, "gradient", look_of(op.name, False, "", "", False)[1]), op)
        rule.body = "\n".join(equations(step.formula)) or (BORROWED_RULE if step.borrowed else "")
        rule.label, rule.marks = step.why, ("borrowed",) if step.borrowed else ()
        rule.carries, rule.notes = forward.carries, ("", "", "", self._sum(op))
        rule.pair, forward.pair = forward.number, rule.number
        saved = [(self.item_of[index], KEPT) for index in step.saved]
        gradients = [self._gradient(parent) for parent in self.flow.sent[op.index]]
        rule.parents = [(net, "") for net in dict.fromkeys(saved + gradients)]
        self.rule_of[op.index] = rule.number

    def _gradient(self, index: int) -> Net:
        """Return the net of the gradient of an op's value."""
        return self.rule_of.get(index, self.item_of[index]), GRADIENT

    def _sum(self, op: Op) -> str:
        return SUM if self.flow.uses[op.index] > 1 else ""

    def _add_loss(self) -> None:
        """Add the end of the forward pass, where the backward pass starts: its gradient is 1."""
        last = self.ops[-1]
        item = self._add(Item(-1, "", (), (), "output", self.history.model_name), last)
        item.parents = [((self.item_of[last.index], VALUE), "")]
        if last.index in self.flow.reached:
            item.parents.append((self._gradient(last.index), "1"))
        item.body = number_text(self.history, last)


def _step(op: Op) -> BackwardStep:
    return op.backward or BackwardStep()
