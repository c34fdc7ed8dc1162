"""The rows that a host keeps, so that a viewer that comes late sees all of them."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final

import numpy as np

from torcheer.runlog.table_records import Column, TableHead

MOST_ROWS: Final = 100_000  # of a table; then its older half is thinned
MOST_NUMBERS: Final = 4_000_000  # of a table, tensors included
_MOST_ARRIVED: Final = 500
_MOST_CELL: Final = 65_536  # numbers of a tensor in a cell
_LARGE: Final = 2**63
_PLAIN: Final = frozenset((int, float, str, bool, type(None)))  # made a cell of later, many together
_SOME_NUMBERS: Final = 20_000  # that travel in one message
_TITLES: Final = {"train_epoch": "Train epochs", "test_trial": "Test trials", "test_epoch": "Test epochs",
                  "run": "Runs", "train_step": "Train steps", "patterns": "Patterns"}  # fmt: skip


class Tables:
    """All tables of a host. Any thread may write and read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[str, _Table] = {}
        self._arrived: deque[tuple[str, dict[str, Any]]] = deque()  # rows that were not put into their tables yet

    def head(self, head: TableHead) -> None:
        """A table begins, or has other columns from now on; its rows stay."""
        with self._lock:
            self._settle()
            table = self._tables.get(head.name)
            if table is None:
                self._tables[head.name] = _Table(head)
            elif table.head != head:
                table.take(head)

    def row(self, name: str, cells: Mapping[str, Any]) -> None:
        """Add a row; a table, or a column, that is not there yet is made of what its cells are."""
        plain = dict(cells)
        for column, value in plain.items():
            if type(value) not in _PLAIN:  # it may be changed before somebody looks at it
                plain[column] = cell_of(value)
        self._arrived.append((name, plain))
        if len(self._arrived) >= _MOST_ARRIVED:  # together they cost half of what they do alone, in a training step
            with self._lock:
                self._settle()

    def _settle(self) -> None:
        """Put the rows that have arrived where they belong."""
        while self._arrived:
            name, plain = self._arrived.popleft()
            cells = {str(column): cell_of(value) for column, value in plain.items()}
            table = self._tables.get(name)
            if table is None:
                x = next((column for column in ("Epoch", "Step", "Trial", "epoch", "step") if column in cells), "")
                table = self._tables[name] = _Table(TableHead(name, _TITLES.get(name, name.replace("_", " ")), x=x))
            table.add(cells)

    def clear(self, name: str) -> None:
        """Forget the rows of a table."""
        with self._lock:
            self._settle()
            if (table := self._tables.get(name)) is not None:
                table.forget()

    def news(self, told: dict[str, Told]) -> list[dict[str, Any]]:
        """The next messages for somebody who was told so much; a long table comes in pieces, one at a time."""
        with self._lock:
            self._settle()
            return [message for name, table in self._tables.items() for message in table.news(told, name)]

    def columns(self) -> dict[str, tuple[TableHead, dict[str, list[Any]]]]:
        """All that there is, by the tables' names: the cells of each column, None where a row has none."""
        with self._lock:
            self._settle()
            return {name: (table.head, table.columns()) for name, table in self._tables.items()}

    def waiting(self, told: dict[str, Told]) -> bool:
        """Whether there are any."""
        with self._lock:
            self._settle()
            return any(table.differs(told.get(name)) for name, table in self._tables.items())


class Told:
    """What one viewer knows of a table."""

    __slots__ = ("came", "first", "heads", "starts")

    def __init__(self, heads: int, starts: int) -> None:
        self.heads, self.starts = heads, starts
        self.came = 0  # rows that it has, or that were gone before it came
        self.first = 0  # the number of its next row


