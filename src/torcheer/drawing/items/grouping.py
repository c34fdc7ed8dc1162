"""Boxes that a drawing adds to the fold: pills (chains of reshapes), operands in an operation's box, stacks (×N)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from torcheer.drawing.items.item import Item
from torcheer.network.fold import INSIDE, OUTSIDE, Box, Net

Member = Item | Box[Item]
Ends = dict[int, list[int]]  # of the edges of a box: member -> members at the other end


@dataclass(slots=True, eq=False)
class OperationBox(Box[Item]):
    """A pill that is drawn as an operation, with what prepares its operands."""

    root: Item | None = None
    body: str = ""  # what it says of the operands


def _ends(box: Box[Item]) -> tuple[Ends, Ends]:
    """Return what feeds each member of a box, and what reads it."""
    into: Ends = {}
    out: Ends = {}
    for source, _, target in box.edges:
        out.setdefault(source, []).append(target)
        into.setdefault(target, []).append(source)
    return into, out


def pills(box: Box[Item]) -> list[list[Member]]:
    """Find chains of at least two plain reshapes, each read only by the next."""
    if not any(isinstance(member, Item) and member.look == "pill" for member in box.members):
        return []
    into, out = _ends(box)
    runs: list[list[Member]] = []
    taken: set[int] = set()
    for position, member in enumerate(box.members):
        run = []
        while position not in taken and isinstance(member, Item) and member.plain and len(into.get(position, ())) == 1:
            run.append(member)
            taken.add(position)
            after = out.get(position, [])
            if len(after) != 1 or after[0] <= position:
                break
            position = after[0]
            member = box.members[position]
        if len(run) > 1:
            runs.append(list(run))
    return runs


def operands(box: Box[Item]) -> list[tuple[list[Member], OperationBox]]:
    """Find operations with what only prepares their operands: casts, slices, scalings, parameters.

    Nothing else reads these, so they are written in the operation's box. Return the members and the box of each.
    """
    into, out = _ends(box)
    runs: list[tuple[list[Member], OperationBox]] = []
    taken: set[int] = set()
    for root in reversed(box.members):
        if root.at in taken or not isinstance(root, Item) or not root.is_function:
            continue
        parts = [part for at in into.get(root.at, ()) for part in _chain(box, at, root, into, out)]
        if parts:
            run: list[Member] = sorted([root, *parts], key=attrgetter("at"))
            taken.update(member.at for member in run)
            runs.append((run, _box_of_operands(root, parts)))
    return runs[::-1]


def _chain(box: Box[Item], at: int, root: Item, into: Ends, out: Ends) -> list[Item]:
    """Return the operations that only prepare an operand, and their parameters, first to last."""
    chain: list[Item] = []
    while 0 <= at < root.at and len(out[at]) == 1:
        member = box.members[at]
        if not isinstance(member, Item) or not member.prepares(root):
            break
        feeders = into.get(at, [])
        stored = [part for n in feeders if n >= 0 and len(out[n]) == 1 for part in box.members[n : n + 1]]
        stored = [part for part in stored if isinstance(part, Item) and part.is_stored and part.prepares(root)]
        rest = [n for n in feeders if n not in [part.at for part in stored]]
        if len(rest) > 1:
            break
        chain += [member, *[part for part in stored if isinstance(part, Item)]]
        at = rest[0] if rest else INSIDE
    return chain[::-1]


def _box_of_operands(root: Item, parts: list[Item]) -> OperationBox:
    """Return a box that looks like an operation: "exp · neg", or "mul" and how its operands are prepared."""
    kind = root.kind
    texts = [part.name or f"{part.kind} {part.body}".strip() for part in parts]
    if len(root.parents) == 1:
        kind, texts = " · ".join([*[part.name or part.kind for part in parts], kind]), []
    body = " · ".join([*filter(None, [root.body]), *texts])
    return OperationBox("", kind, "pill", times=max(1, len(root.ops)), root=root, body=body)


def stack_of(run: list[Box[Item]]) -> Box[Item]:
    """Return a box for modules that repeat: entries of the first, exits of the last."""
    first, last = run[0], run[-1]
    box: Box[Item] = Box(f"{first.name} … {last.name}", first.kind, "stack")
    box.entries, box.exits = dict(first.entries), dict(last.exits)
    return box


def wrap(group: Box[Item], runs: Sequence[tuple[Sequence[Member], Box[Item]]]) -> None:
    """Move runs of members of a box into new boxes, each at its first member; at an operation after its operands."""
    operations = [(run, box) for run, box in runs if isinstance(box, OperationBox)]
    last = {id(box): run[-1].at for run, box in operations}  # where its inputs have been computed
    box_of: dict[int, Box[Item]] = {}
    inside: dict[int, int] = {}
    for run, box in runs:
        for member in run:
            inside[member.at] = len(box.members)
            box_of[member.at] = box
            box.add(member)
    members = [box_of.get(n, member) for n, member in enumerate(group.members)]
    members = list(dict.fromkeys(m for n, m in enumerate(members) if last.get(id(m), n) == n))
    place = {id(member): n for n, member in enumerate(members)}
    for n, member in enumerate(members):
        member.at = n
    moved = {n: place[id(box_of.get(n, member))] for n, member in enumerate(group.members)}
    moved |= {INSIDE: INSIDE, OUTSIDE: OUTSIDE}
    edges: dict[tuple[int, Net, int], None] = {}
    for source, net, target in group.edges:
        start, end = box_of.get(source), box_of.get(target)
        if start is not None and start is end:
            start.edges[inside[source], net, inside[target]] = None
            continue
        if end is not None:
            end.edges[INSIDE, net, inside[target]] = None
            end.entries.setdefault(net)
        if start is not None:
            start.edges[inside[source], net, OUTSIDE] = None
            start.exits.setdefault(net)
        edges[moved[source], net, moved[target]] = None
    group.members, group.edges = members, edges


def flatten(members: Sequence[Member]) -> list[Member]:
    """Return members with those of boxes that the drawing added, in order."""
    flat: list[Member] = []
    stack = list(reversed(members))
    while stack:
        member = stack.pop()
        if isinstance(member, Box) and member.sort in ("pill", "stack"):
            stack.extend(reversed(member.members))
        else:
            flat.append(member)
    return flat
