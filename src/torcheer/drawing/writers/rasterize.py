"""Convert a drawing's SVG to PNG or PDF, with our font: the same on every machine."""

from __future__ import annotations

import re
from functools import cache
from io import BytesIO
from typing import cast
from xml.etree import ElementTree

from torcheer.drawing.looks.font_metrics import FAMILY_NAME, font_files
from torcheer.drawing.writers.pdf import PdfPage, numbers
from torcheer.errors import BadArgument, TorcheerError

MAX_PIXELS = 100_000_000  # 400 MB of memory; a larger picture is scaled down
MAX_SIDE = 1_000_000
POINTS_PER_PIXEL = 0.75
MAX_POINTS = 14_400  # a PDF page may be 200 inches

STYLE = re.compile(r"<style\b.*?</style\s*>", re.DOTALL)  # the embedded font and the dark colours: not for PNG and PDF
UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # XML cannot carry these


def svg_to_png(svg: str, *, width: int | None = None, scale: float = 2.0) -> bytes:
    """Render `svg` as a PNG `width` pixels wide, or at `scale` pixels per unit.

    At most 100 megapixels.
    """
    try:
        import resvg_py
    except ImportError as error:
        raise _missing_package("a PNG", "resvg-py") from error
    svg = _printable(svg)
    across, down = _size(_root(svg))
    target_width = float(width) if width is not None else across * scale
    if not target_width > 0:
        raise BadArgument(f"a picture {target_width:g} pixels wide cannot be drawn. Try a width or a scale above 0.")
    scale = min(target_width / across, (MAX_PIXELS / across / down) ** 0.5, MAX_SIDE / max(across, down))
    thin = across * scale < 1  # pass the height then: resvg derives the other side, at least one pixel
    try:
        return resvg_py.svg_to_bytes(
            svg_string=svg,
            width=None if thin else round(across * scale),
            height=max(1, round(down * scale)) if thin else None,
            skip_system_fonts=True,
            font_files=[str(file) for file in font_files()],
            font_family=FAMILY_NAME,
            sans_serif_family=FAMILY_NAME,
            monospace_family=FAMILY_NAME,
        )
    except ValueError as error:
        raise BadArgument(f"this SVG cannot be drawn: {error}") from error


def svg_to_pdf(svg: str) -> bytes:
    """Render `svg` as a PDF of one page: vector shapes, searchable text, working links."""
    try:
        from reportlab.pdfgen.canvas import Canvas
    except ImportError as error:
        raise _missing_package("a PDF", "reportlab") from error
    _register_fonts()
    root = _parse(_printable(svg))
    across, down = _size(root)
    scale = min(POINTS_PER_PIXEL, MAX_POINTS / max(across, down))
    left, top, box_across, box_down = _view_box(root) or (0.0, 0.0, across, down)
    file = BytesIO()
    canvas = Canvas(
        file, pagesize=(across * scale, down * scale), pageCompression=1, invariant=1, initialFontName="torcheerRegular"
    )
    canvas.setTitle(root.findtext("{*}title") or "torcheer")
    canvas.setMiterLimit(4)  # SVG's; PDF's is 10
    canvas.transform(scale * across / box_across, 0, 0, -scale * down / box_down, 0, down * scale)
    canvas.translate(-left, -top)
    PdfPage(canvas).draw(root)
    canvas.showPage()
    canvas.save()
    return file.getvalue()


def _printable(svg: str) -> str:
    return UNPRINTABLE.sub("\ufffd", STYLE.sub("", svg))


def _root(svg: str) -> ElementTree.Element:
    """Parse the outermost element only: the size of a large drawing needs no more."""
    try:
        for _, root in ElementTree.iterparse(BytesIO(svg.encode()), ["start"]):
            return cast(ElementTree.Element, root)
    except ElementTree.ParseError as error:
        raise _not_svg(error) from error
    raise _not_svg("it has no element")


def _parse(svg: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise _not_svg(error) from error


def _size(root: ElementTree.Element) -> tuple[float, float]:
    """Return the width and height of the picture, in pixels."""
    box = _view_box(root)
    sides = [root.get(name, "").removesuffix("px") for name in ("width", "height")]
    if all(re.fullmatch(r"[\d.]+", side) for side in sides):
        across, down = map(float, sides)
    elif box:
        across, down = box[2:]
    else:
        raise _not_svg("it says neither width and height nor viewBox")
    if not (across > 0 and down > 0):
        raise _not_svg(f"it is {across:g} by {down:g} pixels")
    return across, down


def _view_box(root: ElementTree.Element) -> tuple[float, float, float, float] | None:
    match numbers(root.get("viewBox", "")):
        case [left, top, across, down] if across > 0 and down > 0:
            return left, top, across, down
    return None


@cache
def _register_fonts() -> None:
    from reportlab.pdfbase.pdfmetrics import registerFont
    from reportlab.pdfbase.ttfonts import TTFont

    for file in font_files():
        registerFont(TTFont(f"torcheer{file.stem}", str(file), asciiReadable=True))


def _missing_package(product: str, package: str) -> TorcheerError:
    return TorcheerError(f"{product} needs {package}, which is not installed. Try: pip install 'torcheer[all]'")


def _not_svg(why: object) -> BadArgument:
    return BadArgument(f"this is not an SVG that can be drawn: {why}")
