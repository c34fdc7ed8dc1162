"""Plans: each distinct box is laid out once, and its plan used for every equal box."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from torcheer.drawing.items.box_text import frozen_text, parameter_text
from torcheer.drawing.items.families import family_of_class
from torcheer.drawing.items.grouping import Member, OperationBox, flatten, operands, pills, stack_of, wrap
from torcheer.drawing.items.item import GRADIENT, STILL, Face, Item, face_of, net_kind, note_at
from torcheer.drawing.layout.box_layout import Layout, LayoutEdge, arrange
from torcheer.network.fold import Box, Fold, Net, Wire
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


@dataclass(slots=True)
class Scene:
    """Everything to draw: the plans of all boxes, and the items."""

    root: BoxPlan
    plans: list[BoxPlan]
    items: list[Item]  # in the order of the plans
    flowing: bool  # True if gradients flow anywhere
    wrap_cost: float = 0.02  # penalty for each wrap, where the eye must jump


class _Contents(NamedTuple):
    """What a box holds at any depth."""

    operations: int = 0
    parameters: int = 0  # number of elements; shared parameters are counted when it is drawn
    shared: frozenset[tuple[str, int]] = frozenset()
    states: frozenset[bool | None] = frozenset()  # whether its parameters are trainable; None: not known
    marks: frozenset[str] = frozenset()  # "edited", "unseen"


class _Planned(NamedTuple):
    """The plan of boxes that look the same, and what it takes to use it for another of them."""

    plan: BoxPlan
    contents: _Contents
    order: tuple[int, ...]  # of the members, if the drawing moves some; else ()


def plan_scene(
    items: list[Item], times: Mapping[ModuleCall, int] = MappingProxyType({}), *, rolled: bool = False
) -> Scene:
    """Fold the items into boxes, and make one plan of each distinct box.

    `times` says how many calls a box stands for, if more than one. In a rolled view an operation and what prepares its
    operands are one box.
    """
    planner = _Planner(Fold(items, times), rolled)
    plan = planner.plan(planner.fold.root)
    has_backward = any(item.look == "gradient" for item in items)
    flowing = any(any(item.carries) for item in items)
    return Scene(
        plan, planner.plans, list(_in_order(planner.fold.root)), flowing, 0.1 if has_backward else 0.02
    )  # with a backward pass the eye jumps twice


def _in_order(box: Box[Item]) -> Iterator[Item]:
    """Yield every item at any depth, in the order of the plans."""
    stack: list[Member] = [box]
    while stack:
        member = stack.pop()
        if isinstance(member, Box):
            stack.extend(reversed(member.members))
        else:
            yield member


class _Planner:
    def __init__(self, fold: Fold[Item], rolled: bool) -> None:
        self.fold, self.items, self.rolled = fold, fold.leaves, rolled
        self.plans: list[BoxPlan] = []
        self.planned: dict[Box[Item], _Planned] = {}
        self.planned_by_box: dict[object, _Planned] = {}
        self.plan_by_key: dict[object, BoxPlan] = {}
        self.faces: dict[Face, int] = {}
        self.looks: dict[object, tuple[Face, int]] = {}

    def plan(self, box: Box[Item]) -> BoxPlan:
        """Return the plan of a box, made once for all that are alike, and in which the same gradients flow."""
        inner = [self.plan(member).number for member in box.members if isinstance(member, Box)]
        key = (box.alike, tuple(inner), self._flows(box.wires))
        planned = self.planned_by_box.get(key)
        if planned is None:
            planned = self.planned_by_box[key] = self._planned(box)
        elif planned.order:
            box.members = [box.members[n] for n in planned.order]
        self.planned[box] = planned
        return planned.plan

    def _flows(self, wires: list[tuple[Wire, Net]]) -> tuple[int, ...]:
        """Return what each wire carries, as `net_kind` does."""
        results = [(self.items[number].carries, output) for _, (number, output) in wires]
        return tuple([carries[output] if output < len(carries) else STILL for carries, output in results])

    def _planned(self, box: Box[Item]) -> _Planned:
        """Plan the first of the boxes that are alike."""
        members = list(box.members)
        if self.rolled:
            self._wrap(box, operands(box))
        else:
            self._wrap(box, [(run, Box("", f"reshape ×{len(run)}", "pill")) for run in pills(box)])
        self._wrap(box, [(run, stack_of(run)) for run in box.runs])
        if len(box.members) == len(members):
            return self._plan(box, box.wires)
        planned = self._plan(box, self.fold.number_edges(box))
        place = {id(member): n for n, member in enumerate(members)}
        box.members = flatten(box.members)
        return planned._replace(order=tuple([place[id(member)] for member in box.members]))

    def _wrap(self, box: Box[Item], runs: Sequence[tuple[Sequence[Member], Box[Item]]]) -> None:
        if not runs:
            return
        wrap(box, runs)
        for _, added in runs:
            if len(added.exits) > 1:
                added.exits = dict.fromkeys(sorted(added.exits))
            self.planned[added] = self._plan(added, self.fold.number_edges(added))

    def _plan(self, box: Box[Item], wires: list[tuple[Wire, Net]]) -> _Planned:
        parts: list[Face | BoxPlan] = []
        names: list[str] = []
        inner: list[int] = []  # numbers that distinguish the parts
        for member in box.members:
            names.append(member.name)
            if isinstance(member, Box):
                plan = self.planned[member].plan
                parts.append(plan)
                inner.append(plan.number)
            else:
                face, number = self._face_of(member, self.fold.used.get(member.number, []))
                parts.append(face)
                inner += (-1, number, member.form)
        edges, flows = [wire for wire, _ in wires], self._flows(wires)
        contents = self._contents(box)
        face = self._face(box, contents)
        key = (box.sort, face, *names, *inner, *edges, *flows)
        if key not in self.plan_by_key:
            self.plan_by_key[key] = self._new(box, face, tuple(names), parts, edges, flows)
        return _Planned(self.plan_by_key[key], contents, ())

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
        self, box: Box[Item], face: Face, names: tuple[str, ...], parts: list[Face | BoxPlan], edges: list[LayoutEdge],
        flows: tuple[int, ...],
    ) -> BoxPlan:  # fmt: skip
        count_in, count, count_out = len(box.entries), len(parts), len(box.exits)
        merges = {
            count_in + n
            for n, part in enumerate(parts)
            if isinstance(part, Face) and part.look == "merge" and not any(part.entries)
        }
        layout = arrange(count_in, count, count_out, edges, merges, flows, _pairs(box, count_in))
        flow_of = dict(zip(edges, flows))
        first, size = [], 0
        for part in parts:
            first.append(size)
            size += part.size if isinstance(part, BoxPlan) else 1
        plan = BoxPlan(
            len(self.plans), box.sort, face, names, tuple(parts), tuple(first), size, layout,
            tuple(flow_of[r.source, r.exit, r.target, r.entry] for r in layout.routes),
        )  # fmt: skip
        self.plans.append(plan)
        return plan

    def _shows_shapes(self, item: Item, used: list[int]) -> bool:
        """True if an item's shapes are worth showing: a new shape, or several readers."""
        if item.look == "output" or not item.shapes:
            return False
        if item.look in ("input", "parameter", "buffer") or self.fold.near_readers.get(item.number, 0) > 1:
            return True
        if len(used) > 1 or not item.parents:
            return True
        shape = item.shapes[used[0]] if used and used[0] < len(item.shapes) else item.shapes[0]
        for (parent, output), _ in item.parents:
            before = self.items[parent].shapes
            if output >= len(before) or before[output] != shape:
                return True
        return False

    def _lines(self, box: Box[Item]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return what a box's entries and exits carry, if any carries a gradient."""
        entries, exits = (tuple(net_kind(self.items, net) for net in nets) for nets in (box.entries, box.exits))
        return (entries, exits) if GRADIENT in entries + exits else ((), ())

    def _contents(self, box: Box[Item]) -> _Contents:
        """Add up what a box holds."""
        operations, parameters, shared, states, marks = _Contents()
        for member in box.members:
            if isinstance(member, Box):
                held = self.planned[member].contents
                operations, parameters = operations + held.operations, parameters + held.parameters
                shared, states, marks = shared | held.shared, states | held.states, marks | held.marks
                continue
            operations += bool(member.ops)
            if member.marks:
                marks |= {mark for mark in member.marks if "frozen" not in mark and mark not in ("borrowed", "beside")}
            if member.states:
                states |= member.states
                if member.badge:
                    shared |= {(entry.name, entry.count) for entry in member.stored if entry.kind == "parameter"}
                else:
                    parameters += member.parameters
        return _Contents(operations, parameters, shared, states, marks)

    def _face(self, box: Box[Item], contents: _Contents) -> Face:
        root, states = (box.root if isinstance(box, OperationBox) else None), contents.states
        words = [box.body] if isinstance(box, OperationBox) and box.body else []
        words += [plural(contents.operations, "op")] if box.sort in ("module", "function") else []
        if states:
            total = contents.parameters + sum(count for _, count in contents.shared)
            words.append(parameter_text(total, states))
        exits = tuple(note_at(self.items[number], output) for number, output in box.exits)
        if root and not self._shows_shapes(root, self.fold.used.get(root.number, [])):
            exits = ("",) * len(exits)
        look, family = ("pill", "reshape") if box.sort == "pill" else ("module", family_of_class(box.kind))
        return Face(
            root.look if root else look,
            box.kind,
            " · ".join(words),
            root.family if root else family,
            len(box.members) if box.sort == "stack" else box.times,
            ("",) * len(box.entries),
            exits,
            marks=tuple(sorted({frozen_text(states).strip(), *contents.marks} - {""})),
            folded=box.sort != "pill",
            lines=self._lines(box),
        )


def _pairs(box: Box[Item], shift: int) -> dict[int, int]:
    """Map each backward rule in a box to its operation, both numbered as `arrange` expects."""
    place = {member.number: shift + member.at for member in box.members if isinstance(member, Item)}
    rules = [member for member in box.members if isinstance(member, Item) and member.look == "gradient"]
    return {shift + rule.at: place[rule.pair] for rule in rules if rule.pair in place}
