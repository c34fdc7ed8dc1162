"""Write a drawing as one HTML file: plans, the script that composes them, item details."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from torcheer.drawing.items.item import GRADIENT, Face, Item
from torcheer.drawing.layout.box_layout import Layout
from torcheer.drawing.layout.box_sizes import Box
from torcheer.drawing.layout.picture import METRICS, Picture, title_lines, title_of
from torcheer.drawing.layout.plans import BoxPlan
from torcheer.drawing.looks.colours import DARK, FAMILIES, LIGHT, RAMP, STRANGE
from torcheer.drawing.looks.faces import draw_face
from torcheer.drawing.looks.font_metrics import FAMILY, font_face_css
from torcheer.drawing.looks.legend import legend_entries, marks_of
from torcheer.drawing.looks.vector_shapes import leaf_shapes, title_places
from torcheer.drawing.writers.svg import dark_rules, shapes_svg

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; font-src data:; img-src data: blob:"
)
ItemDetails = tuple[
    str, str, list[tuple[str, str]]
]  # an item's label, the address around it, (name, text) pairs to show
WRITE = json.JSONEncoder(separators=(",", ":")).encode
SCRIPT = Path(__file__).parents[1] / "page" / "graph.js"


def write_html(
    picture: Picture, *, header: list[str], theme: str, colour_by: str, time_name: str,
    details_of: Callable[[Item], ItemDetails], overlays: dict[str, Any],
) -> str:  # fmt: skip
    """Return the page, which loads nothing from elsewhere; its security policy forbids it.

    `details_of` returns an item's details to show beside the drawing; `overlays` holds the values to colour by.
    """
    data = page_data(picture, header=header, theme=theme, colour_by=colour_by, time_name=time_name)
    details = details_text(picture, details_of, overlays)
    title = escape(header[0] if header else "model")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<style id="font">{font_face_css()}</style><style>body{{font-family:{FAMILY}}}</style></head>\n'
        '<body><div id="torcheer"><p role="status">Opening the drawing …</p>'
        "<noscript>This drawing folds and unfolds with JavaScript, which is off here.</noscript></div>\n"
        f"{_compressed_script('data', WRITE(data))}\n"
        f"{_compressed_script('details', details)}\n"
        f"<script>{SCRIPT.read_text(encoding='utf-8')}</script></body></html>\n"
    )


def details_text(picture: Picture, details_of: Callable[[Item], ItemDetails], overlays: dict[str, Any]) -> str:
    """Return what a page reads after its first rendering: the overlays on one line, then a line for each item."""
    return "\n".join([WRITE(overlays), *(WRITE(details_of(item)) for item in picture.scene.items)])


def _compressed_script(name: str, text: str) -> str:
    payload = b64encode(zlib.compress(text.encode(), 6)).decode()
    return f'<script type="application/octet-stream" id="{name}">{payload}</script>'


def page_data(picture: Picture, *, header: list[str], theme: str, colour_by: str, time_name: str) -> dict[str, Any]:
    """Return the page's data as JSON; web/src/graph/payload.ts has the schema."""
    scene = picture.scene
    tables = _Tables()
    plans = [tables.plan(plan) for plan in scene.plans]
    with_edge = ("gradient",) if any(GRADIENT in plan.flows for plan in scene.plans) else ("still",)
    return {
        "version": 1,
        "header": [
            line for line in header if not re.fullmatch(r"\d+ levels? shown", line)
        ],  # on the page the reader changes it
        "theme": theme,
        "colours": {
            "light": LIGHT._asdict(),
            "dark": DARK._asdict(),
            "dark_rules": dark_rules(".dark", backward=True),
            "ramp": RAMP,
            "strange": STRANGE,
        },
        "metrics": METRICS._asdict(),
        "flowing": scene.flowing,
        "wrap_cost": scene.wrap_cost,
        "root": scene.root.number,
        "plans": plans,
        "leaves": tables.leaves,
        "titles": tables.titles,
        "view": {
            "down": picture.down,
            "limit": picture.limit if picture.limit < 1e9 else None,
            "open": _open_paths(picture),
        },
        "colour_by": colour_by,
        "time_name": time_name,
        "legend": {
            mark: [
                (shapes_svg(swatch), words)
                for swatch, words in legend_entries({mark, *with_edge} if mark == "edge" else {mark}, LIGHT, None)[:1]
            ]
            for mark in (*FAMILIES, *OTHER_MARKS)
        },
    }


