"""The rows that a host keeps in memory, for viewers that connect late."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Final

import numpy as np

from torcheer.runlog.table_records import Column, TableHead

MOST_ROWS: Final = 100_000  # of a table; then its older half is thinned
MOST_NUMBERS: Final = 4_000_000  # of a table, tensors included
_MOST_ARRIVED: Final = 500  # buffered rows
_MOST_CELL: Final = 65_536  # numbers of a tensor in a cell
_LARGE: Final = 2**63
_PLAIN: Final = frozenset((int, float, str, bool, type(None)))  # converted to cells later, in batches
_MESSAGE_NUMBERS: Final = 20_000  # in one message
_TITLES: Final = {"train_epoch": "Train epochs", "test_trial": "Test trials", "test_epoch": "Test epochs",
                  "run": "Runs", "train_step": "Train steps", "patterns": "Patterns"}  # fmt: skip


class HostTables:
    """All tables of a host. Any thread may write and read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[str, _Table] = {}
        self._arrived: deque[tuple[str, dict[str, Any]]] = deque()  # rows buffered until the next `_settle`

    def head(self, head: TableHead) -> None:
        """Create a table, or replace its head; its rows stay."""
        with self._lock:
            self._settle()
            table = self._tables.get(head.name)
            if table is None:
                self._tables[head.name] = _Table(head)
            elif table.head != head:
                table.replace_head(head)

    def row(self, name: str, cells: Mapping[str, Any]) -> None:
        """Add a row; a missing table or column is created from its cells."""
        row = dict(cells)
        for column, value in row.items():
            if type(value) not in _PLAIN:  # it may be mutated before it is sent
                row[column] = cell_of(value)
        self._arrived.append((name, row))
        if len(self._arrived) >= _MOST_ARRIVED:  # a batch costs half as much as single rows, in a training step
            with self._lock:
                self._settle()

    def _settle(self) -> None:
        """Move the buffered rows into their tables."""
        while self._arrived:
            name, row = self._arrived.popleft()
            cells = {str(column): cell_of(value) for column, value in row.items()}
            table = self._tables.get(name)
            if table is None:
                x = next((column for column in ("Epoch", "Step", "Trial", "epoch", "step") if column in cells), "")
                table = self._tables[name] = _Table(TableHead(name, _TITLES.get(name, name.replace("_", " ")), x=x))
            table.add(cells)

    def clear(self, name: str) -> None:
        """Delete the rows of a table."""
        with self._lock:
            self._settle()
            if (table := self._tables.get(name)) is not None:
                table.clear()

    def next_messages(self, sent: dict[str, SentRows]) -> list[dict[str, Any]]:
        """The next messages for a viewer with this state (updated); a long table is sent in pieces."""
        with self._lock:
            self._settle()
            return [message for name, table in self._tables.items() for message in table.next_messages(sent, name)]

    def columns(self) -> dict[str, tuple[TableHead, dict[str, list[Any]]]]:
        """Every table by name: its head and the cells of each column, None where a row has none."""
        with self._lock:
            self._settle()
            return {name: (table.head, table.columns()) for name, table in self._tables.items()}

    def has_updates(self, sent: dict[str, SentRows]) -> bool:
        """True if there are messages for a viewer with this state."""
        with self._lock:
            self._settle()
            return any(table.differs(sent.get(name)) for name, table in self._tables.items())


class SentRows:
    """How much of a table was sent to a viewer."""

    __slots__ = ("first", "heads", "next_row", "starts")

    def __init__(self, heads: int, starts: int) -> None:
        self.heads, self.starts = heads, starts
        self.next_row = 0  # number of the first row that was not sent
        self.first = 0  # the viewer's index of its next row


