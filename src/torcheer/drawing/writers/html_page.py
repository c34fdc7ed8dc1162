"""A drawing as one HTML file: every plan, the rule that composes them, and what is known of each item."""

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
from torcheer.drawing.layout.plans import Plan
from torcheer.drawing.looks.colour_scale import NAMES
from torcheer.drawing.looks.colours import DARK, FAMILIES, LIGHT, RAMP, STRANGE
from torcheer.drawing.looks.faces import draw_face
from torcheer.drawing.looks.font_metrics import FAMILY, font_face_css
from torcheer.drawing.looks.legend import legend_entries, marks_of
from torcheer.drawing.looks.svg_shapes import dark_rules, leaf_svg, title_places

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; font-src data:; img-src data: blob:"
)
Facts = tuple[str, str, list[tuple[str, str]]]  # of an item: its label, the address around it, pairs to show
WRITE = json.JSONEncoder(separators=(",", ":")).encode
SCRIPT = Path(__file__).parents[1] / "page" / "graph.js"


def write_html(
    picture: Picture, *, header: list[str], theme: str, colour_by: str, facts: Callable[[Item], Facts],
    overlays: dict[str, Any],
) -> str:  # fmt: skip
    """The whole page; nothing in it is loaded from elsewhere, and its policy forbids that too.

    `facts` tells of an item what stands beside the drawing, `overlays` holds a value per item for each way to colour.
    """
    data = page_data(picture, header=header, theme=theme, colour_by=colour_by)
    # What the page reads after it has shown itself: the overlays on one line, then a line for each item.
    details = "\n".join([WRITE(overlays), *(WRITE(facts(item)) for item in picture.scene.items)])
    title = escape(header[0] if header else "model")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<style id="font">{font_face_css()}</style><style>body{{font-family:{FAMILY}}}</style></head>\n'
        '<body><div id="torcheer"><p role="status">Opening the drawing …</p>'
        "<noscript>This drawing folds and unfolds with JavaScript, which is off here.</noscript></div>\n"
        f"{_packed('data', WRITE(data))}\n"
        f"{_packed('details', details)}\n"
        f"<script>{SCRIPT.read_text(encoding='utf-8')}</script></body></html>\n"
    )


def _packed(name: str, text: str) -> str:
    packed = b64encode(zlib.compress(text.encode(), 6)).decode()
    return f'<script type="application/octet-stream" id="{name}">{packed}</script>'


def page_data(picture: Picture, *, header: list[str], theme: str, colour_by: str) -> dict[str, Any]:
    """All that the page needs to show itself, as plain JSON; web/src/graph/payload.ts says what each field means."""
    scene = picture.scene
    tables = _Tables()
    plans = [tables.plan(plan) for plan in scene.plans]
    with_edge = ("gradient",) if any(GRADIENT in plan.flows for plan in scene.plans) else ("still",)
    return {
        "version": 1,
        "header": [line for line in header if not re.fullmatch(r"\d+ levels? shown", line)],  # it changes here
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
        "view": {"down": picture.down, "limit": picture.limit if picture.limit < 1e9 else None, "open": _open(picture)},
        "colour_by": colour_by,
        "colour_names": NAMES,
        "legend": {
            mark: legend_entries({mark, *with_edge} if mark == "edge" else {mark}, LIGHT, None)[:1]
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
    """Leaves and titles, each distinct one once."""

    def __init__(self) -> None:
        self.leaves: list[dict[str, Any]] = []
        self.titles: list[dict[str, Any]] = []
        self.known: dict[object, int] = {}

    def plan(self, plan: Plan) -> dict[str, Any]:
        parts = []
        for name, part in zip(plan.names, plan.parts):
            if isinstance(part, Plan):
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
        if key not in self.known:
            self.known[key] = len(self.leaves)
            self.leaves.append(
                {
                    "boxes": [box_data(draw_face(name, face, down).box) for down in (True, False)],
                    "svg": list(dict.fromkeys(leaf_svg(name, face, LIGHT, down) for down in (True, False))),
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
        return self.known[key]

    def _title(self, name: str, plan: Plan, down: bool) -> int:
        key = (name, plan.number, down)
        if key not in self.known:
            self.known[key] = len(self.titles)
            size = title_of(name, plan, down)
            lines = [
                [[round(x, 1), text, tone] for x, text, tone in title_places(words)]
                for words in title_lines(name, plan, down)
            ]
            self.titles.append({"width": size.width if size else 0, "lines": lines})
        return self.known[key]


def layout_data(layout: Layout) -> dict[str, Any]:
    """A layout as JSON."""
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
    """A box as JSON: width, height, entries, exits, gaps, notes."""
    return [box.width, box.height, box.entries, box.exits, box.entry_gap, box.exit_gap, box.entry_note, box.exit_note]


def _open(picture: Picture) -> list[str]:
    """The boxes that are open at first, by the positions that lead there: "3", "3/0/1"; "3*" a stack with one shown."""
    found: list[str] = []
    stack = [(picture.root, "")]
    while stack:
        view, path = stack.pop()
        for number, inner in enumerate(view.inside):
            if inner.open:
                here = f"{path}/{number}" if path else str(number)
                found.append(here + ("*" if inner.stack else ""))
                if inner.stack:
                    here += f"/{len(inner.stack.parts) - 1}"
                stack.append((inner, here))
    return sorted(found)
