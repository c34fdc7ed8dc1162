"""The parts of an SVG drawing.

Attributes carry the light colours; classes let a dark page override them.
"""

from __future__ import annotations

from functools import lru_cache
from html import escape

from torcheer.drawing.items.item import FLOWS, GRADIENT, KEPT, Face
from torcheer.drawing.layout.box_sizes import Box, Point
from torcheer.drawing.looks.colours import DARK, FAMILIES, Theme, family_colours, gradient_fill, ink_on
from torcheer.drawing.looks.faces import SHAPES, SHEETS, TITLE, draw_face
from torcheer.drawing.looks.font_metrics import text_width
from torcheer.drawing.writers.rasterize import UNPRINTABLE

ROUND = 5.0  # the radius of an edge's corners
HEAD = (6.0, 3.2)  # length and half width of an arrow's head
TITLE_AT = (9.0, 15.0, 14.0)  # x and y of the title of a frame, and the distance between its lines

STROKES = {
    "edge": "",
    "still": "4 3",
    "loop": "",
    "gradient": "",
    "kept": "1.5 2.5",
}  # the kinds of lines, and their dashes

Words = list[tuple[str, str]]  # pieces of text, each with its tone


def number(value: float) -> str:
    """Format a number with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0") if value % 1 else str(int(value))


def text_svg(
    x: float, y: float, text: str, size: float, tone: str, theme: Theme, *, ink: str = "", anchor: str = ""
) -> str:
    """Return a text element; `tone` is "strong", "plain" or "soft"."""
    colour = ink or (theme.soft if tone == "soft" else theme.ink)
    kind = "on" if ink else "soft" if tone == "soft" else "ink"
    weight = ' font-weight="600"' if tone == "strong" else ""
    alignment = f' text-anchor="{anchor}"' if anchor else ""
    return (
        f'<text class="{kind}" x="{number(x)}" y="{number(y)}" font-size="{number(size)}"{weight}{alignment} '
        f'fill="{colour}">{clean(text)}</text>'
    )


def clean(text: str) -> str:
    """Escape text for XML, and replace characters that XML cannot represent."""
    return escape(UNPRINTABLE.sub("�", text))


DASHED = frozenset(("unseen", "borrowed", "beside"))  # marks whose boxes have a dashed border


@lru_cache(maxsize=100_000)
def leaf_svg(name: str, face: Face, theme: Theme, down: bool = True, fill: str = "", ink: str = "") -> str:
    """Return a closed box, relative to its top left corner.

    `fill` and `ink` are the colours of an overlay.
    """
    drawn, shape = draw_face(name, face, down), SHAPES[face.look]
    sheets = SHEETS if face.folded and face.times > 1 else 0.0
    width, height = drawn.box.width - sheets, drawn.box.height - sheets
    size = f'width="{number(width)}" height="{number(height)}" rx="{number(shape.radius)}"'
    face_fill, line = _colours(face, theme)
    if face.fill and not fill:
        ink = ink_on(face.fill)
    parts = []
    if sheets:
        sheet = f'{size} fill="{theme.card}" stroke="{theme.frame}"'
        parts += [f'<rect class="sheet" x="{n}" y="{n}" {sheet}/>' for n in ("6", "3")]
    dashed = face.look in ("buffer", "constant") or not DASHED.isdisjoint(face.marks)
    dashes = ' stroke-dasharray="3 2"' if dashed and not face.folded else ""
    kind = "" if face.fill or fill else f'class="{_class(face)}" '
    parts.append(f'<rect {kind}{size} fill="{fill or face_fill}" stroke="{line}"{dashes}/>')
    if shape.bar and face.family and not fill and not face.folded:
        hollow = "frozen" in face.marks
        bottom, inner = number(height - 0.5), theme.card if hollow else line
        parts.append(
            f'<path class="b-{face.family}{" hollow" if hollow else ""}" d="M4 0.5H5V{bottom}H4A3.5 3.5 0 0 1 0.5 '
            f'{number(height - 4)}V4A3.5 3.5 0 0 1 4 0.5Z" fill="{inner}" stroke="{line}"/>'
        )
    if face.folded:
        parts.append(
            f'<path class="more" d="M{number(width - 13)} 8.5h6m-3 -3v6" fill="none" stroke="{ink or theme.soft}"/>'
        )
    parts += [text_svg(run.x, run.y, run.text, run.size, run.tone, theme, ink=ink) for run in drawn.runs]
    if face.badge:
        parts.append(_badge(face.badge, width - 18 - 4 * len(face.badge), (height - 13) / 2, theme))
    return "".join(parts)


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


def _badge(letters: str, x: float, y: float, theme: Theme) -> str:
    width = 12 + 4 * len(letters)
    return (
        f'<rect class="badge" x="{number(x)}" y="{number(y)}" width="{width}" height="13" rx="6.5" fill="none" '
        f'stroke="{theme.soft}"/>{text_svg(x + width / 2, y + 9.8, letters, 9, "strong", theme, anchor="middle")}'
    )


def frame_svg(lines: list[Words], box: Box, theme: Theme, *, stacked: bool, dashed: bool) -> str:
    """Return the border and title of an open box, relative to its top left corner."""
    size = f'width="{number(box.width)}" height="{number(box.height)}" rx="6"'
    parts = []
    if stacked:
        parts += [
            f'<rect class="sheet" x="{n}" y="{n}" {size} fill="{theme.paper}" stroke="{theme.frame}"/>'
            for n in ("6", "3")
        ]
        parts.append(f'<rect class="paper" {size} fill="{theme.paper}"/>')
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    parts.append(
        f'<rect class="frame" {size} fill="{theme.tint}" fill-opacity="{theme.tint_opacity}" '
        f'stroke="{theme.frame}"{dashes}/>'
    )
    _, y, step = TITLE_AT
    for count, words in enumerate(lines):
        parts += [text_svg(x, y + count * step, text, TITLE, tone, theme) for x, text, tone in title_places(words)]
    return "".join(parts)


def title_places(words: Words) -> list[tuple[float, str, str]]:
    """Return the pieces of a line of a title, each with the x where it starts."""
    places, at = [], TITLE_AT[0]
    for text, tone in words:
        places.append((at, text, tone))
        at += text_width(text, TITLE, tone == "strong") + 5
    return places


def line_path(points: list[Point]) -> str:
    """Return the path of an edge, with rounded corners."""
    parts = [f"M{number(points[0][0])} {number(points[0][1])}"]
    for before, corner, after in zip(points, points[1:], points[2:]):
        radius = min(ROUND, _distance(before, corner) / 2, _distance(corner, after) / 2)
        (ax, ay), (bx, by) = _towards(corner, before, radius), _towards(corner, after, radius)
        parts.append(f"L{number(ax)} {number(ay)}Q{number(corner[0])} {number(corner[1])} {number(bx)} {number(by)}")
    parts.append(f"L{number(points[-1][0])} {number(points[-1][1])}")
    return "".join(parts)


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


def stroke_svg(kind: str, outline: str, theme: Theme, width: str = "1.2") -> str:
    """Return a line, as a path element."""
    dashes = f' stroke-dasharray="{STROKES[kind]}"' if STROKES[kind] else ""
    return (
        f'<path class="{kind}" d="{outline}" fill="none" stroke="{line_colour(kind, theme)}" stroke-width="{width}"'
        f"{dashes}/>"
    )


def arrow_path(points: list[Point]) -> tuple[str, list[Point]]:
    """Return the path of an edge's arrowhead, and the edge shortened to end under it."""
    before, (x, y) = points[-2], points[-1]
    length, half_width = HEAD
    sx, sy = _towards((x, y), before, length)
    if before[0] == x:
        head = f"M{number(x)} {number(y)}L{number(x - half_width)} {number(sy)}H{number(x + half_width)}Z"
    else:
        head = f"M{number(x)} {number(y)}L{number(sx)} {number(y - half_width)}V{number(y + half_width)}Z"
    return head, [*points[:-1], _towards((x, y), before, min(length - 1, _distance(before, (x, y))))]


