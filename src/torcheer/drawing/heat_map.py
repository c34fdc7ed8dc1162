"""A heat map: a grid of coloured cells with names at its sides, as SVG, PNG or PDF."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from torcheer.disk import write_file
from torcheer.drawing.looks.colours import DARK, LIGHT, STRANGE, Theme, ink_on, mix, ramp
from torcheer.drawing.looks.font_metrics import text_width
from torcheer.drawing.looks.sheet import MARGIN, Sheet
from torcheer.drawing.looks.vector_shapes import Group, Rect, Shape, text_shape
from torcheer.drawing.writers.pdf import write_pdf
from torcheer.drawing.writers.png import write_png
from torcheer.drawing.writers.svg import write_svg
from torcheer.errors import BadArgument
from torcheer.terminal import shortened

CELL = 26.0  # height, and least width
SIZE = 10.0  # of texts
HEADER = 48.0
LOW, HIGH = "#2b6cb0", "#c05621"  # of signed values: blue below zero, orange above, also with colour blindness
LONGEST = 14  # characters of a text in a cell
SCALE_STEPS = 40


@dataclass(eq=False)
class HeatMap:
    """A grid of numbers as coloured cells. A notebook displays it; `save` writes svg, png or pdf.

    - `values`: rows of numbers; NaN and infinity stand out.
    - `rows`, `columns`: their names.
    - `title`, `caption`: above it. `value`: what the numbers are, beside the scale. `axis`: what the columns are.
    - `texts`: a text for each cell; none shows numbers under the pointer only.
    - `signed`: colour below and above zero; False: from the least to the largest.
    """

    values: Sequence[Sequence[float]]
    rows: Sequence[str]
    columns: Sequence[str]
    title: str = ""
    caption: str = ""
    value: str = ""
    axis: str = ""
    texts: Sequence[Sequence[str]] | None = None
    signed: bool = False

    def __post_init__(self) -> None:
        if len(self.values) != len(self.rows) or any(len(row) != len(self.columns) for row in self.values):
            raise BadArgument(f"HeatMap: {len(self.values)} rows of values for {len(self.rows)} × {len(self.columns)}")

    @property
    def range(self) -> tuple[float, float]:
        """The numbers at the ends of the scale; around zero if they are signed."""
        finite = [value for row in self.values for value in row if isfinite(value)] or [0.0]
        if self.signed:
            most = max(map(abs, finite)) or 1.0
            return -most, most
        return min(finite), max(finite) if max(finite) > min(finite) else min(finite) + 1

    def colours(self, value: float, theme: Theme) -> tuple[str, str]:
        """Return the fill of a cell and the colour of text on it."""
        if not isfinite(value):
            return STRANGE, ink_on(STRANGE)
        low, high = self.range
        if not self.signed:
            return ramp((value - low) / (high - low))
        fill = mix(theme.card, HIGH if value > 0 else LOW, abs(value) / high)
        return fill, ink_on(fill)

    def sheet(self, theme: str = "light") -> Sheet:
        """Return its shapes."""
        look = DARK if theme == "dark" else LIGHT
        left = MARGIN + max((text_width(name, SIZE) for name in self.rows), default=0) + 8
        width = self._cell_width()
        top = MARGIN + HEADER
        grid: list[Shape] = []
        for row, numbers in enumerate(self.values):
            y = top + row * CELL
            grid.append(text_shape(left - 8, y + CELL / 2 + 3.5, self.rows[row], SIZE, "plain", look, anchor="end"))
            for column, number in enumerate(numbers):
                grid.append(self._cell(row, column, number, left + column * width, y, width, look))
        bottom = top + len(self.rows) * CELL
        for column, name in enumerate(self.columns):
            x = left + (column + 0.5) * width
            grid.append(text_shape(x, bottom + 14, name, SIZE, "soft", look, anchor="middle"))
        if self.axis:
            grid.append(text_shape(left, bottom + 28, self.axis, SIZE, "soft", look))
        head, head_width = self._header(look)
        scale, scale_width = self._scale(left, bottom + (44 if self.axis else 30), look)
        wide = max(left + width * len(self.columns), MARGIN + head_width, left + scale_width) + MARGIN
        tall = bottom + (44 if self.axis else 30) + 30 + MARGIN
        paper = Rect(wide, tall, look.paper, css_class="paper")
        return Sheet(wide, tall, self.title or "heat map", [paper, *head, *grid, *scale])

    def _cell_width(self) -> float:
        texts = [shortened(text, LONGEST) for row in self.texts or () for text in row]
        return max([CELL, *(text_width(text, SIZE) + 8 for text in (*texts, *self.columns))])

    def _cell(self, row: int, column: int, number: float, x: float, y: float, width: float, look: Theme) -> Group:
        fill, ink = self.colours(number, look)
        border = look.frame if self.signed else ""  # of cells around zero, which look like the paper
        shapes: list[Shape] = [Rect(width - 1, CELL - 1, fill, border, radius=2)]
        if self.texts is not None:
            text = shortened(self.texts[row][column], LONGEST)
            shapes.append(
                text_shape((width - 1) / 2, CELL / 2 + 3, text, SIZE, "plain", look, ink=ink, anchor="middle")
            )
        return Group(x, y, tuple(shapes), f"{self.rows[row]}, {self.columns[column]}: {number:.4g}")

    def _header(self, look: Theme) -> tuple[list[Shape], float]:
        shapes: list[Shape] = [
            text_shape(MARGIN, MARGIN + 14, self.title, 17, "strong", look),
            text_shape(MARGIN, MARGIN + 31, self.caption, 11, "soft", look),
        ]
        return shapes, max(text_width(self.title, 17, True), text_width(self.caption, 11))

    def _scale(self, x: float, y: float, look: Theme) -> tuple[list[Shape], float]:
        """Return the bar of colours with the numbers at its ends."""
        low, high = self.range
        step, ends = 3.0, (f"{low:.3g}", f"{high:.3g}")
        begin = x + text_width(ends[0], SIZE) + 6
        shapes: list[Shape] = [text_shape(x, y + 9.5, ends[0], SIZE, "soft", look)]
        for number in range(SCALE_STEPS):
            value = low + (high - low) * number / (SCALE_STEPS - 1)
            shapes.append(Rect(step + 0.3, 12, self.colours(value, look)[0], x=begin + number * step, y=y))
        end = begin + SCALE_STEPS * step + 6
        words = f"{ends[1]}  {self.value}" if self.value else ends[1]
        shapes.append(text_shape(end, y + 9.5, words, SIZE, "soft", look))
        return shapes, end + text_width(words, SIZE) - x

    def svg(self, theme: str = "light") -> str:
        """Return a self-contained SVG; `theme` is "light" or "dark"."""
        return write_svg(self.sheet(theme))

    def png(self, *, scale: float = 2.0) -> bytes:
        """Return a PNG image, `scale` pixels per unit."""
        return write_png(self.sheet(), scale=scale)

    def pdf(self) -> bytes:
        """Return a PDF with one page as large as the drawing."""
        return write_pdf(self.sheet())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it in the format of the suffix of `path`; return the path written."""
        target = Path(path) if Path(path).suffix else Path(path).with_suffix(".svg")
        writers: dict[str, Callable[[], str | bytes]] = {".svg": self.svg, ".png": self.png, ".pdf": self.pdf}
        if target.suffix.lower() not in writers:
            raise BadArgument(f"path={str(path)!r}: heat maps are written as {', '.join(writers)}")
        if not target.parent.is_dir():
            raise BadArgument(f"path={str(path)!r}: there is no folder {str(target.parent)!r}")
        write_file(target, writers[target.suffix.lower()]())
        return target

    def _repr_svg_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        return f"<HeatMap {len(self.rows)} × {len(self.columns)}: {self.title}; save('x.svg'), .png or .pdf>"