class _Table:
    def __init__(self, head: TableHead) -> None:
        self.head, self.heads, self.starts = head, 0, 0  # heads: changes of the head; starts: restarts of the rows
        self._names = {column.name: column for column in head.columns}
        self._rows: list[tuple[int, dict[str, Any]]] = []  # with their serial numbers
        self._count = self._numbers = 0
        self._every = 1  # stride of the older rows that are kept

    def replace_head(self, head: TableHead) -> None:
        self.head, self.heads, self._names = head, self.heads + 1, {column.name: column for column in head.columns}

    def add(self, cells: dict[str, Any]) -> None:
        if not self._names.keys() >= cells.keys():
            new = [column_of(name, value) for name, value in cells.items() if name not in self._names]
            self.replace_head(replace(self.head, columns=(*self.head.columns, *new)))
        self._rows.append((self._count, cells))
        self._count += 1
        self._numbers += _numbers(cells)
        if len(self._rows) > MOST_ROWS or self._numbers > MOST_NUMBERS:
            self._thin()

    def _thin(self) -> None:
        """Keep every n-th row of the older half: evenly spaced, however often this runs."""
        half = len(self._rows) // 2
        old, new = self._rows[:half], self._rows[half:]
        old = [row for row in old if row[0] % self._every == 0]
        while len(old) > half // 2:
            self._every *= 2
            old = [row for row in old if row[0] % self._every == 0]
        self._rows = old + new
        self._numbers = sum(_numbers(cells) for _, cells in self._rows)

    def clear(self) -> None:
        self._rows.clear()
        self._numbers, self._every, self.starts = 0, 1, self.starts + 1

    def columns(self) -> dict[str, list[Any]]:
        return {name: [cells.get(name) for _, cells in self._rows] for name in self._names}

    def differs(self, sent: SentRows | None) -> bool:
        if sent is None or sent.heads != self.heads or sent.starts != self.starts:
            return True
        return bool(self._rows) and self._rows[-1][0] >= sent.next_row

    def next_messages(self, all_sent: dict[str, SentRows], name: str) -> list[dict[str, Any]]:
        sent = all_sent.get(name)
        if sent is not None and not self.differs(sent):
            return []
        messages: list[dict[str, Any]] = []
        if sent is None or sent.heads != self.heads:
            sent = all_sent[name] = SentRows(self.heads, self.starts)  # after a new head, all rows are sent again
            messages.append({"kind": "table", "table": self.head})
        elif sent.starts != self.starts:
            sent.starts, sent.first, sent.next_row = self.starts, 0, 0
            messages.append({"kind": "rows", "table": name, "first": 0, "columns": {}})
        if rows := self._next_rows(sent.next_row):
            columns = {column.name: [cells.get(column.name) for _, cells in rows] for column in self.head.columns}
            messages.append({"kind": "rows", "table": name, "first": sent.first, "columns": columns})
            sent.first, sent.next_row = sent.first + len(rows), rows[-1][0] + 1
        return messages

    def _next_rows(self, start: int) -> list[tuple[int, dict[str, Any]]]:
        """The rows from serial number `start` on, at most one message's worth."""
        low, high = 0, len(self._rows)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._rows[middle][0] < start else (low, middle)
        end, numbers = low, 0
        while end < len(self._rows) and (numbers < _MESSAGE_NUMBERS or end == low):
            numbers, end = numbers + _numbers(self._rows[end][1]), end + 1
        return self._rows[low:end]


def _numbers(cells: dict[str, Any]) -> int:
    return len(cells) + sum(_count(value) for value in cells.values() if isinstance(value, list | str))


def _count(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_count, value)) if value and isinstance(value[0], list) else len(value)
    return 1 + len(value) // 8 if isinstance(value, str) else 1


def cell_of(value: Any) -> Any:
    """A cell's value as JSON, with Python's NaN and Infinity, can represent it."""
    kind = type(value)
    if kind is int and -_LARGE < value < _LARGE:
        return value
    if kind is float:  # the common case
        return value
    if value is None or kind is bool or isinstance(value, str):
        return value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    if isinstance(value, list | tuple | np.ndarray | np.generic):
        return _array_cell(np.asarray(value))
    if isinstance(value, Integral):
        return int(value) if abs(int(value)) < _LARGE else None
    if isinstance(value, Real) or hasattr(value, "__float__"):
        return float(value)
    return str(value)


def _array_cell(array: Any) -> Any:
    if array.ndim == 0:
        return cell_of(array.item())
    if array.dtype.kind not in "biuf" or array.size > _MOST_CELL:
        return f"{array.dtype} {array.shape}"
    return array.tolist()


def column_of(name: str, cell: Any) -> Column:
    """The column for its first cell, as `cell_of` returns it."""
    if isinstance(cell, list):
        return Column(name, "tensor", _shape(cell), plotted=False)
    if isinstance(cell, str):
        return Column(name, "text", plotted=False)
    if isinstance(cell, int) and not isinstance(cell, bool):
        return Column(name, "int")
    return Column(name)


def _shape(cell: Any) -> tuple[int, ...]:
    return (len(cell), *(_shape(cell[0]) if cell else ())) if isinstance(cell, list) else ()
