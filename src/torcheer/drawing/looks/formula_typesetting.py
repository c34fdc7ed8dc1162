"""Set a formula in type with the letters that the drawings' font has: bars, small letters above and below the line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from unicodedata import normalize

from torcheer.drawing.looks.font_metrics import CHARACTERS, text_width
from torcheer.history.text.latex_text import BAR, GREEK, SUBSCRIPTS, SUPERSCRIPTS

RAISED = {small: letter for letter, small in SUPERSCRIPTS.items()}
LOWERED = {small: letter for letter, small in SUBSCRIPTS.items()}
CIRCLED = {"⊙": "•", "⊗": "×", "⊕": "+"}  # drawn as a circle and what is in it
SPELLED = {letter: name for name, letter in GREEK.items()} | {
    "⋆": "*", "∗": "*", "∘": "·", "′": "'", "∈": " in ", "ℓ": "l", "∇": "grad ", "⌊": "[", "⌋": "]", "↦": "→",
    "∏": "prod ", "∫": "integral ", "𝟙": "1", "ℝ": "R",
}  # fmt: skip
SHIFTED = re.compile(r"([_^])(?:\(((?:[^()]|\([^()]*\))*)\)|(\w+))")  # what Unicode has no small letters for
SMALL = 0.72  # of the size


class Piece(NamedTuple):
    """A text at its place, from the start of the formula and its base line."""

    x: float
    y: float
    text: str
    size: float
    bold: bool = False


def typeset(text: str, size: float) -> tuple[list[Piece], float]:
    """The pieces of a formula, and how wide it is."""
    found: list[Piece] = []
    x = 0.0
    for kind, letters in _parts(text):
        if kind == "bar":
            found += _barred(letters, x, size)
            x += text_width(letters, size)
        elif kind == "circle":
            wide = size * 0.74
            found += _circled(letters, x, wide, size)
            x += wide
        else:
            small, y = {"up": (SMALL, -0.36), "low": (SMALL, 0.17)}.get(kind, (1.0, 0.0))
            shown = letters.lstrip()  # SVG leaves spaces at the ends of a text out
            if shown:
                indent = text_width(letters[: -len(shown)], size)
                found.append(Piece(x + indent, y * size, shown.rstrip(), size * small, kind == "bold"))
            x += text_width(letters, size * small, kind == "bold") + (0.04 * size if small < 1 else 0)
    return found, x


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Stretches of letters that are set alike: "up", "low", "bar", "circle", "bold" or ""."""
    start = 0
    for found in SHIFTED.finditer(text):
        yield from _letters(text[start : found.start()])
        yield "up" if found[1] == "^" else "low", found[2] or found[3]
        start = found.end()
    yield from _letters(text[start:])


def _letters(text: str) -> Iterator[tuple[str, str]]:
    text = "".join(apart if (apart := normalize("NFD", letter))[-1] == BAR else letter for letter in text)
    kind, letters = "", ""
    for place, letter in enumerate(text):
        if letter == BAR:
            continue
        if text[place + 1 : place + 2] == BAR:
            here, shown = "bar", letter
        elif letter in CIRCLED:
            here, shown = "circle", CIRCLED[letter]
        elif letter in RAISED or letter in LOWERED:
            here, shown = ("up", RAISED[letter]) if letter in RAISED else ("low", LOWERED[letter])
        else:
            here, shown = (
                "bold" if letter == "𝟙" else "",
                letter if letter in CHARACTERS else SPELLED.get(letter, letter),
            )
        if letters and (here != kind or here in ("bar", "circle")):
            yield kind, letters
            letters = ""
        kind, letters = here, letters + shown
    if letters:
        yield kind, letters


def _barred(letter: str, x: float, size: float) -> list[Piece]:
    """A letter with a line above it, higher above high letters."""
    high = letter.isupper() or letter in "bdfhklβδθλ"
    middle = (text_width(letter, size) - text_width("¯", size)) / 2
    return [Piece(x, 0, letter, size), Piece(x + middle, -0.2 * size if high else 0.0, "¯", size)]


def _circled(inner: str, x: float, wide: float, size: float) -> list[Piece]:
    ring, dot = size * 0.8, size * (0.6 if inner == "•" else 0.62)
    return [
        Piece(x + (wide - text_width("○", ring)) / 2, 0.0, "○", ring),
        Piece(x + (wide - text_width(inner, dot)) / 2, -0.06 * size, inner, dot),
    ]
