"""`backward(show=True)`: the pass as it runs, one line per operation, in the terminal."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.backward.backward_pass import reached
from torcheer.autograd.explain.operation_names import Names, unit_of
from torcheer.autograd.tape.multiple_outputs import Bundle
from torcheer.autograd.tape.nodes import GONE, Node
from torcheer.capture.record.tensor_trees import walk
from torcheer.errors import GraphFreed
from torcheer.history.text.latex_text import plain

ARROW = "↘︎ "
MOST = 6  # shapes in a row


class Unit:
    """What is one thing to a reader: an operation, or a composite with all its parts."""

    def __init__(self, scope: Any, node: Node) -> None:
        self.scope, self.rule = scope, node.rule
        self.nodes: list[Node] = []  # newest first
        self.parents: list[Unit] = []  # one for each gradient it sends
        self.leaves: list[Tensor] = []  # that it sends gradients to
        self.ends: list[Node] = []  # of its nodes those that gradients come to from elsewhere
        self.targets: list[Node | Tensor] = []  # elsewhere, that it sends gradients to
        self.came: list[torch.Size] = []  # of the gradients that have come, as the pass runs
        self.sent: dict[int, list[tuple[Any, Any]]] = {}  # order of a node -> what its rule has sent elsewhere

    @property
    def is_traced_operator(self) -> bool:
        """True for torchtrace's own operators, which have lines of their own."""
        return self.scope is not None and hasattr(self.scope.thing, "line")

    @property
    def line(self) -> str:
        """An operator's line as torchtrace has it: the shape of what it was given, whether that asks or not."""
        node = self.nodes[-1]
        read = (arg for value in node.args for _, arg in walk(value) if isinstance(arg, (Node, Tensor)))
        return str(self.scope.thing.line(self.nodes[0].shape, torch.Size(next(read, node).shape)))

    def foreseen(self) -> str:
        """The shapes that are to be expected of a whole pass."""
        return _shapes([torch.Size(one.shape) for one in self.ends], [torch.Size(one.shape) for one in self.targets])

    def note(self, node: Node, gradient: Any, sent: list[tuple[Any, Any]]) -> None:
        """One of its parts has run: what came, and what went elsewhere."""
        if any(node is end for end in self.ends):
            self.came[:0] = _shapes_in(gradient, node)
        self.sent[node.order] = sent

    @property
    def shapes(self) -> str:
        """Of the gradients that came, and of each that went to a place elsewhere."""
        sent = [pair for order in sorted(self.sent) for pair in self.sent[order]]
        if len(self.nodes) > 1:  # what its parts send to one place is one to a reader
            sent = list({id(place): (place, part) for place, part in sent}.values())
        return _shapes(self.came, [shape for place, part in sent for shape in _shapes_in(part, place)])

    def __str__(self) -> str:
        if self.is_traced_operator:
            return str(self.scope.thing)
        return f"{self.rule.name if self.scope is None else self.scope.name}()"


def _shapes_in(gradient: Any, place: Any) -> list[torch.Size]:
    """The shape of a gradient when it has arrived; several of one that stands for several results."""
    if isinstance(gradient, Bundle):
        return [part.shape for _, part in sorted(gradient.parts.items())]
    return [torch.Size(place.shape)]


def _shapes(came: list[torch.Size], went: list[torch.Size]) -> str:
    """ "(4, 2) → (4, 8), (2, 8), (2)"."""
    left, right = (", ".join(map(_shape, some[:MOST])) + ", …" * (len(some) > MOST) for some in (came, went))
    return f"{left} → {right}".rstrip()


def units_of(starts: list[Any], expand: bool, useful: set[int] | None = None) -> list[Unit]:
    """The operations of a graph, newest first, gathered into composites unless `expand`.

    With `useful`, ids of nodes and leaves, only those that lead there.
    """
    units: dict[int, Unit] = {}
    of: dict[int, Unit] = {}
    nodes = [node for node in reached(starts) if useful is None or id(node) in useful]
    if any(node.rule is None for node in nodes):
        raise GraphFreed(GONE)
    for node in nodes:
        scope = unit_of(node)
        if expand and not hasattr(getattr(scope, "thing", None), "line"):
            scope = None
        unit = of[id(node)] = units.setdefault(id(node if scope is None else scope), Unit(scope, node))
        unit.nodes.append(node)
    ends = {id(start) for start in starts}
    for node in reversed(nodes):
        unit = of[id(node)]
        for parent in node.parents:
            if useful is not None and id(parent) not in useful:
                continue
            inner = of.get(id(parent))
            if inner is unit:
                continue
            unit.targets.append(parent)
            if inner is None:
                unit.leaves.append(parent)  # type: ignore[arg-type]
            else:
                unit.parents.append(inner)
                ends.add(id(parent))
    for unit in units.values():
        unit.ends = [node for node in reversed(unit.nodes) if id(node) in ends]
        if len(unit.nodes) > 1:  # what its parts send to one place is one to a reader
            unit.parents = list(dict.fromkeys(unit.parents))
            unit.leaves = list({id(leaf): leaf for leaf in unit.leaves}.values())
            unit.targets = list({id(target): target for target in unit.targets}.values())
    return sorted(units.values(), key=lambda unit: -unit.nodes[-1].order)


