"""Write a drawing as one SVG file, with its font and dark colours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from torcheer.drawing.layout.box_sizes import Point
from torcheer.drawing.looks.colours import DARK, FAMILIES, family_colours, gradient_fill
from torcheer.drawing.looks.font_metrics import FAMILY, font_face_css
from torcheer.drawing.looks.sheet import Sheet
from torcheer.drawing.looks.vector_shapes import (
    Arrowheads,
    Dashes,
    Group,
    Line,
    LineSample,
    Plus,
    Rect,
    Shape,
    Strip,
    Text,
    rounded_corners,
)

UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # XML cannot carry these


def write_svg(sheet: Sheet, *, auto: bool = False, font: bool = True) -> str:
    """Return the SVG.

    With `auto`, a dark page shows it in dark colours; without `font`, the reader must have ours.
    """
    rules = f"@media (prefers-color-scheme: dark){{{dark_rules(backward=sheet.backward)}}}" if auto else ""
    style = f"<style>{font_face_css()}{rules}</style>" if font else ""
    width, height = number(sheet.width), number(sheet.height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="{FAMILY}" role="img"><title>{clean(sheet.title)}</title>{style}'
        f"{shapes_svg(sheet.shapes)}</svg>\n"
    )


def shapes_svg(shapes: Iterable[Shape]) -> str:
    """Return the elements of shapes."""
    inside: dict[int, str] = {}
    return "".join(_element(shape, inside) for shape in shapes)


def _element(shape: Shape, inside: dict[int, str]) -> str:
    """Return a shape's element; `inside` keeps the text of groups: boxes that look the same share their shapes."""
    match shape:
        case Group(x, y, shapes, hover):
            if id(shapes) not in inside:
                inside[id(shapes)] = "".join(_element(part, inside) for part in shapes)
            place = f' transform="translate({number(x)},{number(y)})"' if x or y else ""
            title = f"<title>{clean(hover)}</title>" if hover else ""
            return f"<g{place}>{title}{inside[id(shapes)]}</g>"
        case Rect():
            return _rect(shape)
        case Text():
            return _text(shape)
        case Line(lines, stroke, css_class, width, dashes):
            return _stroke("".join(map(line_path, lines)), stroke, css_class, width, dashes)
        case LineSample(stroke, css_class, width, dashes):
            return _stroke("M0 6h16", stroke, css_class, width, dashes)
        case Arrowheads(heads, fill, css_class):
            return f'<path class="{css_class}" d="{"".join(map(arrow_path, heads))}" fill="{fill}"/>'
        case Strip(height, fill, stroke, css_class):
            below = f"V{number(height - 0.5)}H4A3.5 3.5 0 0 1 0.5 {number(height - 4)}"
            outline = f"M4 0.5H5{below}V4A3.5 3.5 0 0 1 4 0.5Z"
            return f'<path class="{css_class}" d="{outline}" fill="{fill}" stroke="{stroke}"/>'
        case Plus(x, y, reach, stroke):
            outline = f"M{number(x - reach)} {number(y)}h{2 * reach}m-{reach} -{reach}v{2 * reach}"
            return f'<path class="more" d="{outline}" fill="none" stroke="{stroke}"/>'


def _stroke(outline: str, stroke: str, css_class: str, width: float, dashes: Dashes) -> str:
    paint = f'fill="none" stroke="{stroke}" stroke-width="{number(width)}"{_dashes(dashes)}'
    return f'<path class="{css_class}" d="{outline}" {paint}/>'


def _rect(rect: Rect) -> str:
    css_class = f' class="{rect.css_class}"' if rect.css_class else ""
    place = (f' x="{number(rect.x)}"' if rect.x else "") + (f' y="{number(rect.y)}"' if rect.y else "")
    corners = f' rx="{number(rect.radius)}"' if rect.radius else ""
    opacity = f' fill-opacity="{rect.fill_opacity}"' if rect.fill_opacity < 1 else ""
    stroke = f' stroke="{rect.stroke}"' if rect.stroke else ""
    return (
        f'<rect{css_class}{place} width="{number(rect.width)}" height="{number(rect.height)}"{corners} '
        f'fill="{rect.fill}"{opacity}{stroke}{_dashes(rect.dashes)}/>'
    )


def _text(text: Text) -> str:
    place = (f' x="{number(text.x)}"' if text.x else "") + f' y="{number(text.y)}"'
    weight = ' font-weight="600"' if text.bold else ""
    anchor = f' text-anchor="{text.anchor}"' if text.anchor else ""
    font = f' font-size="{number(text.size)}"{weight}'
    return f'<text class="{text.css_class}"{place}{font}{anchor} fill="{text.fill}">{clean(text.text)}</text>'


def line_path(points: list[Point]) -> str:
    """Return the path of a line, with rounded corners."""
    (x, y), (last_x, last_y) = points[0], points[-1]
    corners = [
        f"L{number(ax)} {number(ay)}Q{number(cx)} {number(cy)} {number(bx)} {number(by)}"
        for (ax, ay), (cx, cy), (bx, by) in rounded_corners(points)
    ]
    return f"M{number(x)} {number(y)}{''.join(corners)}L{number(last_x)} {number(last_y)}"


def arrow_path(head: tuple[Point, Point, Point]) -> str:
    """Return the path of an arrowhead."""
    (x, y), (ax, ay), (bx, by) = head
    across = f"H{number(bx)}" if ay == by else f"V{number(by)}"
    return f"M{number(x)} {number(y)}L{number(ax)} {number(ay)}{across}Z"


def number(value: float) -> str:
    """Format a number with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0") if value % 1 else str(int(value))


def clean(text: str) -> str:
    """Escape text for XML, and replace characters that XML cannot represent."""
    return escape(UNPRINTABLE.sub("\ufffd", text))


def _dashes(dashes: Dashes) -> str:
    return f' stroke-dasharray="{" ".join(map(number, dashes))}"' if dashes else ""


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
