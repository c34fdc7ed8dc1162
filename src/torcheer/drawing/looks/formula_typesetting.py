"""Typeset a formula with the drawings' font: bars, superscripts, subscripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from unicodedata import normalize

from torcheer.drawing.looks.font_metrics import CHARACTERS, text_width
from torcheer.history.text.latex_text import BAR, GREEK, SUBSCRIPTS, SUPERSCRIPTS

RAISED = {small: letter for letter, small in SUPERSCRIPTS.items()}
LOWERED = {small: letter for letter, small in SUBSCRIPTS.items()}
CIRCLED = {"⊙": "•", "⊗": "×", "⊕": "+"}  # drawn as a circle with a sign in it
SPELLED = {letter: name for name, letter in GREEK.items()} | {
    "⋆": "*", "∗": "*", "∘": "·", "′": "'", "∈": " in ", "ℓ": "l", "∇": "grad ", "⌊": "[", "⌋": "]", "↦": "→",
    "∏": "prod ", "∫": "integral ", "𝟙": "1", "ℝ": "R",
}  # fmt: skip
SHIFTED = re.compile(
    r"([_^])(?:\(((?:[^()]|\([^()]*\))*)\)|(\w+))"
)  # superscripts and subscripts that Unicode has no letters for
SMALL = 0.72  # size of superscripts and subscripts, relative to the text


class FormulaPiece(NamedTuple):
    """A piece of text; x and y are relative to the start of the formula on its base line."""

    x: float
    y: float
    text: str
    size: float
    bold: bool = False


def typeset(text: str, size: float) -> tuple[list[FormulaPiece], float]:
    """Return the pieces of a formula, and its width."""
    pieces: list[FormulaPiece] = []
    x = 0.0
    for kind, letters in _parts(text):
        if kind == "bar":
            pieces += _letter_with_bar(letters, x, size)
            x += text_width(letters, size)
        elif kind == "circle":
            width = size * 0.74
            pieces += _sign_in_circle(letters, x, width, size)
            x += width
        else:
            small, y = {"up": (SMALL, -0.36), "low": (SMALL, 0.17)}.get(kind, (1.0, 0.0))
            stripped = letters.lstrip()  # SVG drops spaces at the ends of a text
            if stripped:
                indent = text_width(letters[: -len(stripped)], size)
                pieces.append(FormulaPiece(x + indent, y * size, stripped.rstrip(), size * small, kind == "bold"))
            x += text_width(letters, size * small, kind == "bold") + (0.04 * size if small < 1 else 0)
    return pieces, x


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield runs of letters with the same kind: "up", "low", "bar", "circle", "bold" or ""."""
    start = 0
    for match in SHIFTED.finditer(text):
        yield from _letters(text[start : match.start()])
        yield "up" if match[1] == "^" else "low", match[2] or match[3]
        start = match.end()
    yield from _letters(text[start:])


def _letters(text: str) -> Iterator[tuple[str, str]]:
    text = "".join(split if (split := normalize("NFD", letter))[-1] == BAR else letter for letter in text)
    kind, letters = "", ""
    for place, letter in enumerate(text):
        if letter == BAR:
            continue
        if text[place + 1 : place + 2] == BAR:
            letter_kind, character = "bar", letter
        elif letter in CIRCLED:
            letter_kind, character = "circle", CIRCLED[letter]
        elif letter in RAISED or letter in LOWERED:
            letter_kind, character = ("up", RAISED[letter]) if letter in RAISED else ("low", LOWERED[letter])
        else:
            letter_kind = "bold" if letter == "𝟙" else ""
            character = letter if letter in CHARACTERS else SPELLED.get(letter, letter)
        if letters and (letter_kind != kind or letter_kind in ("bar", "circle")):
            yield kind, letters
            letters = ""
        kind, letters = letter_kind, letters + character
    if letters:
        yield kind, letters


def _letter_with_bar(letter: str, x: float, size: float) -> list[FormulaPiece]:
    """Return a letter with a bar above it, higher above tall letters."""
    high = letter.isupper() or letter in "bdfhklβδθλ"
    middle = (text_width(letter, size) - text_width("¯", size)) / 2
    return [FormulaPiece(x, 0, letter, size), FormulaPiece(x + middle, -0.2 * size if high else 0.0, "¯", size)]


def _sign_in_circle(inner: str, x: float, width: float, size: float) -> list[FormulaPiece]:
    ring, dot = size * 0.8, size * (0.6 if inner == "•" else 0.62)
    return [
        FormulaPiece(x + (width - text_width("○", ring)) / 2, 0.0, "○", ring),
        FormulaPiece(x + (width - text_width(inner, dot)) / 2, -0.06 * size, inner, dot),
    ]
