"""The rule is written twice, in compose.py and compose.ts: what it gives is kept here, and both must give just that."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest
from seams import (
    METRICS,
    Box,
    BoxView,
    ComposedBox,
    Title,
    arrow_path,
    arrowhead,
    box_data,
    compose,
    layout_data,
    line_path,
    number,
    picture,
    title_of,
    walk,
)
from test_drawing_layout import random_items, scene_of

from torcheer.drawing import Style

VECTORS = Path(__file__).with_name("data") / "compose.json"
SEEDS, LARGEST = 40, 34  # and so many routes at most


def vectors() -> dict[str, Any]:
    """Random boxes, each composed with its children open and folded, both ways, wrapped and not."""
    layouts: list[dict[str, Any]] = []
    cases: list[dict[str, Any]] = []
    for seed in range(SEEDS):
        random = Random(seed)
        items = random_items(random, random.randrange(3, 40), random.choice((0.2, 0.5, 0.8)), seed % 3) if seed else []
        scene = scene_of(items)
        depth = random.choice((1, "all"))
        for way, shares in (("down", (None, random.choice((0.3, 0.55)))), ("right", (random.choice((None, 0.55)),))):
            view = _richest(picture(scene, depth=depth, direction=way, style=Style()).root)
            assert view.layout and view.plan
            if (layout := layout_data(view.layout)) not in layouts:
                layouts.append(layout)
            title = title_of(view.name, view.stack or view.plan, way == "down")
            boxes = [inner.box for inner in view.inside]
            length = view.box.height if way == "down" else view.box.width
            for share in shares:
                limit = share and max(50, round(length * share))
                made = _compose(view, boxes, title, way == "down", limit)
                cases.append(
                    {"layout": layouts.index(layout), "boxes": list(map(box_data, boxes)), "title": title}
                    | {"down": way == "down", "limit": limit, "composed": _data(made)}
                )
    return {"metrics": METRICS._asdict(), "layouts": layouts, "cases": cases, "glyphs": _glyphs(cases)}


def _richest(root: BoxView) -> BoxView:
    """The box with most edges among those that are not too large for a file."""
    views = [view for view, *_ in walk(root, 0.0, 0.0) if view.layout]
    small = [view for view in views if view.layout and len(view.layout.routes) <= LARGEST]
    return max(small or views[:1], key=lambda view: len(view.layout.routes) if view.layout else 0)


def _compose(view: BoxView, boxes: list[Box], title: Title | None, down: bool, limit: float | None) -> ComposedBox:
    assert view.layout
    limit = float("inf") if limit is None else limit
    return compose(view.layout, boxes, title=title, down=down, limit=limit, metrics=METRICS)


def _data(made: ComposedBox) -> dict[str, Any]:
    return {
        "box": box_data(made.box),
        "places": made.places,
        "paths": made.paths,
        "entries": made.entries,
        "exits": made.exits,
    }


def _glyphs(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Edges as SVG paths, and numbers as they are written."""
    paths = [path for case in cases for path in case["composed"]["paths"] if len(path) > 1]
    paths = sorted(paths, key=len)[:: len(paths) // 30]
    numbers = sorted({value for path in paths for value in chain(*path)})[::3] + [0.05, 0.25, 0.75, -0.25, -0.04, 1 / 3]
    return {
        "paths": paths,
        "lines": [line_path(path) for path in paths],
        "arrows": [(arrow_path(head), shortened) for head, shortened in map(arrowhead, paths)],
        "numbers": [[value, number(value)] for value in numbers],
    }


def test_the_rule_still_gives_the_vectors(request: pytest.FixtureRequest) -> None:
    text = json.dumps(vectors(), separators=(",", ":")) + "\n"
    if request.config.getoption("--overwrite"):
        VECTORS.parent.mkdir(exist_ok=True)
        VECTORS.write_text(text, encoding="utf-8")
    assert text == VECTORS.read_text(encoding="utf-8")


def test_the_vectors_hold_every_part_of_the_rule() -> None:
    kept = json.loads(VECTORS.read_text(encoding="utf-8"))
    routes = [route for layout in kept["layouts"] for route in layout["routes"]]
    assert {route[6] for route in routes} == {"", "left", "right"}, "edges that enter from a side"
    assert {route[7] for route in routes} == {0, 1}, "loops"
    assert any(span > row for layout in kept["layouts"] for span, row in zip(layout["spans"], layout["rows"])), "spans"
    assert any(isinstance(box[2], list) for case in kept["cases"] for box in case["boxes"]), "open children"
    assert {case["title"] and case["title"][1] for case in kept["cases"]} == {None, 1, 2}, "titles of one and two lines"
    assert sum(_is_wrapped(case, kept["cases"]) for case in kept["cases"]) > 5, "boxes that are wrapped"
    assert VECTORS.stat().st_size < 400_000


def _is_wrapped(case: dict[str, Any], cases: list[dict[str, Any]]) -> bool:
    """Whether the same box without a limit is longer."""
    alike = [
        one for one in cases if not one["limit"] and (one["layout"], one["down"]) == (case["layout"], case["down"])
    ]
    return any(one["composed"]["box"][1] > case["composed"]["box"][1] for one in alike)
