"""Assembles tables from a host's messages: heads, then rows in pieces.

They follow the rows stored by an earlier part of the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from torcheer.errors import BadArgument
from torcheer.runlog.log_reader import column_for
from torcheer.runlog.table_records import TableHead
from torcheer.runlog.tables.long_table import LongTable, ShownTable

_MOST_CELLS: Final = 4_000_000  # of a table, tensors included


class IncomingTables:
    """Applies a host's messages to tables, which are bounded however much it sends.

    Stored rows stay where their x is less than the host's first.
    """

    def __init__(self, tables: dict[str, ShownTable]) -> None:
        self.tables = tables
        self._stored: dict[str, ShownTable | None] = {}  # what was there, of each table that this host has announced
        self._received: dict[str, int] = {}  # rows of the host; no number until its first rows

    def start_new_host(self) -> None:
        """Treat all current rows as stored ones, for the messages of another host."""
        self._stored, self._received = {}, {}

    @property
    def announced(self) -> Collection[str]:
        """The tables of this host."""
        return self._stored.keys()

    def head(self, head: TableHead) -> None:
        """Apply a table's new head; its rows will be sent again."""
        before = self.tables.get(head.name)
        if head.name not in self._stored:
            self._stored[head.name] = before
        table = LongTable(head, column_for, columns=[column.name for column in head.columns])
        table.restarts = before.restarts + 1 if before is not None else 0
        self.tables[head.name] = table
        self._received.pop(head.name, None)
        stored = self._stored[head.name]
        if stored is not None:
            table.put(_rows(stored.columns, 0, stored.count))

    def rows(self, name: str, first: int, columns: Mapping[str, Any]) -> None:
        """Apply rows; an empty message with `first` 0 begins a new run and drops the stored rows."""
        table = self.tables.get(name)
        if not isinstance(table, LongTable) or name not in self._stored:
            raise BadArgument(f"rows of {name!r}, which was not announced")
        if type(first) is not int or not isinstance(columns, dict) or first not in (0, self._received.get(name, 0)):
            raise BadArgument(f"rows from {first!r} on cannot be put into {name!r}")
        lists = {str(column): cells for column, cells in columns.items() if isinstance(cells, list)}
        count = max(map(len, lists.values()), default=0)
        if not count and not first:
            self._stored[name] = None
        if not first:
            self._begin(table, name, lists)
        table.put(_rows(lists, 0, count))
        table.limit(_MOST_CELLS // max(table.numbers_a_row, 1))
        self._received[name] = first + count

    def _begin(self, table: LongTable, name: str, lists: Mapping[str, list[Any]]) -> None:
        """Keep the stored rows before the first incoming one, none where x cannot be compared."""
        x, stored = table.head.x, self._stored[name]
        start = (lists.get(x) or [None])[0]
        if not table.count:
            return
        table.clear()
        if stored is not None:
            rows = _rows(stored.columns, 0, stored.count)
            table.put((step, cells) for step, cells in rows if _less(cells.get(x), start))


def _rows(columns: Mapping[str, Any], start: int, end: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield rows by column as cells; those that a row does not have are left out."""
    parts = {name: cells[start:end] for name, cells in columns.items()}
    for place in range(end - start):
        yield place, {name: cells[place] if place < len(cells) else None for name, cells in parts.items()}


def _less(cell: Any, start: Any) -> bool:
    return isinstance(cell, int | float) and isinstance(start, int | float) and cell < start
