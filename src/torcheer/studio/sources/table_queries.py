"""Analyses of a column of tensors, for a page: similarity, principal components, clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from torcheer.errors import BadArgument
from torcheer.runlog.table import Table
from torcheer.runlog.tables.long_table import ShownTable
from torcheer.studio.connections.messages import AskAnalysis
from torcheer.terminal import did_you_mean

MOST_ROWS: Final = 200  # the newest: more cannot be distinguished in a picture
_MOST_NUMBERS: Final = 1_000_000  # of all rows together, to keep the server responsive


def analyse_column(tables: Mapping[str, ShownTable], request: AskAnalysis) -> dict[str, Any]:
    """Answer a request for an analysis.

    With `labels` of the newest rows whose numbers are all finite, the `total` of rows, and
    "similarity": `matrix`, the correlation of every two rows; "pca": `points` (x, y) and the share `explained` by each
    axis; "clusters": `order`, similar rows side by side, and `merges` (one, other, distance), as in `Table.cluster`.
    """
    rows = _named(tables, request.table, "table")
    column = _named(
        {column.name: column for column in rows.head.columns}, request.column, f"column of {request.table[:80]}"
    )
    if column.type != "tensor":
        raise BadArgument(f"{column.name} holds no tensors; similarity, axes and clusters are those of tensors")
    cells = rows.columns.get(column.name, [])
    numbers = max(1, int(np.prod(column.shape, dtype=np.int64)))
    most = min(MOST_ROWS, max(2, _MOST_NUMBERS // numbers))
    candidates = [
        (row, cell) for row in range(max(0, rows.count - most), rows.count) if (cell := _cell(cells, row)) is not None
    ]
    shape = candidates[-1][1].shape if candidates else ()
    comparable = [
        (row, cell) for row, cell in candidates if cell.shape == shape
    ]  # shaped as the newest: others cannot be compared
    if len(comparable) < 2:
        raise BadArgument(f"it takes two rows of finite numbers to compare, and {column.name} has {len(comparable)}")
    table = Table({column.name: np.stack([cell for _, cell in comparable])}, name=request.table)
    labels = [_label(rows, row) for row, _ in comparable]
    return {"labels": labels, "total": rows.count, **_ANALYSES[request.analysis](table, column.name)}


def _named(choices: Mapping[str, Any], name: str, kind: str) -> Any:
    if name not in choices:
        raise BadArgument(f"no {kind} is called {name[:200]!r} among {len(choices)}.{did_you_mean(name, choices)}")
    return choices[name]


def _cell(cells: list[Any], row: int) -> Any:
    """A tensor of finite numbers, or None."""
    try:
        cell = np.asarray(cells[row] if row < len(cells) else None, np.float64)
    except (TypeError, ValueError):  # text, or lists of different lengths
        return None
    return cell if cell.ndim and cell.size and np.isfinite(cell).all() else None


def _label(rows: ShownTable, row: int) -> str:
    """A row's label: its first text, else its x value, else its number."""
    texts = [column.name for column in rows.head.columns if column.type == "text"]
    for name in (*texts, rows.head.x):
        cells = rows.columns.get(name, [])
        if row < len(cells) and cells[row] not in (None, ""):
            return str(cells[row])[:200] if name in texts else f"{name} {cells[row]}"
    return f"row {row}"


def _similarity(table: Table, column: str) -> dict[str, Any]:
    return {"matrix": table.similarity(column).round(4).tolist()}


def _pca(table: Table, column: str) -> dict[str, Any]:
    axes = min(2, *table[column].reshape(len(table), -1).shape)
    components = table.pca(column, axes)
    points = np.zeros((len(table), 2))
    points[:, :axes] = components.scores
    return {"points": points.tolist(), "explained": components.explained.tolist()}


def _clusters(table: Table, column: str) -> dict[str, Any]:
    clusters = table.cluster(column)
    return {"order": clusters.order.tolist(), "merges": clusters.merges}


_ANALYSES: Final = {"similarity": _similarity, "pca": _pca, "clusters": _clusters}
