"""Place all shapes of a drawing on one sheet: header, frames, edges, boxes, legend."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from torcheer.drawing.items.item import Item
from torcheer.drawing.layout.box_sizes import Point
from torcheer.drawing.layout.picture import BoxView, Picture, title_lines, walk
from torcheer.drawing.looks.colour_scale import Colouring
from torcheer.drawing.looks.colours import DARK, LIGHT, Theme
from torcheer.drawing.looks.faces import NOTE
from torcheer.drawing.looks.font_metrics import text_width
from torcheer.drawing.looks.legend import legend_entries, marks_of
from torcheer.drawing.looks.vector_shapes import (
    STROKES,
    Arrowheads,
    Group,
    Line,
    Rect,
    Shape,
    arrowhead,
    edge_kind,
    frame_shapes,
    leaf_shapes,
    line_colour,
    text_shape,
)

MARGIN = 20.0
HEADER = 46.0
BELOW = 26.0  # between the drawing and the legend
BACKWARD = {"gradient", "kept"}  # marks that only drawings of a backward pass have


class Sheet(NamedTuple):
    """A drawing, ready to be written; later shapes cover earlier ones."""

    width: float
    height: float
    title: str
    shapes: list[Shape]
    backward: bool = False  # True if a backward pass is in it


def place_shapes(
    picture: Picture,
    *,
    header: list[str],
    theme: str,
    legend: bool = True,
    colour: Colouring | None = None,
    label: Callable[[Item], str] = attrgetter("label"),
) -> Sheet:
    """Return the sheet of a picture.

    `header` is a title and the facts below it, `label` returns an item's hover text.
    """
    return _Placer(picture, DARK if theme == "dark" else LIGHT, colour, label).place(header, legend)


class _Placer:
    def __init__(self, picture: Picture, theme: Theme, colour: Colouring | None, label: Callable[[Item], str]) -> None:
        self.picture, self.theme, self.colour, self.label = picture, theme, colour, label
        self.marks: dict[str, None] = {}  # what the legend must explain

    def place(self, header: list[str], legend: bool) -> Sheet:
        box = self.picture.root.box
        top = MARGIN + (HEADER if header else 0.0)
        body = self._body(top)
        head, head_width = self._header(header) if header else ([], 0.0)
        foot, foot_width, foot_height = self._legend(top + box.height + BELOW) if legend else ([], 0.0, 0.0)
        width = max(box.width, foot_width, head_width) + 2 * MARGIN
        height = top + box.height + (BELOW + foot_height if foot else 0.0) + MARGIN
        shift = (width - 2 * MARGIN - box.width) / 2
        paper = Rect(width, height, self.theme.paper, css_class="paper")
        shapes = [paper, *head, Group(shift, 0.0, tuple(body)), *foot]
        return Sheet(width, height, header[0] if header else "model", shapes, not BACKWARD.isdisjoint(self.marks))

    def _body(self, top: float) -> list[Shape]:
        """Draw frames first, then edges, then boxes, so that nothing visible is covered."""
        frames: list[Shape] = []
        edges: list[Shape] = []
        leaves: list[Shape] = []
        for view, x, y, first, address, depth in walk(self.picture.root, MARGIN, top):
            if view.open:
                if depth and (view.plan is None or view.plan.sort != "stack"):
                    frames.append(self._frame(view, x, y, address))
                self._edges(view, x, y, edges)
            else:
                leaves.append(self._leaf(view, x, y, first, address))
        return frames + edges + leaves

    def _frame(self, view: BoxView, x: float, y: float, address: str) -> Group:
        plan = view.plan
        assert plan is not None
        if view.stack:
            self.marks["stack"] = None
        lines = title_lines(view.name, view.stack or plan, self.picture.down)
        shapes = frame_shapes(lines, view.box, self.theme, stacked=view.stack is not None, dashed=plan.sort == "pill")
        return Group(x, y, shapes, address or plan.face.kind)

    def _leaf(self, view: BoxView, x: float, y: float, first: int, address: str) -> Group:
        face = view.face
        fill, ink = (self.colour.of(view, first) if self.colour else None) or ("", "")
        if face.family and not fill and not face.fill:
            self.marks[face.family] = None
        self.marks.update(dict.fromkeys(marks_of(face)))
        shapes = leaf_shapes(view.name, face, self.theme, self.picture.down, fill, ink)
        return Group(x, y, shapes, self._hover(view, first, address))

    def _hover(self, view: BoxView, first: int, address: str) -> str:
        item = self.picture.scene.items[first]
        kind = view.face.kind or view.name
        lines = [f"{address} ({kind})" if address else kind, view.face.body]
        if view.plan is None:
            lines += [self.label(item), *map(str, item.shapes[:4])]
        if self.colour and (description := self.colour.describe(view, first)):
            lines.append(description)
        return "\n".join(line for line in lines if line)

    def _edges(self, view: BoxView, x: float, y: float, out: list[Shape]) -> None:
        layout, composed, plan = view.layout, view.composed, view.plan
        assert layout and composed and plan
        flowing = self.picture.scene.flowing
        lines: dict[str, list[list[Point]]] = {}
        heads: dict[str, dict[tuple[Point, Point, Point], None]] = {}
        for route, path, flows in zip(layout.routes, composed.paths, plan.flows):
            if len(path) < 2:
                continue
            kind = edge_kind(route.back, flows, flowing)
            points = [(x + left, y + top) for left, top in path]
            inner = (route.source if kind == "gradient" else route.target) - layout.entries
            if kind == "gradient":
                points.reverse()
            if 0 <= inner < layout.children and not view.inside[inner].open:
                head, points = arrowhead(points)
                heads.setdefault(kind, {})[head] = None  # gradients that join share one arrowhead
            lines.setdefault(kind, []).append(points)
        for kind in lines:
            self.marks[kind] = None
            out.append(Line(lines[kind], line_colour(kind, self.theme), kind, 1.2, STROKES[kind]))
        out += [Arrowheads(list(heads[kind]), line_colour(kind, self.theme), f"head-{kind}") for kind in heads]
        self._notes(view, x, y, out)

    def _notes(self, view: BoxView, x: float, y: float, out: list[Shape]) -> None:
        """Write shapes at the exits, names of arguments at the entries."""
        composed, down = view.composed, self.picture.down
        assert composed
        for inner, (left, top), entries, exits in zip(view.inside, composed.places, composed.entries, composed.exits):
            if inner.open:
                continue
            x0, y0, box = x + left, y + top, inner.box
            for text, place in zip(inner.face.exits, exits):
                if text:
                    at = (x0 + place + 5, y0 + box.height + 12) if down else (x0 + box.width + 4, y0 + place - 4)
                    out.append(text_shape(*at, text, NOTE, "soft", self.theme))
            for text, place in zip(inner.face.entries, entries):
                if text and place >= 0:
                    at = (x0 + place + 5, y0 - 5) if down else (x0 - 9, y0 + place - 4)
                    out.append(text_shape(*at, text, NOTE, "soft", self.theme, anchor="" if down else "end"))

    def _header(self, header: list[str]) -> tuple[list[Shape], float]:
        title, facts = header[0], "  ·  ".join(header[1:])
        shapes: list[Shape] = [
            text_shape(MARGIN, MARGIN + 14, title, 17, "strong", self.theme),
            text_shape(MARGIN, MARGIN + 31, facts, 11, "soft", self.theme),
        ]
        return shapes, max(text_width(title, 17, True), text_width(facts, 11)) + 4

    def _legend(self, y: float) -> tuple[list[Shape], float, float]:
        entries: list[Shape] = []
        at = line = widest = 0.0
        room = max(self.picture.root.box.width, 560.0)
        for swatch, words in legend_entries(self.marks, self.theme, self.colour):
            width = 22 + text_width(words, NOTE) + 18
            if at and at + width > room:
                at, line = 0.0, line + 18
            text = text_shape(22, 9.5, words, NOTE, "soft", self.theme)
            entries.append(Group(MARGIN + at, y + line, (*swatch, text)))
            at += width
            widest = max(widest, at)
        return entries, widest, line + 14
