"""Choose which boxes are open, the direction, and where long boxes wrap.

Compute all coordinates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, sqrt

from torcheer.drawing.items.item import Face
from torcheer.drawing.layout.box_layout import Layout
from torcheer.drawing.layout.box_sizes import Box, ComposedBox, Metrics, Title
from torcheer.drawing.layout.compose import compose
from torcheer.drawing.layout.plans import BoxPlan, Scene
from torcheer.drawing.looks.faces import TITLE, draw_face
from torcheer.drawing.looks.font_metrics import text_width
from torcheer.drawing.looks.style import Style

METRICS = Metrics()
PAGE = (1400.0, 900.0)  # pixels that a drawing is fitted to
SMALLEST = 0.9  # how far it may shrink to fit: text of 10 pixels stays at 9
LONGEST = 2.5  # the largest aspect ratio without a penalty
MAX_BOXES = 300  # that a drawing with depth=None may show
EVERYTHING = 10**9
NAMED = ("module", "function")  # boxes with a name of their own
ONE_LINE = 120.0  # a wider title is broken after the name


@dataclass(slots=True, eq=False)
class BoxView:
    """A box as it is shown: closed (a leaf), or open with views inside."""

    name: str
    face: Face
    plan: BoxPlan | None  # None for an item
    open: bool
    layout: Layout | None
    inside: tuple[BoxView, ...]
    first: tuple[int, ...]  # where the items of each view inside start
    step: str  # its part of the address
    stack: BoxPlan | None  # the stack it stands for, if only the stack's last module is shown
    composed: ComposedBox | None
    box: Box
    boxes: int  # visible leaves in it
    wraps: int  # the number of places where long boxes in it wrap

    def __repr__(self) -> str:
        return f"<View {self.name} {self.face.kind}{' open' if self.open else ''}>"


@dataclass(slots=True)
class Picture:
    """A complete layout: the scene, and the view of its root with all coordinates."""

    scene: Scene
    root: BoxView
    down: bool
    limit: float
    depth: int | None  # the level shown, None for all
    once: bool  # of modules that repeat, only one is shown

    @property
    def boxes(self) -> int:
        """The number of visible boxes, not counting frames."""
        return self.root.boxes


def picture(scene: Scene, *, depth: int | str | None, direction: str, style: Style) -> Picture:
    """Lay out a scene with `depth` levels open, or as many as stay readable on a page."""
    if depth is None:
        return _fold_to_fit(scene, direction, style)
    level = EVERYTHING if depth == "all" else int(depth)
    return _fit(
        scene, _Opener(scene, level, once=depth != "all", style=style), direction, None if depth == "all" else level
    )


def _fold_to_fit(scene: Scene, direction: str, style: Style) -> Picture:
    """Return the layout with the most levels open that is readable, or with one level."""
    levels = range(min(max(_depth(scene.root), 1), 12), 0, -1)
    for level in (EVERYTHING, *levels):
        opener = _Opener(scene, level, once=True, style=style)
        if level == 1 or opener.count(scene.root, "", 0) <= MAX_BOXES:
            layout = _fit(scene, opener, direction, None if level == EVERYTHING else level)
            if level == 1 or _scale(layout.root.box) >= SMALLEST:
                return layout
    raise AssertionError("level 1 is always among them")


def _depth(plan: BoxPlan) -> int:
    deepest: dict[int, int] = {}

    def measure(plan: BoxPlan) -> int:
        if plan.number not in deepest:
            below = [measure(part) for part in plan.parts if isinstance(part, BoxPlan)]
            deepest[plan.number] = max(below, default=0) + (plan.sort in ("module", "function", "root"))
        return deepest[plan.number]

    return measure(plan)


def _scale(box: Box) -> float:
    return min(1.0, PAGE[0] / max(1.0, box.width), (PAGE[1] - 80) / max(1.0, box.height))


def _fit(scene: Scene, opener: _Opener, direction: str, level: int | None) -> Picture:
    """Try directions and wrap limits; return the layout that fills a page best."""
    edges = max(len(plan.layout.routes) for plan in scene.plans)
    count = max(opener.count(scene.root, "", 0), edges // 3)  # an estimate of the cost of one try
    downs = {"down": (True,), "right": (False,)}.get(direction, (True, False) if count <= 3000 else (True,))
    best: tuple[float, Picture] | None = None
    for down in downs:
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
            score = _score(root, scene.wrap_cost) + (0.04 if down else 0.0)
            if best is None or score > best[0] + 1e-9:
                best = score, Picture(scene, root, down, limit, level, opener.once)
    assert best is not None
    return best[1]


def _score(view: BoxView, wrap_cost: float) -> float:
    """Score a layout: lower if too small to read, unlike a page's aspect ratio, or wrapped."""
    aspect = max(view.box.width, 1.0) / max(view.box.height, 1.0)
    deviation = max(aspect / 1.78, 1.2 / aspect, 1.0)
    penalty = 0.3 if not 1 / LONGEST <= aspect <= LONGEST else 0.0
    return min(_scale(view.box) / SMALLEST, 1.0) - 0.06 * (deviation - 1) - wrap_cost * view.wraps - penalty


