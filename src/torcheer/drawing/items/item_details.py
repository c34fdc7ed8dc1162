"""Details of items for the HTML page: the text beside the drawing, and values to colour by."""

from __future__ import annotations

from math import isfinite, isnan
from typing import Any

from torcheer.drawing.items.item import Item, label_of
from torcheer.drawing.looks.colour_scale import WAYS, values_of
from torcheer.drawing.writers.html_page import ItemDetails
from torcheer.history import ModelHistory
from torcheer.terminal import human_bytes


def details_of(history: ModelHistory, item: Item) -> ItemDetails:
    """Return an item's label, the address around it, and (name, text) pairs to show."""
    facts = history.facts
    details: list[tuple[str, str]] = []
    if item.ops:
        op = facts.ops[item.ops[0]]
        details += [("function", op.function or op.name)] if op.kind == "op" else []
        details += [
            ("result", f"{meta.shape} {meta.dtype.removeprefix('torch.')} on {meta.device}, {human_bytes(meta.bytes)}")
            for meta in op.outputs[:6]
        ]
        details += [("passes", str(len(item.ops)))] if len(item.ops) > 1 else []
        details += (
            [("time", f"{sum(facts.ops[n].elapsed_secs for n in item.ops) * 1e6:,.0f} µs")] if op.kind == "op" else []
        )
        flops = facts.flops[op.index]
        details += [("flops", f"{flops * len(item.ops):,}")] if flops else []
        details += [("gradient", op.grad_fn)] if op.grad_fn else []
        details += (
            [("arguments", ", ".join(f"{'.'.join(map(str, where))}={value}" for where, value in op.settings)[:300])]
            if op.settings
            else []
        )
        details += [("source", f"{op.source.file}:{op.source.line} in {op.source.function}")] if op.source else []
        details += [("edited", op.edited)] if op.edited else []
        details += [("note", op.note)] if op.note else []
    for entry in item.stored[:12]:
        state = ("" if entry.trainable else ", frozen") if entry.kind == "parameter" else ""
        details.append((entry.kind, f"{entry.name} {entry.shape}{state}"))
    around = item.path[-1].address if item.path else ""
    return label_of(history, item) or item.name, around, details


def overlays_of(history: ModelHistory, items: list[Item]) -> dict[str, Any]:
    """Return a value per item, or None, for each way to colour that has any value."""
    overlays: dict[str, Any] = {}
    for way in WAYS[1:]:
        values = values_of(history, items, way)
        if any(value is not None for value in values):
            overlays[way] = [_as_json(value) for value in values]
    return overlays


def _as_json(value: float | None) -> float | str | None:
    """Convert a number for JSON.

    NaN and infinity, which JSON lacks, become names that the page knows.
    """
    if value is None or isfinite(value):
        return None if value is None else float(f"{value:.4g}")
    return "NaN" if isnan(value) else "Infinity"
