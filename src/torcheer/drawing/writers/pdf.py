"""Draw our SVG on a PDF page, element by element.

Supports what the SVG writer writes, and raises on anything else. svglib, which supports more, drops opacity and links,
and breaks a line of several `tspan`s apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from xml.etree.ElementTree import Element

from torcheer.drawing.writers.svg_path import Curve, Move, steps
from torcheer.errors import BadArgument

SvgStyle = dict[str, str]

# Attributes that an element inherits, with their defaults.
INHERITED: SvgStyle = {
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


class PdfPage:
    """A reportlab canvas, with its current paint settings and link."""

    def __init__(self, canvas: Any) -> None:
        self.canvas = canvas
        self.paint: tuple[str, ...] = ()
        self.link = ""

    def draw(self, element: Element, style: SvgStyle = INHERITED) -> None:
        """Draw `element` and everything in it."""
        kind = _kind(element)
        if kind in IGNORED or element.get("display") == "none":
            return
        if kind not in DRAW_METHODS:
            raise BadArgument(f"a PDF cannot show <{kind}>, only: {', '.join(DRAW_METHODS)}")
        style = _inherit(style, element)
        transform = element.get("transform")
        if not transform:
            return DRAW_METHODS[kind](self, element, style)
        paint = self.paint
        self.canvas.saveState()
        self.transform(transform)
        DRAW_METHODS[kind](self, element, style)
        self.canvas.restoreState()
        self.paint = paint

    def transform(self, text: str) -> None:
        """Apply an SVG transform to everything drawn from here on."""
        for name, values in re.findall(r"(\w+)\s*\(([^)]*)\)", text):
            match name, numbers(values):
                case "translate", [x, *y_values]:
                    self.canvas.translate(x, *y_values or [0])
                case "scale", [x, *y_values]:
                    self.canvas.scale(x, *y_values or [x])
                case "rotate", [angle, *centre]:
                    x, y = centre or (0, 0)
                    self.canvas.translate(x, y)
                    self.canvas.rotate(angle)
                    self.canvas.translate(-x, -y)
                case "matrix", [a, b, c, d, e, f]:
                    self.canvas.transform(a, b, c, d, e, f)
                case _:
                    raise BadArgument(f"a PDF cannot show the transform {text!r}")

    def group(self, element: Element, style: SvgStyle) -> None:
        for child in element:
            self.draw(child, style)

    def anchor(self, element: Element, style: SvgStyle) -> None:
        """Draw a group with a link on its boxes and words; links within the drawing are dropped."""
        href = element.get("href") or element.get("{http://www.w3.org/1999/xlink}href") or ""
        self.link = href if href.startswith(("http://", "https://")) else ""
        self.group(element, style)
        self.link = ""

    def rect(self, element: Element, style: SvgStyle) -> None:
        x, y, width, height = (_number(element, name) for name in ("x", "y", "width", "height"))
        radius = min(_number(element, "rx" if "rx" in element.attrib else "ry"), width / 2, height / 2)
        fill, stroke = self.set_paint(style)
        if radius > 0:
            self.canvas.roundRect(x, y, width, height, radius, stroke=stroke, fill=fill)
        else:
            self.canvas.rect(x, y, width, height, stroke=stroke, fill=fill)
        self.add_link(x, y, x + width, y + height)

    def circle(self, element: Element, style: SvgStyle) -> None:
        x, y, radius = (_number(element, name) for name in ("cx", "cy", "r"))
        fill, stroke = self.set_paint(style)
        self.canvas.circle(x, y, radius, stroke=stroke, fill=fill)
        self.add_link(x - radius, y - radius, x + radius, y + radius)

    def line(self, element: Element, style: SvgStyle) -> None:
        _, stroke = self.set_paint(style)
        if stroke:
            self.canvas.line(*(_number(element, name) for name in ("x1", "y1", "x2", "y2")))

    def path(self, element: Element, style: SvgStyle) -> None:
        outline = self.canvas.beginPath()
        for step in steps(element.get("d", "")):
            match step:
                case Move(x, y):
                    outline.moveTo(x, y)
                case Curve(points):
                    outline.lineTo(*points) if len(points) == 2 else outline.curveTo(*points)
                case None:
                    outline.close()
        fill, stroke = self.set_paint(style)
        self.canvas.drawPath(outline, stroke=stroke, fill=fill, fillMode=1)  # non-zero, as SVG has it

    def text(self, element: Element, style: SvgStyle) -> None:
        """Draw a text; a new row begins at each x or y, and is anchored as a whole."""
        row: list[tuple[str, SvgStyle, float, float]] = []
        x = y = 0.0
        for words, word_style, place in _words(element, style):
            if "x" in place or "y" in place:
                self.draw_row(row, x)
                row, x, y = [], place.get("x", x), place.get("y", y)
            y += place.get("dy", 0.0)
            row.append((words, word_style, place.get("dx", 0.0), y))
        self.draw_row(row, x)

    def draw_row(self, row: list[tuple[str, SvgStyle, float, float]], x: float) -> None:
        from reportlab.pdfbase.pdfmetrics import stringWidth

        widths = [stringWidth(words, *_font(style)) for words, style, _, _ in row]
        if row:
            total = sum(widths) + sum(shift for _, _, shift, _ in row)
            x -= {"start": 0.0, "middle": total / 2, "end": total}[row[0][1]["text-anchor"]]
        for (words, style, shift, y), width in zip(row, widths):
            x += shift
            fill, _ = self.set_paint(style)
            if fill and words:
                self.draw_words(words, x, y, style)
                self.add_link(x, y - 0.8 * _font(style)[1], x + width, y + 0.2 * _font(style)[1])
            x += width

    def draw_words(self, words: str, x: float, y: float, style: SvgStyle) -> None:
        line = self.canvas.beginText()
        line.setTextTransform(1, 0, 0, -1, x, y)  # our y grows downwards, letters do not
        line.setFont(*_font(style))
        line.textOut(words)
        self.canvas.drawText(line)

    def add_link(self, left: float, top: float, right: float, bottom: float) -> None:
        if self.link:
            self.canvas.linkURL(self.link, (left, top, right, bottom), relative=1)

    def set_paint(self, style: SvgStyle) -> tuple[bool, bool]:
        """Set the colours and lines of `style`; return whether it fills and whether it strokes."""
        paint = tuple(style[name] for name in PAINT)
        fill, stroke = _colour(style["fill"]), _colour(style["stroke"])
        if paint != self.paint:
            self.paint = paint
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


DRAW_METHODS: dict[str, Callable[[PdfPage, Element, SvgStyle], None]] = {
    "svg": PdfPage.group,
    "g": PdfPage.group,
    "a": PdfPage.anchor,
    "rect": PdfPage.rect,
    "circle": PdfPage.circle,
    "line": PdfPage.line,
    "path": PdfPage.path,
    "text": PdfPage.text,
}
IGNORED = {"title", "desc", "defs", "style", "metadata", "script"}
PAINT = [name for name in INHERITED if not name.startswith(("font", "text"))]


def numbers(text: str) -> list[float]:
    """Return every number in `text`."""
    return [float(number) for number in NUMBER.findall(text)]


def _words(element: Element, style: SvgStyle) -> Iterator[tuple[str, SvgStyle, dict[str, float]]]:
    """Yield a text's words with style and position, white space collapsed as in a browser."""
    pieces = list(_pieces(element, style))
    before = " "  # drops space at the start
    for number, (text, piece_style, place) in enumerate(pieces):
        words = SPACE.sub(" ", text)
        if before.endswith(" "):
            words = words.removeprefix(" ")
        if not any(later.strip() for later, _, _ in pieces[number + 1 :]):
            words = words.rstrip(" ")
        before = words or before
        yield words, piece_style, place


def _pieces(element: Element, style: SvgStyle) -> Iterator[tuple[str, SvgStyle, dict[str, float]]]:
    place: dict[str, float] = {
        name: _number(element, name) for name in ("x", "y", "dx", "dy") if name in element.attrib
    }
    yield element.text or "", style, place
    for child in element:
        if _kind(child) == "tspan":
            yield from _pieces(child, _inherit(style, child))
        yield child.tail or "", style, {}


def _inherit(style: SvgStyle, element: Element) -> SvgStyle:
    attributes = {name: value for name, value in element.attrib.items() if name in INHERITED}
    if "opacity" in attributes:
        attributes["opacity"] = str(float(style["opacity"]) * float(attributes["opacity"]))
    return style | attributes if attributes else style


def _font(style: SvgStyle) -> tuple[str, float]:
    weight = style["font-weight"]
    bold = weight == "bold" or (weight.isdigit() and int(weight) > 500)
    return "torcheerBold" if bold else "torcheerRegular", numbers(style["font-size"])[0]


@cache
def _colour(name: str) -> Any:
    """Return reportlab's colour object; None for no paint."""
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
