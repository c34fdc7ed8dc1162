"""The pieces an SVG is made of. Plain attributes carry the light colours, classes let a dark page override them."""

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
TITLE_AT = (9.0, 15.0, 14.0)  # where the title of a frame starts, and how far apart its lines are

STROKES = {
    "edge": "",
    "still": "4 3",
    "loop": "",
    "gradient": "",
    "kept": "1.5 2.5",
}  # the kinds of lines, and their dashes

Words = list[tuple[str, str]]  # pieces of text, each with its tone


def number(value: float) -> str:
    """A number as short as it can be."""
    return f"{value:.1f}".removesuffix(".0") if value % 1 else str(int(value))


def text_svg(
    x: float, y: float, text: str, size: float, tone: str, theme: Theme, *, ink: str = "", anchor: str = ""
) -> str:
    """A piece of text; `tone` is "strong", "plain" or "soft"."""
    colour = ink or (theme.soft if tone == "soft" else theme.ink)
    kind = "on" if ink else "soft" if tone == "soft" else "ink"
    weight = ' font-weight="600"' if tone == "strong" else ""
    where = f' text-anchor="{anchor}"' if anchor else ""
    return (
        f'<text class="{kind}" x="{number(x)}" y="{number(y)}" font-size="{number(size)}"{weight}{where} '
        f'fill="{colour}">{clean(text)}</text>'
    )


def clean(text: str) -> str:
    """Text that XML can carry."""
    return escape(UNPRINTABLE.sub("�", text))


DASHED = frozenset(("unseen", "borrowed", "beside"))  # marks whose boxes have a broken border


@lru_cache(maxsize=100_000)
def leaf_svg(name: str, face: Face, theme: Theme, down: bool = True, fill: str = "", ink: str = "") -> str:
    """A box without an inside, from its top left corner; `fill` and `ink` are an overlay's."""
    drawn, shape = draw_face(name, face, down), SHAPES[face.look]
    sheets = SHEETS if face.folded and face.times > 1 else 0.0
    wide, high = drawn.box.width - sheets, drawn.box.height - sheets
    size = f'width="{number(wide)}" height="{number(high)}" rx="{number(shape.radius)}"'
    own_fill, line = _paint(face, theme)
    if face.fill and not fill:
        ink = ink_on(face.fill)
    parts = []
    if sheets:
        sheet = f'{size} fill="{theme.card}" stroke="{theme.frame}"'
        parts += [f'<rect class="sheet" x="{n}" y="{n}" {sheet}/>' for n in ("6", "3")]
    dashed = face.look in ("buffer", "constant") or not DASHED.isdisjoint(face.marks)
    dashes = ' stroke-dasharray="3 2"' if dashed and not face.folded else ""
    kind = "" if face.fill or fill else f'class="{_class(face)}" '
    parts.append(f'<rect {kind}{size} fill="{fill or own_fill}" stroke="{line}"{dashes}/>')
    if shape.bar and face.family and not fill and not face.folded:
        hollow = "frozen" in face.marks
        bottom, inner = number(high - 0.5), theme.card if hollow else line
        parts.append(
            f'<path class="b-{face.family}{" hollow" if hollow else ""}" d="M4 0.5H5V{bottom}H4A3.5 3.5 0 0 1 0.5 '
            f'{number(high - 4)}V4A3.5 3.5 0 0 1 4 0.5Z" fill="{inner}" stroke="{line}"/>'
        )
    if face.folded:
        parts.append(
            f'<path class="more" d="M{number(wide - 13)} 8.5h6m-3 -3v6" fill="none" stroke="{ink or theme.soft}"/>'
        )
    parts += [text_svg(run.x, run.y, run.text, run.size, run.tone, theme, ink=ink) for run in drawn.runs]
    if face.badge:
        parts.append(_badge(face.badge, wide - 18 - 4 * len(face.badge), (high - 13) / 2, theme))
    return "".join(parts)


