"""`Table`: named columns of equal length; numbers, text, or a tensor in every cell. The logs of a simulation are such.

Columns are numpy arrays: numbers (rows,), tensors (rows, *shape of a cell), text as objects.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import BadArgument
from torcheer.runlog.table_analysis import Analysis
from torcheer.runlog.table_formats import Conversions
from torcheer.runlog.table_records import Column, TableHead

Array = NDArray[Any]
_MEASURES: dict[str, Callable[[Array], Any]] = {
    "mean": lambda rows: rows.mean(0), "sum": lambda rows: rows.sum(0), "min": lambda rows: rows.min(0),
    "max": lambda rows: rows.max(0), "std": lambda rows: rows.std(0), "first": lambda rows: rows[0],
    "last": lambda rows: rows[-1],
}  # fmt: skip

_COUNTERS = ("Run", "Epoch", "Trial", "Step", "Seed")  # not plotted at first


class Table(Conversions, Analysis):
    """Columns by name, from a dict of arrays, lists or tensors; rows are added by `append`.

    >>> table = Table({"Epoch": [0, 1], "Loss": [0.5, 0.25]})
    >>> table.append({"Epoch": 2, "Loss": 0.125})
    >>> table["Loss"].sum(), len(table)
    (np.float64(0.875), 3)
    """

    def __init__(
        self,
        columns: Mapping[str, Any] | None = None,
        *,
        name: str = "table",
        title: str = "",
        x: str = "",
        legend: str = "",
    ) -> None:
        self.name, self.title, self.x, self.legend = name, title or name, x, legend
        self._columns: dict[str, Array] = {}  # with room behind the last row
        self._rows = 0
        for column, values in (columns or {}).items():
            self.add_column(column, values)

    # -- what is there -----------------------------------------------------------------------------------------------

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(self._columns)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, key: Any) -> Any:
        """A column by its name; a row, as a dict, by its number; a table of the rows of a slice, a mask or numbers."""
        if isinstance(key, str):
            return self._column(key)[: self._rows]
        if isinstance(key, int | np.integer):
            return self._row(int(key))
        return self._with({name: self[name][key] for name in self._columns})

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self._row(number) for number in range(self._rows))

    def __eq__(self, other: object) -> bool:
        """The same columns, types and values; NaN equals NaN."""
        if not isinstance(other, Table):
            return NotImplemented
        return self.columns == other.columns and len(self) == len(other) and all(map(_same, self._all(), other._all()))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        said = (f"{name} {_described(self[name])}" for name in self._columns)
        return f"Table({self.name!r}, {self._rows} rows: {', '.join(said)})"

    def head(self) -> TableHead:
        """The table as hosts send it."""
        columns = []
        for name in self._columns:
            type_, shape = _described(self[name]), self[name].shape[1:]
            shown = type_ in ("int", "float") and name not in (self.x, self.legend, *_COUNTERS)
            columns.append(Column(name, "tensor" if shape else type_, shape, plotted=shown))
        return TableHead(self.name, self.title, self.x, self.legend, tuple(columns))

    # -- changing it -------------------------------------------------------------------------------------------------

    def add_column(self, name: str, values: Any) -> None:
        """A new column at the end, as long as the others."""
        found = as_column(values, name)
        if not name or not isinstance(name, str):
            raise BadArgument(f"a column's name is text, not {name!r}")
        if name in self._columns:
            raise BadArgument(f"{self.name} has a column {name!r} already")
        if self._columns and len(found) != self._rows:
            raise BadArgument(f"column {name!r} has {len(found)} rows, and {self.name} {self._rows}")
        self._rows = len(found)
        self._columns[name] = found

    def append(self, row: Mapping[str, Any]) -> None:
        """A new row. The first one makes the columns; what a later one leaves out is NaN, or no text."""
        if not self._columns:
            self._columns = {name: as_column([_bare(value)], name)[:0] for name, value in row.items()}
        if strange := [name for name in row if name not in self._columns]:
            self._column(strange[0])
        cells = {name: self._cell(name, row) for name in self._columns}  # all of them, before any is written
        for name, cell in cells.items():
            self._columns[name] = _with_room(self._columns[name], self._rows, np.asarray(cell).dtype)
            self._columns[name][self._rows] = cell
        self._rows += 1

    def extend(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """More rows: dicts, or another table."""
        for row in rows:
            self.append(row)

    def clear(self) -> None:
        """Take away all rows; columns stay."""
        self._columns = {name: values[:0].copy() for name, values in self._columns.items()}
        self._rows = 0

    # -- making others of it -----------------------------------------------------------------------------------------

    def select(self, *names: str) -> Table:
        """Only these columns."""
        return self._with({name: self[name] for name in names})

    def sort(self, by: str, *, reverse: bool = False) -> Table:
        """Rows in the order of a column of numbers or text; equal ones stay as they were, NaN comes last."""
        values = self[by]
        if values.ndim > 1:
            raise BadArgument(f"{by!r} holds tensors, which have no order")
        if values.dtype == object:
            order = np.array(sorted(range(len(values)), key=values.__getitem__, reverse=reverse), np.intp)
        elif reverse:
            ranks = np.unique(values, return_inverse=True)[1]
            ranks = np.where(values != values, np.iinfo(ranks.dtype).min, ranks)
            order = np.argsort(-ranks.astype(np.int64) if len(ranks) else ranks, kind="stable")
            order = np.concatenate([order[values[order] == values[order]], order[values[order] != values[order]]])
        else:
            order = np.argsort(values, kind="stable")
        return self[order]  # type: ignore[no-any-return]

    def where(self, test: Callable[[dict[str, Any]], Any] | None = None, /, **equal: Any) -> Table:
        """The rows that pass a test of a row, or whose columns have these values: `where(Run=1)`."""
        mask = np.ones(self._rows, bool)
        for name, value in equal.items():
            mask &= _flat(self[name] == value)
        if test is not None:
            mask &= np.fromiter((bool(test(row)) for row in self), bool, self._rows)
        return self[mask]  # type: ignore[no-any-return]

    def group(self, by: str | Iterable[str], how: str = "mean") -> Table:
        """One row for each value of `by`: the mean (sum, min, max, std, first, last) of every column of numbers."""
        keys = [by] if isinstance(by, str) else list(by)
        if how not in _MEASURES:
            raise BadArgument(f"group(how={how!r}): there are {', '.join(_MEASURES)}")
        places: dict[tuple[Any, ...], list[int]] = {}
        for number, key in enumerate(zip(*(self[name].tolist() for name in keys))):
            places.setdefault(key, []).append(number)
        names = [
            name
            for name in self._columns
            if name not in keys and (self[name].dtype != object or how in ("first", "last"))
        ]
        firsts = [found[0] for found in places.values()]
        columns: dict[str, Any] = {name: self[name][firsts] for name in keys}
        for name in names:
            rows = [np.asarray(_MEASURES[how](self[name][found])) for found in places.values()]
            columns[name] = np.stack(rows) if rows else self[name][:0]
        return self._with(columns)

    # -- parts -------------------------------------------------------------------------------------------------------

    def _column(self, name: str) -> Array:
        if name not in self._columns:
            near = difflib.get_close_matches(name, self._columns, 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(self._columns) or 'none yet'}"
            raise BadArgument(f"{self.name} has no column {name!r}. {hint}")
        return self._columns[name]

    def _row(self, number: int) -> dict[str, Any]:
        if not -self._rows <= number < self._rows:
            raise IndexError(f"row {number} of {self.name}, which has {self._rows}")
        return {name: _shown(self[name][number]) for name in self._columns}

    def _all(self) -> list[Array]:
        return [self[name] for name in self._columns]

    def _cell(self, name: str, row: Mapping[str, Any]) -> Any:
        """A value as a cell of a column; BadArgument where it is none."""
        column = self._columns[name]
        if name not in row:
            if column.dtype == object:
                return ""
            return np.full(column.shape[1:], np.nan, column.dtype if column.dtype.kind == "f" else np.float64)
        found = as_column([_bare(row[name])], name)[0]
        text, shape = isinstance(found, str), np.shape(found)
        if text != (column.dtype == object) or shape != column.shape[1:]:
            given = _described(as_column([found], name))
            raise BadArgument(f"{name!r} of {self.name} holds {_described(column)}, and the row has {given}")
        return found

    def _with(self, columns: Mapping[str, Any]) -> Table:
        return Table(columns, name=self.name, title=self.title, x=self.x, legend=self.legend)


def as_column(values: Any, name: str) -> Array:
    """Anything as a column: a copy of its own; BadArgument where it is no numbers, text or tensors of one shape."""
    try:
        cells = _bare(values) if hasattr(values, "detach") else values
        cells = cells if isinstance(cells, np.ndarray) else [_bare(one) for one in cells]
        if len(cells) and all(isinstance(one, str) for one in cells):
            return np.array([str(one) for one in cells], object)
        mixed = not isinstance(cells, np.ndarray) and any(isinstance(one, str) for one in cells)
        found = np.array(cells, object if mixed else None)  # numpy would make text of everything
    except (TypeError, ValueError) as error:
        raise BadArgument(f"column {name!r} cannot be made: its cells must have one shape and type ({error})") from None
    if found.dtype.kind in "OUST" and found.shape == (0,):
        return np.empty(0, object)
    if found.dtype.kind == "O" and found.ndim == 1 and len({np.shape(one) for one in found} - {()}) == 1:
        return as_column(list(found), name) if isinstance(values, np.ndarray) else _refused(found, name)
    if found.dtype.kind in "biuf" and found.ndim and 0 not in found.shape[1:]:
        return found
    return _refused(found, name)


def _refused(found: Array, name: str) -> Array:
    raise BadArgument(f"column {name!r} holds {found.dtype} of shape {found.shape}; cells are numbers, text or tensors")


def _bare(value: Any) -> Any:
    """A tensor as an array; numpy has no bfloat16."""
    if hasattr(value, "detach"):
        plain = value.detach().cpu()
        value = (plain.float() if "bfloat16" in str(plain.dtype) else plain).numpy()
    return value


def _with_room(column: Array, rows: int, kind: np.dtype[Any]) -> Array:
    """A column that one more row fits into, and numbers of this type: 0 may be followed by 0.5."""
    wider = (
        column.dtype if column.dtype == object or column.dtype.kind == kind.kind else np.result_type(column.dtype, kind)
    )
    if len(column) > rows and wider == column.dtype:
        return column
    found: Array = np.empty((max(8, rows + rows // 2 + 1), *column.shape[1:]), wider)
    found[:rows] = column[:rows]
    return found


def _shown(cell: Any) -> Any:
    return cell.item() if isinstance(cell, np.generic) else cell


def _described(column: Array) -> str:
    kind = "text" if column.dtype == object else {"b": "int", "i": "int", "u": "int", "f": "float"}[column.dtype.kind]
    return f"{kind} tensors of {' × '.join(map(str, column.shape[1:]))}" if column.ndim > 1 else kind


def _same(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _flat(mask: Any) -> Array:
    found: Array = np.asarray(mask)
    return np.asarray(found.all(tuple(range(1, found.ndim)))) if found.ndim > 1 else found
