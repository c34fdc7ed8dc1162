"""Group items into boxes: modules, functions, pills (chains of reshapes), stacks (equal modules)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from torcheer.drawing.items.history_items import call_name, several_calls
from torcheer.drawing.items.item import Item, Net
from torcheer.network.function_frames import FUNCTION
from torcheer.records import ModuleCall

if TYPE_CHECKING:
    from torcheer.drawing.layout.plans import BoxPlan

INSIDE, OUTSIDE = -1, -2  # ends of an edge at the border of its box: at an entry, at an exit


@dataclass(slots=True, eq=False)
class Group:
    """A box while it is being built. Its members are items or groups."""

    name: str
    kind: str
    sort: str
    members: list[Item | Group] = field(default_factory=list)
    edges: dict[tuple[int, Net, int], None] = field(default_factory=dict)  # from member, net, to member
    entries: dict[Net, None] = field(default_factory=dict)
    exits: dict[Net, None] = field(default_factory=dict)
    at: int = 0  # its position in the group around it
    times: int = 1  # the calls it stands for in a rolled view
    plan: BoxPlan | None = None
    root: Item | None = None  # the operation that a pill of operands is drawn as
    body: str = ""  # and what it says of them
    operations: int = 0  # in it at any depth
    parameters: int = 0  # number of elements; shared parameters are counted when it is drawn
    shared: frozenset[tuple[str, int]] = frozenset()
    states: frozenset[bool] = frozenset()  # whether its parameters are trainable
    marks: frozenset[str] = frozenset()  # "edited", "unseen"

    def add(self, member: Item | Group) -> None:
        member.at = len(self.members)
        self.members.append(member)


Member = Item | Group


def sort_into_boxes(items: list[Item], times: Mapping[ModuleCall, int]) -> tuple[Group, list[list[Group]]]:
    """Build the tree of groups; `times` says how many calls a module stands for, if more than one.

    Return its root, and for each item the groups around it, outermost first.
    """
    root = Group("", "", "root")
    several = several_calls(call for path in {item.path for item in items} for call in path)
    groups: dict[tuple[ModuleCall, ...], list[Group]] = {(): [root]}
    around: list[list[Group]] = []
    last = None
    for item in items:
        path = item.path
        if path is last:  # the common case
            around.append(around[-1])
            around[-1][-1].add(item)
            continue
        last = path
        if path not in groups:
            existing = len(path)
            while path[:existing] not in groups:
                existing -= 1
            for depth in range(existing, len(path)):
                call, before = path[depth], groups[path[:depth]]
                name = call_name(call, path[:depth], several)
                sort = "function" if call.type == FUNCTION else "module"
                inner = Group(name, call.type, sort, times=times.get(call, 1))
                before[-1].add(inner)
                groups[path[: depth + 1]] = [*before, inner]
        around.append(groups[path])
        groups[path][-1].add(item)
    return root, around


def join(items: list[Item], around: list[list[Group]]) -> dict[int, int]:
    """Cut each edge into pieces, one per box it runs through.

    Count the readers of each item in its own box.
    """
    near_readers: dict[int, int] = {}
    for item in items:
        target = around[item.number]
        for net, _ in item.parents:
            source = around[net[0]]
            if source is target:
                target[-1].edges[items[net[0]].at, net, item.at] = None
                near_readers[net[0]] = near_readers.get(net[0], 0) + 1
                continue
            shared = 0
            while shared < min(len(source), len(target)) and source[shared] is target[shared]:
                shared += 1
            start: Item | Group = items[net[0]]
            for group in reversed(source[shared:]):
                group.edges[start.at, net, OUTSIDE] = None
                group.exits[net] = None
                start = group
            end: Item | Group = item
            for group in reversed(target[shared:]):
                group.edges[INSIDE, net, end.at] = None
                group.entries[net] = None
                end = group
            common = source[shared - 1]
            common.edges[start.at, net, end.at] = None
    return near_readers


def in_order(group: Group) -> list[Item]:
    """Return every item at any depth, in the order of the plans."""
    items: list[Item] = []
    stack: list[Member] = [group]
    while stack:
        member = stack.pop()
        if isinstance(member, Group):
            stack.extend(reversed(member.members))
        else:
            items.append(member)
    return items


def number_nets(nets: Iterable[Net]) -> dict[Net, int]:
    """Map each net to its position."""
    return {net: number for number, net in enumerate(nets)}


def pills(group: Group) -> list[list[Member]]:
    """Find chains of at least two plain reshapes, each read only by the next."""
    if group.sort in ("pill", "stack") or not any(
        member.__class__ is Item and member.look == "pill" for member in group.members
    ):
        return []
    into: dict[int, list[int]] = {}
    out: dict[int, list[int]] = {}
    for source, _, target in group.edges:
        out.setdefault(source, []).append(target)
        into.setdefault(target, []).append(source)
    runs: list[list[Member]] = []
    taken: set[int] = set()
    for position, member in enumerate(group.members):
        run = []
        while position not in taken and isinstance(member, Item) and member.plain and len(into.get(position, ())) == 1:
            run.append(member)
            taken.add(position)
            after = out.get(position, [])
            if len(after) != 1 or after[0] <= position:
                break
            position = after[0]
            member = group.members[position]
        if len(run) > 1:
            runs.append(list(run))
    return runs


def operands(group: Group) -> list[tuple[list[Member], Group]]:
    """Find operations with what only prepares their operands: casts, slices, scalings, parameters.

    Nothing else reads these, so they are written in the operation's box. Return the members and the box of each.
    """
    if group.sort in ("pill", "stack"):
        return []
    into: dict[int, list[int]] = {}
    out: dict[int, list[int]] = {}
    for source, _, target in group.edges:
        out.setdefault(source, []).append(target)
        into.setdefault(target, []).append(source)
    runs: list[tuple[list[Member], Group]] = []
    taken: set[int] = set()
    for root in reversed(group.members):
        if root.at in taken or not isinstance(root, Item) or not root.is_function:
            continue
        parts = [part for at in into.get(root.at, ()) for part in _chain(group, at, root, into, out)]
        if parts:
            run: list[Member] = sorted([root, *parts], key=attrgetter("at"))
            taken.update(member.at for member in run)
            runs.append((run, _box_of_operands(root, parts)))
    return runs[::-1]


def _chain(group: Group, at: int, root: Item, into: dict[int, list[int]], out: dict[int, list[int]]) -> list[Item]:
    """Return the operations that only prepare an operand, and their parameters, first to last."""
    chain: list[Item] = []
    while 0 <= at < root.at and len(out[at]) == 1:
        member = group.members[at]
        if not isinstance(member, Item) or not member.prepares(root):
            break
        feeders = into.get(at, [])
        stored = [part for n in feeders if n >= 0 and len(out[n]) == 1 for part in group.members[n : n + 1]]
        stored = [part for part in stored if isinstance(part, Item) and part.is_stored and part.prepares(root)]
        rest = [n for n in feeders if n not in [part.at for part in stored]]
        if len(rest) > 1:
            break
        chain += [member, *[part for part in stored if isinstance(part, Item)]]
        at = rest[0] if rest else INSIDE
    return chain[::-1]


def _box_of_operands(root: Item, parts: list[Item]) -> Group:
    """Return a box that looks like an operation: "exp · neg", or "mul" and how its operands are prepared."""
    kind = root.kind
    texts = [part.name or f"{part.kind} {part.body}".strip() for part in parts]
    if len(root.parents) == 1:
        kind, texts = " · ".join([*[part.name or part.kind for part in parts], kind]), []
    box = Group("", kind, "pill", root=root, times=max(1, len(root.ops)))
    box.body = " · ".join([*filter(None, [root.body]), *texts])
    return box


def stacks(group: Group) -> list[list[Member]]:
    """Find runs of modules with the same plan, each read only by the next."""
    plans = [member.plan.alike if isinstance(member, Group) and member.plan else -1 for member in group.members]
    if group.sort in ("pill", "stack") or not any(first == second >= 0 for first, second in pairwise(plans)):
        return []
    readers: dict[tuple[int, Net], list[int]] = {}
    feeders: dict[tuple[int, Net], int] = {}
    for source, net, target in group.edges:
        readers.setdefault((source, net), []).append(target)
        feeders[target, net] = source
    runs: list[list[Member]] = []
    run: list[Member] = []
    wires: tuple[int, ...] = ()  # how each module of the run is connected to the one before it
    for member in group.members:
        before = run[-1] if run else None
        wiring = None
        if isinstance(member, Group) and isinstance(before, Group):
            wiring = _wiring(before, member, readers, feeders)
        if wiring is not None and (len(run) == 1 or wiring == wires):
            run.append(member)
            wires = wiring
            continue
        if len(run) > 1:
            runs.append(run)
        run = [member] if isinstance(member, Group) and member.sort in ("module", "function") else []
    if len(run) > 1:
        runs.append(run)
    return runs


def _wiring(
    before: Group, after: Group, readers: dict[tuple[int, Net], list[int]],
    feeders: dict[tuple[int, Net], int],
) -> tuple[int, ...] | None:  # fmt: skip
    """Return how `after` follows `before`, an equal module; None if it does not.

    The result is, for each entry, the exit of `before` that feeds it, or -1 where both read the same net.
    """
    if before.plan is None or after.plan is None or before.plan.alike != after.plan.alike:
        return None
    exits = number_nets(before.exits)
    wires: list[int] = []
    for earlier_net, net in zip(before.entries, after.entries):
        if net in exits and readers[before.at, net] == [after.at]:
            wires.append(exits[net])
        elif earlier_net == net and feeders.get((before.at, net)) == feeders.get((after.at, net)):
            wires.append(-1)
        else:
            return None
    return tuple(wires) if set(range(len(exits))) <= set(wires) and exits else None


def stack_of(run: list[Member]) -> Group:
    """Return a box for identical modules: entries of the first, exits of the last."""
    first, last = run[0], run[-1]
    assert isinstance(first, Group) and isinstance(last, Group)
    box = Group(f"{first.name} … {last.name}", first.kind, "stack")
    box.entries, box.exits = dict(first.entries), dict(last.exits)
    return box


def wrap(group: Group, runs: list[tuple[list[Member], Group]]) -> None:
    """Move runs of members of a group into new boxes, each at its first member; at an operation after its operands."""
    last = {id(box): run[-1].at for run, box in runs if box.root}  # where its inputs have been computed
    box_of: dict[int, Group] = {}
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
