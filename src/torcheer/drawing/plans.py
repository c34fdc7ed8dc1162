"""Boxes in boxes: every distinct module becomes one plan, laid out once and used wherever it stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from torcheer.drawing.families import family_of_class
from torcheer.drawing.layout import Edge, Layout, arrange
from torcheer.drawing.scene import Face, Item, Net, call_name, face_of, several_calls
from torcheer.drawing.words import frozen_text, parameter_text, shape_text
from torcheer.records import ModuleCall

INSIDE, OUTSIDE = -1, -2  # ends of an edge at the border of its box: where it comes in, where it goes out


@dataclass(slots=True, eq=False)
class Plan:
    """A box and what is in it. Modules that look the same share one."""

    number: int
    sort: str  # "module", "stack" of identical modules, "pill" of reshapes, "root"
    face: Face  # how it looks folded
    names: tuple[str, ...]  # of what is in it, as seen from here
    parts: tuple[Face | Plan, ...]
    first: tuple[int, ...]  # where the items of each part start, counted from this box's first item
    size: int  # items in it at any depth
    layout: Layout
    flows: tuple[int, ...]  # for each route: 1 where gradients flow, 0 where not
    alike: int  # the same number for boxes that differ only in where gradients flow


@dataclass(slots=True)
class Scene:
    """All there is to draw."""

    root: Plan
    plans: list[Plan]
    items: list[Item]  # in the order of the plans
    flowing: bool  # whether gradients flow anywhere


@dataclass(slots=True, eq=False)
class _Group:
    """A box while it is being built. Its members are items or groups."""

    name: str
    kind: str
    sort: str
    members: list[Item | _Group] = field(default_factory=list)
    edges: dict[tuple[int, Net, int], None] = field(default_factory=dict)  # from member, what, to member
    entries: dict[Net, None] = field(default_factory=dict)
    exits: dict[Net, None] = field(default_factory=dict)
    at: int = 0  # its position in the group around it
    plan: Plan | None = None
    operations: int = 0  # in it at any depth
    parameters: int = 0  # numbers in them; shared ones are counted when it is drawn
    shared: frozenset[tuple[str, int]] = frozenset()
    states: frozenset[bool] = frozenset()  # whether its parameters are trained
    marks: frozenset[str] = frozenset()  # "edited", "unseen"

    def add(self, member: Item | _Group) -> None:
        member.at = len(self.members)
        self.members.append(member)


_Member = Item | _Group
_Ports = dict[Net, int] | None  # the number of each; None where there is only one


def plan_scene(items: list[Item]) -> Scene:
    """Sort the items into boxes, join them, and make one plan of each distinct box."""
    root, around = _boxes(items)
    planner = _Planner(items, _join(items, around))
    plan = planner.plan(root)
    return Scene(plan, planner.plans, _in_order(root), any(any(item.grad) for item in items))


def _boxes(items: list[Item]) -> tuple[_Group, list[list[_Group]]]:
    """A tree of groups, and for each item the groups around it, outermost first."""
    root = _Group("", "", "root")
    several = several_calls(call for path in {item.path for item in items} for call in path)
    groups: dict[tuple[ModuleCall, ...], list[_Group]] = {(): [root]}
    around: list[list[_Group]] = []
    last = None
    for item in items:
        path = item.path
        if path is last:  # mostly
            around.append(around[-1])
            around[-1][-1].add(item)
            continue
        last = path
        if path not in groups:
            known = len(path)
            while path[:known] not in groups:
                known -= 1
            for depth in range(known, len(path)):
                call, before = path[depth], groups[path[:depth]]
                outer = path[depth - 1] if depth else None
                inner = _Group(call_name(call, outer, several.get(call.address, False)), call.type, "module")
                before[-1].add(inner)
                groups[path[: depth + 1]] = [*before, inner]
        around.append(groups[path])
        groups[path][-1].add(item)
    return root, around


def _join(items: list[Item], around: list[list[_Group]]) -> dict[int, int]:
    """Cut each edge into pieces, one for each box it runs through; count the readers of each item in its own box."""
    near: dict[int, int] = {}
    for item in items:
        target = around[item.number]
        for net, _ in item.parents:
            source = around[net[0]]
            if source is target:
                target[-1].edges[items[net[0]].at, net, item.at] = None
                near[net[0]] = near.get(net[0], 0) + 1
                continue
            shared = 0
            while shared < min(len(source), len(target)) and source[shared] is target[shared]:
                shared += 1
            start: Item | _Group = items[net[0]]
            for group in reversed(source[shared:]):
                group.edges[start.at, net, OUTSIDE] = None
                group.exits[net] = None
                start = group
            end: Item | _Group = item
            for group in reversed(target[shared:]):
                group.edges[INSIDE, net, end.at] = None
                group.entries[net] = None
                end = group
            common = source[shared - 1]
            common.edges[start.at, net, end.at] = None
    return near


class _Planner:
    def __init__(self, items: list[Item], near_readers: dict[int, int]) -> None:
        self.items = items
        self.plans: list[Plan] = []
        self.known: dict[object, Plan] = {}
        self.faces: dict[Face, int] = {}
        self.looks: dict[object, tuple[Face, int]] = {}
        self.alike: dict[object, int] = {}
        self.near_readers = near_readers  # how many in the same box
        self.used: dict[int, list[int]] = {}  # the results of each item that are read
        for item in items:
            for (number, output), _ in item.parents:
                known = self.used.get(number)
                if known is None:
                    self.used[number] = [output]
                elif output not in known:
                    known.append(output)
                    known.sort()

    def plan(self, group: _Group) -> Plan:
        for member in group.members:
            if isinstance(member, _Group) and member.plan is None:
                self.plan(member)
        if len(group.exits) > 1:
            group.exits = dict.fromkeys(sorted(group.exits))
        self._wrap(group, [(run, _Group("", f"reshape ×{len(run)}", "pill")) for run in _pills(group)])
        self._wrap(group, [(run, _stack_of(run)) for run in _stacks(group)])
        group.plan = self._plan(group)
        return group.plan

    def _wrap(self, group: _Group, runs: list[tuple[list[_Member], _Group]]) -> None:
        if runs:
            _wrap(group, runs)
            for _, box in runs:
                self.plan(box)

    def _plan(self, group: _Group) -> Plan:
        parts: list[Face | Plan] = []
        names: list[str] = []
        inner: list[int] = []  # numbers that tell the parts apart
        entries: list[_Ports] = []
        exits: list[_Ports] = []
        for member in group.members:
            names.append(member.name)
            if isinstance(member, _Group):
                assert member.plan is not None
                parts.append(member.plan)
                inner.append(member.plan.number)
                entries.append(_numbered(member.entries))
                exits.append(_numbered(member.exits))
            else:
                used = self.used.get(member.number, [])
                parents = member.parents
                face, number = self._face_of(member, used)
                parts.append(face)
                inner += (-1, number, member.form)
                entries.append(_numbered([net for net, _ in parents]) if len(parents) > 1 else None)
                exits.append(_numbered([(member.number, output) for output in used]) if len(used) > 1 else None)
        edges, flows = self._edges(group, entries, exits)
        face = self._face(group)
        key = (group.sort, face, *names, *inner, *edges, *flows)
        found = self.known.get(key)
        if found is None:
            alike_inner = [part.alike if isinstance(part, Plan) else part for part in parts]
            alike_inner += [member.form for member in group.members if isinstance(member, Item)]
            alike = self.alike.setdefault((group.sort, face, *names, *alike_inner, *edges), len(self.alike))
            found = self.known[key] = self._new(group, face, tuple(names), parts, edges, flows, alike)
        return found

    def _face_of(self, item: Item, used: list[int]) -> tuple[Face, int]:
        """An item's face and its number; items of one form mostly have the same."""
        told = self._told(item)
        names = item.parents[0][1] if len(item.parents) == 1 else tuple([name for _, name in item.parents])
        exits = used[0] if len(used) == 1 else tuple(used)
        plain = item.form >= 0 and not (item.fill or item.stroke)
        key = (item.form, item.kind, item.body, told, names, exits, item.badge, item.marks, len(item.ops), item.varies)
        found = self.looks.get(key) if plain else None
        if found is None:
            face = face_of(item, used, told)
            found = face, self.faces.setdefault(face, len(self.faces))
            if plain:
                self.looks[key] = found
        return found

    def _new(
        self, group: _Group, face: Face, names: tuple[str, ...], parts: list[Face | Plan], edges: list[Edge],
        flows: tuple[int, ...], alike: int,
    ) -> Plan:  # fmt: skip
        count_in, count, count_out = len(group.entries), len(parts), len(group.exits)
        merges = {
            count_in + n
            for n, part in enumerate(parts)
            if isinstance(part, Face) and part.look == "merge" and not any(part.entries)
        }
        layout = arrange(count_in, count, count_out, edges, merges, flows)
        flow_of = dict(zip(edges, flows))
        first, size = [], 0
        for part in parts:
            first.append(size)
            size += part.size if isinstance(part, Plan) else 1
        plan = Plan(
            len(self.plans), group.sort, face, names, tuple(parts), tuple(first), size, layout,
            tuple(flow_of[r.source, r.exit, r.target, r.entry] for r in layout.routes), alike,
        )  # fmt: skip
        self.plans.append(plan)
        return plan

    def _edges(self, group: _Group, entries: list[_Ports], exits: list[_Ports]) -> tuple[list[Edge], tuple[int, ...]]:
        """The pieces inside a group, counted as `arrange` wants them, and whether gradients flow in each."""
        ins, outs = _numbered(group.entries), _numbered(group.exits)
        shift, end = len(ins), len(ins) + len(group.members)
        found = []
        for source, net, target in group.edges:
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
            found.append((stop, start, net))
        found.sort()
        edges, flows = [], []
        for stop, start, (number, output) in found:
            grad = self.items[number].grad
            edges.append(start + stop)
            flows.append(1 if output < len(grad) and grad[output] else 0)
        return edges, tuple(flows)

    def _told(self, item: Item) -> bool:
        """Whether the shape is worth saying: it is new, or the result goes several ways."""
        if item.look == "output" or not item.shapes:
            return False
        if item.look in ("input", "parameter", "buffer") or self.near_readers.get(item.number, 0) > 1:
            return True
        shape = item.shapes[0]
        for (parent, output), _ in item.parents:
            before = self.items[parent].shapes
            if output >= len(before) or before[output] != shape:
                return True
        return len(item.shapes) > 1 or not item.parents

    def _face(self, group: _Group) -> Face:
        for member in group.members:
            if isinstance(member, _Group):
                group.operations += member.operations
                group.parameters += member.parameters
                group.shared |= member.shared
                group.states |= member.states
                group.marks |= member.marks
                continue
            group.operations += bool(member.ops)
            if member.marks:
                group.marks |= {mark for mark in member.marks if "frozen" not in mark}
            if member.states:
                group.states |= member.states
                if member.badge:
                    group.shared |= {(one.name, one.count) for one in member.stored if one.kind == "parameter"}
                else:
                    group.parameters += member.parameters
        states = group.states
        words = [f"{group.operations} ops"] if group.sort == "module" else []
        if states:
            total = group.parameters + sum(count for _, count in group.shared)
            words.append(parameter_text(total, states))
        exits = tuple(self._shape(net) for net in group.exits)
        return Face(
            "pill" if group.sort == "pill" else "module",
            group.kind,
            " · ".join(words),
            "reshape" if group.sort == "pill" else family_of_class(group.kind),
            len(group.members) if group.sort == "stack" else 1,
            ("",) * len(group.entries),
            exits,
            marks=tuple(sorted({frozen_text(states).strip(), *group.marks} - {""})),
            folded=group.sort != "pill",
        )

    def _shape(self, net: Net) -> str:
        shapes = self.items[net[0]].shapes
        return shape_text(shapes[net[1]]) if net[1] < len(shapes) else ""