class Show:
    """Watches a backward pass and prints it."""

    def __init__(
        self, starts: list[Any], names: Names, expand: bool = False, useful: set[int] | None = None, write: Any = print
    ) -> None:
        self.units, self.names, self.useful = units_of(starts, expand, useful), names, useful
        self.write = write if write is not print or not sys.stdout.isatty() else _print_clipped
        self.of = {id(node): unit for unit in self.units for node in unit.nodes}
        names.learn([node for unit in reversed(self.units) for node in reversed(unit.nodes)])
        met = Counter(id(place) for unit in self.units for place in (*unit.parents, *unit.leaves))
        is_chain = all(len(unit.parents) <= 1 for unit in self.units) and max(met.values(), default=1) == 1
        self.is_torchtrace = is_chain and all(unit.is_traced_operator for unit in self.units)
        self.lanes = Lanes(self.units)
        rehearsal = Lanes(self.units)
        self.most = max(
            (len(row) for unit in self.units for row in rehearsal.rows(unit, "") if ARROW in row), default=0
        )
        self.widths = [
            min(max((len(text) for text in texts), default=0), 40)
            for texts in (
                [str(unit) for unit in self.units],
                [unit.foreseen() for unit in self.units],
            )
        ]
        self.write("BackProp:")

    def __call__(self, node: Node, gradient: Tensor, passed: list[tuple[Any, Tensor]]) -> None:
        unit = self.of[id(node)]
        unit.note(node, gradient, [(place, part) for place, part in passed if self._is_elsewhere(place, unit)])
        if node is not unit.nodes[-1]:
            return
        if self.is_torchtrace:
            self.write(ARROW + unit.line)
            return
        for row in self.lanes.rows(unit, self._columns(unit)):
            self.write(row)

    def _is_elsewhere(self, place: Any, unit: Unit) -> bool:
        is_wanted = self.useful is None or id(place) in self.useful
        return is_wanted and self.of.get(id(place)) is not unit

    def _columns(self, unit: Unit) -> str:
        """The line of one operation: name, shapes, formula, leaves."""
        formula = plain(unit.rule.formula) if len(unit.nodes) == 1 else f"{len(unit.nodes)} operations"
        leaves = ", ".join(f"{self.names.of(leaf) or 'leaf'}.grad += {_shape(leaf.shape)}" for leaf in unit.leaves)
        borrowed = "borrowed from torch" if unit.rule.borrowed else ""
        rest = "   ".join(part for part in (formula, leaves, borrowed) if part)
        room = self.widths[0] + self.most - len(ARROW) - 2 * len(self.lanes.running) + 1
        return f"{unit!s:<{room}}   {unit.shapes:<{self.widths[1]}}   {rest}".rstrip()

    def end(self) -> None:
        """The last line."""
        if self.is_torchtrace:
            self.write(ARROW + "Input")


def _print_clipped(row: str) -> None:
    """A line that a terminal would break is cut: the lanes would be lost."""
    width = shutil.get_terminal_size().columns
    print(row if len(row) <= width else row[: width - 1] + "…")


def _shape(shape: Any) -> str:
    return f"({', '.join(map(str, shape))})"


class Lanes:
    """Columns that gradients run down in, from where they part to where they meet."""

    def __init__(self, units: list[Unit]) -> None:
        self.running: list[Unit] = units[:1]
        self.order = {id(unit): place for place, unit in enumerate(units)}

    def rows(self, unit: Unit, text: str) -> Iterator[str]:
        """The line of a unit, then how its lane forks or joins others."""
        if unit not in self.running:  # a second start
            self.running.append(unit)
        at = self.running.index(unit)
        yield "".join(ARROW if place == at else "│ " for place in range(len(self.running))) + " " + text
        parents = sorted({id(one): one for one in unit.parents}.values(), key=lambda one: self.order[id(one)])
        new = [one for one in parents if one not in self.running]
        met = [one for one in parents if one in self.running]
        for one in met:
            yield self._join(at, self.running.index(one), bool(new) or one is not met[-1], one)
        if new:
            self.running[at : at + 1] = new
            if len(new) > 1:
                yield self._fork(at, len(new))
        elif unit in self.running:
            self.running.remove(unit)
        for one in parents:
            if (times := unit.parents.count(one)) > 1:
                yield "│ " * len(self.running) + f" += {one}, {'twice' if times == 2 else f'{times} times'}"

    def _fork(self, at: int, count: int) -> str:
        last = at + count - 1
        parts = ["│ "] * at + ["├─"] + ["┬─"] * (count - 2) + ["╮ "] + ["│ "] * (len(self.running) - last - 1)
        return "".join(parts).rstrip()

    def _join(self, at: int, to: int, stays: bool, parent: Unit) -> str:
        low, high = min(at, to), max(at, to)
        ends = {to: "├" if to < at else "┤", at: ("┼" if stays else "╯") if to < at else ("├" if stays else "╰")}
        parts = []
        for place in range(len(self.running)):
            inside = low <= place < high
            parts.append(ends.get(place, "─" if low < place < high else "│") + ("─" if inside else " "))
        return "".join(parts) + f" += {parent}"
