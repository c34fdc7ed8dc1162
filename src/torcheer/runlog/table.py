"""`Table`: named columns of equal length, with numbers, text or a tensor in every cell.

For logs and patterns.

Columns are numpy arrays: numbers (rows,), tensors (rows, *shape of a cell), text as objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import array_of
from torcheer.errors import BadArgument
from torcheer.public_names import PublicClass
from torcheer.runlog.table_records import Column, TableHead
from torcheer.runlog.tables.table_analysis import TableAnalysis
from torcheer.runlog.tables.table_formats import Conversions
from torcheer.terminal import did_you_mean, human_shape

Array = NDArray[Any]
_MEASURES: dict[str, Callable[[Array], Any]] = {
    "mean": lambda rows: rows.mean(0), "sum": lambda rows: rows.sum(0), "min": lambda rows: rows.min(0),
    "max": lambda rows: rows.max(0), "std": lambda rows: rows.std(0), "first": lambda rows: rows[0],
    "last": lambda rows: rows[-1],
}  # fmt: skip

_COUNTERS = ("Run", "Epoch", "Trial", "Step", "Seed")  # not plotted at first


class Table(Conversions, TableAnalysis, metaclass=PublicClass):
    """A table of columns by name, from a dict of arrays, lists or tensors; `append` adds rows.

    `name` and `title` identify it, `x` is the column along a plot's x axis, `legend` the one that splits it into lines.

    - `columns`: by name, of equal length; None for an empty table.

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
        self._columns: dict[str, Array] = {}  # with spare capacity after the last row
        self._rows = 0
        for column, values in (columns or {}).items():
            self.add_column(column, values)

    # -- access ------------------------------------------------------------------------------------------------------

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(self._columns)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, key: Any) -> Any:
        """A column by name; a row, as a dict, by number.

        A table of rows by slice, mask or list of numbers.
        """
        if isinstance(key, str):
            return self._column(key)[: self._rows]
        if isinstance(key, int | np.integer):
            return self._row(int(key))
        return self._with({name: self[name][key] for name in self._columns})

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self._row(number) for number in range(self._rows))

    def __eq__(self, other: object) -> bool:
        """True for the same columns, types and values; NaN equals NaN."""
        if not isinstance(other, Table):
            return NotImplemented
        return self.columns == other.columns and len(self) == len(other) and all(map(_same, self._all(), other._all()))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        columns = (f"{name} {_type_text(self[name])}" for name in self._columns)
        return f"Table({self.name!r}, {self._rows} rows: {', '.join(columns)})"

    def head(self) -> TableHead:
        """The table's head, as hosts send it."""
        columns = []
        for name in self._columns:
            type_, shape = _type_text(self[name]), self[name].shape[1:]
            plotted = type_ in ("int", "float") and name not in (self.x, self.legend, *_COUNTERS)
            columns.append(Column(name, "tensor" if shape else type_, shape, plotted=plotted))
        return TableHead(self.name, self.title, self.x, self.legend, tuple(columns))

    # -- changes -----------------------------------------------------------------------------------------------------

    def add_column(self, name: str, values: Any) -> None:
        """Add a column at the end, as long as the others."""
        column = as_column(values, name)
        if not name or not isinstance(name, str):
            raise BadArgument(f"a column's name is text, not {name!r}")
        if name in self._columns:
            raise BadArgument(f"{self.name} has a column {name!r} already")
        if self._columns and len(column) != self._rows:
            raise BadArgument(f"column {name!r} has {len(column)} rows, and {self.name} {self._rows}")
        self._rows = len(column)
        self._columns[name] = column

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row. The first one creates the columns.

        Missing cells of later ones are NaN, or empty text.
        """
        if not self._columns:
            self._columns = {name: as_column([_to_array(value)], name)[:0] for name, value in row.items()}
        if unknown := [name for name in row if name not in self._columns]:
            self._column(unknown[0])
        cells = {name: self._cell(name, row) for name in self._columns}  # validate all cells before writing any
        for name, cell in cells.items():
            self._columns[name] = _with_room(self._columns[name], self._rows, np.asarray(cell).dtype)
            self._columns[name][self._rows] = cell
        self._rows += 1

    def extend(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows: dicts, or another table."""
        for row in rows:
            self.append(row)

    def clear(self) -> None:
        """Remove all rows; the columns stay."""
        self._columns = {name: values[:0].copy() for name, values in self._columns.items()}
        self._rows = 0

    # -- derived tables ----------------------------------------------------------------------------------------------

    def select(self, *names: str) -> Table:
        """A table of only these columns."""
        return self._with({name: self[name] for name in names})

    def sort(self, by: str, *, reverse: bool = False) -> Table:
        """A table sorted by a column of numbers or text; stable, NaN last."""
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
        """The rows for which `test(row)` is true and columns have these values: `where(Run=1)`."""
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
        rows_by_key: dict[tuple[Any, ...], list[int]] = {}
        for number, key in enumerate(zip(*(self[name].tolist() for name in keys))):
            rows_by_key.setdefault(key, []).append(number)
        names = [
            name
            for name in self._columns
            if name not in keys and (self[name].dtype != object or how in ("first", "last"))
        ]
        firsts = [numbers[0] for numbers in rows_by_key.values()]
        columns: dict[str, Any] = {name: self[name][firsts] for name in keys}
        for name in names:
            rows = [np.asarray(_MEASURES[how](self[name][numbers])) for numbers in rows_by_key.values()]
            columns[name] = np.stack(rows) if rows else self[name][:0]
        return self._with(columns)

    # -- parts -------------------------------------------------------------------------------------------------------

    def _column(self, name: str) -> Array:
        if name not in self._columns:
            hint = did_you_mean(name, self._columns) or f" There are: {', '.join(self._columns) or 'none yet'}"
            raise BadArgument(f"{self.name} has no column {name!r}.{hint}")
        return self._columns[name]

    def _row(self, number: int) -> dict[str, Any]:
        if not -self._rows <= number < self._rows:
            raise IndexError(f"row {number} of {self.name}, which has {self._rows}")
        return {name: _python_value(self[name][number]) for name in self._columns}

    def _all(self) -> list[Array]:
        return [self[name] for name in self._columns]

    def _cell(self, name: str, row: Mapping[str, Any]) -> Any:
        """A row's value as a cell of a column; BadArgument if it does not fit."""
        column = self._columns[name]
        if name not in row:
            if column.dtype == object:
                return ""
            return np.full(column.shape[1:], np.nan, column.dtype if column.dtype.kind == "f" else np.float64)
        cell = as_column([_to_array(row[name])], name)[0]
        is_text, shape = isinstance(cell, str), np.shape(cell)
        if is_text != (column.dtype == object) or shape != column.shape[1:]:
            row_type = _type_text(as_column([cell], name))
            raise BadArgument(f"{name!r} of {self.name} holds {_type_text(column)}, and the row has {row_type}")
        return cell

    def _with(self, columns: Mapping[str, Any]) -> Table:
        return Table(columns, name=self.name, title=self.title, x=self.x, legend=self.legend)


