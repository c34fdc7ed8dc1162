"""Parse an SVG path into moves, lines and cubic curves, which is all that a PDF has."""

from __future__ import annotations

import re
from cmath import exp, phase
from collections.abc import Iterator
from math import ceil, pi, radians, tan
from typing import NamedTuple

from torcheer.errors import BadArgument

TOKEN = re.compile(r"[A-Za-z]|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
COUNTS = {"M": 2, "L": 2, "H": 1, "V": 1, "C": 6, "Q": 4, "A": 7, "Z": 0}


class Move(NamedTuple):
    """Start a new outline at this point."""

    x: float
    y: float


class Curve(NamedTuple):
    """A line to the point if there is only one, else a cubic curve with two control points."""

    points: tuple[float, ...]


def steps(outline: str) -> Iterator[Move | Curve | None]:
    """Yield each step of a path's `d`.

    None closes the outline. Points are complex numbers here: x + yj.
    """
    current = start = 0j
    for command, values in _commands(outline):
        relative = current if command.islower() else 0j
        points = [complex(x, y) + relative for x, y in zip(values[::2], values[1::2])]
        match command.upper():
            case "M":
                current = start = points[0]
                yield Move(current.real, current.imag)
            case "Z":
                current = start
                yield None
            case "H":
                current = complex(values[0] + relative.real, current.imag)
                yield _curve(current)
            case "V":
                current = complex(current.real, values[0] + relative.imag)
                yield _curve(current)
            case "Q":
                handle, end = points
                yield _curve(current + (handle - current) * 2 / 3, end + (handle - end) * 2 / 3, end)
                current = end
            case "A":
                end = complex(*values[5:]) + relative
                yield from _arc(current, end, *values[:5])
                current = end
            case _:
                current = points[-1]
                yield _curve(*points)


def _commands(outline: str) -> Iterator[tuple[str, list[float]]]:
    """Yield each command with one set of numbers; a repeated command may omit its letter."""
    tokens = TOKEN.findall(outline)
    place, command = 0, ""
    while place < len(tokens):
        if tokens[place].isalpha():
            command = tokens[place]
            place += 1
        else:
            command = {"M": "L", "m": "l", "Z": "", "z": ""}.get(command, command)  # further points of a move are lines
        count = COUNTS.get(command.upper(), 0)
        values = tokens[place : place + count]
        if command.upper() not in COUNTS or len(values) < count or any(map(str.isalpha, values)):
            raise BadArgument(f"cannot read {command!r} in the path {outline!r}; known are {' '.join(COUNTS)}")
        place += count
        yield command, [float(value) for value in values]


def _arc(
    start: complex, end: complex, across: float, down: float, tilt: float, large: float, sweep: float
) -> Iterator[Curve]:
    """Yield an arc of an ellipse, as one cubic curve for each quarter of it."""
    across, down = abs(across), abs(down)
    if start == end:
        return
    if not across or not down:
        yield _curve(end)
        return
    rotation = exp(1j * radians(tilt))

    def to_circle(point: complex) -> complex:  # to coordinates in which the ellipse is a circle of radius 1
        point /= rotation
        return complex(point.real / across, point.imag / down)

    def to_ellipse(point: complex) -> complex:
        return complex(point.real * across, point.imag * down) * rotation

    reach = abs(to_circle(end) - to_circle(start)) / 2
    if reach > 1:  # too small to join the two points: enlarged, as SVG specifies
        across, down, reach = across * reach, down * reach, 1.0
    half = (to_circle(end) - to_circle(start)) / 2
    side = 1 if bool(large) != bool(sweep) else -1
    centre = to_circle(start) + half + side * 1j * half / abs(half) * (1 - reach * reach) ** 0.5
    first, last = phase(to_circle(start) - centre), phase(to_circle(end) - centre)
    if sweep and last < first:
        last += 2 * pi
    elif not sweep and last > first:
        last -= 2 * pi
    parts = max(1, ceil(abs(last - first) / (pi / 2) - 1e-9))
    part = (last - first) / parts
    handle = 4 / 3 * tan(part / 4) * 1j
    for number in range(parts):
        a, b = exp(1j * (first + number * part)), exp(1j * (first + (number + 1) * part))
        yield _curve(*(to_ellipse(centre + point) for point in (a + a * handle, b - b * handle, b)))


def _curve(*points: complex) -> Curve:
    return Curve(tuple(number for point in points for number in (point.real, point.imag)))
