"""Write a drawing as one SVG file, with its font, header, legend and dark colours."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from torcheer.drawing.items.item import Item
from torcheer.drawing.layout.picture import BoxView, Picture, title_lines, walk
from torcheer.drawing.looks.colour_scale import Colouring
from torcheer.drawing.looks.colours import DARK, LIGHT, Theme
from torcheer.drawing.looks.faces import NOTE
from torcheer.drawing.looks.font_metrics import FAMILY, font_face_css, text_width
from torcheer.drawing.looks.legend import legend_entries, marks_of
from torcheer.drawing.looks.svg_shapes import (
    arrow_path,
    clean,
    dark_rules,
    edge_kind,
    frame_svg,
    leaf_svg,
    line_colour,
    line_path,
    number,
    stroke_svg,
    text_svg,
)

MARGIN = 20.0
HEADER = 46.0
BELOW = 26.0  # between the drawing and the legend
BACKWARD = {"gradient", "kept"}  # marks that only drawings of a backward pass have


def write_svg(
    picture: Picture,
    *,
    header: list[str],
    theme: str,
    legend: bool = True,
    colour: Colouring | None = None,
    label: Callable[[Item], str] = attrgetter("label"),
) -> str:
    """Return the SVG.

    `header` is a title and the facts below it, `label` returns an item's hover text.
    """
    return _Writer(picture, DARK if theme == "dark" else LIGHT, colour, label).write(header, legend, theme == "auto")


class _Writer:
    def __init__(self, picture: Picture, theme: Theme, colour: Colouring | None, label: Callable[[Item], str]) -> None:
        self.picture, self.theme, self.colour, self.label = picture, theme, colour, label
        self.marks: dict[str, None] = {}  # what the legend must explain

    def write(self, header: list[str], legend: bool, auto: bool) -> str:
        box = self.picture.root.box
        top = MARGIN + (HEADER if header else 0.0)
        body = self._body(top)
        head, head_width = self._header(header) if header else ([], 0.0)
        foot, foot_width, foot_height = self._legend(top + box.height + BELOW) if legend else ([], 0.0, 0.0)
        width = max(box.width, foot_width, head_width) + 2 * MARGIN
        height = top + box.height + (BELOW + foot_height if foot else 0.0) + MARGIN
        shift = (width - 2 * MARGIN - box.width) / 2
        size = f'width="{number(width)}" height="{number(height)}"'
        name = clean(header[0] if header else "model")
        rules = dark_rules(backward=not BACKWARD.isdisjoint(self.marks))
        dark = f"@media (prefers-color-scheme: dark){{{rules}}}" if auto else ""
        return "".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}" {size} ',
                f'font-family="{FAMILY}" role="img"><title>{name}</title><style>{font_face_css()}{dark}</style>',
                f'<rect class="paper" {size} fill="{self.theme.paper}"/>',
                *head,
                f'<g transform="translate({number(shift)},0)">' if shift else "<g>",
                *body,
                "</g>",
                *foot,
                "</svg>\n",
            ]
        )

    def _body(self, top: float) -> list[str]:
        """Draw frames first, then edges, then boxes, so that nothing visible is covered."""
        frames: list[str] = []
        edges: list[str] = []
        leaves: list[str] = []
        for view, x, y, first, address, depth in walk(self.picture.root, MARGIN, top):
            if view.open:
                if depth and (view.plan is None or view.plan.sort != "stack"):
                    frames.append(self._frame(view, x, y, address))
                self._edges(view, x, y, edges)
            else:
                leaves.append(self._leaf(view, x, y, first, address))
        return frames + edges + leaves

    def _frame(self, view: BoxView, x: float, y: float, address: str) -> str:
        plan = view.plan
        assert plan is not None
        if view.stack:
            self.marks["stack"] = None
        lines = title_lines(view.name, view.stack or plan, self.picture.down)
        inside = frame_svg(lines, view.box, self.theme, stacked=view.stack is not None, dashed=plan.sort == "pill")
        return _translate(x, y, address or plan.face.kind, inside)

    def _leaf(self, view: BoxView, x: float, y: float, first: int, address: str) -> str:
        face = view.face
        fill, ink = (self.colour.of(view, first) if self.colour else None) or ("", "")
        if face.family and not fill and not face.fill:
            self.marks[face.family] = None
        self.marks.update(dict.fromkeys(marks_of(face)))
        return _translate(
            x, y, self._hover(view, first, address), leaf_svg(view.name, face, self.theme, self.picture.down, fill, ink)
        )

    def _hover(self, view: BoxView, first: int, address: str) -> str:
        item = self.picture.scene.items[first]
        kind = view.face.kind or view.name
        lines = [f"{address} ({kind})" if address else kind, view.face.body]
        if view.plan is None:
            lines += [self.label(item), *map(str, item.shapes[:4])]
        if self.colour and (description := self.colour.describe(view, first)):
            lines.append(description)
        return "\n".join(line for line in lines if line)

    def _edges(self, view: BoxView, x: float, y: float, out: list[str]) -> None:
        layout, composed, plan = view.layout, view.composed, view.plan
        assert layout and composed and plan
        flowing = self.picture.scene.flowing
        lines: dict[str, list[str]] = {}
        heads: dict[str, dict[str, None]] = {}
        for route, path, flows in zip(layout.routes, composed.paths, plan.flows):
            if len(path) < 2:
                continue
            kind = edge_kind(route.back, flows, flowing)
            points = [(x + left, y + top) for left, top in path]
            inner = (route.source if kind == "gradient" else route.target) - layout.entries
            if kind == "gradient":
                points.reverse()
            if 0 <= inner < layout.children and not view.inside[inner].open:
                head, points = arrow_path(points)
                heads.setdefault(kind, {})[head] = None  # gradients that join share one arrowhead
            lines.setdefault(kind, []).append(line_path(points))
        for kind, parts in lines.items():
            self.marks[kind] = None
            out.append(stroke_svg(kind, "".join(parts), self.theme))
        out += [
            f'<path class="head-{kind}" d="{"".join(outlines)}" fill="{line_colour(kind, self.theme)}"/>'
            for kind, outlines in heads.items()
        ]
        self._notes(view, x, y, out)

    def _notes(self, view: BoxView, x: float, y: float, out: list[str]) -> None:
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
                    out.append(text_svg(*at, text, NOTE, "soft", self.theme))
            for text, place in zip(inner.face.entries, entries):
                if text and place >= 0:
                    at = (x0 + place + 5, y0 - 5) if down else (x0 - 9, y0 + place - 4)
                    out.append(text_svg(*at, text, NOTE, "soft", self.theme, anchor="" if down else "end"))

    def _header(self, header: list[str]) -> tuple[list[str], float]:
        title, facts = header[0], "  ·  ".join(header[1:])
        parts = [
            text_svg(MARGIN, MARGIN + 14, title, 17, "strong", self.theme),
            text_svg(MARGIN, MARGIN + 31, facts, 11, "soft", self.theme),
        ]
        return parts, max(text_width(title, 17, True), text_width(facts, 11)) + 4

    def _legend(self, y: float) -> tuple[list[str], float, float]:
        parts, at, line, widest = [], 0.0, 0.0, 0.0
        room = max(self.picture.root.box.width, 560.0)
        for swatch, words in legend_entries(self.marks, self.theme, self.colour):
            width = 22 + text_width(words, NOTE) + 18
            if at and at + width > room:
                at, line = 0.0, line + 18
            text = text_svg(22, 9.5, words, NOTE, "soft", self.theme)
            parts.append(f'<g transform="translate({number(MARGIN + at)},{number(y + line)})">{swatch}{text}</g>')
            at += width
            widest = max(widest, at)
        return parts, widest, line + 14


def _translate(x: float, y: float, hover: str, inside: str) -> str:
    return f'<g transform="translate({number(x)},{number(y)})"><title>{clean(hover)}</title>{inside}</g>'