def _distance(start: Point, end: Point) -> float:
    return abs(start[0] - end[0]) + abs(start[1] - end[1])


def _towards(start: Point, end: Point, distance: float) -> Point:
    length = _distance(start, end) or 1.0
    return start[0] + (end[0] - start[0]) * distance / length, start[1] + (end[1] - start[1]) * distance / length


def dark_rules(scope: str = "", *, backward: bool = False) -> str:
    """Return CSS rules for dark colours, below the selector `scope`.

    With `backward`, also those that only drawings of a backward pass need.
    """
    theme = DARK
    rules = {
        ".paper": f"fill:{theme.paper}",
        ".ink": f"fill:{theme.ink}",
        ".soft": f"fill:{theme.soft}",
        ".frame": f"fill:{theme.tint};stroke:{theme.frame}",
        ".sheet": f"fill:{theme.card};stroke:{theme.frame}",
        ".edge": f"stroke:{theme.line}",
        ".still": f"stroke:{theme.faint}",
        ".loop": f"stroke:{theme.loop}",
        ".head-edge": f"fill:{theme.line}",
        ".head-still": f"fill:{theme.faint}",
        ".head-loop": f"fill:{theme.loop}",
        ".card": f"fill:{theme.card};stroke:{theme.frame}",
        ".look-input,.look-output": f"stroke:{theme.ink}",
        ".look-buffer": f"stroke:{theme.soft}",
        ".look-parameter": f"stroke:{family_colours('linear', theme)[1]}",
        ".look-stop": f"stroke:{theme.alarm}",
        ".badge": f"stroke:{theme.soft}",
        ".more": f"stroke:{theme.soft}",
    }
    if backward:
        rules |= {
            ".gradient": f"stroke:{theme.gradient}",
            ".head-gradient": f"fill:{theme.gradient}",
            ".kept": f"stroke:{theme.kept}",
            ".head-kept": f"fill:{theme.kept}",
            ".look-gradient": f"fill:{gradient_fill(theme)};stroke:{theme.gradient}",
        }
    for family in FAMILIES:
        fill, line = family_colours(family, theme)
        rules[f".f-{family}"] = f"fill:{fill};stroke:{line}"
        rules[f".b-{family}"] = f"fill:{line};stroke:{line}"
        rules[f".b-{family}.hollow"] = f"fill:{theme.card}"
    prefix = f"{scope} " if scope else ""
    return "".join(
        f"{','.join(prefix + part for part in selectors.split(','))}{{{rule}}}" for selectors, rule in rules.items()
    )
