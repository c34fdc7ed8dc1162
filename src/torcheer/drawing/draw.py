"""`draw_history`: make a drawing of a history."""

from __future__ import annotations

import os
from typing import Any

from torcheer.drawing.drawing import Drawing, check_options, count_noun, garbage_collection_off
from torcheer.drawing.items.box_text import count_text, shape_text
from torcheer.drawing.items.history_items import items_of
from torcheer.drawing.items.item import Item, label_of
from torcheer.drawing.items.item_details import details_of, overlays_of
from torcheer.drawing.layout.picture import Picture, picture, walk
from torcheer.drawing.layout.plans import plan_scene
from torcheer.drawing.looks.colour_scale import WAYS, Colouring, make_colouring
from torcheer.drawing.looks.style import Style, style_of
from torcheer.drawing.writers.html_page import ItemDetails
from torcheer.drawing.writers.text_tree import draw_text
from torcheer.errors import BadArgument
from torcheer.history import ModelHistory
from torcheer.terminal import human_bytes

MAX_LABELLED = 20_000  # operations; in a longer history, computing all labels takes longer than drawing


def draw_history(
    history: ModelHistory,
    path: str | os.PathLike[str] | None = None,
    *,
    rolled: bool = False,
    depth: int | str | None = None,
    direction: str = "auto",
    colour_by: str = "kind",
    style: Any = None,
) -> HistoryDrawing:
    """Draw a history.

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
    checked_style = style_of(style)
    with garbage_collection_off():
        items = items_of(history, rolled=rolled, style=checked_style)
        scene = plan_scene(items)
        layout = picture(scene, depth=depth, direction=direction, style=checked_style)
        drawing = HistoryDrawing(history, layout, rolled, colour_by, checked_style)
        if path is not None:
            drawing.save(path)
    return drawing


class HistoryDrawing(Drawing):
    """A drawing of a history."""

    def __init__(self, history: ModelHistory, picture: Picture, rolled: bool, colour_by: str, style: Style) -> None:
        super().__init__(picture, style)
        self.history = history
        self._rolled, self._colour_by = rolled, colour_by
        self._colour = self._colouring()

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.history.model_name

    def text(self) -> str:
        """Return the drawing as a tree of text, for the terminal."""
        return draw_text(self.history, rolled=self._rolled, depth=self.picture.depth)

    def _label(self, item: Item) -> str:
        """Return an item's label in the history; in a very long history, its index."""
        if len(self.history.facts.ops) > MAX_LABELLED and item.ops:
            return f"operation {item.ops[0]}"
        return label_of(self.history, item)

    def _details(self, item: Item) -> ItemDetails:
        return details_of(self.history, item)

    def _overlays(self) -> dict[str, Any]:
        return overlays_of(self.history, self.picture.scene.items)

    def _colouring(self) -> Colouring | None:
        colour = make_colouring(self.history, self.picture.scene.items, self._colour_by)
        if colour:
            leaves = ((view, first) for view, _, _, first, _, _ in walk(self.picture.root, 0, 0) if not view.open)
            colour.fit([value for view, first in leaves if (value := colour.value(view, first)) is not None])
        return colour

    def _header(self) -> list[str]:
        facts, info = self.history.facts, self.history.info
        stored = [entry for entry in (info.stored or facts.stored).values() if entry.kind == "parameter"]
        count, trained = sum(entry.count for entry in stored), sum(entry.count for entry in stored if entry.trainable)
        inputs, operations, size = [], 0, 0
        for op in facts.ops:
            if op.kind == "input":
                inputs += [shape_text(meta.shape) for meta in op.outputs]
            elif op.kind != "output":
                operations += 1
                for meta in op.outputs:
                    size += meta.bytes
        share = "" if trained == count else ", none trainable" if not trained else f", {trained / count:.0%} trainable"
        lines = [
            info.model or "operations",
            f"{count_text(count)} params{share}" if count else "no params",
            count_noun(operations, "operation"),
            f"{human_bytes(size)} of results",
            f"input {', '.join(inputs[:4])}{' …' if len(inputs) > 4 else ''}" if inputs else "",
            f"{info.mode} mode" if info.mode else "",
            f"{count_noun(self.picture.depth, 'level')} shown" if self.picture.depth else "",
            "loops rolled" if self._rolled else "",
            "stopped early" if info.stopped else "",
        ]
        return [line for line in lines if line]
