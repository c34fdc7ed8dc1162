"""Choose what is open, which way it runs and where it wraps; then everything has its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, sqrt

from torcheer.drawing.items.item import Face
from torcheer.drawing.layout.box_layout import Layout
from torcheer.drawing.layout.box_sizes import Box, Composed, Metrics, Title
from torcheer.drawing.layout.compose import compose
from torcheer.drawing.layout.plans import Plan, Scene
from torcheer.drawing.looks.faces import TITLE, draw_face
from torcheer.drawing.looks.font_metrics import text_width
from torcheer.drawing.looks.style import Style

METRICS = Metrics()
PAGE = (1400.0, 900.0)  # what a drawing is fitted to
SMALLEST = 0.9  # and how far it may shrink on it: text of 10 pixels stays at 9
LONGEST = 2.5  # no drawing is longer than this times its other side, if it can be helped
MANY = 300  # boxes that a drawing folded by itself may show
EVERYTHING = 10**9
ONE_LINE = 120.0  # a wider title is broken after the name


@dataclass(slots=True, eq=False)
class View:
    """A box as it is shown: a leaf, or open with views inside."""

    name: str
    face: Face
    plan: Plan | None  # None for an item
    open: bool
    layout: Layout | None
    inside: tuple[View, ...]
    first: tuple[int, ...]  # where the items of each view inside start
    step: str  # what it adds to the address
    stack: Plan | None  # the stack it stands for, where only its last module is shown
    composed: Composed | None
    box: Box
    boxes: int  # visible leaves in it
    wraps: int  # places in it where a long box was cut

    def __repr__(self) -> str:
        return f"<View {self.name} {self.face.kind}{' open' if self.open else ''}>"


@dataclass(slots=True)
class Picture:
    """Everything in place."""

    scene: Scene
    root: View
    down: bool
    limit: float
    depth: int | None  # the level shown, None for all

    @property
    def boxes(self) -> int:
        """How many boxes are visible, frames not counted."""
        return self.root.boxes


def picture(scene: Scene, *, depth: int | str | None, direction: str, style: Style) -> Picture:
    """Open what was asked, or as much as stays readable on a page, and fit it."""
    if depth is None:
        return _fold_to_fit(scene, direction, style)
    level = EVERYTHING if depth == "all" else int(depth)
    return _fit(
        scene, _Opener(scene, level, once=depth != "all", style=style), direction, None if depth == "all" else level
    )


def _fold_to_fit(scene: Scene, direction: str, style: Style) -> Picture:
    """The most open of some levels that is readable; the most folded one where none is."""
    levels = range(min(max(_depth(scene.root), 1), 12), 0, -1)
    for level in (EVERYTHING, *levels):
        opener = _Opener(scene, level, once=True, style=style)
        if level == 1 or opener.count(scene.root, "", 0) <= MANY:
            found = _fit(scene, opener, direction, None if level == EVERYTHING else level)
            if level == 1 or _scale(found.root.box) >= SMALLEST:
                return found
    raise AssertionError("level 1 is always among them")


def _depth(plan: Plan) -> int:
    deepest: dict[int, int] = {}

    def measure(plan: Plan) -> int:
        if plan.number not in deepest:
            below = [measure(part) for part in plan.parts if isinstance(part, Plan)]
            deepest[plan.number] = max(below, default=0) + (plan.sort in ("module", "root"))
        return deepest[plan.number]

    return measure(plan)


def _scale(box: Box) -> float:
    return min(1.0, PAGE[0] / max(1.0, box.width), (PAGE[1] - 80) / max(1.0, box.height))


def _fit(scene: Scene, opener: _Opener, direction: str, level: int | None) -> Picture:
    """Try directions and places to wrap; keep what fills a page best."""
    edges = max(len(plan.layout.routes) for plan in scene.plans)
    count = max(opener.count(scene.root, "", 0), edges // 3)  # what a try costs
    ways = {"down": (True,), "right": (False,)}.get(direction, (True, False) if count <= 3000 else (True,))
    best: tuple[float, Picture] | None = None
    for down in ways:
        natural = opener.view(scene.root, down, float("inf"))
        ideal = sqrt(natural.box.width * natural.box.height / 1.5)
        factors = (
            (0.45, 0.6, 0.8, 1.0, 1.25, 1.6, 2.1) if count <= 400 else (0.8, 1.1, 1.5) if count <= 3000 else (1.1,)
        )
        if not down:
            ideal *= 1.5
        limits = [float("inf")] * (count <= 3000) + [max(240.0, 20 * round(ideal * factor / 20)) for factor in factors]
        for limit in dict.fromkeys(limits):
            root = natural if limit == float("inf") else opener.view(scene.root, down, limit)
            worth = _worth(root, scene.wrap_cost) + (0.04 if down else 0.0)
            if best is None or worth > best[0] + 1e-9:
                best = worth, Picture(scene, root, down, limit, level)
    assert best is not None
    return best[1]


def _worth(view: View, wrap_cost: float) -> float:
    """Whether it is large enough to read, less for a form unlike a page's and for places where the eye must jump."""
    form = max(view.box.width, 1.0) / max(view.box.height, 1.0)
    off = max(form / 1.78, 1.2 / form, 1.0)
    worst = 0.3 if not 1 / LONGEST <= form <= LONGEST else 0.0
    return min(_scale(view.box) / SMALLEST, 1.0) - 0.06 * (off - 1) - wrap_cost * view.wraps - worst


