"""A drawing as the texts that the studio's Graph tab reads: what it draws at once, and what it shows on request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torcheer.drawing.looks.font_metrics import font_face_css
from torcheer.drawing.writers.html_page import WRITE


@dataclass(frozen=True, slots=True)
class GraphText:
    """The texts of a drawing; the details, of many operations most of the work, are made when they are asked for."""

    drawing: str  # the page's data with the font; on the next line the layer of each item ("" for none)
    details: Callable[[], str]


def graph_text(data: dict[str, Any], layers: list[str], details: Callable[[], str]) -> GraphText:
    """Write what the Graph tab draws."""
    return GraphText("\n".join([WRITE(data | {"font": font_face_css()}), WRITE(layers)]), details)
