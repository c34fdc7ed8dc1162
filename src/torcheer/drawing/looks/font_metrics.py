"""The font that ships with drawings, and the width of text in it."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from pathlib import Path
from unicodedata import category, east_asian_width

FAMILY_NAME = "torcheer Sans"
FAMILY = f"'{FAMILY_NAME}', Inter, system-ui, sans-serif"  # for an attribute or a style sheet; our font first
FOLDER = Path(__file__).parents[1] / "fonts"
UNITS_PER_EM = 2048


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Return the width of `text` at this font size, in the unit of `size`.

    >>> round(text_width("conv2d", 10), 2)
    35.46
    """
    advances = BOLD if bold else REGULAR
    return sum(map(advances.__getitem__, text)) * size / UNITS_PER_EM


@cache
def font_face_css() -> str:
    """Return CSS rules with the embedded font, so that a drawing needs no other file."""
    return "".join(
        f"@font-face{{font-family:'{FAMILY_NAME}';font-weight:{weight};"
        f"src:url(data:font/woff2;base64,{b64encode((FOLDER / name).read_bytes()).decode()}) format('woff2')}}"
        for weight, name in ((400, "Regular.woff2"), (600, "Bold.woff2"))
    )


def font_files() -> list[Path]:
    """Return the font files, regular before bold."""
    return [FOLDER / "Regular.ttf", FOLDER / "Bold.ttf"]


class Advances(dict[str, int]):
    """The advance width of each character; for one that the font lacks, an estimate."""

    def __missing__(self, character: str) -> int:
        # A viewer draws it in a fallback font: combining marks have no width, East Asian characters are square.
        if category(character) in ("Mn", "Me", "Cf", "Cc"):
            em = 0.0
        else:
            em = 1.0 if east_asian_width(character) in "WF" else 0.6
        self[character] = estimate = round(em * UNITS_PER_EM)
        return estimate


_table = json.loads((FOLDER / "advances.json").read_text(encoding="utf-8"))
REGULAR = Advances(zip(_table["characters"], _table["Regular"]))
BOLD = Advances(zip(_table["characters"], _table["Bold"]))
CHARACTERS = frozenset(_table["characters"])  # in the font
