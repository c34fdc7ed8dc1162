"""From the steps of a backward pass to items: each operation, and beside it the rule that sends its gradient on."""

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

VALUE = 0  # the results of an item: its value; GRADIENT, what comes back to it; KEPT, its value once more
ITS_OWN = "torch’s own rule"

Path = tuple[ModuleCall, ...]


def _holds(call: ModuleCall, step: Step) -> bool:
    return bool(call.address) and step.name.startswith(f"{call.address}.")


class Flow:
    """Where gradients run, and what is kept for them."""

    def __init__(self, steps: Sequence[Step]) -> None:
        steps = _unnested(sorted(steps, key=attrgetter("index")))
        self.steps = {step.index: step for step in steps}
        self.loss = steps[-1].index if steps else -1
        asks: set[int] = set()  # steps that have a parameter before them
        for step in steps:
            if step.kind == "parameter" or (step.kind == "op" and any(edge.parent in asks for edge in step.parents)):
                asks.add(step.index)
        self.reached = {self.loss} & asks  # steps that a gradient comes to
        self.sent: dict[int, list[int]] = {}  # of an operation the parents that it sends a gradient to
        for step in reversed(steps):
            if step.index in self.reached and step.kind == "op":
                self.sent[step.index] = [parent for parent in _passes(step) if parent in asks]
                self.reached.update(self.sent[step.index])
        self.uses = Counter(parent for parents in self.sent.values() for parent in parents)
        self.kept = dict.fromkeys(index for step in steps if step.index in self.sent for index in step.saved)

    def bytes(self, *kinds: str) -> int:
        """How much the distinct values take that are kept for backward, of these kinds of steps."""
        return sum(self.steps[index].bytes for index in self.kept if self.steps[index].kind in kinds)


def _passes(step: Step) -> list[int]:
    """The parents a rule says something about; where it is not recorded, all."""
    if not step.passed:
        return [edge.parent for edge in step.parents]
    return [edge.parent for edge, passed in zip(step.parents, step.passed) if passed is not None]


def _unnested(steps: list[Step]) -> list[Step]:
    """Without the box of a composite that is all there is in its module: `norm` needs no `layer_norm` in it."""
    inside: dict[Path, set[ModuleCall | None]] = {}
    for step in steps:
        for depth in range(1, len(step.modules) + 1) if step.kind == "op" else ():
            inner = step.modules[depth] if depth < len(step.modules) else None
            inside.setdefault(step.modules[:depth], set()).add(inner)

    def kept(path: Path) -> Path:
        alone = [depth for depth in range(1, len(path)) if inside.get(path[:depth]) == {path[depth]}]
        drop = {depth for depth in alone if path[depth].address == f"{path[depth - 1].address}.{path[depth].type}"}
        return tuple(call for depth, call in enumerate(path) if depth not in drop) if drop else path

    return [replace(step, modules=kept(step.modules)) if len(step.modules) > 1 else step for step in steps]


def items_of_steps(flow: Flow, title: str) -> list[Item]:
    """Everything to draw, what is read before what reads it."""
    return _Maker(flow).items(title)


