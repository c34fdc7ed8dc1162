"""Text on a frame, in the font that the package ships: there need not be one on the machine."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from torcheer.errors import TorcheerError
from torcheer.video.palette import INK, Colour

FONTS = Path(__file__).parents[1] / "drawing" / "fonts"  # files only: this room does not import drawing


def write(pen: Any, place: tuple[float, float], text: str, *, size: float, colour: Colour = INK, **how: Any) -> None:
    """Put text on a Pillow drawing; `anchor` as Pillow has it, `bold`, and `room` to cut it to, in pixels."""
    face = font(size, how.get("bold", False))
    text = fit(text, size, how["room"], how.get("bold", False)) if "room" in how else plain(text)
    pen.text(place, text, font=face, fill=colour, anchor=how.get("anchor", "la"))


def fit(text: str, size: float, room: float, bold: bool = False) -> str:
    """As much of a text as there is room for, with … where it is cut.

    >>> fit("features.3", 12, 1000)
    'features.3'
    """
    text = plain(text)
    if width(text, size, bold) <= room:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if width(text[:middle].rstrip() + "…", size, bold) <= room:
            low = middle
        else:
            high = middle - 1
    return text[:low].rstrip() + "…" if low else ""


def width(text: str, size: float, bold: bool = False) -> float:
    """How many pixels a text takes."""
    return float(font(size, bold).getlength(text))


def plain(text: str) -> str:
    """Text for one line: what cannot be drawn is a space, and nobody reads beyond a thousand characters."""
    return "".join(character if character.isprintable() else " " for character in text[:1000])


@cache
def font(size: float, bold: bool = False) -> Any:
    """The font in a size, from our own file, or the one inside Pillow."""
    try:
        from PIL import ImageFont
    except ImportError:
        raise missing("a picture", "pillow") from None
    try:
        # BASIC: our font has no features, and the other layout engine takes five times as long
        name = "Bold.ttf" if bold else "Regular.ttf"
        return ImageFont.truetype(str(FONTS / name), size, layout_engine=ImageFont.Layout.BASIC)
    except OSError:
        return ImageFont.load_default(size)


def missing(product: str, package: str) -> TorcheerError:
    """The error for a package that is not installed."""
    return TorcheerError(f"{product} needs {package}, which is not installed. Try: pip install 'torcheer[all]'")