def as_column(values: Any, name: str) -> Array:
    """Convert values to a new column.

    BadArgument unless they are numbers, text or tensors of one shape.
    """
    try:
        cells = _to_array(values) if hasattr(values, "detach") else values
        cells = cells if isinstance(cells, np.ndarray) else [_to_array(cell) for cell in cells]
        if len(cells) and all(isinstance(cell, str) for cell in cells):
            return np.array([str(cell) for cell in cells], object)
        mixed = not isinstance(cells, np.ndarray) and any(isinstance(cell, str) for cell in cells)
        column = np.array(cells, object if mixed else None)  # otherwise numpy converts everything to text
    except (TypeError, ValueError) as error:
        raise BadArgument(f"column {name!r} cannot be made: its cells must have one shape and type ({error})") from None
    if column.dtype.kind in "OUST" and column.shape == (0,):
        return np.empty(0, object)
    if column.dtype.kind == "O" and column.ndim == 1 and len({np.shape(cell) for cell in column} - {()}) == 1:
        return as_column(list(column), name) if isinstance(values, np.ndarray) else _refuse(column, name)
    if column.dtype.kind in "biuf" and column.ndim and 0 not in column.shape[1:]:
        return column
    return _refuse(column, name)


def _refuse(column: Array, name: str) -> Array:
    raise BadArgument(
        f"column {name!r} holds {column.dtype} of shape {column.shape}; cells are numbers, text or tensors"
    )


def _to_array(value: Any) -> Any:
    """Convert a tensor to an array; return other values unchanged."""
    return array_of(value) if hasattr(value, "detach") else value


def _with_room(column: Array, rows: int, kind: np.dtype[Any]) -> Array:
    """Grow a column for one more row, and widen its dtype: 0 may be followed by 0.5."""
    wider = (
        column.dtype if column.dtype == object or column.dtype.kind == kind.kind else np.result_type(column.dtype, kind)
    )
    if len(column) > rows and wider == column.dtype:
        return column
    grown: Array = np.empty((max(8, rows + rows // 2 + 1), *column.shape[1:]), wider)
    grown[:rows] = column[:rows]
    return grown


def _python_value(cell: Any) -> Any:
    return cell.item() if isinstance(cell, np.generic) else cell


def _type_text(column: Array) -> str:
    kind = "text" if column.dtype == object else {"b": "int", "i": "int", "u": "int", "f": "float"}[column.dtype.kind]
    return f"{kind} tensors of {human_shape(column.shape[1:])}" if column.ndim > 1 else kind


def _same(first: Array, second: Array) -> bool:
    return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


def _flat(mask: Any) -> Array:
    array: Array = np.asarray(mask)
    return np.asarray(array.all(tuple(range(1, array.ndim)))) if array.ndim > 1 else array
