"""The tables of a report: the run's own, folded until they fit, and exact statistics of the values shown."""

from __future__ import annotations

from typing import Final

import numpy as np

from torcheer.control.loop_messages import Moment
from torcheer.runlog.table_records import Column, TableHead, TableRows
from torcheer.runlog.tables.long_table import LongTable, ShownTable
from torcheer.studio.report.report_source import ReportSource
from torcheer.terminal import plural
from torcheer.vocabulary.array_statistics import TABLE, facts_of

_ROWS: Final = (100_000, 20_000, 8000, 3000, 1000, 400, 150, 50)
_CELL_BYTES: Final = 6  # of a number, compressed: about
_MOST_STATISTICS: Final = 3000  # rows


def fold_tables(source: ReportSource, room_bytes: int) -> list[str]:
    """Fold the tables until they take about `room_bytes`; returns sentences about what that leaves out."""
    before = {name: table.count for name, table in source.tables.items()}
    for rows in _ROWS:
        source.tables = {name: _folded(table, rows) for name, table in source.tables.items()}
        if sum(table.count * _numbers_a_row(table) for table in source.tables.values()) * _CELL_BYTES <= room_bytes:
            break
    folded = [name for name, table in source.tables.items() if table.count < before[name]]
    if not folded:
        return []
    return [
        f"Rows of {plural(len(folded), 'table')}: at most about {rows:,} of each are kept, older ones as pairs of "
        f"their smallest and largest values."
    ]


def _folded(table: ShownTable, rows: int) -> ShownTable:
    if table.count <= rows:
        return table
    if isinstance(table, LongTable):
        table.limit(rows)
        return table
    columns = {name: list(cells[table.count - rows :]) for name, cells in table.columns.items()}
    return TableRows(table.head, columns, rows)


def _numbers_a_row(table: ShownTable) -> int:
    return sum(max(1, int(np.prod(column.shape, dtype=np.int64))) for column in table.head.columns)


# -- statistics of layers ----------------------------------------------------------------------------------------------


def layer_statistics(source: ReportSource, moments: list[Moment]) -> TableRows | None:
    """Exact statistics of each layer's values, all items of the batch together; the newest moments of very many."""
    if source.net is None:
        return None
    names = [placed.layer.name for placed in source.net.layers]
    variables = [variable.name for variable in source.net.variables]
    most = max(1, _MOST_STATISTICS // max(1, len(names) * len(variables)))
    rows = [
        {"Step": moment.step, "Layer": name, "Variable": variable, **facts_of(value.array)}
        for moment in moments[-most:]
        for variable in variables
        for name in names
        if (value := source.store.value(moment.id, name, variable)) is not None
    ][:_MOST_STATISTICS]
    if not rows:
        return None
    keys = {"Step": "Step", "Layer": "Layer", "Variable": "Variable"} | {row.title: row.name for row in TABLE}
    columns = (
        Column("Step", "int", plotted=False), Column("Layer", "text", plotted=False),
        Column("Variable", "text", plotted=False),
        *(Column(row.title, "int" if row.is_count else "float", plotted=row.name == "mean") for row in TABLE),
    )  # fmt: skip
    head = TableHead("layer_statistics", "Statistics of layers", x="Step", legend="Layer", columns=columns)
    return TableRows(head, {title: [row[name] for row in rows] for title, name in keys.items()}, len(rows))
