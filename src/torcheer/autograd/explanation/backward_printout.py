"""`backward(show=True)`: print the pass as it runs, one line per operation."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.explanation.operation_names import OperationNames, unit_of
from torcheer.autograd.gradients.backward_pass import reachable_nodes
from torcheer.autograd.tape.multiple_outputs import Bundle
from torcheer.autograd.tape.nodes import FREED_TEXT, Node
from torcheer.capture.record.tensor_trees import walk
from torcheer.errors import GraphFreed
from torcheer.history.text.latex_text import latex_to_text
from torcheer.terminal import is_terminal, line_width
from torcheer.terminal.streams import encodable

ARROW = "↘︎ "
MAX_SHAPES = 6  # in a row


class Unit:
    """One line of the printout: an operation, or a composite with all its parts."""

    def __init__(self, scope: Any, node: Node) -> None:
        self.scope, self.rule = scope, node.rule
        self.nodes: list[Node] = []  # newest first
        self.parents: list[Unit] = []  # one for each gradient it sends
        self.leaves: list[Tensor] = []  # leaves that it sends gradients to
        self.ends: list[Node] = []  # those of its nodes that receive gradients from other units
        self.targets: list[Node | Tensor] = []  # in other units, that it sends gradients to
        self.received: list[torch.Size] = []  # shapes of the gradients received so far
        self.sent: dict[
            int, list[tuple[Any, Any]]
        ] = {}  # order of a node -> the gradients its rule has sent to other units

    @property
    def is_traced_operator(self) -> bool:
        """True for torchtrace's operators, which define their own line."""
        return self.scope is not None and hasattr(self.scope.owner, "line")

    @property
    def line(self) -> str:
        """An operator's line in torchtrace's form.

        It has the shape of the input, even if that needs no gradient.
        """
        node = self.nodes[-1]
        read = (arg for value in node.args for _, arg in walk(value) if isinstance(arg, (Node, Tensor)))
        return str(self.scope.owner.line(self.nodes[0].shape, torch.Size(next(read, node).shape)))

    def expected_shapes(self) -> str:
        """Return the shapes that a complete pass will print."""
        return _format_shapes(
            [torch.Size(end.shape) for end in self.ends], [torch.Size(target.shape) for target in self.targets]
        )

    def add(self, node: Node, gradient: Any, sent: list[tuple[Any, Any]]) -> None:
        """Record the gradients that one of its nodes received, and sent to other units."""
        if any(node is end for end in self.ends):
            self.received[:0] = _gradient_shapes(gradient, node)
        self.sent[node.order] = sent

    @property
    def shapes(self) -> str:
        """The shapes of the gradients received, and of those sent to other units."""
        sent = [pair for order in sorted(self.sent) for pair in self.sent[order]]
        if len(self.nodes) > 1:  # several gradients to the same target count once
            sent = list({id(place): (place, part) for place, part in sent}.values())
        return _format_shapes(self.received, [shape for place, part in sent for shape in _gradient_shapes(part, place)])

    def __str__(self) -> str:
        if self.is_traced_operator:
            return str(self.scope.owner)
        return f"{self.rule.name if self.scope is None else self.scope.name}()"


def _gradient_shapes(gradient: Any, place: Any) -> list[torch.Size]:
    """Return the shape of a gradient as received; several for the results of one operation."""
    if isinstance(gradient, Bundle):
        return [part.shape for _, part in sorted(gradient.parts.items())]
    return [torch.Size(place.shape)]


def _format_shapes(received: list[torch.Size], sent: list[torch.Size]) -> str:
    """ "(4, 2) → (4, 8), (2, 8), (2)"."""
    before, after = (
        ", ".join(map(_format_shape, shapes[:MAX_SHAPES])) + ", …" * (len(shapes) > MAX_SHAPES)
        for shapes in (received, sent)
    )
    return f"{before} → {after}".rstrip()


def units_of(starts: list[Any], expand: bool, useful: set[int] | None = None) -> list[Unit]:
    """Return the units of a graph, newest first; composites are one unit each unless `expand`.

    With `useful`, a set of ids of nodes and leaves, others are left out.
    """
    units: dict[int, Unit] = {}
    unit_by_node: dict[int, Unit] = {}
    nodes = [node for node in reachable_nodes(starts) if useful is None or id(node) in useful]
    if any(node.rule is None for node in nodes):
        raise GraphFreed(FREED_TEXT)
    for node in nodes:
        scope = unit_of(node)
        if expand and not hasattr(getattr(scope, "owner", None), "line"):
            scope = None
        unit = unit_by_node[id(node)] = units.setdefault(id(node if scope is None else scope), Unit(scope, node))
        unit.nodes.append(node)
    ends = {id(start) for start in starts}
    for node in reversed(nodes):
        unit = unit_by_node[id(node)]
        for parent in node.parents:
            if useful is not None and id(parent) not in useful:
                continue
            inner = unit_by_node.get(id(parent))
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
        if len(unit.nodes) > 1:  # several gradients to the same target count once
            unit.parents = list(dict.fromkeys(unit.parents))
            unit.leaves = list({id(leaf): leaf for leaf in unit.leaves}.values())
            unit.targets = list({id(target): target for target in unit.targets}.values())
    return sorted(units.values(), key=lambda unit: -unit.nodes[-1].order)