def _class(face: Face) -> str:
    return f"f-{face.family}" if face.family else f"card look-{face.look}"


def _paint(face: Face, theme: Theme) -> tuple[str, str]:
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
    wide = 12 + 4 * len(letters)
    return (
        f'<rect class="badge" x="{number(x)}" y="{number(y)}" width="{wide}" height="13" rx="6.5" fill="none" '
        f'stroke="{theme.soft}"/>{text_svg(x + wide / 2, y + 9.8, letters, 9, "strong", theme, anchor="middle")}'
    )


def frame_svg(lines: list[Words], box: Box, theme: Theme, *, stacked: bool, dashed: bool) -> str:
    """The border and title of an open box, from its top left corner."""
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
    """Where each piece of a line of a title starts."""
    found, at = [], TITLE_AT[0]
    for text, tone in words:
        found.append((at, text, tone))
        at += text_width(text, TITLE, tone == "strong") + 5
    return found


def line_path(points: list[Point]) -> str:
    """An edge with rounded corners."""
    parts = [f"M{number(points[0][0])} {number(points[0][1])}"]
    for before, corner, after in zip(points, points[1:], points[2:]):
        radius = min(ROUND, _distance(before, corner) / 2, _distance(corner, after) / 2)
        (ax, ay), (bx, by) = _towards(corner, before, radius), _towards(corner, after, radius)
        parts.append(f"L{number(ax)} {number(ay)}Q{number(corner[0])} {number(corner[1])} {number(bx)} {number(by)}")
    parts.append(f"L{number(points[-1][0])} {number(points[-1][1])}")
    return "".join(parts)


def edge_kind(back: bool, carries: int, flowing: bool) -> str:
    """Which of the strokes an edge has; where no gradient flows anywhere, that is not said of every edge."""
    if carries in (GRADIENT, KEPT):
        return "gradient" if carries == GRADIENT else "kept"
    return "loop" if back else "edge" if carries == FLOWS or not flowing else "still"


def line_colour(kind: str, theme: Theme) -> str:
    """What a kind of line is drawn in."""
    return {"edge": theme.line, "still": theme.faint, "loop": theme.loop}.get(kind) or str(getattr(theme, kind))


def stroke_svg(kind: str, outline: str, theme: Theme, width: str = "1.2") -> str:
    """A line."""
    dashes = f' stroke-dasharray="{STROKES[kind]}"' if STROKES[kind] else ""
    return (
        f'<path class="{kind}" d="{outline}" fill="none" stroke="{line_colour(kind, theme)}" stroke-width="{width}"'
        f"{dashes}/>"
    )


def arrow_path(points: list[Point]) -> tuple[str, list[Point]]:
    """A head at the end of an edge, and the edge cut short under it."""
    before, (x, y) = points[-2], points[-1]
    length, wide = HEAD
    sx, sy = _towards((x, y), before, length)
    if before[0] == x:
        head = f"M{number(x)} {number(y)}L{number(x - wide)} {number(sy)}H{number(x + wide)}Z"
    else:
        head = f"M{number(x)} {number(y)}L{number(sx)} {number(y - wide)}V{number(y + wide)}Z"
    return head, [*points[:-1], _towards((x, y), before, min(length - 1, _distance(before, (x, y))))]


def _distance(one: Point, other: Point) -> float:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def _towards(start: Point, end: Point, far: float) -> Point:
    length = _distance(start, end) or 1.0
    return start[0] + (end[0] - start[0]) * far / length, start[1] + (end[1] - start[1]) * far / length


def dark_rules(scope: str = "", *, backward: bool = False) -> str:
    """Rules that turn the light attributes dark, for everything below `scope`; those of a backward pass on request."""
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
    before = f"{scope} " if scope else ""
    return "".join(
        f"{','.join(before + part for part in chosen.split(','))}{{{rule}}}" for chosen, rule in rules.items()
    )
