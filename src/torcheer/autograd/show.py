"""`backward(show=True)`: the pass as it runs, one line per operation, in the terminal."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.engine import reached
from torcheer.autograd.nodes import GONE, Node
from torcheer.autograd.places import Names, unit_of
from torcheer.capture.trees import walk
from torcheer.errors import GraphFreed
from torcheer.history.formula import plain

ARROW = "↘︎ "


class Unit:
    """What is one thing to a reader: an operation, or a composite with all its parts."""

    def __init__(self, scope: Any, node: Node) -> None:
        self.scope, self.rule, self.came = scope, node.rule, node.shape
        self.nodes: list[Node] = []  # newest first
        self.parents: list[Unit] = []  # one for each gradient it sends
        self.leaves: list[Tensor] = []  # that it sends gradients to
        self.went: list[torch.Size] = []  # the shape of what it read, or of each piece

    def add(self, node: Node) -> None:
        """Take in one more of its parts, an older one."""
        self.nodes.append(node)
        read = [[one for _, one in walk(arg) if isinstance(one, (Node, Tensor))] for arg in node.args]
        self.went = [torch.Size(one.shape) for one in next(filter(None, read), [node])]
        self.leaves += [one for one in node.parents if isinstance(one, Tensor)]

    @property
    def line(self) -> str:
        """What stands behind the arrow."""
        if self.scope is not None and hasattr(self.scope.thing, "line"):
            return str(self.scope.thing.line(self.came, self.went[0]))
        return f"{self.rule.name if self.scope is None else self.scope.name}()"

    @property
    def shapes(self) -> str:
        """Of the gradient, as it comes and as it goes on."""
        went = ", ".join(_shape(one) for one in self.went[:3]) + ", …" * (len(self.went) > 3)
        return f"{_shape(self.came)} → {went}"

    def __str__(self) -> str:
        return self.line if self.scope is None or not hasattr(self.scope.thing, "line") else str(self.scope.thing)


def units_of(starts: list[Any], expand: bool) -> list[Unit]:
    """The operations of a graph, newest first, gathered into composites unless `expand`."""
    units: dict[int, Unit] = {}
    of: dict[int, Unit] = {}
    nodes = reached(starts)
    if any(node.rule is None for node in nodes):
        raise GraphFreed(GONE)
    for node in nodes:
        scope = unit_of(node)
        if expand and not hasattr(getattr(scope, "thing", None), "line"):
            scope = None
        unit = of[id(node)] = units.setdefault(id(node if scope is None else scope), Unit(scope, node))
        unit.add(node)
    for node in nodes:
        for parent in node.parents:
            inner = of.get(id(parent))
            if inner is not None and inner is not of[id(node)]:
                of[id(node)].parents.append(inner)
    for unit in units.values():
        if len(unit.nodes) > 1:  # what its parts send to one place is one to a reader
            unit.parents = list(dict.fromkeys(unit.parents))
            unit.leaves = list({id(leaf): leaf for leaf in unit.leaves}.values())
    return sorted(units.values(), key=lambda unit: -unit.nodes[-1].order)


class Show:
    """Watches a backward pass and prints it."""

    def __init__(self, starts: list[Any], names: Names, expand: bool = False, write: Any = print) -> None:
        self.units, self.names = units_of(starts, expand), names
        self.write = write if write is not print or not sys.stdout.isatty() else _print_clipped
        self.of = {id(node): unit for unit in self.units for node in unit.nodes}
        names.learn([node for unit in reversed(self.units) for node in reversed(unit.nodes)])
        met = Counter(id(place) for unit in self.units for place in (*unit.parents, *unit.leaves))
        self.is_chain = all(len(unit.parents) <= 1 for unit in self.units) and max(met.values(), default=1) == 1
        self.lanes = Lanes(self.units)
        rehearsal = Lanes(self.units)
        self.most = max(
            (len(row) for unit in self.units for row in rehearsal.rows(unit, "") if ARROW in row), default=0
        )
        self.widths = [
            min(max((len(text) for text in texts), default=0), 40)
            for texts in (
                [str(unit) for unit in self.units],
                [unit.shapes for unit in self.units],
            )
        ]
        self.write("BackProp:")

    def __call__(self, node: Node, gradient: Tensor, passed: list[tuple[Any, Tensor]]) -> None:
        unit = self.of[id(node)]
        if node is not unit.nodes[-1]:
            return
        if self.is_chain:
            self.write(ARROW + unit.line)
            return
        for row in self.lanes.rows(unit, self._columns(unit)):
            self.write(row)

    def _columns(self, unit: Unit) -> str:
        """The line of one operation in a graph with branches: name, shapes, formula, leaves."""
        formula = plain(unit.rule.formula) if len(unit.nodes) == 1 else f"{len(unit.nodes)} operations"
        leaves = ", ".join(f"{self.names.of(leaf) or 'leaf'}.grad += {_shape(leaf.shape)}" for leaf in unit.leaves)
        borrowed = "borrowed from torch" if unit.rule.borrowed else ""
        rest = "   ".join(part for part in (formula, leaves, borrowed) if part)
        room = self.widths[0] + self.most - len(ARROW) - 2 * len(self.lanes.running) + 1
        return f"{unit!s:<{room}}   {unit.shapes:<{self.widths[1]}}   {rest}".rstrip()

    def end(self) -> None:
        """The last line."""
        if self.is_chain:
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
