"""A history as a small table for notebooks: no scripts, nothing loaded, the page's own colours."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from torcheer.history.sizes import human_bytes

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory

ROWS = 200
CELL = "padding:1px 10px 1px 0;text-align:left;background:none;color:inherit"
HEADS = ("", "layer", "shape", "size", "params", "module", "time")


def describe(history: ModelHistory) -> str:
    """The head of `print(history)`, then one row per layer."""
    head, _, _ = history.text().partition("\n\tModule Hierarchy:")
    layers = history.facts.layers.all
    rows = [_row(_cells(history, position), "td") for position in range(min(len(layers), ROWS))]
    if len(layers) > ROWS:
        rows.append(_row((f"… {len(layers) - ROWS} more …",), "td"))
    return (
        '<div style="font-family:monospace;font-size:90%;color:inherit">'
        f'<pre style="background:none;color:inherit">{escape(head)}</pre>'
        f'<details open><summary>Layers</summary><table style="border-collapse:collapse;color:inherit">'
        f"{_row(HEADS, 'th')}{''.join(rows)}</table></details></div>"
    )


def _cells(history: ModelHistory, position: int) -> tuple[str, ...]:
    layer = history.facts.layers.all[position]
    op = history.facts.ops[layer.ops[0]]
    parameters = sum(stored.count for stored in op.stored if stored.kind == "parameter")
    return (
        str(op.index),
        layer.label + (f" ×{len(layer.ops)}" if len(layer.ops) > 1 else ""),
        ", ".join(str(meta.shape) for meta in op.outputs),
        human_bytes(sum(meta.bytes for meta in op.outputs)),
        f"{parameters:,}" if parameters else "",
        op.modules[-1].address if op.modules else "",
        f"{op.elapsed_secs * 1e6:,.0f} µs",
    )


def _row(cells: tuple[str, ...], tag: str) -> str:
    inner = "".join(f'<{tag} style="{CELL}">{escape(cell)}</{tag}>' for cell in cells)
    return f"<tr>{inner}</tr>"
