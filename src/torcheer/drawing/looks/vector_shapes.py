"""The shapes that a drawing consists of, and its parts made of them: boxes, frames, lines, arrowheads.

Shapes are data: `writers/svg.py` writes them as XML, `writers/pdf.py` draws them on a page. They have the colours of
one theme; in a light SVG their classes let a dark page override those.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from torcheer.drawing.items.item import FLOWS, GRADIENT, KEPT, Face
from torcheer.drawing.layout.box_sizes import Box, Point
from torcheer.drawing.looks.colours import Theme, family_colours, gradient_fill, ink_on
from torcheer.drawing.looks.faces import SHAPES, SHEETS, TITLE, draw_face
from torcheer.drawing.looks.font_metrics import text_width

Dashes = tuple[float, ...]  # lengths of dashes and gaps; () is a solid line


class Rect(NamedTuple):
    """A rectangle, its corners perhaps rounded."""

    width: float
    height: float
    fill: str  # a colour, or "none"
    stroke: str = ""  # "" for no border
    x: float = 0.0
    y: float = 0.0
    radius: float = 0.0
    css_class: str = ""
    dashes: Dashes = ()
    fill_opacity: float = 1.0


class Line(NamedTuple):
    """Lines of one kind through points, with rounded corners."""

    lines: list[list[Point]]
    stroke: str
    css_class: str
    width: float
    dashes: Dashes = ()


class LineSample(NamedTuple):
    """A short level line, to explain a kind of line in the legend."""

    stroke: str
    css_class: str
    width: float
    dashes: Dashes = ()


class Arrowheads(NamedTuple):
    """Triangles: the tip, and the two ends of the side across from it."""

    heads: list[tuple[Point, Point, Point]]
    fill: str
    css_class: str


class Strip(NamedTuple):
    """A strip in a family's colour, at the left of a module's box."""

    height: float  # of the box
    fill: str
    stroke: str
    css_class: str


class Plus(NamedTuple):
    """The plus sign of a folded box; x and y are its centre."""

    x: float
    y: float
    reach: float
    stroke: str


class Text(NamedTuple):
    """A line of text; y is that of its base line."""

    x: float
    y: float
    text: str
    size: float
    fill: str
    bold: bool = False
    css_class: str = ""
    anchor: str = ""  # where x is: "" at its start, "middle" or "end"


class Group(NamedTuple):
    """Shapes relative to a point, and the text that a viewer shows under the pointer."""

    x: float
    y: float
    shapes: tuple[Shape, ...]
    hover: str = ""


Shape = Rect | Line | LineSample | Arrowheads | Strip | Plus | Text | Group

ROUND = 5.0  # the radius of an edge's corners
HEAD = (6.0, 3.2)  # length and half width of an arrow's head
TITLE_AT = (9.0, 15.0, 14.0)  # x and y of the title of a frame, and the distance between its lines
SHEET_OFFSETS = (6.0, 3.0)  # of the sheets below the first of a stack
STROKES: dict[str, Dashes] = {
    "edge": (),
    "still": (4, 3),
    "loop": (),
    "gradient": (),
    "kept": (1.5, 2.5),
}  # the kinds of lines
SHORT_DASHES: Dashes = (3, 2)

Words = list[tuple[str, str]]  # pieces of text, each with its tone


def text_shape(
    x: float, y: float, text: str, size: float, tone: str, theme: Theme, *, ink: str = "", anchor: str = ""
) -> Text:
    """Return a text; `tone` is "strong", "plain" or "soft"."""
    colour = ink or (theme.soft if tone == "soft" else theme.ink)
    css_class = "on" if ink else "soft" if tone == "soft" else "ink"
    return Text(x, y, text, size, colour, tone == "strong", css_class, anchor)


DASHED = frozenset(("unseen", "borrowed", "beside"))  # marks whose boxes have a dashed border


@lru_cache(maxsize=100_000)
def leaf_shapes(
    name: str, face: Face, theme: Theme, down: bool = True, fill: str = "", ink: str = ""
) -> tuple[Shape, ...]:
    """Return a closed box, relative to its top left corner.

    `fill` and `ink` are the colours of an overlay.
    """
    drawn, look = draw_face(name, face, down), SHAPES[face.look]
    sheets = SHEETS if face.folded and face.times > 1 else 0.0
    width, height = drawn.box.width - sheets, drawn.box.height - sheets
    face_fill, line = _colours(face, theme)
    if face.fill and not fill:
        ink = ink_on(face.fill)
    shapes: list[Shape] = []
    if sheets:
        shapes += _sheets(width, height, look.radius, theme.card, theme)
    dashed = (face.look in ("buffer", "constant") or not DASHED.isdisjoint(face.marks)) and not face.folded
    css_class = "" if face.fill or fill else _class(face)
    dashes = SHORT_DASHES if dashed else ()
    shapes.append(Rect(width, height, fill or face_fill, line, 0, 0, look.radius, css_class, dashes))
    if look.bar and face.family and not fill and not face.folded:
        hollow = "frozen" in face.marks
        css_class = f"b-{face.family}{' hollow' if hollow else ''}"
        shapes.append(Strip(height, theme.card if hollow else line, line, css_class))
    if face.folded:
        shapes.append(Plus(width - 10, 8.5, 3, ink or theme.soft))
    shapes += [text_shape(run.x, run.y, run.text, run.size, run.tone, theme, ink=ink) for run in drawn.runs]
    if face.badge:
        shapes += _badge(face.badge, width - 18 - 4 * len(face.badge), (height - 13) / 2, theme)
    return tuple(shapes)


def _sheets(width: float, height: float, radius: float, fill: str, theme: Theme) -> list[Shape]:
    return [
        Rect(width, height, fill, theme.frame, offset, offset, radius, css_class="sheet") for offset in SHEET_OFFSETS
    ]


def _class(face: Face) -> str:
    return f"f-{face.family}" if face.family else f"card look-{face.look}"


def _colours(face: Face, theme: Theme) -> tuple[str, str]:
    fill, line = family_colours(face.family, theme)
    lines = {
        "stop": theme.alarm,
        "input": theme.ink,
        "output": theme.ink,
        "parameter": family_colours("linear", theme)[1],
        "buffer": theme.soft,
        "constant": theme.frame,
        "gradient": theme.gradient,
    }
    fill = gradient_fill(theme) if face.look == "gradient" else fill
    line = theme.loop if "edited" in face.marks else lines.get(face.look, line)
    return face.fill or fill, face.stroke or line


def _badge(letters: str, x: float, y: float, theme: Theme) -> list[Shape]:
    width = 12.0 + 4 * len(letters)
    return [
        Rect(width, 13, "none", theme.soft, x, y, 6.5, css_class="badge"),
        text_shape(x + width / 2, y + 9.8, letters, 9, "strong", theme, anchor="middle"),
    ]


def frame_shapes(lines: list[Words], box: Box, theme: Theme, *, stacked: bool, dashed: bool) -> tuple[Shape, ...]:
    """Return the border and title of an open box, relative to its top left corner."""
    shapes: list[Shape] = []
    if stacked:
        shapes += _sheets(box.width, box.height, 6, theme.paper, theme)
        shapes.append(Rect(box.width, box.height, theme.paper, radius=6, css_class="paper"))
    dashes = STROKES["still"] if dashed else ()
    shapes.append(Rect(box.width, box.height, theme.tint, theme.frame, 0, 0, 6, "frame", dashes, theme.tint_opacity))
    _, y, step = TITLE_AT
    for count, words in enumerate(lines):
        shapes += [text_shape(x, y + count * step, text, TITLE, tone, theme) for x, text, tone in title_places(words)]
    return tuple(shapes)


def title_places(words: Words) -> list[tuple[float, str, str]]:
    """Return the pieces of a line of a title, each with the x where it starts."""
    places, at = [], TITLE_AT[0]
    for text, tone in words:
        places.append((at, text, tone))
        at += text_width(text, TITLE, tone == "strong") + 5
    return places


def rounded_corners(points: list[Point]) -> Iterator[tuple[Point, Point, Point]]:
    """Yield for each corner of a line where its curve begins, the corner, and where its curve ends."""
    for before, corner, after in zip(points, points[1:], points[2:]):
        radius = min(ROUND, _distance(before, corner) / 2, _distance(corner, after) / 2)
        yield _towards(corner, before, radius), corner, _towards(corner, after, radius)


def edge_kind(back: bool, carries: int, flowing: bool) -> str:
    """Return the stroke of an edge, a key of STROKES.

    "still" only in drawings where some gradients flow.
    """
    if carries in (GRADIENT, KEPT):
        return "gradient" if carries == GRADIENT else "kept"
    return "loop" if back else "edge" if carries == FLOWS or not flowing else "still"


def line_colour(kind: str, theme: Theme) -> str:
    """Return the colour of a kind of line."""
    return {"edge": theme.line, "still": theme.faint, "loop": theme.loop}.get(kind) or str(getattr(theme, kind))


def arrowhead(points: list[Point]) -> tuple[tuple[Point, Point, Point], list[Point]]:
    """Return the arrowhead of an edge, and the edge shortened to end under it."""
    before, (x, y) = points[-2], points[-1]
    length, half_width = HEAD
    sx, sy = _towards((x, y), before, length)
    down = before[0] == x
    left, right = ((x - half_width, sy), (x + half_width, sy)) if down else ((sx, y - half_width), (sx, y + half_width))
    shortened = [*points[:-1], _towards((x, y), before, min(length - 1, _distance(before, (x, y))))]
    return ((x, y), left, right), shortened


def _distance(start: Point, end: Point) -> float:
    return abs(start[0] - end[0]) + abs(start[1] - end[1])


def _towards(start: Point, end: Point, distance: float) -> Point:
    length = _distance(start, end) or 1.0
    return start[0] + (end[0] - start[0]) * distance / length, start[1] + (end[1] - start[1]) * distance / length
