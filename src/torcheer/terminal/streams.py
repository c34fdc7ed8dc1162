"""What a stream can show: lines drawn again, and which characters.

Windows writes files and pipes in a code page without "→" or "─".
"""

from __future__ import annotations

import codecs
import io
import os
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

PLAIN: Final = "torcheer.plain"  # how an encoding handles what it cannot write, as "strict" or "replace"

# character -> what is written instead; others as their base letter, or "?"
_INSTEAD: Final = {
    "×": "x", "·": "*", "÷": "/", "−": "-", "–": "-", "—": "-", "…": "...", "µ": "u", "•": "*", "°": " deg ",
    "’": "'", "“": '"', "”": '"', "→": "->", "←": "<-", "↑": "^", "↓": "v", "↘": "->", "↦": "->", "↺": "loop",
    "─": "-", "│": "|", "├": "+", "└": "+", "┤": "|", "┬": "+", "┼": "+", "╮": "+", "╯": "+", "╰": "+", "╭": "+",
    "⊙": "*", "⊗": "(x)", "⊕": "(+)", "∑": "sum", "∏": "prod", "∫": "int", "∇": "grad ", "∂": "d", "∞": "inf",
    "∈": "in", "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "±": "+-", "∗": "*", "⋆": "*", "∘": "o", "✗": "x",
    "✓": "ok", "′": "'", "𝟙": "1", "\N{COMBINING MACRON}": "_bar", "\N{COMBINING CIRCUMFLEX ACCENT}": "_hat",
    "\N{COMBINING TILDE}": "_tilde", "\N{VARIATION SELECTOR-15}": "", "█": "#", "●": "*", "◐": "o", "▁": "_",
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "θ": "theta", "λ": "lambda", "μ": "mu",
    "σ": "sigma", "ω": "omega", "²": "^2", "³": "^3",
}  # fmt: skip


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a person sees this stream on a terminal."""
    return stream is not None and stream.isatty()


def is_notebook() -> bool:
    """Return whether this runs in a notebook cell."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def can_redraw(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal on which lines can be drawn again."""
    return is_terminal(stream) and os.environ.get("TERM") not in ("dumb", "unknown")


def encodable(text: str) -> str:
    """Return a text in characters that stdout can write: what it lacks is written in others ("→" as "->")."""
    if text.isascii() or getattr(sys.stdout, "errors", None) != "strict":
        return text
    encoding = sys.stdout.encoding
    return text.encode(encoding, PLAIN).decode(encoding)


@contextmanager
def plain_output() -> Iterator[None]:
    """Let stdout and stderr write what their encodings lack in other characters, where they would raise or escape."""
    streams: list[tuple[io.TextIOWrapper, str]] = [
        (stream, stream.errors or "strict")
        for stream in (sys.stdout, sys.stderr)
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "backslashreplace")
    ]
    for stream, _ in streams:
        stream.reconfigure(errors=PLAIN)
    try:
        yield
    finally:
        for stream, errors in streams:
            with suppress(ValueError):  # closed
                stream.reconfigure(errors=errors)


def _write_plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(character: str) -> str:
    if character in _INSTEAD:
        return _INSTEAD[character]
    parts = unicodedata.normalize("NFKD", character)  # a letter and its accents
    return "".join(
        part if part.isascii() else _INSTEAD.get(part, "" if unicodedata.combining(part) else "?") for part in parts
    )


codecs.register_error(PLAIN, _write_plainly)
