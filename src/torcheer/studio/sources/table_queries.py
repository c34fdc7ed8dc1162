"""What a column of tensors says, for a page: which rows are alike, along which axes they differ, which form groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from torcheer.errors import BadArgument
from torcheer.runlog.table import Table
from torcheer.runlog.table_records import TableRows
from torcheer.studio.connections.message_parsing import meant
from torcheer.studio.connections.messages import AskAnalysis

MOST_ROWS: Final = 200  # the newest: more cannot be told apart in a picture
_MOST_NUMBERS: Final = 1_000_000  # of all rows together; the server has other things to do


def analysed(tables: Mapping[str, TableRows], asked: AskAnalysis) -> dict[str, Any]:
    """The answer: `labels` of the newest rows whose numbers are all finite, the `total` of rows, and

    "similarity": `matrix`, the correlation of every two rows; "pca": `points` (x, y) and the share `explained` by each
    axis; "clusters": `order`, those alike side by side, and `merges` (one, other, distance), as `Table.cluster` says.
    """
    rowed = _named(tables, asked.table, "table")
    column = _named({one.name: one for one in rowed.head.columns}, asked.column, f"column of {asked.table[:80]}")
    if column.type != "tensor":
        raise BadArgument(f"{column.name} holds no tensors; similarity, axes and clusters are those of tensors")
    cells = rowed.columns.get(column.name, [])
    numbers = max(1, int(np.prod(column.shape, dtype=np.int64)))
    most = min(MOST_ROWS, max(2, _MOST_NUMBERS // numbers))
    found = [
        (row, cell) for row in range(max(0, rowed.count - most), rowed.count) if (cell := _cell(cells, row)) is not None
    ]
    shape = found[-1][1].shape if found else ()
    kept = [(row, cell) for row, cell in found if cell.shape == shape]  # as the newest: others cannot be compared
    if len(kept) < 2:
        raise BadArgument(f"it takes two rows of finite numbers to compare, and {column.name} has {len(kept)}")
    table = Table({column.name: np.stack([cell for _, cell in kept])}, name=asked.table)
    labels = [_label(rowed, row) for row, _ in kept]
    return {"labels": labels, "total": rowed.count, **_MAKERS[asked.analysis](table, column.name)}


def _named(known: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in known:
        raise BadArgument(f"no {what} is called {name[:200]!r} among {len(known)}.{meant(name, known)}")
    return known[name]


def _cell(cells: list[Any], row: int) -> Any:
    """A tensor of finite numbers, or None."""
    try:
        cell = np.asarray(cells[row] if row < len(cells) else None, np.float64)
    except (TypeError, ValueError):  # text, or lists of different lengths
        return None
    return cell if cell.ndim and cell.size and np.isfinite(cell).all() else None


def _label(rowed: TableRows, row: int) -> str:
    """What a row is called: its first text, else where it lies on the x axis, else its number."""
    texts = [one.name for one in rowed.head.columns if one.type == "text"]
    for name in (*texts, rowed.head.x):
        cells = rowed.columns.get(name, [])
        if row < len(cells) and cells[row] not in (None, ""):
            return str(cells[row])[:200] if name in texts else f"{name} {cells[row]}"
    return f"row {row}"


def _similarity(table: Table, column: str) -> dict[str, Any]:
    return {"matrix": table.similarity(column).round(4).tolist()}


def _pca(table: Table, column: str) -> dict[str, Any]:
    axes = min(2, *table[column].reshape(len(table), -1).shape)
    found = table.pca(column, axes)
    points = np.zeros((len(table), 2))
    points[:, :axes] = found.scores
    return {"points": points.tolist(), "explained": found.explained.tolist()}


def _clusters(table: Table, column: str) -> dict[str, Any]:
    found = table.cluster(column)
    return {"order": found.order.tolist(), "merges": found.merges}


_MAKERS: Final = {"similarity": _similarity, "pca": _pca, "clusters": _clusters}