class BackwardPrinter:
    """Callback of a backward pass that prints it."""

    def __init__(
        self,
        starts: list[Any],
        names: OperationNames,
        expand: bool = False,
        useful: set[int] | None = None,
        write: Any = print,
    ) -> None:
        self.units, self.names, self.useful = units_of(starts, expand, useful), names, useful
        self.write = _print_row if write is print else write
        self.unit_by_node = {id(node): unit for unit in self.units for node in unit.nodes}
        names.learn([node for unit in reversed(self.units) for node in reversed(unit.nodes)])
        target_counts = Counter(id(place) for unit in self.units for place in (*unit.parents, *unit.leaves))
        is_chain = all(len(unit.parents) <= 1 for unit in self.units) and max(target_counts.values(), default=1) == 1
        self.is_torchtrace = is_chain and all(unit.is_traced_operator for unit in self.units)
        self.lanes = Lanes(self.units)
        dry_run = Lanes(self.units)
        self.lanes_width = max(
            (len(row) for unit in self.units for row in dry_run.rows(unit, "") if ARROW in row), default=0
        )
        self.widths = [
            min(max((len(text) for text in texts), default=0), 40)
            for texts in (
                [str(unit) for unit in self.units],
                [unit.expected_shapes() for unit in self.units],
            )
        ]
        self.write("BackProp:")

    def __call__(self, node: Node, gradient: Tensor, passed: list[tuple[Any, Tensor]]) -> None:
        unit = self.unit_by_node[id(node)]
        unit.add(node, gradient, [(place, part) for place, part in passed if self._is_elsewhere(place, unit)])
        if node is not unit.nodes[-1]:
            return
        if self.is_torchtrace:
            self.write(ARROW + unit.line)
            return
        for row in self.lanes.rows(unit, self._columns(unit)):
            self.write(row)

    def _is_elsewhere(self, place: Any, unit: Unit) -> bool:
        is_wanted = self.useful is None or id(place) in self.useful
        return is_wanted and self.unit_by_node.get(id(place)) is not unit

    def _columns(self, unit: Unit) -> str:
        """Format the line of one unit: name, shapes, formula, leaves."""
        formula = latex_to_text(unit.rule.formula) if len(unit.nodes) == 1 else f"{len(unit.nodes)} operations"
        leaves = ", ".join(
            f"{self.names.of(leaf) or 'leaf'}.grad += {_format_shape(leaf.shape)}" for leaf in unit.leaves
        )
        borrowed = "borrowed from torch" if unit.rule.borrowed else ""
        details = "   ".join(part for part in (formula, leaves, borrowed) if part)
        name_width = self.widths[0] + self.lanes_width - len(ARROW) - 2 * len(self.lanes.running) + 1
        return f"{unit!s:<{name_width}}   {unit.shapes:<{self.widths[1]}}   {details}".rstrip()

    def end(self) -> None:
        """Print the last line."""
        if self.is_torchtrace:
            self.write(ARROW + "Input")


def _print_row(row: str) -> None:
    """Print a line; on a terminal cut to its width: a wrapped line would break the lanes."""
    width = line_width() if is_terminal(sys.stdout) else len(row)
    print(encodable(row if len(row) <= width else row[: width - 1] + "…"))


def _format_shape(shape: Any) -> str:
    return f"({', '.join(map(str, shape))})"


class Lanes:
    """The columns in which gradients flow down, from where they fork to where they join."""

    def __init__(self, units: list[Unit]) -> None:
        self.running: list[Unit] = units[:1]
        self.order = {id(unit): place for place, unit in enumerate(units)}

    def rows(self, unit: Unit, text: str) -> Iterator[str]:
        """Yield the line of a unit, then lines that show how its lane forks or joins others."""
        if unit not in self.running:  # a second start
            self.running.append(unit)
        at = self.running.index(unit)
        yield "".join(ARROW if place == at else "│ " for place in range(len(self.running))) + " " + text
        parents = sorted({id(each): each for each in unit.parents}.values(), key=lambda each: self.order[id(each)])
        new = [parent for parent in parents if parent not in self.running]
        joined = [parent for parent in parents if parent in self.running]
        for parent in joined:
            yield self._join(at, self.running.index(parent), bool(new) or parent is not joined[-1], parent)
        if new:
            self.running[at : at + 1] = new
            if len(new) > 1:
                yield self._fork(at, len(new))
        elif unit in self.running:
            self.running.remove(unit)
        for parent in parents:
            if (times := unit.parents.count(parent)) > 1:
                yield "│ " * len(self.running) + f" += {parent}, {'twice' if times == 2 else f'{times} times'}"

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
