"""Numbers the way people read them."""

from __future__ import annotations

from collections.abc import Iterable


def human_bytes(count: int) -> str:
    """A size in the largest fitting unit of 1024: "253.5 KB"."""
    size, unit = float(count), "B"
    for larger in ("KB", "MB", "GB", "TB", "PB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def human_count(count: int) -> str:
    """A count in the largest fitting unit of 1000: "1.4 G"."""
    size, unit = float(count), ""
    for larger in ("K", "M", "G", "T", "P", "E"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return str(count) if not unit else f"{size:.1f} {unit}"


def human_flops(count: int, unknown: int) -> str:
    """FLOPs, with a mark where some operations could not be counted."""
    return human_count(count) + (" +?" if unknown else "")


def plural(count: int, noun: str) -> str:
    """ "1 layer", "2 layers"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def cut(lines: list[str], limit: int) -> list[str]:
    """At most `limit` lines, what is left out named in the middle."""
    if len(lines) <= limit:
        return lines
    start, end = limit - limit // 3 - 1, limit // 3
    indent = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
    return [*lines[:start], f"{indent}… {len(lines) - start - end} more …", *lines[len(lines) - end :]]


def align(rows: Iterable[tuple[str, ...]], left: int) -> list[str]:
    """Rows of cells as lines, the first `left` columns to the left and the others to the right."""
    table = list(rows)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))] if table else []
    return ["  ".join(_pad(cell, column, widths, left) for column, cell in enumerate(row)).rstrip() for row in table]


def _pad(cell: str, column: int, widths: list[int], left: int) -> str:
    return cell.ljust(widths[column]) if column < left else cell.rjust(widths[column])
