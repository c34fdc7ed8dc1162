"""Histories as pictures; for now as text."""

from __future__ import annotations

from torcheer.drawing.text import draw_text

__all__ = ["draw_text"]
