"""Lines, tables and curves in text, as wide as the terminal."""

from __future__ import annotations

import math
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TextIO

from torcheer.terminal.human_units import human_number
from torcheer.terminal.name_texts import printable, shortened
from torcheer.terminal.streams import is_terminal

ANY_WIDTH = 1 << 20  # of a file or a pipe
LEAST_WIDTH = 12  # of a shortened column


def line_width() -> int:
    """Return the longest line to print: the terminal's width; any for a file or a pipe unless COLUMNS is set."""
    columns = os.environ.get("COLUMNS", "")
    is_known = is_terminal(sys.stdout) or (columns.isdecimal() and int(columns) > 0)
    return shutil.get_terminal_size().columns if is_known else ANY_WIDTH


def folded(text: str, stream: TextIO | None = None) -> str:
    """Break lines between words where they are longer than the terminal; of a file or a pipe they stay whole.

    stream: where the text is printed; the standard error by default
    """
    stream = sys.stderr if stream is None else stream
    if not is_terminal(stream):
        return text
    try:
        width = int(os.environ.get("COLUMNS", "")) or os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        width = shutil.get_terminal_size().columns
    fold = textwrap.TextWrapper(
        max(width, LEAST_WIDTH), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    lines = (fold.wrap(line) if len(line) > width else [line] for line in text.split("\n"))
    return "\n".join(part for parts in lines for part in parts)


def cut(lines: list[str], limit: int) -> list[str]:
    """Truncate to `limit` lines; a line in the middle says how many were left out."""
    if len(lines) <= limit:
        return lines
    start, end = limit - limit // 3 - 1, limit // 3
    indent = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
    return [*lines[:start], f"{indent}… {len(lines) - start - end:,} more …", *lines[len(lines) - end :]]


def format_table(
    rows: Iterable[Sequence[str]],
    left: int,
    *,
    width: int = ANY_WIDTH,
    shorten: str | None = None,
    drop: Sequence[str] = (),
) -> list[str]:
    """Format rows of cells as lines.

    left: so many columns are left-aligned, the others, the numbers, right-aligned.
    width: of the longest line. Where there is no room, the columns `drop` are left out, in this order, then the
    column `shorten` is cut in the middle; both are names in the first row.
    """
    columns = [
        (str.ljust if place < left else str.rjust, [printable(cell) for cell in cells])
        for place, cells in enumerate(zip(*rows, strict=True))
    ]
    for name in drop:
        if sum(_least_width(cells, shorten) + 2 for _, cells in columns) - 2 <= width:
            break
        columns = [column for column in columns if column[1][0] != name]
    room = max(width - sum(_width(cells) + 2 for _, cells in columns if cells[0] != shorten), LEAST_WIDTH)
    padded = []
    for align, cells in columns:
        shown = [shortened(cell, room) for cell in cells] if cells[0] == shorten else cells
        size = _width(shown)
        padded.append([align(cell, size) for cell in shown])
    return ["  ".join(cells).rstrip() for cells in zip(*padded, strict=True)]


def _width(cells: list[str]) -> int:
    return max(map(len, cells))


def _least_width(cells: list[str], shorten: str | None) -> int:
    return min(_width(cells), LEAST_WIDTH) if cells[0] == shorten else _width(cells)


def plot_text(
    xs: Sequence[float],
    ys: Sequence[float],
    *,
    mark: float | None = None,
    labels: tuple[str, str] = ("", ""),
    log_x: bool = False,
    size: tuple[int, int] = (60, 12),
) -> list[str]:
    """Draw a curve in characters; a column of `│` stands at `mark`.

    labels: of the y axis, above it, and of the x axis, below it. size: columns and rows of the curve.
    """
    if not xs:
        return [f"{labels[0]}: nothing to draw"]
    columns, rows = size
    places = [math.log(x) for x in xs] if log_x else list(map(float, xs))
    left, width = min(places), (max(places) - min(places)) or 1.0
    low, height = min(ys), (max(ys) - min(ys)) or 1.0

    def column(place: float) -> int:
        return round((place - left) / width * (columns - 1))

    grid = [[" "] * columns for _ in range(rows)]
    if mark is not None:
        for line in grid:
            line[column(math.log(mark) if log_x else mark)] = "│"
    for place, y in zip(places, ys):
        grid[rows - 1 - round((y - low) / height * (rows - 1))][column(place)] = "•"
    names = [human_number(max(ys)), *[""] * (rows - 2), human_number(min(ys))]
    margin = max(map(len, names))
    axis = f"{human_number(min(xs))}{labels[1].center(columns - len(human_number(min(xs)) + human_number(max(xs))))}"
    lines = [f"{name:>{margin}} ┤{''.join(line).rstrip()}" for name, line in zip(names, grid)]
    return [
        *filter(None, labels[:1]),
        *lines,
        f"{' ' * margin} └{'─' * columns}",
        f"{' ' * (margin + 2)}{axis}{human_number(max(xs))}",
    ]
