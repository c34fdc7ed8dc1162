"""Draw a drawing on a PDF page: vector shapes, searchable text, our font embedded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from io import BytesIO
from typing import Any

from torcheer.drawing.layout.box_sizes import Point
from torcheer.drawing.looks.font_metrics import font_files
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
from torcheer.drawing.writers.png import missing_package
from torcheer.drawing.writers.svg import UNPRINTABLE
from torcheer.errors import BadArgument

POINTS_PER_PIXEL = 0.75
MAX_POINTS = 14_400  # a PDF page may be 200 inches
SPACE = re.compile("[ \t\r\n]+")
# How far the handles of a cubic curve reach towards the corner, for a quadratic curve and for a quarter of a circle.
QUADRATIC, QUARTER = 2 / 3, 0.5522847
FORM_USES = 5  # a box that stands in fewer places is drawn there: a form has a price of its own


def write_pdf(sheet: Sheet) -> bytes:
    """Return a PDF of one page as large as the drawing."""
    try:
        from reportlab.pdfgen.canvas import Canvas
    except ImportError as error:
        raise missing_package("a PDF", "reportlab") from error
    register_fonts()
    scale = min(POINTS_PER_PIXEL, MAX_POINTS / max(sheet.width, sheet.height))
    file = BytesIO()
    canvas = Canvas(
        file, pagesize=(sheet.width * scale, sheet.height * scale), pageCompression=1, invariant=1,
        initialFontName="torcheerRegular",
    )  # fmt: skip
    canvas.setTitle(printable(sheet.title))
    canvas.scale(scale, scale)
    _Page(canvas, sheet).draw(sheet.shapes, 0.0, sheet.height)
    canvas.showPage()
    canvas.save()
    return file.getvalue()


class _Page:
    """A reportlab canvas and the paint that is set on it: setting it for every shape would double the file.

    In a PDF y grows upwards: a shape's y is subtracted from that of the point it is relative to.
    """

    def __init__(self, canvas: Any, sheet: Sheet) -> None:
        self.canvas, self.width, self.height = canvas, sheet.width, sheet.height
        self.paint: dict[str, object] = {}
        self.uses = Counter(_groups(sheet.shapes))
        self.forms: dict[int, str] = {}

    def draw(self, shapes: Iterable[Shape], x: float, y: float) -> None:
        """Draw shapes relative to a point."""
        for shape in shapes:
            match shape:
                case Group():
                    self.group(shape.shapes, x + shape.x, y - shape.y)
                case Rect():
                    self.rect(shape, x + shape.x, y - shape.y - shape.height)
                case Text():
                    self.text(shape, x + shape.x, y - shape.y)
                case _:
                    self.outline(shape, x, y)

    def group(self, shapes: tuple[Shape, ...], x: float, y: float) -> None:
        """Draw a group; what stands in several places is in the file once."""
        if self.uses[id(shapes)] < FORM_USES:
            return self.draw(shapes, x, y)
        if id(shapes) not in self.forms:
            self.forms[id(shapes)] = name = f"box{len(self.forms)}"
            paint, self.paint = self.paint, {}
            self.canvas.beginForm(name, -self.width, -self.height, self.width, self.height)  # what lies outside is cut
            self.draw(shapes, 0.0, 0.0)
            self.canvas.endForm()
            self.paint = paint
        self.set(
            "FillAlpha", 1.0
        )  # a form begins with the page's paint, and reportlab does not set what is the default
        self.canvas.saveState()
        self.canvas.translate(x, y)
        self.canvas.doForm(self.forms[id(shapes)])
        self.canvas.restoreState()

    def rect(self, rect: Rect, x: float, y: float) -> None:
        fill, stroke = self.fill(rect.fill, rect.fill_opacity), self.stroke(rect.stroke, 1.0, rect.dashes)
        if rect.radius:
            radius = min(rect.radius, rect.width / 2, rect.height / 2)
            self.canvas.roundRect(x, y, rect.width, rect.height, radius, stroke=stroke, fill=fill)
        else:
            self.canvas.rect(x, y, rect.width, rect.height, stroke=stroke, fill=fill)

    def text(self, text: Text, x: float, y: float) -> None:
        if self.fill(text.fill):
            self.set("Font", "torcheerBold" if text.bold else "torcheerRegular", text.size)
            draw = {"middle": self.canvas.drawCentredString, "end": self.canvas.drawRightString}
            draw.get(text.anchor, self.canvas.drawString)(x, y, printable(text.text))

    def outline(self, shape: Line | LineSample | Arrowheads | Strip | Plus, x: float, y: float) -> None:
        path = self.canvas.beginPath()
        fill = stroke = False
        match shape:
            case Line(lines, colour, _, width, dashes):
                stroke = self.stroke(colour, width, dashes)
                for points in lines:
                    _draw_line(path, [(x + across, y - down) for across, down in points])
            case LineSample(colour, _, width, dashes):
                stroke = self.stroke(colour, width, dashes)
                _draw_line(path, [(x, y - 6), (x + 16, y - 6)])
            case Arrowheads(heads, colour):
                fill = self.fill(colour)
                for tip, *base in heads:
                    path.moveTo(x + tip[0], y - tip[1])
                    for across, down in base:
                        path.lineTo(x + across, y - down)
                    path.close()
            case Strip(height, inside, colour):
                fill, stroke = self.fill(inside), self.stroke(colour)
                left, middle, right, top, bottom = x + 0.5, x + 4, x + 5, y - 0.5, y - height + 0.5
                path.moveTo(right, top)
                path.lineTo(right, bottom)
                path.lineTo(middle, bottom)
                _draw_curve(path, (middle, bottom), (left, bottom), (left, bottom + 3.5), QUARTER)
                path.lineTo(left, top - 3.5)
                _draw_curve(path, (left, top - 3.5), (left, top), (middle, top), QUARTER)
                path.close()
            case Plus(centre, middle, reach, colour):
                stroke = self.stroke(colour)
                _draw_line(path, [(x + centre - reach, y - middle), (x + centre + reach, y - middle)])
                _draw_line(path, [(x + centre, y - middle - reach), (x + centre, y - middle + reach)])
        self.canvas.drawPath(path, stroke=stroke, fill=fill, fillMode=1)  # non-zero, as SVG has it

    def fill(self, colour: str, opacity: float = 1.0) -> bool:
        """Set the colour of areas and letters; return False for none."""
        if (value := _colour(colour)) is None:
            return False
        self.set("FillColor", value)
        self.set("FillAlpha", opacity)
        return True

    def stroke(self, colour: str, width: float = 1.0, dashes: Dashes = ()) -> bool:
        """Set how lines look; return False for none."""
        if (value := _colour(colour)) is None:
            return False
        self.set("StrokeColor", value)
        self.set("LineWidth", width)
        self.set("Dash", dashes)
        return True

    def set(self, name: str, *value: Any) -> None:
        if self.paint.get(name) != value:
            self.paint[name] = value
            getattr(self.canvas, f"set{name}")(*value)


def _groups(shapes: Iterable[Shape]) -> Iterator[int]:
    for shape in shapes:
        if isinstance(shape, Group):
            yield id(shape.shapes)
            yield from _groups(shape.shapes)


def _draw_line(path: Any, points: list[Point]) -> None:
    path.moveTo(*points[0])
    for start, corner, end in rounded_corners(points):
        path.lineTo(*start)
        _draw_curve(path, start, corner, end, QUADRATIC)
    path.lineTo(*points[-1])


def _draw_curve(path: Any, start: Point, corner: Point, end: Point, reach: float) -> None:
    handles = [place + (bend - place) * reach for point in (start, end) for place, bend in zip(point, corner)]
    path.curveTo(*handles, *end)


def printable(text: str) -> str:
    """Return text as a browser shows it: white space collapsed, unprintable characters replaced."""
    return UNPRINTABLE.sub("\ufffd", SPACE.sub(" ", text)).strip(" ")


@cache
def register_fonts() -> None:
    """Make our fonts known to reportlab."""
    from reportlab.pdfbase.pdfmetrics import registerFont
    from reportlab.pdfbase.ttfonts import TTFont

    for file in font_files():
        registerFont(TTFont(f"torcheer{file.stem}", str(file), asciiReadable=True))


@cache
def _colour(name: str) -> Any:
    """Return reportlab's colour object; None for no paint."""
    from reportlab.lib.colors import HexColor, toColor

    if name in ("", "none", "transparent"):
        return None
    try:
        if re.fullmatch("#[0-9a-fA-F]{3}", name):
            name = "#" + "".join(2 * digit for digit in name[1:])
        return HexColor(name) if name.startswith("#") else toColor(name)
    except ValueError as error:
        raise BadArgument(f"a PDF cannot show the colour {name!r}. Try: '#rrggbb' or a colour's name.") from error
