"""Write a drawing as the text that the studio's Graph tab reads: what a page embeds, and each item's layer."""

from __future__ import annotations

from typing import Any

from torcheer.drawing.looks.font_metrics import font_face_css
from torcheer.drawing.writers.html_page import WRITE


def graph_text(data: dict[str, Any], layers: list[str], details: str) -> str:
    """Return the page's data on one line with the font, the layer of each item ("" for none), then its details."""
    return "\n".join([WRITE(data | {"font": font_face_css()}), WRITE(layers), details])
