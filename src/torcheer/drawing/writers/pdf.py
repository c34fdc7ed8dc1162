"""Lay our SVG on a PDF page, element by element.

It knows what the SVG writer writes, and says so when it meets anything else: svglib, which knows more, drops opacity
and links, and sets a line of several `tspan`s apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from xml.etree.ElementTree import Element

from torcheer.drawing.writers.svg_path import Curve, Move, steps
from torcheer.errors import BadArgument

Style = dict[str, str]

# What an element inherits, and what it is when nobody says.
INHERITED: Style = {
    "fill": "black",
    "fill-opacity": "1",
    "stroke": "none",
    "stroke-width": "1",
    "stroke-opacity": "1",
    "stroke-dasharray": "none",
    "stroke-linecap": "butt",
    "stroke-linejoin": "miter",
    "font-size": "16",
    "font-weight": "400",
    "text-anchor": "start",
    "opacity": "1",  # not inherited in SVG, but multiplied on the way down: the same where shapes do not overlap
}
CAPS = {"butt": 0, "round": 1, "square": 2}
JOINS = {"miter": 0, "round": 1, "bevel": 2}
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
SPACE = re.compile("[ \t\r\n]+")


class Page:
    """A canvas, and what its pen is set to."""

    def __init__(self, canvas: Any) -> None:
        self.canvas = canvas
        self.ink: tuple[str, ...] = ()
        self.link = ""

    def draw(self, element: Element, style: Style = INHERITED) -> None:
        """Draw `element` and all in it."""
        kind = _kind(element)
        if kind in UNDRAWN or element.get("display") == "none":
            return
        if kind not in DRAWN:
            raise BadArgument(f"a PDF cannot show <{kind}>, only: {', '.join(DRAWN)}")
        style = _inherit(style, element)
        transform = element.get("transform")
        if not transform:
            return DRAWN[kind](self, element, style)
        ink = self.ink
        self.canvas.saveState()
        self.transform(transform)
        DRAWN[kind](self, element, style)
        self.canvas.restoreState()
        self.ink = ink

    def transform(self, text: str) -> None:
        """Move what is drawn from here on."""
        for name, values in re.findall(r"(\w+)\s*\(([^)]*)\)", text):
            match name, numbers(values):
                case "translate", [x, *rest]:
                    self.canvas.translate(x, *rest or [0])
                case "scale", [x, *rest]:
                    self.canvas.scale(x, *rest or [x])
                case "rotate", [angle, *about]:
                    x, y = about or (0, 0)
                    self.canvas.translate(x, y)
                    self.canvas.rotate(angle)
                    self.canvas.translate(-x, -y)
                case "matrix", [a, b, c, d, e, f]:
                    self.canvas.transform(a, b, c, d, e, f)
                case _:
                    raise BadArgument(f"a PDF cannot show the transform {text!r}")

    def group(self, element: Element, style: Style) -> None:
        for child in element:
            self.draw(child, style)

    def anchor(self, element: Element, style: Style) -> None:
        """A group whose boxes and words lead to a page; links inside the drawing lead nowhere on paper."""
        href = element.get("href") or element.get("{http://www.w3.org/1999/xlink}href") or ""
        self.link = href if href.startswith(("http://", "https://")) else ""
        self.group(element, style)
        self.link = ""

    def rect(self, element: Element, style: Style) -> None:
        x, y, width, height = (_number(element, name) for name in ("x", "y", "width", "height"))
        radius = min(_number(element, "rx" if "rx" in element.attrib else "ry"), width / 2, height / 2)
        fill, stroke = self.dip(style)
        if radius > 0:
            self.canvas.roundRect(x, y, width, height, radius, stroke=stroke, fill=fill)
        else:
            self.canvas.rect(x, y, width, height, stroke=stroke, fill=fill)
        self.lead(x, y, x + width, y + height)

    def circle(self, element: Element, style: Style) -> None:
        x, y, radius = (_number(element, name) for name in ("cx", "cy", "r"))
        fill, stroke = self.dip(style)
        self.canvas.circle(x, y, radius, stroke=stroke, fill=fill)
        self.lead(x - radius, y - radius, x + radius, y + radius)

    def line(self, element: Element, style: Style) -> None:
        _, stroke = self.dip(style)
        if stroke:
            self.canvas.line(*(_number(element, name) for name in ("x1", "y1", "x2", "y2")))

    def path(self, element: Element, style: Style) -> None:
        outline = self.canvas.beginPath()
        for step in steps(element.get("d", "")):
            match step:
                case Move(x, y):
                    outline.moveTo(x, y)
                case Curve(points):
                    outline.lineTo(*points) if len(points) == 2 else outline.curveTo(*points)
                case None:
                    outline.close()
        fill, stroke = self.dip(style)
        self.canvas.drawPath(outline, stroke=stroke, fill=fill, fillMode=1)  # non-zero, as SVG has it

    def text(self, element: Element, style: Style) -> None:
        """Words in a row; a row begins wherever a place is given, and is anchored as a whole."""
        row: list[tuple[str, Style, float, float]] = []
        x = y = 0.0
        for words, own, place in _words(element, style):
            if "x" in place or "y" in place:
                self.row(row, x)
                row, x, y = [], place.get("x", x), place.get("y", y)
            y += place.get("dy", 0.0)
            row.append((words, own, place.get("dx", 0.0), y))
        self.row(row, x)

    def row(self, row: list[tuple[str, Style, float, float]], x: float) -> None:
        from reportlab.pdfbase.pdfmetrics import stringWidth

        widths = [stringWidth(words, *_font(style)) for words, style, _, _ in row]
        if row:
            whole = sum(widths) + sum(shift for _, _, shift, _ in row)
            x -= {"start": 0.0, "middle": whole / 2, "end": whole}[row[0][1]["text-anchor"]]
        for (words, style, shift, y), width in zip(row, widths):
            x += shift
            fill, _ = self.dip(style)
            if fill and words:
                self.words(words, x, y, style)
                self.lead(x, y - 0.8 * _font(style)[1], x + width, y + 0.2 * _font(style)[1])
            x += width

    def words(self, words: str, x: float, y: float, style: Style) -> None:
        line = self.canvas.beginText()
        line.setTextTransform(1, 0, 0, -1, x, y)  # our y grows downwards, letters do not
        line.setFont(*_font(style))
        line.textOut(words)
        self.canvas.drawText(line)

    def lead(self, left: float, top: float, right: float, bottom: float) -> None:
        if self.link:
            self.canvas.linkURL(self.link, (left, top, right, bottom), relative=1)

    def dip(self, style: Style) -> tuple[bool, bool]:
        """Set the pen to `style`; whether it fills, whether it strokes."""
        ink = tuple(style[name] for name in INK)
        fill, stroke = _colour(style["fill"]), _colour(style["stroke"])
        if ink != self.ink:
            self.ink = ink
            opacity = float(style["opacity"])
            if fill:
                self.canvas.setFillColor(fill)
                self.canvas.setFillAlpha(opacity * float(style["fill-opacity"]))
            if stroke:
                self.canvas.setStrokeColor(stroke)
                self.canvas.setStrokeAlpha(opacity * float(style["stroke-opacity"]))
                self.canvas.setLineWidth(numbers(style["stroke-width"])[0])
                self.canvas.setDash(numbers(style["stroke-dasharray"]))
                self.canvas.setLineCap(CAPS[style["stroke-linecap"]])
                self.canvas.setLineJoin(JOINS[style["stroke-linejoin"]])
        return fill is not None, stroke is not None and numbers(style["stroke-width"]) != [0]


DRAWN: dict[str, Callable[[Page, Element, Style], None]] = {
    "svg": Page.group,
    "g": Page.group,
    "a": Page.anchor,
    "rect": Page.rect,
    "circle": Page.circle,
    "line": Page.line,
    "path": Page.path,
    "text": Page.text,
}
UNDRAWN = {"title", "desc", "defs", "style", "metadata", "script"}
INK = [name for name in INHERITED if not name.startswith(("font", "text"))]


def numbers(text: str) -> list[float]:
    """Every number in `text`."""
    return [float(number) for number in NUMBER.findall(text)]


def _words(element: Element, style: Style) -> Iterator[tuple[str, Style, dict[str, float]]]:
    """The words of a text and its tspans, white space folded as a browser folds it, each with where it is put."""
    pieces = list(_pieces(element, style))
    before = " "  # space at the start goes
    for number, (text, own, place) in enumerate(pieces):
        words = SPACE.sub(" ", text)
        if before.endswith(" "):
            words = words.removeprefix(" ")
        if not any(later.strip() for later, _, _ in pieces[number + 1 :]):
            words = words.rstrip(" ")
        before = words or before
        yield words, own, place


def _pieces(element: Element, style: Style) -> Iterator[tuple[str, Style, dict[str, float]]]:
    place: dict[str, float] = {
        name: _number(element, name) for name in ("x", "y", "dx", "dy") if name in element.attrib
    }
    yield element.text or "", style, place
    for child in element:
        if _kind(child) == "tspan":
            yield from _pieces(child, _inherit(style, child))
        yield child.tail or "", style, {}


def _inherit(style: Style, element: Element) -> Style:
    own = {name: value for name, value in element.attrib.items() if name in INHERITED}
    if "opacity" in own:
        own["opacity"] = str(float(style["opacity"]) * float(own["opacity"]))
    return style | own if own else style


def _font(style: Style) -> tuple[str, float]:
    weight = style["font-weight"]
    bold = weight == "bold" or (weight.isdigit() and int(weight) > 500)
    return "torcheerBold" if bold else "torcheerRegular", numbers(style["font-size"])[0]


@cache
def _colour(name: str) -> Any:
    """What reportlab paints this colour with; None where nothing is painted."""
    from reportlab.lib.colors import HexColor, toColor

    if name in ("none", "transparent"):
        return None
    try:
        if re.fullmatch("#[0-9a-fA-F]{3}", name):
            name = "#" + "".join(2 * digit for digit in name[1:])
        return HexColor(name) if name.startswith("#") else toColor(name)
    except ValueError as error:
        raise BadArgument(f"a PDF cannot show the colour {name!r}. Try: '#rrggbb' or a colour's name.") from error


def _number(element: Element, name: str) -> float:
    return (numbers(element.get(name, "")) or [0.0])[0]


def _kind(element: Element) -> str:
    return element.tag.rpartition("}")[2]
