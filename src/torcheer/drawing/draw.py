"""`draw_history`: make a drawing of a history."""

from __future__ import annotations

import os
from typing import Any

from torcheer.drawing.drawing import Drawing, check_options
from torcheer.drawing.items.backward_items import backward_items
from torcheer.drawing.items.history_items import items_of
from torcheer.drawing.items.item import labels_of
from torcheer.drawing.items.restyle import restyle
from torcheer.drawing.layout.picture import picture
from torcheer.drawing.layout.plans import plan_scene
from torcheer.drawing.looks.colour_scale import WAYS
from torcheer.drawing.looks.style import style_of
from torcheer.errors import BadArgument
from torcheer.history import ModelHistory
from torcheer.records import NO_STRUCTURE, garbage_collection_off


def draw_history(
    history: ModelHistory,
    path: str | os.PathLike[str] | None = None,
    *,
    rolled: bool = False,
    depth: int | str | None = None,
    direction: str = "auto",
    colour_by: str = "kind",
    style: Any = None,
) -> Drawing:
    """Draw a history.

    Where its operations have backward steps (`autograd.explain(loss).history`), values flow down and gradients up, and
    dotted lines lead from saved values to the rules that read them.

    Args:
        history: the history to draw.
        path: also write the drawing to this file, in the format of its suffix (.svg if it has none).
        rolled: draw the passes of a loop as one layer.
        depth: how many levels of modules are open: a number, "all" for every operation, or None for as many as stay
            readable on a page.
        direction: "down", "right", or "auto" for whichever fills a page better.
        colour_by: "kind", or a number to colour by: "time", "memory", "flops", "gradient".
        style: a theme, a function of a node, a dict, or a `Style`.
    """
    check_options(depth, direction, path)
    if colour_by not in WAYS:
        raise BadArgument(f"colour_by={colour_by!r}: use one of {', '.join(WAYS)}")
    flow = history.facts.backward
    if flow and rolled:
        raise BadArgument("rolled=True: a backward pass is drawn with every operation, not rolled")
    if NO_STRUCTURE in history.info.notes:
        raise BadArgument(f"there is nothing to draw: this history was {NO_STRUCTURE}. Record it with structure=True")
    checked_style = style_of(style)
    with garbage_collection_off(ages=True):
        items, times = (backward_items(history, flow), {}) if flow else items_of(history, rolled=rolled)
        if checked_style.node:
            items = restyle(items, checked_style, lambda item: labels_of(history, item))
        layout = picture(plan_scene(items, times, rolled=rolled), depth=depth, direction=direction, style=checked_style)
        drawing = Drawing(history, layout, rolled, colour_by, checked_style)
        if path is not None:
            drawing.save(path)
    return drawing