class _Maker:
    def __init__(self, flow: Flow) -> None:
        self.steps, self.flow = flow.steps, flow
        steps = list(flow.steps.values())
        self.readers: dict[int, list[Step]] = {}
        for step in steps:
            for index in dict.fromkeys([edge.parent for edge in step.parents] + list(step.saved)):
                if index != step.index:
                    self.readers.setdefault(index, []).append(step)
        self.path = {step.index: self._path(step) for step in steps}
        self.leaves = leaf_modules(Counter(path for path in self.path.values() if path))
        with_rule = (self.path[index] for index in flow.reached)  # there are two things in these boxes
        self.leaves -= {path[-1] for path in with_rule if path}
        self.several = several_calls(call for path in set(self.path.values()) for call in path)
        self.started: dict[Path, int] = {}  # the first operation of each box
        for step in steps:
            for depth in range(1, len(step.modules) + 1) if step.kind == "op" else ():
                self.started.setdefault(step.modules[:depth], step.index)
        self.order = sorted(steps, key=lambda step: (self._start(step), step.kind == "op", step.index))
        self.found: list[Item] = []
        self.item_of: dict[int, int] = {}
        self.rule_of: dict[int, int] = {}

    def items(self, title: str) -> list[Item]:
        for step in self.order:
            if step.kind == "op":
                self._op(step)
            else:
                self._leaf(step)
        if self.order:
            self._loss(title)
        return self.found

    # Where things stand

    def _path(self, step: Step) -> Path:
        """The boxes around a step; a parameter of a module, or what has no name, stands in the innermost box that holds
        all its readers."""
        if step.kind == "op" or not self.readers.get(step.index):
            return step.modules
        shared, *others = [reader.modules for reader in self.readers[step.index]]
        for other in others:
            shared = tuple(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(shared, other)))
        inside = step.modules or step.name in ("", "constant") or any(_holds(call, step) for call in shared)
        return shared if inside else ()

    def _start(self, step: Step) -> int:
        """A leaf stands just before the box in which it is first read, an operation where it ran."""
        readers = self.readers.get(step.index, ())
        if step.kind == "op" or not readers:
            return step.index
        depth = len(self.path[step.index]) + 1
        return min(self.started.get(reader.modules[:depth], reader.index) for reader in readers)

    # What is drawn

    def _add(self, item: Item) -> Item:
        item.number = len(self.found)
        self.found.append(item)
        return item

    def _leaf(self, step: Step) -> None:
        path = self.path[step.index]
        trained = step.kind == "parameter"
        inside = f"{path[-1].address}." if path else ""
        name = (step.title or step.name).removeprefix(inside)
        item = self._add(Item(-1, name if trained else "", (), path, step.kind, "" if trained else name or "constant"))
        item.body = shape_text(step.shape)
        item.shapes = (step.shape,)
        item.carries = (FLOWS if step.index in self.flow.reached else STILL, STILL, KEPT, GRADIENT)
        item.notes = ("", "", "", self._sum(step))
        if trained:
            item.parameters, item.states = prod(step.shape), frozenset({True})
        item.label = str(step.index)
        self.item_of[step.index] = item.number

    def _op(self, step: Step) -> None:
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
        told = any(self.steps[edge.parent].shape != step.shape for edge in step.parents)
        item.notes = (shape_text(step.shape) if told else "", "", "", "")
        item.parents = [(net, "") for net in dict.fromkeys((self.item_of[e.parent], VALUE) for e in step.parents)]
        item.label = str(step.index)
        self.item_of[step.index] = item.number
        if reached:
            self._rule(step, item)

    def _rule(self, step: Step, forward: Item) -> None:
        """The box of an operation's backward rule."""
        rule = self._add(Item(-1, "", (), forward.path, "gradient", look_of(step.name, False, "", "", False)[1]))
        rule.body = "\n".join(equations(step.formula)) or (ITS_OWN if step.borrowed else "")
        rule.marks = ("borrowed",) if step.borrowed else ()
        rule.carries, rule.notes = forward.carries, ("", "", "", self._sum(step))
        rule.pair, forward.pair = forward.number, rule.number
        kept = [(self.item_of[index], KEPT) for index in step.saved]
        gradients = [self._gradient(parent) for parent in self.flow.sent[step.index]]
        rule.parents = [(net, "") for net in dict.fromkeys(kept + gradients)]
        rule.label = str(step.index)
        self.rule_of[step.index] = rule.number

    def _gradient(self, index: int) -> Net:
        """Where the gradient of a step's value arrives."""
        return self.rule_of.get(index, self.item_of[index]), GRADIENT

    def _sum(self, step: Step) -> str:
        return SUM if self.flow.uses[step.index] > 1 else ""

    def _loss(self, title: str) -> None:
        """The end of the forward pass and the start of the backward one: its gradient is 1."""
        last = self.steps[self.flow.loss]
        item = self._add(Item(-1, "", (), (), "output", title))
        item.parents = [((self.item_of[last.index], VALUE), "")]
        if last.index in self.flow.reached:
            item.parents.append((self._gradient(last.index), "1"))
        item.body = number_text(last)
        item.label = str(last.index)


def number_text(step: Step) -> str:
    """The value of a step that holds one number, "" of any other."""
    if step.value is None or prod(step.shape) != 1:
        return ""
    try:
        return f"{float(step.value):.4g}"
    except (TypeError, ValueError, RuntimeError):  # one that has no numbers, as on the meta device
        return ""
