"""`etable`: torcheer's `Table` with Go's names: schemas, cells, rows, CSV files."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from torcheer.errors import BadArgument
from torcheer.runlog import table
from torcheer.runlog.tables.table_csv import csv_cells, csv_titles
from torcheer.terminal import warn
from torcheer_originals.etorch.go_values import Handle
from torcheer_originals.etorch.tables.etensors import Array, Tensor, tensor_of, zeros

Tab, Comma, Space = "\t", ",", " "
Headers, NoHeaders = True, False
ColNameOnly, AddAggName = True, False


class Column(NamedTuple):
    """A column of a schema; `CellShape` nil for plain numbers or text."""

    Name: str
    Type: str
    CellShape: Sequence[int] | None = None
    DimNames: Sequence[str] | None = None


class Schema(list[Column]):
    """The columns of a table to be."""


class Table(table.Table, metaclass=Handle):
    """A table: `SetFromSchema` makes its columns, `SetCell…` write it; `changed` are the rows written since sent."""

    def __init__(self, columns: Mapping[str, Any] | None = None, **settings: Any) -> None:
        self.MetaData: dict[str, str] = {}
        super().__init__(columns, **settings)
        self.changed: set[int] = set(range(len(self)))
        self.filled = len(self)  # rows up to the last one that was written

    # -- columns -----------------------------------------------------------------------------------------------------

    @property
    def ColNames(self) -> list[str]:
        """The columns' names."""
        return list(self.columns)

    @property
    def Cols(self) -> list[Tensor]:
        """The columns, to read and to write."""
        self._mark(*range(len(self)))  # whoever asks may write
        return [tensor_of(self[name]) for name in self.columns]

    def ColByName(self, name: str) -> Tensor | None:
        """A column, or nil."""
        return self.Cols[self.columns.index(name)] if name in self else None

    def ColByNameTry(self, name: str) -> Tensor:
        """A column; raises BadArgument where there is none."""
        self._column(name)
        return self.Cols[self.columns.index(name)]

    def NumCols(self) -> int:
        """The number of columns."""
        return len(self.columns)

    def ColIdx(self, name: str) -> int:
        """The position of a column, or -1."""
        return self.columns.index(name) if name in self else -1

    def AddCol(self, tensor: Any, name: str) -> None:
        """Add a column."""
        values = np.asarray(tensor)
        self.add_column(name, values.astype(object) if values.dtype.kind in "US" else values.copy())
        self._mark(*range(len(self)))

    def SetFromSchema(self, schema: Sequence[Column], rows: int) -> None:
        """Make the columns anew, with so many rows of zeros and empty text."""
        self._columns, self._rows = {}, 0
        for name, kind, shape, _ in schema:
            self.add_column(name, zeros(kind, (rows, *(shape or ()))))
        self._rows, self.filled, self.changed = rows, 0, set()

    def Schema(self) -> Schema:
        """The schema of its columns."""
        tensors = [tensor_of(self[name]) for name in self.columns]
        return Schema(Column(name, each.type, each.Shapes()[1:] or None) for name, each in zip(self.columns, tensors))

    def SetMetaData(self, key: str, value: str) -> None:
        """Describe the table; its "name" is that of its page."""
        self.MetaData[key] = value
        if key == "name":
            self.name = self.title = value

    # -- rows --------------------------------------------------------------------------------------------------------

    @property
    def Rows(self) -> int:
        """The number of rows."""
        return len(self)

    @Rows.setter
    def Rows(self, rows: int) -> None:
        if self.columns:
            self.SetNumRows(rows)

    def SetNumRows(self, rows: int) -> None:
        """Cut the table, or add rows of zeros and empty text."""
        for name, values in self._columns.items():
            if rows > len(values):
                grown = zeros(tensor_of(values).type, (rows + rows // 2, *values.shape[1:]))
                grown[: self._rows] = values[: self._rows]
                self._columns[name] = grown
            else:
                values[self._rows : rows] = "" if values.dtype == object else 0
        self._rows = rows
        if rows < self.filled:
            self.filled = rows
            self.changed = {row for row in self.changed if row < rows} | {-1}  # some were taken away

    def AddRows(self, count: int) -> None:
        """Add rows of zeros and empty text."""
        self.SetNumRows(len(self) + count)

    def NumRows(self) -> int:
        """The number of rows."""
        return len(self)

    def RowsByString(self, column: str, text: str, contains: bool, ignore_case: bool) -> list[int]:
        """The rows whose text in a column is this, or contains it."""
        return rows_by_text(self[column], text, contains, ignore_case)

    # -- cells -------------------------------------------------------------------------------------------------------

    def CellFloat(self, column: str, row: int) -> float:
        """A number; NaN where there is none."""
        return float(self[column][row]) if self._has(column, row) else float("nan")

    def CellString(self, column: str, row: int) -> str:
        """A cell as text; empty where there is none."""
        return str(self[column][row]) if self._has(column, row) else ""

    def CellTensor(self, column: str, row: int) -> Tensor | None:
        """The tensor in a cell, to read and to write; nil where there is none."""
        if not self._has(column, row):
            return None
        self._mark(row)
        return tensor_of(self[column][row])

    def CellTensorFloat1D(self, column: str, row: int, index: int) -> float:
        """A number of the tensor in a cell."""
        return float(self[column][row].reshape(-1)[index])

    def SetCellFloat(self, column: str, row: int, value: float) -> bool:
        """Set a number, or a number's text; False where there is no such cell."""
        return self._set(column, row, lambda cells: str(value) if cells.dtype == object else value)

    def SetCellString(self, column: str, row: int, value: str) -> bool:
        """Set text, or the number that it says; False where there is no such cell."""
        return self._set(column, row, lambda cells: value if cells.dtype == object else float(value))

    def SetCellTensor(self, column: str, row: int, value: Any) -> bool:
        """Set the tensor in a cell; False where there is no such cell."""
        return self._set(column, row, lambda cells: np.asarray(value).reshape(cells.shape[1:]))

    def SetCellTensorFloat1D(self, column: str, row: int, index: int, value: float) -> bool:
        """Set a number of the tensor in a cell; False where there is no such cell."""
        if not self._has(column, row):
            return self._warn(column, row)
        self[column][row].reshape(-1)[index] = value.item() if hasattr(value, "item") else value
        self._mark(row)
        return True

    def _set(self, column: str, row: int, value: Any) -> bool:
        if not self._has(column, row):
            return self._warn(column, row)
        cells = self[column]
        try:
            cells[row] = value(cells)
        except (TypeError, ValueError) as error:
            raise BadArgument(f"{column!r} of {self.name}, row {row}: {error}") from None
        self._mark(row)
        return True

    def _has(self, column: str, row: int) -> bool:
        return column in self and 0 <= row < len(self)

    def _warn(self, column: str, row: int) -> bool:
        cells = f"{len(self)} rows of {', '.join(self.columns) or 'no column'}"
        warn(f"{self.name} has no cell {column!r} in row {row}, but {cells}")
        return False

    def _mark(self, *rows: int) -> None:
        self.changed.update(rows)
        self.filled = max(self.filled, *(row + 1 for row in rows), 0)

    # -- files and copies --------------------------------------------------------------------------------------------

    def SaveCSV(self, path: str | PathLike[str], delimiter: str = Comma, headers: bool = Headers) -> None:
        """Write a CSV file, with emergent's headers or without any."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            if headers:
                self.WriteCSVHeaders(file, delimiter)
            for row in range(len(self)):
                self.WriteCSVRow(file, row, delimiter)

    def OpenCSV(self, path: str | PathLike[str], delimiter: str = Tab) -> None:
        """Read a CSV file with any headers; its own delimiter is found."""
        read = table.Table.from_csv(path)
        self._columns, self._rows = {}, 0
        for name in read.columns:
            self.add_column(name, read[name])
        self.changed, self.filled = {-1, *range(len(self))}, len(self)

    def WriteCSVHeaders(self, file: Any, delimiter: str = Tab) -> None:
        """Write the headers into an open file."""
        csv.writer(file, delimiter=delimiter, lineterminator="\n").writerow(csv_titles(self))

    def WriteCSVRow(self, file: Any, row: int, delimiter: str = Tab) -> None:
        """Write a row into an open file, its numbers with as many digits as the table's "precision" says, or all."""
        digits = self.MetaData.get("precision", "")
        cells = csv_cells(self, row, int(digits) if digits.isdigit() else 0)
        csv.writer(file, delimiter=delimiter, lineterminator="\n").writerow(cells)

    def Clone(self) -> Table:
        """A copy."""
        copy = self._with(self.to_dict())
        copy.MetaData = dict(self.MetaData)
        return copy

    def _with(self, columns: Mapping[str, Any]) -> Table:
        made: Table = Table(columns, name=self.name, title=self.title, x=self.x, legend=self.legend)
        return made


def New(schema: Sequence[Column], rows: int) -> Table:
    """A table of these columns."""
    made: Table = Table()
    made.SetFromSchema(schema, rows)
    return made


def NewTable(name: str = "") -> Table:
    """A table without columns."""
    made: Table = Table(name=name or "table")
    return made


def NewIdxView(rows_of: Table) -> Any:
    """A view of all rows of a table."""
    from torcheer_originals.etorch.tables.table_groups import IdxView  # it makes tables itself

    return IdxView(rows_of)


def rows_by_text(texts: Array, text: str, contains: bool, ignore_case: bool) -> list[int]:
    """The places of texts that are, or contain, another."""
    wanted = text.lower() if ignore_case else text
    cells = [str(cell).lower() if ignore_case else str(cell) for cell in texts]
    return [row for row, cell in enumerate(cells) if (wanted in cell if contains else wanted == cell)]
