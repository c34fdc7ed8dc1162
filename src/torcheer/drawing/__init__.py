"""Drawings of histories and backward passes, as SVG, PNG, PDF, HTML, DOT or text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.public_names import lazy_names

_HOMES = {
    "Drawing": "torcheer.drawing.drawing",
    "Style": "torcheer.drawing.looks.style",
    "draw_history": "torcheer.drawing.draw",
    "draw_text": "torcheer.drawing.writers.text_tree",
}

__all__ = ["Drawing", "Style", "draw_history", "draw_text"]

if TYPE_CHECKING:
    from torcheer.drawing.draw import draw_history
    from torcheer.drawing.drawing import Drawing
    from torcheer.drawing.looks.style import Style
    from torcheer.drawing.writers.text_tree import draw_text

if not TYPE_CHECKING:  # to type checkers a name that is not imported above is an error
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)  # `torcheer.Style` alone needs no layout and no writers
