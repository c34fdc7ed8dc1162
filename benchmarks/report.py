"""Tables in Markdown, each in its own section of docs/benchmarks.md."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that is also easy to read as it stands."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(_width(cell) for cell in column) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    text = [_row(lines[0], widths), _row(rule, widths), *(_row(line, widths) for line in lines[1:])]
    return "\n".join(text)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cells[0] + " " * (widths[0] - _width(cells[0]))]
    padded += [" " * (width - _width(cell)) + cell for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "| " + " | ".join(padded) + " |"


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def write_section(path: Path, name: str, text: str) -> None:
    """Put text between a file's `<!-- name -->` and `<!-- end of name -->`."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{path} has no section between {begin} and {end}")
    path.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")
    print(f"written to {path}, section {name!r}")


def mark(ratio: float, floor: float, aim: float) -> str:
    """How a ratio stands: floor and aim, and which of them it meets."""
    met = "aim met" if ratio <= aim else "floor met" if ratio <= floor else "FLOOR MISSED"
    return f"{floor:g} ({aim:g}) {met}"
