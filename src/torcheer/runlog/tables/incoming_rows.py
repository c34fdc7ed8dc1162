"""Assembles tables from a host's messages: heads, then rows in pieces.

They follow the rows stored by an earlier part of the run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from torcheer.errors import BadArgument
from torcheer.runlog.table_records import TableHead, TableRows
from torcheer.runlog.tables.long_table import ShownTable


class IncomingTables:
    """Applies a host's messages to tables.

    Stored rows stay where their x is less than the host's first.
    """

    def __init__(self, tables: dict[str, ShownTable]) -> None:
        self.tables = tables
        self._before: dict[str, int] = {}  # stored rows, of each table that this host has announced
        self._undecided: set[str] = set()  # tables without a row yet: how many stored rows stay is open

    def start_new_host(self) -> None:
        """Treat all current rows as stored ones, for the messages of another host."""
        self._before, self._undecided = {}, set()

    @property
    def announced(self) -> Collection[str]:
        """The tables of this host."""
        return self._before.keys()

    def head(self, head: TableHead) -> None:
        """Apply a table's new head; its rows will be sent again."""
        table = self.tables.get(head.name)
        if head.name not in self._before:
            self._before[head.name] = table.count if table else 0
            self._undecided.add(head.name)
        before = self._before[head.name]
        old: Mapping[str, Any] = {} if table is None or not before else table.columns
        names = [column.name for column in head.columns]
        columns = {name: old.get(name, [])[:before] or [None] * before for name in dict.fromkeys([*names, *old])}
        if table is not None and before:
            more = (column for column in table.head.columns if column.name not in names)
            head = replace(head, columns=(*head.columns, *more))
        self.tables[head.name] = TableRows(head, columns, before, table.restarts + 1 if table else 0)

    def rows(self, name: str, first: int, columns: Mapping[str, Any]) -> None:
        """Apply rows; an empty message with `first` 0 begins a new run and drops the stored rows."""
        table = self.tables.get(name)
        if not isinstance(table, TableRows) or name not in self._before:
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
    """Keep the stored rows before the first incoming one, none where x cannot be compared.

    Return their count.
    """
    start = (lists.get(table.head.x) or [None])[0]
    stored = table.columns.get(table.head.x, [None] * table.count)
    rows_before = [row for row in range(table.count) if _less(stored[row], start)]
    if len(rows_before) < table.count:
        for name, cells in table.columns.items():
            table.columns[name] = [cells[row] for row in rows_before]
        table.count, table.restarts = len(rows_before), table.restarts + 1
    return len(rows_before)


def _less(cell: Any, start: Any) -> bool:
    return isinstance(cell, int | float) and isinstance(start, int | float) and cell < start


def put(table: TableRows, first: int, lists: Mapping[str, list[Any]]) -> None:
    """Write rows from number `first` on, replacing the ones there."""
    if first < table.count or first == 0:
        for cells in table.columns.values():
            del cells[first:]
        table.count, table.restarts = min(first, table.count), table.restarts + 1
    count = max(map(len, lists.values()), default=0)
    for name in lists.keys() - table.columns.keys():
        table.columns[name] = [None] * table.count
    for name, cells in table.columns.items():
        incoming = lists.get(name, [])
        cells += incoming
        cells += [None] * (count - len(incoming))
    table.count += count
