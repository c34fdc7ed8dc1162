"""Plans: each distinct box is laid out once, and its plan used for every equal box."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torcheer.drawing.items.box_text import frozen_text, parameter_text
from torcheer.drawing.items.families import family_of_class
from torcheer.drawing.items.grouping import (
    INSIDE,
    OUTSIDE,
    Group,
    Member,
    in_order,
    join,
    number_nets,
    operands,
    pills,
    sort_into_boxes,
    stack_of,
    stacks,
    wrap,
)
from torcheer.drawing.items.item import GRADIENT, Face, Item, Net, face_of, net_kind, note_at
from torcheer.drawing.layout.box_layout import Layout, LayoutEdge, arrange
from torcheer.records import ModuleCall
from torcheer.terminal import plural


@dataclass(slots=True, eq=False)
class BoxPlan:
    """A box and its contents. Modules that look the same share one plan."""

    number: int
    sort: str  # "module", "function", "stack" of identical ones, "pill" of reshapes, "root"
    face: Face  # how it looks folded
    names: tuple[str, ...]  # of its parts, relative to this box
    parts: tuple[Face | BoxPlan, ...]
    first: tuple[int, ...]  # index of the first item of each part, relative to this box's first item
    size: int  # items in it at any depth
    layout: Layout
    flows: tuple[int, ...]  # what each route carries: STILL, FLOWS, KEPT or GRADIENT of items/item.py
    alike: int  # the same number for boxes that differ at most in where gradients flow


@dataclass(slots=True)
class Scene:
    """Everything to draw: the plans of all boxes, and the items."""

    root: BoxPlan
    plans: list[BoxPlan]
    items: list[Item]  # in the order of the plans
    flowing: bool  # True if gradients flow anywhere
    wrap_cost: float = 0.02  # penalty for each wrap, where the eye must jump


_Ports = dict[Net, int] | None  # the position of each net; None if there is only one


def plan_scene(
    items: list[Item], times: Mapping[ModuleCall, int] = MappingProxyType({}), *, rolled: bool = False
) -> Scene:
    """Sort the items into boxes, connect them, and make one plan of each distinct box.

    `times` says how many calls a box stands for, if more than one. In a rolled view an operation and what prepares its
    operands are one box.
    """
    root, around = sort_into_boxes(items, times)
    planner = _Planner(items, join(items, around), rolled)
    plan = planner.plan(root)
    has_backward = any(item.look == "gradient" for item in items)
    flowing = any(any(item.carries) for item in items)
    return Scene(
        plan, planner.plans, in_order(root), flowing, 0.1 if has_backward else 0.02
    )  # with a backward pass the eye jumps twice


class _Planner:
    def __init__(self, items: list[Item], near_readers: dict[int, int], rolled: bool) -> None:
        self.items, self.rolled = items, rolled
        self.plans: list[BoxPlan] = []
        self.plan_by_key: dict[object, BoxPlan] = {}
        self.faces: dict[Face, int] = {}
        self.looks: dict[object, tuple[Face, int]] = {}
        self.alike: dict[object, int] = {}
        self.near_readers = near_readers  # item -> how many of its readers are in the same box
        self.used_outputs: dict[int, list[int]] = {}  # item -> the indices of its results that are read
        for item in items:
            for (number, output), _ in item.parents:
                outputs = self.used_outputs.get(number)
                if outputs is None:
                    self.used_outputs[number] = [output]
                elif output not in outputs:
                    outputs.append(output)
                    outputs.sort()

    def plan(self, group: Group) -> BoxPlan:
        for member in group.members:
            if isinstance(member, Group) and member.plan is None:
                self.plan(member)
        if len(group.exits) > 1:
            group.exits = dict.fromkeys(sorted(group.exits))
        if self.rolled:
            self._wrap(group, operands(group))
        else:
            self._wrap(group, [(run, Group("", f"reshape ×{len(run)}", "pill")) for run in pills(group)])
        self._wrap(group, [(run, stack_of(run)) for run in stacks(group)])
        group.plan = self._plan(group)
        return group.plan

    def _wrap(self, group: Group, runs: list[tuple[list[Member], Group]]) -> None:
        if runs:
            wrap(group, runs)
            for _, box in runs:
                self.plan(box)

    def _plan(self, group: Group) -> BoxPlan:
        parts: list[Face | BoxPlan] = []
        names: list[str] = []
        inner: list[int] = []  # numbers that distinguish the parts
        entries: list[_Ports] = []
        exits: list[_Ports] = []
        for member in group.members:
            names.append(member.name)
            if isinstance(member, Group):
                assert member.plan is not None
                parts.append(member.plan)
                inner.append(member.plan.number)
                entries.append(number_nets(member.entries))
                exits.append(number_nets(member.exits))
            else:
                used = self.used_outputs.get(member.number, [])
                parents = member.parents
                face, number = self._face_of(member, used)
                parts.append(face)
                inner += (-1, number, member.form)
                entries.append(number_nets([net for net, _ in parents]) if len(parents) > 1 else None)
                exits.append(number_nets([(member.number, output) for output in used]) if len(used) > 1 else None)
        edges, flows = self._edges(group, entries, exits)
        face = self._face(group)
        key = (group.sort, face, *names, *inner, *edges, *flows)
        plan = self.plan_by_key.get(key)
        if plan is None:
            alike_inner = [part.alike if isinstance(part, BoxPlan) else part for part in parts]
            alike_inner += [member.form for member in group.members if isinstance(member, Item)]
            alike = self.alike.setdefault((group.sort, face, *names, *alike_inner, *edges), len(self.alike))
            plan = self.plan_by_key[key] = self._new(group, face, tuple(names), parts, edges, flows, alike)
        return plan

    def _face_of(self, item: Item, used: list[int]) -> tuple[Face, int]:
        """Return an item's face and the face's number, cached by the item's form."""
        show_shapes = self._shows_shapes(item, used)
        names = item.parents[0][1] if len(item.parents) == 1 else tuple([name for _, name in item.parents])
        exits = used[0] if len(used) == 1 else tuple(used)
        is_cacheable = item.form >= 0 and not (item.fill or item.stroke)
        key = (
            item.form, item.kind, item.body, show_shapes, names, exits, item.badge, item.marks, len(item.ops),
            item.varies,
        )  # fmt: skip
        entry = self.looks.get(key) if is_cacheable else None
        if entry is None:
            face = face_of(item, used, show_shapes)
            entry = face, self.faces.setdefault(face, len(self.faces))
            if is_cacheable:
                self.looks[key] = entry
        return entry

    def _new(
        self, group: Group, face: Face, names: tuple[str, ...], parts: list[Face | BoxPlan], edges: list[LayoutEdge],
        flows: tuple[int, ...], alike: int,
    ) -> BoxPlan:  # fmt: skip
        count_in, count, count_out = len(group.entries), len(parts), len(group.exits)
        merges = {
            count_in + n
            for n, part in enumerate(parts)
            if isinstance(part, Face) and part.look == "merge" and not any(part.entries)
        }
        layout = arrange(count_in, count, count_out, edges, merges, flows, _pairs(group, count_in))
        flow_of = dict(zip(edges, flows))
        first, size = [], 0
        for part in parts:
            first.append(size)
            size += part.size if isinstance(part, BoxPlan) else 1
        plan = BoxPlan(
            len(self.plans), group.sort, face, names, tuple(parts), tuple(first), size, layout,
            tuple(flow_of[r.source, r.exit, r.target, r.entry] for r in layout.routes), alike,
        )  # fmt: skip
        self.plans.append(plan)
        return plan

    def _edges(
        self, group: Group, entries: list[_Ports], exits: list[_Ports]
    ) -> tuple[list[LayoutEdge], tuple[int, ...]]:
        """Return the edges inside a group, numbered as `arrange` expects, and what each carries."""
        ins, outs = number_nets(group.entries), number_nets(group.exits)
        shift, end = len(ins), len(ins) + len(group.members)
        pieces = []
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
            pieces.append((stop, start, net))
        pieces.sort()
        edges, flows = [], []
        for stop, start, net in pieces:
            edges.append(start + stop)
            flows.append(net_kind(self.items, net))
        return edges, tuple(flows)

    def _shows_shapes(self, item: Item, used: list[int]) -> bool:
        """True if an item's shapes are worth showing: a new shape, or several readers."""
        if item.look == "output" or not item.shapes:
            return False
        if item.look in ("input", "parameter", "buffer") or self.near_readers.get(item.number, 0) > 1:
            return True
        if len(used) > 1 or not item.parents:
            return True
        shape = item.shapes[used[0]] if used and used[0] < len(item.shapes) else item.shapes[0]
        for (parent, output), _ in item.parents:
            before = self.items[parent].shapes
            if output >= len(before) or before[output] != shape:
                return True
        return False

    def _lines(self, group: Group) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return what a box's entries and exits carry, if any carries a gradient."""
        entries, exits = (tuple(net_kind(self.items, net) for net in nets) for nets in (group.entries, group.exits))
        return (entries, exits) if GRADIENT in entries + exits else ((), ())

    def _face(self, group: Group) -> Face:
        for member in group.members:
            if isinstance(member, Group):
                group.operations += member.operations
                group.parameters += member.parameters
                group.shared |= member.shared
                group.states |= member.states
                group.marks |= member.marks
                continue
            group.operations += bool(member.ops)
            if member.marks:
                group.marks |= {
                    mark for mark in member.marks if "frozen" not in mark and mark not in ("borrowed", "beside")
                }
            if member.states:
                group.states |= member.states
                if member.badge:
                    group.shared |= {(entry.name, entry.count) for entry in member.stored if entry.kind == "parameter"}
                else:
                    group.parameters += member.parameters
        states, root = group.states, group.root
        words = [group.body] if group.body else []
        words += [plural(group.operations, "op")] if group.sort in ("module", "function") else []
        if states:
            total = group.parameters + sum(count for _, count in group.shared)
            words.append(parameter_text(total, states))
        exits = tuple(note_at(self.items[number], output) for number, output in group.exits)
        if root and not self._shows_shapes(root, self.used_outputs.get(root.number, [])):
            exits = ("",) * len(exits)
        look, family = ("pill", "reshape") if group.sort == "pill" else ("module", family_of_class(group.kind))
        return Face(
            root.look if root else look,
            group.kind,
            " · ".join(words),
            root.family if root else family,
            len(group.members) if group.sort == "stack" else group.times,
            ("",) * len(group.entries),
            exits,
            marks=tuple(sorted({frozen_text(states).strip(), *group.marks} - {""})),
            folded=group.sort != "pill",
            lines=self._lines(group),
        )


def _pairs(group: Group, shift: int) -> dict[int, int]:
    """Map each backward rule in a group to its operation, both numbered as `arrange` expects."""
    place = {member.number: shift + member.at for member in group.members if isinstance(member, Item)}
    rules = [member for member in group.members if isinstance(member, Item) and member.look == "gradient"]
    return {shift + rule.at: place[rule.pair] for rule in rules if rule.pair in place}
