"""`draw`: a history becomes a drawing that can be shown, saved and asked."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torcheer.drawing.dot import write_dot
from torcheer.drawing.items import Item, label_of
from torcheer.drawing.overlay import WAYS, Colouring, colouring
from torcheer.drawing.page import write_html
from torcheer.drawing.paper import svg_to_pdf, svg_to_png
from torcheer.drawing.picture import Picture, picture, walk
from torcheer.drawing.plans import plan_scene
from torcheer.drawing.scene import items_of
from torcheer.drawing.style import Style, style_of
from torcheer.drawing.svg import write_svg
from torcheer.drawing.text import draw_text
from torcheer.drawing.words import count_text, shape_text
from torcheer.errors import BadArgument
from torcheer.history import ModelHistory
from torcheer.history.sizes import human_bytes

MANY = 20_000  # operations
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
    """Draw a history, and write it where `path` is given, in the form that its ending names.

    `depth` is how many levels of modules are open: a number, "all" for every operation, or None for as much as stays
    readable on a page.
    """
    if direction not in DIRECTIONS:
        raise BadArgument(f"direction={direction!r}: use one of {', '.join(DIRECTIONS)}")
    if colour_by not in WAYS:
        raise BadArgument(f"colour_by={colour_by!r}: use one of {', '.join(WAYS)}")
    if not (depth is None or depth == "all" or (type(depth) is int and depth >= 1)):
        raise BadArgument(f"depth={depth!r}: use a number from 1, 'all', or None for what fits a page")
    if path is not None:
        _form(path)  # a wrong ending is told before any work
    wanted = style_of(style)
    with _uncollected():
        items = items_of(history, rolled=rolled, style=wanted)
        scene = plan_scene(items)
        found = picture(scene, depth=depth, direction=direction, style=wanted)
        drawing = Drawing(history, found, rolled, colour_by, wanted)
        if path is not None:
            drawing.save(path)
    return drawing


@contextmanager
def _uncollected() -> Iterator[None]:
    """Many small objects and no cycles: the garbage collector would only look at them again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Drawing:
    """A picture of a history. Shows itself in a notebook; `save` writes svg, png, pdf, html, dot or txt."""

    def __init__(self, history: ModelHistory, picture: Picture, rolled: bool, colour_by: str, style: Style) -> None:
        self.history, self.picture = history, picture
        self._rolled, self._colour_by, self._style = rolled, colour_by, style
        self._colour = self._colouring()

    @property
    def boxes(self) -> int:
        """How many boxes are visible, frames not counted."""
        return self.picture.boxes

    def svg(self, theme: str | None = None) -> str:
        """SVG text that needs no other file; `theme` is "light", "dark" or "auto"."""
        return write_svg(
            self.picture,
            header=self._header() if self._style.header else [],
            theme=theme or self._style.theme,
            legend=self._style.legend,
            colour=self._colour,
            label=self._label,
        )

    def _label(self, item: Item) -> str:
        """The name in the history; in a very long one the place, as naming all would take longer than drawing."""
        if len(self.history.facts.ops) > MANY and item.ops:
            return f"operation {item.ops[0]}"
        return label_of(self.history, item)

    def png(self, *, scale: float = 2.0) -> bytes:
        """A PNG image; light unless the style says dark."""
        return svg_to_png(self.svg(self._paper_theme()), scale=scale)

    def pdf(self) -> bytes:
        """A PDF page as large as the drawing, its text searchable."""
        return svg_to_pdf(self.svg(self._paper_theme()))

    def html(self) -> str:
        """One page to look around in: fold, search, details. Works offline."""
        return write_html(
            self.history, self.picture, header=self._header(), theme=self._style.theme, colour_by=self._colour_by
        )

    def dot(self) -> str:
        """Graphviz DOT text."""
        return write_dot(self.picture, self.history.model_name)

    def text(self) -> str:
        """A tree for the terminal."""
        return draw_text(self.history, rolled=self._rolled, depth=self.picture.depth)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the drawing in the form the ending of `path` names; return where it went."""
        make, target = _form(path)
        content = make(self)
        part = target.with_name(f".{target.name}.part")
        try:
            part.write_bytes(content.encode() if isinstance(content, str) else content)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target

    def __repr__(self) -> str:
        size = self.picture.root.box
        return (
            f"<Drawing of {self.history.model_name}: {_counted(self.boxes, 'box', 'es')}, "
            f"{size.width:.0f} × {size.height:.0f}; save('x.svg'), .png, .pdf, .html, .dot or .txt>"
        )

    def __str__(self) -> str:
        return self.text()

    def _repr_svg_(self) -> str:
        return self.svg()

    def _paper_theme(self) -> str:
        return "dark" if self._style.theme == "dark" else "light"

    def _colouring(self) -> Colouring | None:
        colour = colouring(self.history, self.picture.scene.items, self._colour_by)
        if colour:
            leaves = ((view, first) for view, _, _, first, _, _ in walk(self.picture.root, 0, 0) if not view.open)
            colour.fit([value for view, first in leaves if (value := colour.value(view, first)) is not None])
        return colour

    def _header(self) -> list[str]:
        facts, info = self.history.facts, self.history.info
        stored = [one for one in (info.stored or facts.stored).values() if one.kind == "parameter"]
        count, trained = sum(one.count for one in stored), sum(one.count for one in stored if one.trainable)
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
            _counted(operations, "operation"),
            f"{human_bytes(size)} of results",
            f"input {', '.join(inputs[:4])}{' …' if len(inputs) > 4 else ''}" if inputs else "",
            f"{info.mode} mode" if info.mode else "",
            f"{_counted(self.picture.depth, 'level')} shown" if self.picture.depth else "",
            "loops rolled" if self._rolled else "",
            "stopped early" if info.stopped else "",
        ]
        return [line for line in lines if line]


def _counted(count: int, noun: str, more: str = "s") -> str:
    return f"{count:,} {noun}{'' if count == 1 else more}"


FORMS: dict[str, Callable[[Drawing], str | bytes]] = {
    ".svg": Drawing.svg,
    ".png": Drawing.png,
    ".pdf": Drawing.pdf,
    ".html": Drawing.html,
    ".dot": Drawing.dot,
    ".gv": Drawing.dot,
    ".txt": Drawing.text,
}


def _form(path: str | os.PathLike[str]) -> tuple[Callable[[Drawing], str | bytes], Path]:
    """The writer for a path, and the path; without an ending it is SVG."""
    target = Path(path)
    if not target.suffix:
        target = target.with_suffix(".svg")
    if target.suffix.lower() not in FORMS:
        raise BadArgument(f"path={str(path)!r}: drawings are written as {', '.join(FORMS)}, not {target.suffix}")
    if not target.parent.is_dir():
        raise BadArgument(f"path={str(path)!r}: there is no folder {str(target.parent)!r}")
    return FORMS[target.suffix.lower()], target