def _numbered(nets: Iterable[Net]) -> dict[Net, int]:
    return {net: number for number, net in enumerate(nets)}


def _in_order(group: _Group) -> list[Item]:
    """Every item at any depth, in the order of the plans."""
    found: list[Item] = []
    stack: list[_Member] = [group]
    while stack:
        member = stack.pop()
        if isinstance(member, _Group):
            stack.extend(reversed(member.members))
        else:
            found.append(member)
    return found


def _pills(group: _Group) -> list[list[_Member]]:
    """Chains of at least two plain reshapes, each read only by the next."""
    if group.sort in ("pill", "stack") or not any(
        member.__class__ is Item and member.look == "pill" for member in group.members
    ):
        return []
    into: dict[int, list[int]] = {}
    out: dict[int, list[int]] = {}
    for source, _, target in group.edges:
        out.setdefault(source, []).append(target)
        into.setdefault(target, []).append(source)
    runs: list[list[_Member]] = []
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


def _stacks(group: _Group) -> list[list[_Member]]:
    """Runs of modules with the same plan, each fed by the one before it and read by nobody else."""
    plans = [member.plan.alike if isinstance(member, _Group) and member.plan else -1 for member in group.members]
    if group.sort in ("pill", "stack") or not any(one == two >= 0 for one, two in pairwise(plans)):
        return []
    readers: dict[tuple[int, Net], list[int]] = {}
    feeders: dict[tuple[int, Net], int] = {}
    for source, net, target in group.edges:
        readers.setdefault((source, net), []).append(target)
        feeders[target, net] = source
    runs: list[list[_Member]] = []
    run: list[_Member] = []
    wires: tuple[int, ...] = ()  # how each follows the one before it
    for member in group.members:
        before = run[-1] if run else None
        found = None
        if isinstance(member, _Group) and isinstance(before, _Group):
            found = _wiring(before, member, readers, feeders)
        if found is not None and (len(run) == 1 or found == wires):
            run.append(member)
            wires = found
            continue
        if len(run) > 1:
            runs.append(run)
        run = [member] if isinstance(member, _Group) and member.sort == "module" else []
    if len(run) > 1:
        runs.append(run)
    return runs


