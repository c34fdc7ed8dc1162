"""What every drawing can do: show itself, and be saved as SVG, PNG, PDF, HTML, DOT or text."""

from __future__ import annotations

import gc
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torcheer.drawing.items.item import Item
from torcheer.drawing.layout.picture import Picture
from torcheer.drawing.looks.colour_scale import Colouring
from torcheer.drawing.looks.style import Style
from torcheer.drawing.writers.dot import write_dot
from torcheer.drawing.writers.html_page import Facts, write_html
from torcheer.drawing.writers.rasterize import svg_to_pdf, svg_to_png
from torcheer.drawing.writers.svg import write_svg
from torcheer.errors import BadArgument

DIRECTIONS = ("auto", "down", "right")


class Drawing(ABC):
    """A picture. Shows itself in a notebook; `save` writes svg, png, pdf, html, dot or txt."""

    _colour: Colouring | None = None
    _colour_by = "kind"

    def __init__(self, picture: Picture, style: Style) -> None:
        self.picture, self._style = picture, style

    # What each sort of drawing says of itself

    @property
    @abstractmethod
    def name(self) -> str:
        """What is drawn."""

    @abstractmethod
    def text(self) -> str:
        """A tree for the terminal."""

    @abstractmethod
    def _header(self) -> list[str]:
        """A title, and facts that stand below it."""

    @abstractmethod
    def _label(self, item: Item) -> str:
        """What is told of an item on hover."""

    @abstractmethod
    def _facts(self, item: Item) -> Facts:
        """What the page tells of an item."""

    def _overlays(self) -> dict[str, Any]:
        """For each way to colour a value per item, or None."""
        return {}

    # What all have in common

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

    def png(self, *, scale: float = 2.0) -> bytes:
        """A PNG image; light unless the style says dark."""
        return svg_to_png(self.svg(self._paper_theme()), scale=scale)

    def pdf(self) -> bytes:
        """A PDF page as large as the drawing, its text searchable."""
        return svg_to_pdf(self.svg(self._paper_theme()))

    def html(self) -> str:
        """One page to look around in: fold, search, details. Works offline."""
        return write_html(
            self.picture, header=self._header(), theme=self._style.theme, colour_by=self._colour_by, facts=self._facts,
            overlays=self._overlays(),
        )  # fmt: skip

    def dot(self) -> str:
        """Graphviz DOT text."""
        return write_dot(self.picture, self.name)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the drawing in the form the ending of `path` names; return where it went."""
        make, target = form_of(path)
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
            f"<Drawing of {self.name}: {counted(self.boxes, 'box', 'es')}, "
            f"{size.width:.0f} × {size.height:.0f}; save('x.svg'), .png, .pdf, .html, .dot or .txt>"
        )

    def __str__(self) -> str:
        return self.text()

    def _repr_svg_(self) -> str:
        return self.svg()

    def _paper_theme(self) -> str:
        return "dark" if self._style.theme == "dark" else "light"


def counted(count: int, noun: str, more: str = "s") -> str:
    """ "1 box", "2 boxes"."""
    return f"{count:,} {noun}{'' if count == 1 else more}"


FORMS: dict[str, Callable[[Drawing], str | bytes]] = {
    ".svg": Drawing.svg,
    ".png": Drawing.png,
    ".pdf": Drawing.pdf,
    ".html": Drawing.html,
    ".dot": Drawing.dot,
    ".gv": Drawing.dot,
    ".txt": Drawing.__str__,
}


def form_of(path: str | os.PathLike[str]) -> tuple[Callable[[Drawing], str | bytes], Path]:
    """The writer for a path, and the path; without an ending it is SVG."""
    target = Path(path)
    if not target.suffix:
        target = target.with_suffix(".svg")
    if target.suffix.lower() not in FORMS:
        raise BadArgument(f"path={str(path)!r}: drawings are written as {', '.join(FORMS)}, not {target.suffix}")
    if not target.parent.is_dir():
        raise BadArgument(f"path={str(path)!r}: there is no folder {str(target.parent)!r}")
    return FORMS[target.suffix.lower()], target


def check_options(depth: int | str | None, direction: str, path: str | os.PathLike[str] | None) -> None:
    """Tell what cannot be asked for before any work."""
    if direction not in DIRECTIONS:
        raise BadArgument(f"direction={direction!r}: use one of {', '.join(DIRECTIONS)}")
    if not (depth is None or depth == "all" or (type(depth) is int and depth >= 1)):
        raise BadArgument(f"depth={depth!r}: use a number from 1, 'all', or None for what fits a page")
    if path is not None:
        form_of(path)


@contextmanager
def uncollected() -> Iterator[None]:
    """Many small objects and no cycles: the garbage collector would only look at them again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
