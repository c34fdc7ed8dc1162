"""Sizes and coordinates: the input and output of `compose`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Point = tuple[float, float]


class Metrics(NamedTuple):
    """Distances in pixels, and limits for wrapping; the HTML page receives them with its data."""

    pad: float = 10  # between the border of a box and what is in it
    title: float = 22  # the strip at the top of an open box, with one line of text
    line: float = 14  # each further line of it
    column: float = 16  # between neighbouring columns
    lane: float = 12  # between neighbouring lines that run along the flow
    track: float = 8  # between neighbouring lines that run across the flow
    gap: float = 8  # between a box and the first line below it
    arrow: float = 10  # above a box, for the arrow that enters it
    note: float = 13  # the height of a line of small text at an edge
    gutter: float = 18  # beside a band, before the first line that leaves it
    cut: int = 4  # a wrap may cut at most this many nets
    cost: float = 150  # penalty for each net beyond the first that a wrap cuts
    least: float = 0.35  # minimum length of a band, as a fraction of the ideal
    worth: float = 0.75  # a wrap must shorten the box to at most this fraction
    search: int = 8  # how many candidates on either side of the ideal cut are considered


class Title(NamedTuple):
    """The text at the top left of a box."""

    width: float
    lines: int


@dataclass(frozen=True, slots=True)
class Box:
    """The outside of a child: its size and its ports, measured across the flow."""

    width: float
    height: float
    entries: tuple[float, ...] | int  # coordinates, or the number to spread over the side
    exits: tuple[float, ...] | int
    entry_gap: float = 16  # between spread entries
    exit_gap: float = 16
    entry_note: float = 0  # width of the widest name at an entry
    exit_note: float = 0  # width of the widest shape at an exit


@dataclass(frozen=True, slots=True)
class ComposedBox:
    """A box with the coordinates of everything inside it, from its top left corner."""

    box: Box
    places: tuple[Point, ...]  # of the children
    paths: tuple[tuple[Point, ...], ...]  # of the routes
    entries: tuple[tuple[float, ...], ...]  # of each child, across; -1 where it is entered from the side
    exits: tuple[tuple[float, ...], ...]
    bands: int = 1  # pieces that it was wrapped into