class _Opener:
    """Decides which boxes are open, and composes each distinct box once."""

    def __init__(self, scene: Scene, level: int, *, once: bool, style: Style) -> None:
        self.level, self.once, self.style = level, once, style
        self.by_name = bool(style.collapse)
        self.counts: dict[object, int] = {}
        self.views: dict[object, BoxView] = {}
        self.composed_views: dict[object, BoxView] = {}
        self.pills_open = level == EVERYTHING and not once
        self.down, self.limit = True, float("inf")

    def is_open(self, plan: BoxPlan, address: str, depth: int) -> bool:
        if plan.sort == "root":
            return True
        if plan.sort == "pill":
            return self.pills_open
        has_name = plan.sort in NAMED or self.once
        if self.by_name and has_name and self.style.collapses(address, plan.face.kind, depth):
            return False
        return depth < self.level

    def _key(self, plan: BoxPlan, address: str, depth: int) -> object:
        return (plan.number, address, depth) if self.by_name else (plan.number, min(depth, self.level + 1))

    def count(self, plan: BoxPlan, address: str, depth: int, around: str = "") -> int:
        """Return how many leaves would be visible; `around` is the address of the module around it."""
        key = self._key(plan, address, depth)
        if key not in self.counts:
            total = 1
            if self.is_open(plan, address, depth):
                plan = self._plan_to_draw(plan)
                base, total = base_of(plan, address, around), 0
                for name, part in zip(plan.names, plan.parts):
                    if isinstance(part, BoxPlan):
                        inner = _join(base, step_of(part, name, self.once))
                        total += self.count(part, inner, _depth_of(plan, part, depth), base)
                    else:
                        total += 1
            self.counts[key] = total
        return self.counts[key]

    def _plan_to_draw(self, plan: BoxPlan) -> BoxPlan:
        """Return the plan to draw for an open box: of a stack only the last module, or all.

        The last, because gradients may not flow into the first.
        """
        if plan.sort != "stack" or not self.once:
            return plan
        last = plan.parts[-1]
        assert isinstance(last, BoxPlan)
        return last

    def view(self, plan: BoxPlan, down: bool, limit: float) -> BoxView:
        """Return the view of a box and everything in it, with coordinates."""
        self.views.clear()
        self.composed_views.clear()
        self.down, self.limit = down, limit
        return self._view(plan, "", "", "", 0)

    def _view(self, plan: BoxPlan, name: str, address: str, around: str, depth: int) -> BoxView:
        key = (self._key(plan, address, depth), name)
        if key in self.views:
            return self.views[key]
        if self.is_open(plan, address, depth):
            view = self._open_view(plan, name, address, around, depth)
        else:
            view = _leaf(name, plan.face, plan, self.down)
        self.views[key] = view
        return view

    def _open_view(self, full_plan: BoxPlan, name: str, address: str, around: str, depth: int) -> BoxView:
        plan = self._plan_to_draw(full_plan)
        base = base_of(plan, address, around)
        inside = []
        for part_name, part in zip(plan.names, plan.parts):
            if isinstance(part, BoxPlan):
                inner = _join(base, step_of(part, part_name, self.once))
                inside.append(self._view(part, part_name, inner, base, _depth_of(plan, part, depth)))
            else:
                inside.append(self._item(part_name, part))
        if plan.sort == "stack":
            name = ""  # all its modules are shown, so it has no frame
        key = (full_plan.number, tuple(map(id, inside)), name)
        if key not in self.composed_views:
            composed = compose(
                plan.layout, [view.box for view in inside], title=title_of(name, full_plan, self.down), down=self.down,
                limit=self.limit, metrics=METRICS,
            )  # fmt: skip
            boxes = sum(view.boxes for view in inside)
            self.composed_views[key] = BoxView(
                name, full_plan.face, plan, True, plan.layout, tuple(inside), plan.first,
                step_of(full_plan, name, self.once), full_plan if full_plan is not plan else None, composed,
                composed.box, boxes, sum(view.wraps for view in inside) + composed.bands - 1,
            )  # fmt: skip
        return self.composed_views[key]

    def _item(self, name: str, face: Face) -> BoxView:
        key = (name, face)
        if key not in self.composed_views:
            self.composed_views[key] = _leaf(name, face, None, self.down)
        return self.composed_views[key]


