"""Boxes in boxes: every distinct module becomes one plan, laid out once and used wherever it stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torcheer.drawing.families import family_of_class
from torcheer.drawing.layout import Edge, Layout, arrange
from torcheer.drawing.scene import Face, Item, Net, call_name, face_of
from torcheer.drawing.words import count_text, shape_text
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
    alike: int  # the same number for boxes that differ only in whether gradients flow into them


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
    place: dict[int, int] = field(default_factory=dict)  # id of a member -> its position
    plan: Plan | None = None

    def add(self, member: Item | _Group) -> None:
        self.place[id(member)] = len(self.members)
        self.members.append(member)


_Member = Item | _Group


def plan_scene(items: list[Item], several_calls: dict[str, bool]) -> Scene:
    """Sort the items into boxes, join them, and make one plan of each distinct box."""
    root, around = _boxes(items, several_calls)
    _join(items, around)
    planner = _Planner(items)
    plan = planner.plan(root)
    return Scene(plan, planner.plans, _in_order(root), any(any(item.grad) for item in items))


def _boxes(items: list[Item], several_calls: dict[str, bool]) -> tuple[_Group, list[list[_Group]]]:
    """A tree of groups, and for each item the groups around it, outermost first."""
    root = _Group("", "", "root")
    groups: dict[tuple[ModuleCall, ...], list[_Group]] = {(): [root]}
    around = []
    for item in items:
        path = item.path
        if path not in groups:
            known = len(path)
            while path[:known] not in groups:
                known -= 1
            for depth in range(known, len(path)):
                call, before = path[depth], groups[path[:depth]]
                outer = path[depth - 1] if depth else None
                inner = _Group(call_name(call, outer, several_calls.get(call.address, False)), call.type, "module")
                before[-1].add(inner)
                groups[path[: depth + 1]] = [*before, inner]
        around.append(groups[path])
        groups[path][-1].add(item)
    return root, around


def _join(items: list[Item], around: list[list[_Group]]) -> None:
    """Cut each edge into pieces, one for each box it runs through."""
    for item in items:
        target = around[item.number]
        for net, _ in item.parents:
            source = around[net[0]]
            shared = 0
            while shared < min(len(source), len(target)) and source[shared] is target[shared]:
                shared += 1
            start: Item | _Group = items[net[0]]
            for group in reversed(source[shared:]):
                group.edges[group.place[id(start)], net, OUTSIDE] = None
                group.exits[net] = None
                start = group
            end: Item | _Group = item
            for group in reversed(target[shared:]):
                group.edges[INSIDE, net, group.place[id(end)]] = None
                group.entries[net] = None
                end = group
            common = source[shared - 1]
            common.edges[common.place[id(start)], net, common.place[id(end)]] = None


class _Planner:
    def __init__(self, items: list[Item]) -> None:
        self.items = items
        self.plans: list[Plan] = []
        self.known: dict[object, Plan] = {}
        self.alike: dict[object, int] = {}
        self.readers: dict[Net, int] = {}
        self.near_readers: dict[int, int] = {}  # those in the same box
        for item in items:
            for net, _ in item.parents:
                self.readers[net] = self.readers.get(net, 0) + 1
                if items[net[0]].path == item.path:
                    self.near_readers[net[0]] = self.near_readers.get(net[0], 0) + 1

    def plan(self, group: _Group) -> Plan:
        for member in group.members:
            if isinstance(member, _Group):
                self.plan(member)
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
        entries: list[dict[Net, int]] = []
        exits: list[dict[Net, int]] = []
        for member in group.members:
            if isinstance(member, _Group):
                assert member.plan is not None
                parts.append(member.plan)
                entries.append({net: n for n, net in enumerate(member.entries)})
                exits.append({net: n for n, net in enumerate(member.exits)})
            else:
                used = sorted(net[1] for net in self._used(member))
                entries.append({net: n for n, (net, _) in enumerate(member.parents)})
                exits.append({(member.number, output): n for n, output in enumerate(used)})
                names = tuple(name for _, name in member.parents)
                parts.append(
                    face_of(member, names if any(names) else ("",) * len(names), tuple(used), self._told(member))
                )
        names = tuple(member.name for member in group.members)
        edges, nets = self._edges(group, entries, exits)
        flows = tuple(int(self._flows(net)) for net in nets)
        face = self._face(group, parts)
        key = (
            group.sort,
            face,
            names,
            tuple(p.number if isinstance(p, Plan) else p for p in parts),
            tuple(edges),
            flows,
        )
        if key not in self.known:
            inner = tuple(p.alike if isinstance(p, Plan) else p for p in parts)
            later = tuple(flow for flow, edge in zip(flows, edges) if edge[0] >= len(group.entries))
            alike = self.alike.setdefault((group.sort, face, names, inner, tuple(edges), later), len(self.alike))
            self.known[key] = self._new(group, face, names, parts, edges, flows, alike)
        return self.known[key]

    def _new(
        self, group: _Group, face: Face, names: tuple[str, ...], parts: list[Face | Plan], edges: list[Edge],
        flows: tuple[int, ...], alike: int,
    ) -> Plan:  # fmt: skip
        count_in, count, count_out = len(group.entries), len(parts), len(group.exits)
        merges = {count_in + n for n, part in enumerate(parts) if isinstance(part, Face) and part.look == "merge"}
        layout = arrange(count_in, count, count_out, edges, merges)
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

    def _edges(
        self, group: _Group, entries: list[dict[Net, int]], exits: list[dict[Net, int]]
    ) -> tuple[list[Edge], list[Net]]:
        """The pieces inside a group, with members and ports counted as `arrange` wants them."""
        ins = {net: n for n, net in enumerate(group.entries)}
        outs = {net: n for n, net in enumerate(group.exits)}
        shift, end = len(ins), len(ins) + len(group.members)
        edges, nets = [], []
        for source, net, target in sorted(group.edges, key=lambda edge: (edge[2] % (1 << 60), edge[0], edge[1])):
            start = (ins[net], 0) if source == INSIDE else (shift + source, exits[source][net])
            stop = (end + outs[net], 0) if target == OUTSIDE else (shift + target, entries[target][net])
            edges.append((*start, *stop))
            nets.append(net)
        return edges, nets

    def _used(self, item: Item) -> list[Net]:
        return [
            (item.number, output)
            for output in range(max(1, len(item.shapes)))
            if self.readers.get((item.number, output))
        ]

    def _told(self, item: Item) -> bool:
        """Whether the shape is worth saying: it is new, or the result goes several ways."""
        if item.look == "output" or not item.shapes:
            return False
        if item.look in ("input", "parameter", "buffer"):
            return True
        before = {self.items[net[0]].shapes[net[1] : net[1] + 1] for net, _ in item.parents}
        branches = self.near_readers.get(item.number, 0) > 1
        return branches or any((shape,) not in before for shape in item.shapes) or len(before) > 1

    def _flows(self, net: Net) -> bool:
        grad = self.items[net[0]].grad
        return net[1] < len(grad) and grad[net[1]]

    def _face(self, group: _Group, parts: list[Face | Plan]) -> Face:
        items = list(_items_in(group))
        stored = {one.name: one for item in items for one in item.stored if one.kind == "parameter"}
        states = {one.trainable for one in stored.values()}
        operations = sum(1 for item in items if item.ops)
        words = [f"{operations} ops"] if group.sort == "module" else []
        if stored:
            words.append(f"{count_text(sum(one.count for one in stored.values()))} params")
        exits = tuple(
            shape_text(self.items[net[0]].shapes[net[1]]) if net[1] < len(self.items[net[0]].shapes) else ""
            for net in group.exits
        )
        if group.sort == "pill":
            exits = tuple(exits if self._told(items[-1]) or items[0].parents else ())
        return Face(
            "pill" if group.sort == "pill" else "module",
            group.kind,
            " · ".join(words),
            "reshape" if group.sort == "pill" else family_of_class(group.kind),
            len(group.members) if group.sort == "stack" else 1,
            ("",) * len(group.entries),
            exits,
            mark="" if states <= {True} else "frozen" if states == {False} else "partly frozen",
            folded=group.sort != "pill",
        )


def _items_in(group: _Group) -> Iterable[Item]:
    for member in group.members:
        if isinstance(member, _Group):
            yield from _items_in(member)
        else:
            yield member


def _in_order(group: _Group) -> list[Item]:
    return list(_items_in(group))


def _pills(group: _Group) -> list[list[_Member]]:
    """Chains of at least two plain reshapes, each read only by the next."""
    if group.sort in ("pill", "stack"):
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
    if group.sort in ("pill", "stack"):
        return []
    readers: dict[tuple[int, Net], list[int]] = {}
    feeders: dict[tuple[int, Net], int] = {}
    for source, net, target in group.edges:
        readers.setdefault((source, net), []).append(target)
        feeders[target, net] = source
    runs: list[list[_Member]] = []
    run: list[_Member] = []
    for member in group.members:
        before = run[-1] if run else None
        if (
            isinstance(member, _Group)
            and isinstance(before, _Group)
            and _follows(group, before, member, readers, feeders)
        ):
            run.append(member)
            continue
        if len(run) > 1:
            runs.append(run)
        run = [member] if isinstance(member, _Group) and member.sort == "module" else []
    if len(run) > 1:
        runs.append(run)
    return runs


def _follows(
    group: _Group, before: _Group, after: _Group, readers: dict[tuple[int, Net], list[int]],
    feeders: dict[tuple[int, Net], int],
) -> bool:  # fmt: skip
    """Whether `after` is `before` once more: the same plan, its inputs from there or from where those come from."""
    one_plan, two_plan = before.plan, after.plan
    if one_plan is None or two_plan is None or one_plan.alike != two_plan.alike:
        return False
    one, two = group.place[id(before)], group.place[id(after)]
    chained = 0
    outs = list(before.exits)
    for was, net in zip(before.entries, after.entries):
        if net in outs and readers[one, net] == [two]:
            chained += 1
        elif was != net or feeders.get((one, was)) != feeders.get((two, net)):
            return False
    return chained > 0 and chained == len(outs)


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
            inside[group.place[id(member)]] = len(box.members)
            box_of[group.place[id(member)]] = box
            box.add(member)
    members = list(dict.fromkeys(box_of.get(n, member) for n, member in enumerate(group.members)))
    place = {id(member): n for n, member in enumerate(members)}
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
    group.members, group.place, group.edges = members, place, edges