OTHER_MARKS = (
    "edge",
    "still",
    "loop",
    "parameter",
    "buffer",
    "frozen",
    "stack",
    "shared",
    "edited",
    "stop",
    "folded",
    "unseen",
    "beside",
    "gradient",
    "kept",
    "rule",
    "sum",
    "borrowed",
)


class _Tables:
    """Tables of the distinct leaves and titles."""

    def __init__(self) -> None:
        self.leaves: list[dict[str, Any]] = []
        self.titles: list[dict[str, Any]] = []
        self.index_by_key: dict[object, int] = {}

    def plan(self, plan: BoxPlan) -> dict[str, Any]:
        parts = []
        for name, part in zip(plan.names, plan.parts):
            if isinstance(part, BoxPlan):
                entry = [
                    self._leaf(name, part.face),
                    part.number,
                    self._title(name, part, True),
                    self._title(name, part, False),
                ]
            else:
                entry = [self._leaf(name, part)]
            parts.append(entry)
        return {
            "sort": plan.sort,
            "kind": plan.face.kind,
            "times": plan.face.times,
            "names": plan.names,
            "parts": parts,
            "first": plan.first,
            "size": plan.size,
            "layout": layout_data(plan.layout),
            "flows": plan.flows,
        }

    def _leaf(self, name: str, face: Face) -> int:
        key = (name, face)
        if key not in self.index_by_key:
            self.index_by_key[key] = len(self.leaves)
            self.leaves.append(
                {
                    "boxes": [box_data(draw_face(name, face, down).box) for down in (True, False)],
                    "svg": list(
                        dict.fromkeys(shapes_svg(leaf_shapes(name, face, LIGHT, down)) for down in (True, False))
                    ),
                    "kind": face.kind,
                    "body": face.body,
                    "look": face.look,
                    "family": face.family,
                    "badge": face.badge,
                    "entries": face.entries,
                    "exits": face.exits,
                    "marks": list(filter(None, (face.family, *marks_of(face)))),
                }
            )
        return self.index_by_key[key]

    def _title(self, name: str, plan: BoxPlan, down: bool) -> int:
        key = (name, plan.number, down)
        if key not in self.index_by_key:
            self.index_by_key[key] = len(self.titles)
            size = title_of(name, plan, down)
            lines = [
                [[round(x, 1), text, tone] for x, text, tone in title_places(words)]
                for words in title_lines(name, plan, down)
            ]
            self.titles.append({"width": size.width if size else 0, "lines": lines})
        return self.index_by_key[key]


def layout_data(layout: Layout) -> dict[str, Any]:
    """Return a layout as JSON."""
    routes = [
        [route.source, route.exit, route.target, route.entry, route.net, route.lane, route.side, int(route.back)]
        for route in layout.routes
    ]
    fields = (
        "entries",
        "children",
        "exits",
        "rows",
        "columns",
        "anchors",
        "leads",
        "spans",
        "row_count",
        "column_count",
        "cuts",
    )
    return {field: getattr(layout, field) for field in fields} | {"routes": routes}


def box_data(box: Box) -> list[Any]:
    """Return a box as JSON: width, height, entries, exits, gaps, notes."""
    return [box.width, box.height, box.entries, box.exits, box.entry_gap, box.exit_gap, box.entry_note, box.exit_note]


def _open_paths(picture: Picture) -> list[str]:
    """Return the initially open boxes as paths: "3", "3/0/1"; "3*" a stack with one shown."""
    paths: list[str] = []
    stack = [(picture.root, "")]
    while stack:
        view, path = stack.pop()
        for number, inner in enumerate(view.inside):
            if inner.open:
                inner_path = f"{path}/{number}" if path else str(number)
                paths.append(inner_path + ("*" if inner.stack else ""))
                if inner.stack:
                    inner_path += f"/{len(inner.stack.parts) - 1}"
                stack.append((inner, inner_path))
    return sorted(paths)