class _Opener:
    """Decides which boxes are open, and composes them, each distinct one once."""

    def __init__(self, scene: Scene, level: int, *, once: bool, style: Style) -> None:
        self.level, self.once, self.style = level, once, style
        self.by_name = bool(style.collapse)
        self.counts: dict[object, int] = {}
        self.views: dict[object, View] = {}
        self.known: dict[object, View] = {}
        self.pills_open = level == EVERYTHING and not once

    def is_open(self, plan: Plan, address: str, depth: int) -> bool:
        if plan.sort == "root":
            return True
        if plan.sort == "pill":
            return self.pills_open
        named = plan.sort == "module" or self.once
        if self.by_name and named and self.style.collapses(address, plan.face.kind, depth):
            return False
        return depth < self.level

    def _key(self, plan: Plan, address: str, depth: int) -> object:
        return (plan.number, address, depth) if self.by_name else (plan.number, min(depth, self.level + 1))

    def count(self, plan: Plan, address: str, depth: int) -> int:
        """How many leaves would be visible."""
        key = self._key(plan, address, depth)
        if key not in self.counts:
            total = 1
            if self.is_open(plan, address, depth):
                plan = self._shown(plan)
                total = sum(
                    self.count(part, _join(address, step_of(part, name, self.once)), _deeper(plan, part, depth))
                    if isinstance(part, Plan)
                    else 1
                    for name, part in zip(plan.names, plan.parts)
                )
            self.counts[key] = total
        return self.counts[key]

    def _shown(self, plan: Plan) -> Plan:
        """What is drawn for an open box: for a stack one module, unless all are wanted. The last: gradients may not
        flow into the first."""
        if plan.sort != "stack" or not self.once:
            return plan
        last = plan.parts[-1]
        assert isinstance(last, Plan)
        return last

    def view(self, plan: Plan, down: bool, limit: float) -> View:
        """The box and everything in it, in place."""
        self.views.clear()
        self.known.clear()
        return self._view(plan, "", "", 0, down, limit)

    def _view(self, plan: Plan, name: str, address: str, depth: int, down: bool, limit: float) -> View:
        key = (self._key(plan, address, depth), name)
        if key in self.views:
            return self.views[key]
        if self.is_open(plan, address, depth):
            found = self._open(plan, name, address, depth, down, limit)
        else:
            found = _leaf(name, plan.face, plan, down)
        self.views[key] = found
        return found

    def _open(self, whole: Plan, name: str, address: str, depth: int, down: bool, limit: float) -> View:
        plan = self._shown(whole)
        inside = []
        for part_name, part in zip(plan.names, plan.parts):
            if isinstance(part, Plan):
                where = _join(address, step_of(part, part_name, self.once))
                inside.append(self._view(part, part_name, where, _deeper(plan, part, depth), down, limit))
            else:
                inside.append(self._item(part_name, part, down))
        if plan.sort == "stack":
            name = ""  # all its modules are shown: no frame around them
        key = (whole.number, tuple(map(id, inside)), name)
        if key not in self.known:
            composed = compose(
                plan.layout, [view.box for view in inside], title=title_of(name, whole, down), down=down, limit=limit,
                metrics=METRICS,
            )  # fmt: skip
            boxes = sum(view.boxes for view in inside)
            self.known[key] = View(
                name, whole.face, plan, True, plan.layout, tuple(inside), plan.first, step_of(whole, name, self.once),
                whole if whole is not plan else None, composed, composed.box, boxes,
                sum(view.wraps for view in inside) + composed.bands - 1,
            )  # fmt: skip
        return self.known[key]

    def _item(self, name: str, face: Face, down: bool) -> View:
        key = (name, face)
        if key not in self.known:
            self.known[key] = _leaf(name, face, None, down)
        return self.known[key]


