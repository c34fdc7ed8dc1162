"""Draw a history; the drawing is saved as SVG, PNG, PDF, HTML, DOT or text."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torcheer.disk import write_file
from torcheer.drawing.items.backward_items import backward_items
from torcheer.drawing.items.header_text import header_lines
from torcheer.drawing.items.history_items import items_of
from torcheer.drawing.items.item import Item, labels_of
from torcheer.drawing.items.item_details import details_of, hover_label, overlays_of
from torcheer.drawing.items.restyle import restyle
from torcheer.drawing.layout.picture import Picture, picture, walk
from torcheer.drawing.layout.plans import plan_scene
from torcheer.drawing.looks.colour_scale import WAYS, Colouring, make_colouring
from torcheer.drawing.looks.sheet import Sheet, place_shapes
from torcheer.drawing.looks.style import Style, style_of
from torcheer.drawing.writers.dot import write_dot
from torcheer.drawing.writers.graph_text import GraphText, graph_text
from torcheer.drawing.writers.html_page import details_text, page_data, write_html
from torcheer.drawing.writers.pdf import write_pdf
from torcheer.drawing.writers.png import write_png
from torcheer.drawing.writers.svg import write_svg
from torcheer.drawing.writers.text_tree import draw_text
from torcheer.errors import BadArgument
from torcheer.history import ModelHistory
from torcheer.public_names import PublicClass
from torcheer.records import NO_STRUCTURE, garbage_collection_off
from torcheer.terminal import plural
from torcheer.terminal.streams import encodable

DIRECTIONS = ("auto", "down", "right")


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
        colour_by: "kind", or a number to colour by, as for `torcheer.draw`.
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


class Drawing(metaclass=PublicClass):
    """A drawing of a history. A notebook displays it; `save` writes svg, png, pdf, html, dot or txt."""

    def __init__(self, history: ModelHistory, picture: Picture, rolled: bool, colour_by: str, style: Style) -> None:
        self.history, self.picture = history, picture
        self._rolled, self._colour_by, self._style = rolled, colour_by, style
        self._colour = self._colouring()

    @property
    def name(self) -> str:
        """The name of the model; of a backward pass, that of its loss."""
        return self.history.model_name

    @property
    def _items(self) -> list[Item]:
        return self.picture.scene.items

    @property
    def boxes(self) -> int:
        """The number of visible boxes, not counting frames."""
        return self.picture.boxes

    def svg(self, theme: str | None = None) -> str:
        """Return a self-contained SVG; `theme` is "light", "dark", "auto", or None for the style's."""
        theme = theme or self._style.theme
        return write_svg(self._sheet(theme), auto=theme == "auto")

    def png(self, *, scale: float = 2.0) -> bytes:
        """Return a PNG image, `scale` pixels per unit; light unless the style's theme is dark."""
        return write_png(self._sheet(self._style.theme), scale=scale)

    def pdf(self) -> bytes:
        """Return a PDF with one page as large as the drawing; its text is searchable."""
        return write_pdf(self._sheet(self._style.theme))

    def html(self) -> str:
        """Return an interactive HTML page: folding, search, details. It works offline."""
        return write_html(
            self.picture, header=self._header(), theme=self._style.theme, colour_by=self._colour_by,
            time_name=self.history.facts.time_name(), details_of=partial(details_of, self.history),
            overlays=overlays_of(self.history, self._items),
        )  # fmt: skip

    def page_text(self, layer_of: Mapping[int, str]) -> GraphText:
        """Return what the studio draws of it; `layer_of` says to which layer of the network an operation belongs."""
        layers = [next((layer_of[index] for index in item.ops if index in layer_of), "") for item in self._items]
        data = page_data(self.picture, header=self._header(), theme=self._style.theme, colour_by=self._colour_by,
                         time_name=self.history.facts.time_name())  # fmt: skip
        if self.history.facts.backward:  # an operation of an op has twice its index, a rule one more
            data["steps"] = [
                -1 if item.look == "output" else 2 * item.step + (item.look == "gradient") for item in self._items
            ]
        return graph_text(data, layers, self._details)

    def _details(self) -> str:
        with garbage_collection_off():
            overlays = overlays_of(self.history, self._items)
            return details_text(self.picture, partial(details_of, self.history), overlays)

    def dot(self) -> str:
        """Return Graphviz DOT text."""
        return write_dot(self.picture, self.name)

    def text(self) -> str:
        """Return the drawing as a tree of text, for the terminal."""
        shown = self.picture
        return draw_text(self.history, rolled=self._rolled, depth=shown.depth, repeats_once=shown.once)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the drawing in the format of the suffix of `path`; return the path written."""
        render, target = writer_for(path)
        content = render(self)
        write_file(target, content)
        return target

    def __repr__(self) -> str:
        size = self.picture.root.box
        return encodable(
            f"<Drawing of {self.name}: {plural(self.boxes, 'box', 'es')}, "
            f"{size.width:.0f} × {size.height:.0f}; save('x.svg'), .png, .pdf, .html, .dot or .txt>"
        )

    def __str__(self) -> str:
        return encodable(self.text())

    def _repr_svg_(self) -> str:
        return self.svg()

    def _sheet(self, theme: str) -> Sheet:
        """Return the shapes to write; dark for the theme "dark", else light."""
        return place_shapes(
            self.picture,
            header=self._header() if self._style.header else [],
            theme=theme,
            legend=self._style.legend,
            colour=self._colour,
            label=partial(hover_label, self.history),
        )

    def _header(self) -> list[str]:
        return header_lines(self.history, self.picture.depth, self._rolled)

    def _colouring(self) -> Colouring | None:
        colour = make_colouring(self.history, self._items, self._colour_by)
        if colour:
            leaves = ((view, first) for view, _, _, first, _, _ in walk(self.picture.root, 0, 0) if not view.open)
            colour.fit([value for view, first in leaves if (value := colour.value(view, first)) is not None])
        return colour


WRITERS: dict[str, Callable[[Drawing], str | bytes]] = {
    ".svg": Drawing.svg,
    ".png": Drawing.png,
    ".pdf": Drawing.pdf,
    ".html": Drawing.html,
    ".dot": Drawing.dot,
    ".gv": Drawing.dot,
    ".txt": Drawing.__str__,
}


def writer_for(path: str | os.PathLike[str]) -> tuple[Callable[[Drawing], str | bytes], Path]:
    """Return the writer for a path, and the path; without a suffix it is SVG."""
    target = Path(path)
    if not target.suffix:
        target = target.with_suffix(".svg")
    if target.suffix.lower() not in WRITERS:
        raise BadArgument(f"path={str(path)!r}: drawings are written as {', '.join(WRITERS)}, not {target.suffix}")
    if not target.parent.is_dir():
        raise BadArgument(f"path={str(path)!r}: there is no folder {str(target.parent)!r}")
    return WRITERS[target.suffix.lower()], target


def check_options(depth: int | str | None, direction: str, path: str | os.PathLike[str] | None) -> None:
    """Raise BadArgument for invalid options, before any work."""
    if direction not in DIRECTIONS:
        raise BadArgument(f"direction={direction!r}: use one of {', '.join(DIRECTIONS)}")
    if not (depth is None or depth == "all" or (type(depth) is int and depth >= 1)):
        raise BadArgument(f"depth={depth!r}: use a number from 1, 'all', or None for what fits a page")
    if path is not None:
        writer_for(path)
