"""Drawings of histories and backward passes, as SVG, PNG, PDF, HTML, DOT or text."""

from __future__ import annotations

from torcheer.drawing.draw import draw_history
from torcheer.drawing.drawing import Drawing
from torcheer.drawing.looks.style import Style
from torcheer.drawing.writers.text_tree import draw_text

__all__ = ["Drawing", "Style", "draw_history", "draw_text"]