def title_lines(name: str, plan: Plan, down: bool) -> list[list[tuple[str, str]]]:
    """The words in the title strip of an open box, on two lines where one would push the inside aside."""
    names = [(name, "strong")] if name else []
    kinds = [(plan.face.kind, "soft")] if plan.face.kind and plan.face.kind != name else []
    if plan.sort == "stack":
        kinds.append((f"×{plan.face.times}", "strong"))
    together = names + kinds
    if down and names and kinds and words_width(together) > ONE_LINE:
        return [names, kinds]
    return [together]


def words_width(words: list[tuple[str, str]]) -> float:
    """How wide a line of a title is."""
    return sum(text_width(text, TITLE, tone == "strong") + 5 for text, tone in words)


def title_of(name: str, plan: Plan, down: bool) -> Title | None:
    """The room a title takes; the outermost box and an unrolled stack have none."""
    if plan.sort == "root" or (plan.sort == "stack" and not name):
        return None
    lines = title_lines(name, plan, down)
    return Title(2.0 * ceil(max(map(words_width, lines)) / 2), len(lines))


def _leaf(name: str, face: Face, plan: Plan | None, down: bool) -> View:
    step = step_of(plan, name, True) if plan else name
    return View(name, face, plan, False, None, (), (), step, None, None, draw_face(name, face, down).box, 1, 0)


def step_of(part: Face | Plan, name: str, once: bool) -> str:
    """What a part adds to the address: a stack shown once stands for its last module, else it and pills for nothing."""
    if isinstance(part, Plan) and part.sort != "module":
        return part.names[-1] if part.sort == "stack" and once else ""
    return name


def _deeper(plan: Plan, part: Plan, depth: int) -> int:
    """Stacks and pills are no level of their own."""
    return depth if part.sort == "pill" or plan.sort == "stack" else depth + 1


def _join(address: str, step: str) -> str:
    return f"{address}.{step}" if address and step else address or step


def walk(root: View, x: float, y: float) -> Iterator[tuple[View, float, float, int, str, int]]:
    """Every view with its place on the page, its first item, its address and its depth, boxes before their insides."""
    stack = [(root, x, y, 0, "", 0)]
    while stack:
        here = stack.pop()
        yield here
        view, x, y, first, address, depth = here
        if view.composed:
            inside = zip(view.inside, view.composed.places, view.first)
            if view.stack is not None:
                first += view.stack.first[-1]
            stack += [
                (inner, x + left, y + top, first + offset, _join(address, inner.step), depth + 1)
                for inner, (left, top), offset in reversed(list(inside))
            ]
