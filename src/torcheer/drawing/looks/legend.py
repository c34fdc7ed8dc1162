"""The legend of a drawing: the meaning of the colours and marks that occur in it."""

from __future__ import annotations

from collections.abc import Container

from torcheer.drawing.items.families import NAMES
from torcheer.drawing.items.item import SUM, Face
from torcheer.drawing.looks.colour_scale import Colouring
from torcheer.drawing.looks.colours import FAMILIES, STRANGE, Theme, family_colours, gradient_fill, ramp
from torcheer.drawing.looks.vector_shapes import (
    SHORT_DASHES,
    STROKES,
    Dashes,
    LineSample,
    Plus,
    Rect,
    Shape,
    Text,
    line_colour,
)

LINES = {
    "edge": "gradients flow",
    "still": "no gradients",
    "loop": "runs again (loop)",
    "gradient": "gradient, backward",
    "kept": "kept for backward",
}
FORWARD = "value, forward"  # the meaning of "edge" in a drawing with a backward pass


def legend_entries(marks: Container[str], theme: Theme, colour: Colouring | None) -> list[tuple[list[Shape], str]]:
    """Return a small picture (16 by 12 pixels) and a text for each mark to explain."""
    entries = [(_ramp(), colour.words)] if colour else []
    if colour and colour.is_strange:
        entries.append(([Rect(15, 11, STRANGE, x=0.5, y=0.5, radius=2)], "NaN or infinite"))
    for family in FAMILIES:
        if family in marks:
            fill, line = family_colours(family, theme)
            entries.append((_box(f"f-{family}", fill, line), NAMES[family]))
    has_backward = "gradient" in marks
    for kind, words in LINES.items():
        if kind in marks and (kind != "edge" or has_backward or "still" in marks):
            words = FORWARD if kind == "edge" and has_backward else words
            entries.append(([LineSample(line_colour(kind, theme), kind, 1.4, STROKES[kind])], words))
    explanations: dict[str, tuple[list[Shape], str]] = {
        "parameter": (_box("card look-parameter", theme.card, family_colours("linear", theme)[1]), "parameter"),
        "buffer": (_box("card look-buffer", theme.card, theme.soft, SHORT_DASHES), "buffer"),
        "frozen": (
            [Rect(4, 11, theme.card, theme.soft, 5, 0.5, 1.5, css_class="card look-buffer")],
            "frozen parameters",
        ),
        "folded": ([Plus(8, 6, 4, theme.soft)], "folded module"),
        "unseen": (
            _box("", theme.card, theme.soft, SHORT_DASHES),
            "unseen: made where torch shows nothing",
        ),
        "beside": (
            _box("", theme.card, theme.soft, SHORT_DASHES),
            "inside of a fused kernel, computed beside it",
        ),
        "stack": (
            [Rect(12, 8, theme.card, theme.frame, x, x, 2, css_class="sheet") for x in (3, 0.5)],
            "×n identical modules",
        ),
        "shared": (
            [Rect(14, 11, "none", theme.soft, y=0.5, radius=5.5, css_class="badge")],
            "same letter: shared weights",
        ),
        "edited": (_box("", theme.card, theme.loop), "edited"),
        "stop": (_box("card look-stop", theme.card, theme.alarm), "stopped here"),
        "rule": (
            _box("card look-gradient", gradient_fill(theme), theme.gradient),
            "backward rule",
        ),
        "sum": (
            [Text(0, 9.5, "+=", 10, theme.soft, bold=True, css_class="soft")],
            "gradients of several uses, added up",
        ),
        "borrowed": (
            _box("card look-gradient", gradient_fill(theme), theme.gradient, SHORT_DASHES),
            "torch's own rule",
        ),
    }
    return entries + [entry for mark, entry in explanations.items() if mark in marks]


def marks_of(face: Face) -> list[str]:
    """Return the marks of a face that the legend may have to explain."""
    return [
        "rule" if face.look == "gradient" else face.look,
        *face.marks,
        "folded" if face.folded else "",
        "shared" if face.badge else "",
        "stack" if face.folded and face.times > 1 else "",
        "sum" if SUM in face.exits else "",
    ]


def _ramp() -> list[Shape]:
    """Return a strip of the colours of an overlay."""
    return [Rect(2.2, 11, ramp(n / 8)[0], x=n * 2, y=0.5) for n in range(9)]


def _box(css_class: str, fill: str, line: str, dashes: Dashes = ()) -> list[Shape]:
    return [Rect(15, 11, fill, line, y=0.5, radius=2.5, css_class=css_class, dashes=dashes)]
