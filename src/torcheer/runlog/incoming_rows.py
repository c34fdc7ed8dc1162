"""Tables as they come from a host: heads, rows in pieces, behind the rows that an earlier part of the run has left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torcheer.errors import BadArgument
from torcheer.runlog.table_records import TableHead, TableRows


class Incoming:
    """Puts what a host says into tables; rows of the past stay where their x is less than the host's first."""

    def __init__(self, tables: dict[str, TableRows]) -> None:
        self.tables = tables
        self._before: dict[str, int] = {}  # rows of the past, of each table that this host has announced
        self._undecided: set[str] = set()  # of which no row has come: how much of the past stays is not known

    def again(self) -> None:
        """Another host speaks: what there is now is the past."""
        self._before, self._undecided = {}, set()

    def head(self, head: TableHead) -> None:
        """A table begins, or has other columns from now on; its rows come again."""
        known = self.tables.get(head.name)
        if head.name not in self._before:
            self._before[head.name] = known.count if known else 0
            self._undecided.add(head.name)
        before = self._before[head.name]
        old = {} if known is None or not before else known.columns
        names = [column.name for column in head.columns]
        columns = {name: old.get(name, [])[:before] or [None] * before for name in dict.fromkeys([*names, *old])}
        if known is not None and before:
            more = (column for column in known.head.columns if column.name not in names)
            head = replace(head, columns=(*head.columns, *more))
        self.tables[head.name] = TableRows(head, columns, before, known.anew + 1 if known else 0)

    def rows(self, name: str, first: int, columns: Mapping[str, Any]) -> None:
        """Rows of it; none from 0 on: a new run begins, and the past is over."""
        table = self.tables.get(name)
        if table is None or name not in self._before:
            raise BadArgument(f"rows of {name!r}, which was not announced")
        if type(first) is not int or first < 0 or not isinstance(columns, dict):
            raise BadArgument(f"rows from {first!r} on cannot be put into {name!r}")
        lists = {str(column): cells for column, cells in columns.items() if isinstance(cells, list)}
        if not any(lists.values()):
            self._before[name] = self._before[name] if first else 0
        elif name in self._undecided:
            self._before[name] = _cut(table, lists)
        self._undecided.discard(name)
        put(table, self._before[name] + first, lists)


def _cut(table: TableRows, lists: Mapping[str, list[Any]]) -> int:
    """Leave of the past what lies before the first row that comes; nothing where that cannot be told."""
    start = (lists.get(table.head.x) or [None])[0]
    past = table.columns.get(table.head.x, [None] * table.count)
    kept = [row for row in range(table.count) if _less(past[row], start)]
    if len(kept) < table.count:
        for name, cells in table.columns.items():
            table.columns[name] = [cells[row] for row in kept]
        table.count, table.anew = len(kept), table.anew + 1
    return len(kept)


def _less(cell: Any, start: Any) -> bool:
    return isinstance(cell, int | float) and isinstance(start, int | float) and cell < start


def put(table: TableRows, first: int, lists: Mapping[str, list[Any]]) -> None:
    """Rows from number `first` on; what stood there goes."""
    if first < table.count or first == 0:
        for cells in table.columns.values():
            del cells[first:]
        table.count, table.anew = min(first, table.count), table.anew + 1
    count = max(map(len, lists.values()), default=0)
    for name in lists.keys() - table.columns.keys():
        table.columns[name] = [None] * table.count
    for name, cells in table.columns.items():
        came = lists.get(name, [])
        cells += came
        cells += [None] * (count - len(came))
    table.count += count