class _Table:
    def __init__(self, head: TableHead) -> None:
        self.head, self.heads, self.starts = head, 0, 0  # how often each was changed, the rows begun anew
        self._names = {column.name: column for column in head.columns}
        self._rows: list[tuple[int, dict[str, Any]]] = []  # by their number
        self._came = self._numbers = 0
        self._every = 1  # of the older rows so many apart are kept

    def take(self, head: TableHead) -> None:
        self.head, self.heads, self._names = head, self.heads + 1, {column.name: column for column in head.columns}

    def add(self, cells: dict[str, Any]) -> None:
        if not self._names.keys() >= cells.keys():
            new = [column_of(name, value) for name, value in cells.items() if name not in self._names]
            self.take(replace(self.head, columns=(*self.head.columns, *new)))
        self._rows.append((self._came, cells))
        self._came += 1
        self._numbers += _numbers(cells)
        if len(self._rows) > MOST_ROWS or self._numbers > MOST_NUMBERS:
            self._thin()

    def _thin(self) -> None:
        """Of the older half keep every n-th: evenly, however often this is done."""
        half = len(self._rows) // 2
        old, new = self._rows[:half], self._rows[half:]
        old = [row for row in old if row[0] % self._every == 0]
        while len(old) > half // 2:
            self._every *= 2
            old = [row for row in old if row[0] % self._every == 0]
        self._rows = old + new
        self._numbers = sum(_numbers(cells) for _, cells in self._rows)

    def forget(self) -> None:
        self._rows.clear()
        self._numbers, self._every, self.starts = 0, 1, self.starts + 1

    def columns(self) -> dict[str, list[Any]]:
        return {name: [cells.get(name) for _, cells in self._rows] for name in self._names}

    def differs(self, told: Told | None) -> bool:
        if told is None or told.heads != self.heads or told.starts != self.starts:
            return True
        return bool(self._rows) and self._rows[-1][0] >= told.came

    def news(self, all_told: dict[str, Told], name: str) -> list[dict[str, Any]]:
        told = all_told.get(name)
        if told is not None and not self.differs(told):
            return []
        found: list[dict[str, Any]] = []
        if told is None or told.heads != self.heads:
            told = all_told[name] = Told(self.heads, self.starts)  # after a new head its rows come again
            found.append({"kind": "table", "table": self.head})
        elif told.starts != self.starts:
            told.starts, told.first, told.came = self.starts, 0, 0
            found.append({"kind": "rows", "table": name, "first": 0, "columns": {}})
        if rows := self._some(told.came):
            columns = {column.name: [cells.get(column.name) for _, cells in rows] for column in self.head.columns}
            found.append({"kind": "rows", "table": name, "first": told.first, "columns": columns})
            told.first, told.came = told.first + len(rows), rows[-1][0] + 1
        return found

    def _some(self, came: int) -> list[tuple[int, dict[str, Any]]]:
        """The next rows, no more than go into one message."""
        low, high = 0, len(self._rows)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._rows[middle][0] < came else (low, middle)
        end, numbers = low, 0
        while end < len(self._rows) and (numbers < _SOME_NUMBERS or end == low):
            numbers, end = numbers + _numbers(self._rows[end][1]), end + 1
        return self._rows[low:end]


def _numbers(cells: dict[str, Any]) -> int:
    return len(cells) + sum(_count(value) for value in cells.values() if isinstance(value, list | str))


def _count(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_count, value)) if value and isinstance(value[0], list) else len(value)
    return 1 + len(value) // 8 if isinstance(value, str) else 1


def cell_of(value: Any) -> Any:
    """What a cell holds as JSON, with Python's NaN and Infinity, can carry it."""
    kind = type(value)
    if kind is int and -_LARGE < value < _LARGE:
        return value
    if kind is float:  # nearly always
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


def line_of(row: Mapping[str, Any]) -> bytes:
    """A row as a line of a file."""
    return json.dumps({name: cell_of(value) for name, value in row.items()}).encode() + b"\n"


def rows_in(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of such lines; one that is damaged, or was cut off, is left out."""
    found = []
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError:
        return []
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            found.append({name: cell_of(value) for name, value in row.items()})
    return found


def column_of(name: str, cell: Any) -> Column:
    """The column that a cell, as JSON carries it, is the first of."""
    if isinstance(cell, list):
        return Column(name, "tensor", _shape(cell), plotted=False)
    if isinstance(cell, str):
        return Column(name, "text", plotted=False)
    if isinstance(cell, int) and not isinstance(cell, bool):
        return Column(name, "int")
    return Column(name)


def _shape(cell: Any) -> tuple[int, ...]:
    return (len(cell), *(_shape(cell[0]) if cell else ())) if isinstance(cell, list) else ()