def title_lines(name: str, plan: BoxPlan, down: bool) -> list[list[tuple[str, str]]]:
    """Return the lines of an open box's title: two where a single one would widen the box."""
    names = [(name, "strong")] if name else []
    kinds = [(plan.face.kind, "soft")] if plan.face.kind and plan.face.kind != name else []
    if plan.face.times > 1:
        kinds.append((f"×{plan.face.times}", "strong"))
    words = names + kinds
    if down and names and kinds and words_width(words) > ONE_LINE:
        return [names, kinds]
    return [words]


def words_width(words: list[tuple[str, str]]) -> float:
    """Return the width of a line of a title."""
    return sum(text_width(text, TITLE, tone == "strong") + 5 for text, tone in words)


def title_of(name: str, plan: BoxPlan, down: bool) -> Title | None:
    """Return the size of a box's title; the outermost box and an unrolled stack have none."""
    if plan.sort == "root" or (plan.sort == "stack" and not name):
        return None
    lines = title_lines(name, plan, down)
    return Title(2.0 * ceil(max(map(words_width, lines)) / 2), len(lines))


def _leaf(name: str, face: Face, plan: BoxPlan | None, down: bool) -> BoxView:
    step = step_of(plan, name, True) if plan else name
    return BoxView(name, face, plan, False, None, (), (), step, None, None, draw_face(name, face, down).box, 1, 0)


def step_of(part: Face | BoxPlan, name: str, once: bool) -> str:
    """Return a part's step of the address.

    For a stack shown once that of its last module, "" for other stacks and pills.
    """
    if isinstance(part, BoxPlan) and part.sort not in NAMED:
        return part.names[-1] if part.sort == "stack" and once else ""
    return name


def _depth_of(plan: BoxPlan, part: BoxPlan, depth: int) -> int:
    """Return the depth of a part; stacks and pills do not count as a level."""
    return depth if part.sort == "pill" or plan.sort == "stack" else depth + 1


def base_of(plan: BoxPlan, address: str, around: str) -> str:
    """Return the address that names in a box begin with: functions are no part of a module's address."""
    return around if plan.sort == "function" else address


def _join(address: str, step: str) -> str:
    return f"{address}.{step}" if address and step else address or step


def walk(root: BoxView, x: float, y: float) -> Iterator[tuple[BoxView, float, float, int, str, int]]:
    """Yield each view with its x, y, first item, address, depth; boxes before their insides."""
    stack = [(root, x, y, 0, "", 0, "")]
    while stack:
        view, x, y, first, address, depth, around = stack.pop()
        yield view, x, y, first, address, depth
        if view.composed:
            assert view.plan is not None
            base = base_of(view.plan, address, around)
            inside = zip(view.inside, view.composed.places, view.first)
            if view.stack is not None:
                first += view.stack.first[-1]
            stack += [
                (inner, x + left, y + top, first + offset, _join(base, inner.step), depth + 1, base)
                for inner, (left, top), offset in reversed(list(inside))
            ]