def _wiring(
    before: _Group, after: _Group, readers: dict[tuple[int, Net], list[int]],
    feeders: dict[tuple[int, Net], int],
) -> tuple[int, ...] | None:  # fmt: skip
    """How `after` is `before` once more: for each entry the exit of `before` that feeds it, or -1 where both read the
    same; None where it is not."""
    one_plan, two_plan = before.plan, after.plan
    if one_plan is None or two_plan is None or one_plan.alike != two_plan.alike:
        return None
    one, two = before.at, after.at
    exits = _numbered(before.exits)
    wires: list[int] = []
    for was, net in zip(before.entries, after.entries):
        if net in exits and readers[one, net] == [two]:
            wires.append(exits[net])
        elif was == net and feeders.get((one, was)) == feeders.get((two, net)):
            wires.append(-1)
        else:
            return None
    return tuple(wires) if set(range(len(exits))) <= set(wires) and exits else None


def _stack_of(run: list[_Member]) -> _Group:
    """A box for identical modules, with the ports of its first and last."""
    first, last = run[0], run[-1]
    assert isinstance(first, _Group) and isinstance(last, _Group)
    box = _Group(f"{first.name} … {last.name}", first.kind, "stack")
    box.entries, box.exits = dict(first.entries), dict(last.exits)
    return box


def _wrap(group: _Group, runs: list[tuple[list[_Member], _Group]]) -> None:
    """Put some members of a group into boxes of their own, each at the place of its first."""
    box_of: dict[int, _Group] = {}
    inside: dict[int, int] = {}
    for run, box in runs:
        for member in run:
            inside[member.at] = len(box.members)
            box_of[member.at] = box
            box.add(member)
    members = list(dict.fromkeys(box_of.get(n, member) for n, member in enumerate(group.members)))
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
