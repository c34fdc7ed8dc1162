"""The legend of a drawing: the meaning of the colours and marks that occur in it."""

from __future__ import annotations

from collections.abc import Container

from torcheer.drawing.items.families import NAMES
from torcheer.drawing.items.item import SUM, Face
from torcheer.drawing.looks.colour_scale import Colouring
from torcheer.drawing.looks.colours import FAMILIES, STRANGE, Theme, family_colours, gradient_fill
from torcheer.drawing.looks.svg_shapes import stroke_svg

LINES = {
    "edge": "gradients flow",
    "still": "no gradients",
    "loop": "runs again (loop)",
    "gradient": "gradient, backward",
    "kept": "kept for backward",
}
FORWARD = "value, forward"  # the meaning of "edge" in a drawing with a backward pass


def legend_entries(marks: Container[str], theme: Theme, colour: Colouring | None) -> list[tuple[str, str]]:
    """Return a small picture (SVG, 16 by 12 pixels) and a text for each mark to explain."""
    entries = [(colour.swatch(), colour.words)] if colour else []
    if colour and colour.is_strange:
        entries.append((f'<rect x="0.5" y="0.5" width="15" height="11" rx="2" fill="{STRANGE}"/>', "NaN or infinite"))
    for family in FAMILIES:
        if family in marks:
            fill, line = family_colours(family, theme)
            entries.append((_box(f"f-{family}", fill, line), NAMES[family]))
    has_backward = "gradient" in marks
    for kind, words in LINES.items():
        if kind in marks and (kind != "edge" or has_backward or "still" in marks):
            words = FORWARD if kind == "edge" and has_backward else words
            entries.append((stroke_svg(kind, "M0 6h16", theme, "1.4"), words))
    explanations = {
        "parameter": (_box("card look-parameter", theme.card, family_colours("linear", theme)[1]), "parameter"),
        "buffer": (_box("card look-buffer", theme.card, theme.soft, ' stroke-dasharray="3 2"'), "buffer"),
        "frozen": (
            f'<rect class="card look-buffer" x="5" y="0.5" width="4" height="11" rx="1.5" fill="{theme.card}" '
            f'stroke="{theme.soft}"/>',
            "frozen parameters",
        ),
        "folded": (f'<path class="more" d="M4 6h8m-4 -4v8" fill="none" stroke="{theme.soft}"/>', "folded module"),
        "unseen": (
            _box("", theme.card, theme.soft, ' stroke-dasharray="3 2"'),
            "unseen: made where torch shows nothing",
        ),
        "beside": (
            _box("", theme.card, theme.soft, ' stroke-dasharray="3 2"'),
            "inside of a fused kernel, computed beside it",
        ),
        "stack": (
            "".join(
                f'<rect class="sheet" x="{x}" y="{x}" width="12" height="8" rx="2" fill="{theme.card}" '
                f'stroke="{theme.frame}"/>'
                for x in (3, 0.5)
            ),
            "×n identical modules",
        ),
        "shared": (
            f'<rect class="badge" y="0.5" width="14" height="11" rx="5.5" fill="none" stroke="{theme.soft}"/>',
            "same letter: shared weights",
        ),
        "edited": (_box("", theme.card, theme.loop), "edited"),
        "stop": (_box("card look-stop", theme.card, theme.alarm), "stopped here"),
        "rule": (
            _box("card look-gradient", gradient_fill(theme), theme.gradient),
            "backward rule",
        ),
        "sum": (_plus(theme), "gradients of several uses, added up"),
        "borrowed": (
            _box("card look-gradient", gradient_fill(theme), theme.gradient, ' stroke-dasharray="3 2"'),
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


def _plus(theme: Theme) -> str:
    return f'<text class="soft" y="9.5" font-size="10" font-weight="600" fill="{theme.soft}">+=</text>'


def _box(kind: str, fill: str, line: str, attributes: str = "") -> str:
    css_class = f'class="{kind}" ' if kind else ""
    return f'<rect {css_class}y="0.5" width="15" height="11" rx="2.5" fill="{fill}" stroke="{line}"{attributes}/>'
