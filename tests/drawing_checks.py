"""What must hold of every picture, as functions that answer what is wrong."""

from __future__ import annotations

import xml.etree.ElementTree as xml
from collections.abc import Iterator
from itertools import pairwise

from seams import METRICS, BoxView, Picture, title_of, walk

from torcheer.drawing import Drawing

Rect = tuple[float, float, float, float]
SLACK = 0.01


def faults(picture: Picture) -> list[str]:
    """Everything wrong with the geometry."""
    found: list[str] = []
    for view, *_ in walk(picture.root, 0.0, 0.0):
        if view.open:
            found += _inside(view)
            found += _overlaps(view)
            found += _crossings(view)
            found += _strikes(view, picture.down)
            found += _backward(view, picture.down)
    return found


def overlaps(picture: Picture) -> list[str]:
    """Different tensors that share a stretch of their way: they would read as one line."""
    found = []
    for view, *_ in walk(picture.root, 0.0, 0.0):
        if not view.composed or not view.layout:
            continue
        lines: dict[tuple[str, float], list[tuple[float, float, int]]] = {}
        for route, path in zip(view.layout.routes, view.composed.paths):
            for (ax, ay), (bx, by) in pairwise(path):
                key, ends = (("down", ax), (ay, by)) if ax == bx else (("across", ay), (ax, bx))
                lines.setdefault(key, []).append((min(ends), max(ends), route.net))
        for key, stretches in lines.items():
            stretches.sort()
            for place, one in enumerate(stretches):
                for other in stretches[place + 1 :]:
                    if other[0] >= one[1] - SLACK:
                        break
                    if one[2] != other[2]:
                        found.append(f"nets {one[2]} and {other[2]} share {key} in {view!r}")
    return found


def _rects(view: BoxView) -> list[Rect]:
    assert view.composed
    return [
        (left, top, left + inner.box.width, top + inner.box.height)
        for inner, (left, top) in zip(view.inside, view.composed.places)
    ]


def _inside(view: BoxView) -> Iterator[str]:
    for inner, (left, top, right, bottom) in zip(view.inside, _rects(view)):
        if left < -SLACK or top < -SLACK or right > view.box.width + SLACK or bottom > view.box.height + SLACK:
            yield f"{inner!r} leaves {view!r}"
    assert view.composed
    for path in view.composed.paths:
        for x, y in path:
            if not (-SLACK <= x <= view.box.width + SLACK and -SLACK <= y <= view.box.height + SLACK):
                yield f"an edge leaves {view!r} at {x}, {y}"


def _overlaps(view: BoxView) -> Iterator[str]:
    rects = sorted(enumerate(_rects(view)), key=lambda pair: pair[1][0])
    for place, (one, rect) in enumerate(rects):
        for other, next_rect in rects[place + 1 :]:
            if next_rect[0] >= rect[2] - SLACK:
                break
            if rect[1] < next_rect[3] - SLACK and next_rect[1] < rect[3] - SLACK:
                yield f"{view.inside[one]!r} and {view.inside[other]!r} overlap in {view!r}"


def _crossings(view: BoxView) -> Iterator[str]:
    """Edges that run through a box, their own ends included."""
    assert view.composed and view.layout
    rects = _rects(view)
    for route, path in zip(view.layout.routes, view.composed.paths):
        for start, end in pairwise(path):
            if start[0] != end[0] and start[1] != end[1]:
                yield f"a slanted edge in {view!r}: {start} to {end}"
            for number, rect in enumerate(rects):
                if _cuts(start, end, rect):
                    yield f"{route} runs through {view.inside[number]!r} in {view!r}"


def _cuts(start: tuple[float, float], end: tuple[float, float], rect: Rect) -> bool:
    low_x, high_x = sorted((start[0], end[0]))
    low_y, high_y = sorted((start[1], end[1]))
    left, top, right, bottom = rect
    return low_x < right - SLACK and high_x > left + SLACK and low_y < bottom - SLACK and high_y > top + SLACK


def _strikes(view: BoxView, down: bool) -> Iterator[str]:
    """Edges that run through the title."""
    assert view.composed and view.plan
    title = title_of(view.name, view.stack or view.plan, down)
    if title is None:
        return
    text = (9.0, 3.0, 9.0 + title.width - 5, METRICS.title + (title.lines - 1) * METRICS.line - 3)
    for path in view.composed.paths:
        if any(_cuts(start, end, text) for start, end in pairwise(path)):
            yield f"an edge strikes the title of {view!r}"


def _backward(view: BoxView, down: bool) -> Iterator[str]:
    """Edges that do not start below their source and end above their target, or run up without being marked."""
    assert view.composed and view.layout
    layout, along = view.layout, 1 if down else 0
    for route, path in zip(layout.routes, view.composed.paths):
        if not path:
            yield f"{route} has no path"
        elif not route.back and layout.rows[route.source] >= layout.rows[route.target]:
            yield f"{route} runs backward unmarked"
        elif len(path) > 1 and path[1][along] < path[0][along] - SLACK:
            yield f"{route} leaves its source backward"


def words(drawing: Drawing) -> list[str]:
    """Every text in the picture."""
    return [element.text or "" for element in xml.fromstring(drawing.svg()).iter("{http://www.w3.org/2000/svg}text")]


def leaves(drawing: Drawing) -> dict[str, BoxView]:
    """Visible boxes by address or kind."""
    return {
        address or view.face.kind: view for view, *_, address, _ in walk(drawing.picture.root, 0, 0) if not view.open
    }
