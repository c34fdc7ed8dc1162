"""The one fold of a pass: a tree of boxes, the edges of every box, and which boxes repeat (×N).

What is shown are leaves: operations, or what a drawing makes of them. Each says in which calls it stands and what it
reads. The graph, the text tree, the tree of modules and the summary read the same boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

from torcheer.network.function_frames import FUNCTION
from torcheer.network.op_places import Path, call_name, several_calls
from torcheer.records import ModuleCall, Stored

INSIDE, OUTSIDE = -1, -2  # ends of an edge at the border of its box: at an entry, at an exit

Net = tuple[int, int]  # (number of a leaf, index of its result)
_Ports = dict[Net, int] | None  # the position of each net; None if there is only one
Wire = tuple[int, int, int, int]  # from, its exit, to, its entry; numbers: entries, then members, then exits


class Leaf(Protocol):
    """What stands in a box: an operation, a layer, an input, a bare parameter."""

    number: int  # its place among the leaves
    name: str
    path: Path  # the calls around it, outermost first
    parents: list[tuple[Net, str]]  # what it reads, and the name of the argument
    shapes: tuple[tuple[int, ...], ...]  # of its results
    stored: tuple[Stored, ...]
    badge: str  # leaves that share weights have the same one
    at: int  # its position in the box around it
    joins: bool  # all that it reads is one net: an output that stands for many tensors

    @property
    def identity(self) -> object:
        """The same for leaves that do the same, wherever they stand."""


L = TypeVar("L", bound=Leaf)


@dataclass(slots=True, eq=False)
class Box(Generic[L]):
    """A call of a module, a function or the model, or the whole pass, with what ran in it."""

    name: str  # relative to the boxes around it
    kind: str  # the module's class
    sort: str  # "module", "function", "root"; of a drawing also "pill" and "stack"
    call: ModuleCall | None = None
    times: int = 1  # the calls it stands for where loops are rolled
    members: list[L | Box[L]] = field(default_factory=list)
    edges: dict[tuple[int, Net, int], None] = field(default_factory=dict)  # from member, net, to member
    entries: dict[Net, None] = field(default_factory=dict)
    exits: dict[Net, None] = field(default_factory=dict)
    at: int = 0  # its position in the box around it
    alike: int = -1  # the same number for boxes that compute the same, wherever gradients flow
    computes: int = -1  # the same, whichever of the results are read
    wires: list[tuple[Wire, Net]] = field(default_factory=list)  # its edges, numbered: alike in boxes that are alike
    runs: list[list[Box[L]]] = field(default_factory=list)  # of its boxes those that repeat: ×N

    def add(self, member: L | Box[L]) -> None:
        """Append a member."""
        member.at = len(self.members)
        self.members.append(member)

    def boxes(self) -> Iterator[Box[L]]:
        """Yield the boxes directly in it."""
        return (member for member in self.members if isinstance(member, Box))


class Fold(Generic[L]):
    """Leaves sorted into boxes, with the edges cut at their borders."""

    def __init__(self, leaves: list[L], times: Mapping[ModuleCall, int]) -> None:
        """Build the tree; `times` says how many calls a box stands for, if more than one."""
        self.leaves = leaves
        self.near_readers: dict[int, int] = {}  # leaf -> how many of its readers are in the same box
        self.used: dict[int, list[int]] = {}  # leaf -> the indices of its results that are read
        self._joined: dict[int, dict[Net, Net]] = {}  # leaf -> a net that it joins -> its result
        self._numbers: dict[object, int] = {}
        self.root: Box[L] = Box("", "", "root")
        self._cut_edges(self._sort(times))
        self._finish(self.root)

    def _sort(self, times: Mapping[ModuleCall, int]) -> list[list[Box[L]]]:
        """Sort the leaves into boxes; return for each leaf the boxes around it, outermost first."""
        paths = {id(leaf.path): leaf.path for leaf in self.leaves}  # hashing a path takes longer
        several = several_calls(call for path in set(paths.values()) for call in path)
        boxes: dict[Path, list[Box[L]]] = {(): [self.root]}
        around: list[list[Box[L]]] = []
        last, inside = None, boxes[()]
        for leaf in self.leaves:
            path = leaf.path
            if path is not last:
                last, inside = path, boxes.get(path) or self._open(path, boxes, several, times)
            around.append(inside)
            inside[-1].add(leaf)
        return around

    def _open(
        self,
        path: Path,
        boxes: dict[Path, list[Box[L]]],
        several: set[tuple[str, str]],
        times: Mapping[ModuleCall, int],
    ) -> list[Box[L]]:
        """Make the boxes of a path that are missing; return all of them."""
        existing = len(path)
        while path[:existing] not in boxes:
            existing -= 1
        for depth in range(existing, len(path)):
            call, before = path[depth], boxes[path[:depth]]
            sort = "function" if call.type == FUNCTION else "module"
            inner: Box[L] = Box(call_name(call, path[:depth], several), call.type, sort, call, times.get(call, 1))
            before[-1].add(inner)
            boxes[path[: depth + 1]] = [*before, inner]
        return boxes[path]

    def _cut_edges(self, around: list[list[Box[L]]]) -> None:
        """Cut each edge into pieces, one per box it runs through."""
        leaves, near_readers, used = self.leaves, self.near_readers, self.used
        for leaf in leaves:
            target = around[leaf.number]
            joins = (leaf.number, 0) if leaf.joins else None
            for net, _ in leaf.parents:
                number, output = net
                outputs = used.get(number)
                if outputs is None:
                    used[number] = [output]
                elif output not in outputs:
                    outputs.append(output)
                    outputs.sort()
                source = around[number]
                if joins is not None:
                    self._joined.setdefault(number, {}).setdefault(joins, net)
                    net = joins
                if source is target:
                    target[-1].edges[leaves[number].at, net, leaf.at] = None
                    near_readers[number] = near_readers.get(number, 0) + 1
                    continue
                shared = 0
                while shared < min(len(source), len(target)) and source[shared] is target[shared]:
                    shared += 1
                start: L | Box[L] = leaves[number]
                for box in reversed(source[shared:]):
                    box.edges[start.at, net, OUTSIDE] = None
                    box.exits[net] = None
                    start = box
                end: L | Box[L] = leaf
                for box in reversed(target[shared:]):
                    box.edges[INSIDE, net, end.at] = None
                    box.entries[net] = None
                    end = box
                source[shared - 1].edges[start.at, net, end.at] = None

    def _finish(self, box: Box[L]) -> None:
        """Number the edges of a box, find what it is alike, and what repeats in it; first of the boxes in it."""
        parts: list[object] = [box.sort, box.kind, box.times]
        inner: list[int] = []
        for member in box.members:
            if isinstance(member, Box):
                self._finish(member)
                parts += (member.name, -1, member.computes)
                inner.append(member.alike)
            else:
                parts += (member.name, member.identity)
        if len(box.exits) > 1:
            box.exits = dict.fromkeys(sorted(box.exits))
        box.wires = self.number_edges(box)
        wires = [wire for wire, _ in box.wires]
        inside = len(wires) - sum(target == OUTSIDE for _, _, target in box.edges) if box.exits else len(wires)
        parts += [self._shape(net) for net in box.entries]
        parts += wires[:inside]  # those that leave the box are the last
        box.computes = self._numbers.setdefault(tuple(parts), len(self._numbers))
        key = (box.computes, tuple(inner), tuple(wires[inside:]))
        box.alike = self._numbers.setdefault(key, len(self._numbers))
        box.runs = _runs(box)

    def _shape(self, net: Net) -> tuple[int, ...] | None:
        shapes = self.leaves[net[0]].shapes
        return shapes[net[1]] if net[1] < len(shapes) else None

    def number_edges(self, box: Box[L]) -> list[tuple[Wire, Net]]:
        """Return the edges inside a box by the numbers of their ends and ports, sorted by where they end."""
        ins, outs = number_nets(box.entries), number_nets(box.exits)
        shift, end = len(ins), len(ins) + len(box.members)
        entries, exits = self._ports(box)
        pieces = []
        for source, net, target in box.edges:
            if source == INSIDE:
                start = (ins[net], 0)
            else:
                ports = exits[source]
                start = (shift + source, ports[net] if ports else 0)
            if target == OUTSIDE:
                stop = (end + outs[net], 0)
            else:
                ports = entries[target]
                stop = (shift + target, ports[net] if ports else 0)
            pieces.append((stop, start, net))
        pieces.sort()
        return [(start + stop, net) for stop, start, net in pieces]

    def _ports(self, box: Box[L]) -> tuple[list[_Ports], list[_Ports]]:
        """Return the positions of the nets that each member of a box reads, and of those that leave it."""
        used = self.used
        entries: list[_Ports] = []
        exits: list[_Ports] = []
        for member in box.members:
            if isinstance(member, Box):
                entries.append(number_nets(member.entries) if len(member.entries) > 1 else None)
                exits.append(number_nets(member.exits) if len(member.exits) > 1 else None)
                continue
            parents, outputs = member.parents, used.get(member.number, ())
            several = len(parents) > 1 and not member.joins
            entries.append(number_nets([net for net, _ in parents]) if several else None)
            ports = number_nets([(member.number, n) for n in outputs]) if len(outputs) > 1 else None
            if ports:
                ports |= {net: ports[result] for net, result in self._joined.get(member.number, {}).items()}
            exits.append(ports)
        return entries, exits


def number_nets(nets: Iterable[Net]) -> dict[Net, int]:
    """Map each net to its position."""
    return {net: number for number, net in enumerate(nets)}


def _runs(box: Box[L]) -> list[list[Box[L]]]:
    """Find the runs of boxes that are alike, each read only by the next; the last may be read by nothing."""
    boxes = [member for member in box.members if isinstance(member, Box)]
    if len(boxes) < 2 or not any(first.computes == second.computes for first, second in pairwise(boxes)):
        return []
    readers: dict[tuple[int, Net], list[int]] = {}
    feeders: dict[tuple[int, Net], int] = {}
    for source, net, target in box.edges:
        readers.setdefault((source, net), []).append(target)
        feeders[target, net] = source
    runs = [boxes[:1]]
    wiring: tuple[int, ...] | None = None  # how each box of the run is connected to the one before it
    for before, after in pairwise(boxes):
        next_wiring = _wiring(before, after, readers, feeders)
        if next_wiring is not None and (len(runs[-1]) == 1 or next_wiring == wiring):
            runs[-1].append(after)
        else:
            runs.append([after])
        wiring = next_wiring
    return [run for run in runs if len(run) > 1]


def _wiring(
    before: Box[L], after: Box[L], readers: dict[tuple[int, Net], list[int]], feeders: dict[tuple[int, Net], int]
) -> tuple[int, ...] | None:
    """Return how `after` follows `before`, a box that is alike; None if it does not.

    The result is, for each entry, the exit of `before` that feeds it, or -1 where both read the same net. A net that
    leaves both is joined outside of them, and read by neither.
    """
    if before.computes != after.computes or (before.alike != after.alike and after.exits):
        return None
    exits = number_nets(before.exits)
    passed_on = {number for net, number in exits.items() if net not in after.exits}
    wiring: list[int] = []
    for earlier_net, net in zip(before.entries, after.entries):
        if net in exits and readers[before.at, net] == [after.at]:
            wiring.append(exits[net])
        elif earlier_net == net and feeders.get((before.at, net)) == feeders.get((after.at, net)):
            wiring.append(-1)
        else:
            return None
    return tuple(wiring) if passed_on and passed_on <= set(wiring) else None


def add_badges(leaves: Iterable[Leaf]) -> None:
    """Give leaves that share weights the same badge."""
    users: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        for entry in leaf.stored:
            if entry.kind == "parameter":
                users.setdefault(entry.name, []).append(leaf)
    badges: dict[tuple[int, ...], str] = {}
    for members in users.values():
        if len(members) > 1:
            badge = badges.setdefault(tuple(leaf.number for leaf in members), _letters(len(badges)))
            for leaf in members:
                leaf.badge = leaf.badge or badge


def _letters(number: int) -> str:
    """Return a number as letters: A, B, …, Z, AA, …"""
    text = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        text = chr(65 + letter) + text
    return text
