"""What the colours and marks of a drawing mean: only those that it has."""

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
FORWARD = "value, forward"  # what "edge" means where the backward pass is drawn too


def legend_entries(seen: Container[str], theme: Theme, colour: Colouring | None) -> list[tuple[str, str]]:
    """A small picture, 16 by 12 pixels, and words, for each thing to explain."""
    found = [(colour.swatch(), colour.words)] if colour else []
    if colour and colour.is_strange:
        found.append((f'<rect x="0.5" y="0.5" width="15" height="11" rx="2" fill="{STRANGE}"/>', "NaN or infinite"))
    for family in FAMILIES:
        if family in seen:
            fill, line = family_colours(family, theme)
            found.append((_box(f"f-{family}", fill, line), NAMES[family]))
    both = "gradient" in seen
    for kind, words in LINES.items():
        if kind in seen and (kind != "edge" or both or "still" in seen):
            words = FORWARD if kind == "edge" and both else words
            found.append((stroke_svg(kind, "M0 6h16", theme, "1.4"), words))
    marks = {
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
    return found + [entry for mark, entry in marks.items() if mark in seen]


def marks_of(face: Face) -> list[str]:
    """What of a face the legend may have to explain."""
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


def _box(kind: str, fill: str, line: str, more: str = "") -> str:
    named = f'class="{kind}" ' if kind else ""
    return f'<rect {named}y="0.5" width="15" height="11" rx="2.5" fill="{fill}" stroke="{line}"{more}/>'
