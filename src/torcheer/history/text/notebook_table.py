"""The notebook table of a history: no scripts, nothing loaded, the page's own colours."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from torcheer.terminal import human_bytes, human_secs

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory

ROWS = 200
CELL = "padding:2px 14px 2px 0;background:none;color:inherit;border-bottom:1px solid rgba(128,128,128,.25)"
HEADS = ("", "layer", "shape", "size", "params", "module")  # and what the time is
TEXTS = {"layer", "shape", "module"}  # left-aligned columns


def describe(history: ModelHistory) -> str:
    """Return HTML: the head of `print(history)`, then one row per layer."""
    head = history.text().partition("\n\tModule Hierarchy:")[0].expandtabs(2)
    layers, heads = history.facts.layers.all, (*HEADS, history.facts.time_name())
    rows = [_row(_cells(history, position), "td", heads) for position in range(min(len(layers), ROWS))]
    if len(layers) > ROWS:
        rows.append(_row((f"… {len(layers) - ROWS} more …",), "td", heads))
    return (
        '<div style="font-family:monospace;font-size:90%;color:inherit">'
        f'<pre style="background:none;color:inherit">{escape(head)}</pre>'
        f'<details open><summary>Layers</summary><table style="border-collapse:collapse;color:inherit">'
        f"{_row(heads, 'th', heads)}{''.join(rows)}</table></details></div>"
    )


def _cells(history: ModelHistory, position: int) -> tuple[str, ...]:
    layer = history.facts.layers.all[position]
    op = history.facts.ops[layer.ops[0]]
    edits = dict.fromkeys(history.facts.ops[index].edited for index in layer.ops if history.facts.ops[index].edited)
    parameters = sum(stored.count for stored in op.stored if stored.kind == "parameter")
    return (
        str(op.index),
        layer.label + (f" ×{len(layer.ops)}" if len(layer.ops) > 1 else "") + "".join(f" ({edit})" for edit in edits),
        ", ".join(str(meta.shape) for meta in op.outputs),
        human_bytes(sum(meta.bytes for meta in op.outputs)),
        f"{parameters:,}" if parameters else "",
        op.modules[-1].address if op.modules else "",
        human_secs(op.elapsed_secs) if op.elapsed_secs else "",
    )


def _row(cells: tuple[str, ...], tag: str, heads: tuple[str, ...]) -> str:
    sides = ["left" if head in TEXTS else "right" for head in heads]
    inner = "".join(
        f'<{tag} style="{CELL};text-align:{side}">{escape(cell)}</{tag}>'
        for cell, side in zip(cells, sides, strict=False)
    )
    return f"<tr>{inner}</tr>"
