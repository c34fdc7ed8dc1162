"""Text for people: sizes, counts, tables and names for the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def human_bytes(count: int) -> str:
    """Format a size in the largest fitting unit of 1024: "253.5 KB"."""
    size, unit = float(count), "B"
    for larger in ("KB", "MB", "GB", "TB", "PB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def human_count(count: int) -> str:
    """Format a count in the largest fitting unit of 1000: "1.4 G"."""
    size, unit = float(count), ""
    for larger in ("K", "M", "G", "T", "P", "E"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return str(count) if not unit else f"{size:.1f} {unit}"


def human_flops(count: int, unknown: int) -> str:
    """Format FLOPs, with a mark if some operations could not be counted."""
    return human_count(count) + (" +?" if unknown else "")


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: "1 layer", "2 layers"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def cut(lines: list[str], limit: int) -> list[str]:
    """Truncate to `limit` lines; a line in the middle says how many were left out."""
    if len(lines) <= limit:
        return lines
    start, end = limit - limit // 3 - 1, limit // 3
    indent = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
    return [*lines[:start], f"{indent}… {len(lines) - start - end} more …", *lines[len(lines) - end :]]


def align(rows: Iterable[tuple[str, ...]], left: int) -> list[str]:
    """Format rows of cells as lines.

    The first `left` columns are left-aligned, the others right-aligned.
    """
    table = list(rows)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))] if table else []
    return ["  ".join(_pad(cell, column, widths, left) for column, cell in enumerate(row)).rstrip() for row in table]


def _pad(cell: str, column: int, widths: list[int], left: int) -> str:
    return cell.ljust(widths[column]) if column < left else cell.rjust(widths[column])


def ordinal(number: int) -> str:
    """Format an ordinal number.

    >>> ordinal(2), ordinal(3), ordinal(11), ordinal(21)
    ('2nd', '3rd', '11th', '21st')
    """
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number // 10 % 10 != 1 else 0, "th")
    return f"{number}{ending}"


def shortened(text: str, width: int) -> str:
    """Shorten a name to `width` characters by leaving out its middle."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def printable(text: str) -> str:
    """Escape control characters in untrusted text: it cannot move the cursor or change colours."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


MOST_COMPARED = 5000  # a history can have 100,000 names: comparing with all of them takes seconds


def did_you_mean(name: object, names: Iterable[object], most: int = 1) -> str:
    """Return the sentence " Did you mean 'x' or 'y'?", or "" where no name is near.

    name: what was asked for; names: what there is; most: how many names to suggest at most.
    Upper and lower case count as the same. Of very many names, those with the same first letters are compared.
    """
    asked = str(name)[:200]
    word = asked.lower()
    by_lower: dict[str, str] = {}
    for known in map(str, names):
        if known != name and (known.lower() not in by_lower or known[:1] == asked[:1]):
            by_lower[known.lower()] = known
    candidates = list(by_lower)
    if len(candidates) > MOST_COMPARED:
        candidates.sort(key=lambda known: sum(known[:letters] != word[:letters] for letters in (3, 10, 20, 40)))
    near = [word] if word in by_lower else get_close_matches(word, candidates[:MOST_COMPARED], most, cutoff=0.5)
    return f" Did you mean {' or '.join(repr(by_lower[known]) for known in near)}?" if near else ""
