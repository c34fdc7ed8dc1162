"""Sizes and places: what the rule is given and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Point = tuple[float, float]


class Metrics(NamedTuple):
    """Distances in pixels; the page gets them with its data."""

    pad: float = 10  # between the border of a box and what is in it
    title: float = 22  # the strip at the top of an open box, with one line of text
    line: float = 14  # each further line of it
    column: float = 16  # between neighbouring columns
    lane: float = 12  # between neighbouring lines that run along
    track: float = 8  # between neighbouring lines that run across
    gap: float = 8  # between a box and the first line below it
    arrow: float = 10  # above a box, for the arrow that enters it
    note: float = 13  # the height of a line of small text at an edge
    gutter: float = 18  # beside a band, before the first line that leaves it
    cut: int = 4  # at most so many nets may be cut by a wrap
    cost: float = 150  # what each net beyond the first costs there
    least: float = 0.35  # a band shorter than this part of the ideal is not made
    worth: float = 0.75  # a wrap that leaves more than this of the length is not made
    search: int = 8  # how many places on either side of the best are looked at


class Title(NamedTuple):
    """The text at the top left of a box."""

    width: float
    lines: int


@dataclass(frozen=True, slots=True)
class Box:
    """The outside of a child: its size, and where edges may enter and leave, measured across from its start."""

    width: float
    height: float
    entries: tuple[float, ...] | int  # places, or how many to spread over the side
    exits: tuple[float, ...] | int
    entry_gap: float = 16  # between spread entries
    exit_gap: float = 16
    entry_note: float = 0  # width of the widest name at an entry
    exit_note: float = 0  # width of the widest shape at an exit


@dataclass(frozen=True, slots=True)
class Composed:
    """A box with everything inside it in place, measured from its top left corner."""

    box: Box
    places: tuple[Point, ...]  # of the children
    paths: tuple[tuple[Point, ...], ...]  # of the routes
    entries: tuple[tuple[float, ...], ...]  # of each child, across; -1 where it is entered from the side
    exits: tuple[tuple[float, ...], ...]
    bands: int = 1  # pieces that it was cut into
