"""`pyet`: tables and tensors to numpy, torch and pandas, and back, by eTorch's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from torcheer.runlog import table
from torcheer_originals.etorch.tables.etables import Table
from torcheer_originals.etorch.tables.etensors import Array, Tensor, tensor_of


class eTable:
    """A table as a list of arrays; `ColByName` finds one."""

    def __init__(self) -> None:
        self.Cols: list[Array] = []
        self.ColNames: list[str] = []
        self.Rows = 0
        self.ColNameMap: dict[str, int] = {}
        self.MetaData: dict[str, str] = {}

    def __str__(self) -> str:
        return f"Columns: {self.ColNameMap}\nRows: {self.Rows} Cols:\n{self.Cols}\n"

    def UpdateColNameMap(self) -> None:
        """Number the columns anew."""
        self.ColNameMap = {name: number for number, name in enumerate(self.ColNames)}

    def AddCol(self, values: Array, name: str) -> None:
        """Add a column."""
        self.Cols.append(values)
        self.ColNames.append(name)
        self.UpdateColNameMap()

    def ColByName(self, name: str) -> Array:
        """A column; raises LookupError where there is none."""
        if name not in self.ColNameMap:
            raise LookupError(f"there is no column {name!r}, but {', '.join(self.ColNames) or 'none at all'}")
        return self.Cols[self.ColNameMap[name]]

    def MergeCols(self, name: str, count: int) -> None:
        """Make one column of tensors of so many columns of numbers, from this one on."""
        first = self.ColNameMap[name]
        self.Cols[first : first + count] = [np.column_stack(self.Cols[first : first + count])]
        del self.ColNames[first + 1 : first + count]
        self.UpdateColNameMap()

    def ReshapeCol(self, name: str, shape: Any) -> None:
        """Give a column another shape."""
        self.Cols[self.ColNameMap[name]] = self.ColByName(name).reshape(shape)


def etensor_to_numpy(tensor: Tensor) -> Array:
    """A copy of a tensor as an array."""
    return tensor.array.astype(np.str_) if tensor.array.dtype == object else tensor.array.copy()


def numpy_to_etensor(array: Array) -> Tensor:
    """A copy of an array as a tensor."""
    return tensor_of(array.copy())


def copy_etensor_to_numpy(array: Array, tensor: Tensor) -> None:
    """Copy a tensor's values into an array."""
    np.copyto(array.reshape(-1), tensor.array.reshape(-1), casting="unsafe")


def copy_numpy_to_etensor(tensor: Tensor, array: Array) -> None:
    """Copy an array's values into a tensor."""
    tensor.Values.copy(array)


def etable_to_py(source: Table) -> eTable:
    """A copy of a table as a list of arrays."""
    target = eTable()
    target.Rows, target.MetaData = len(source), dict(source.MetaData)
    for name in source.columns:
        target.AddCol(etensor_to_numpy(tensor_of(source[name])), name)
    return target


def py_to_etable(source: eTable) -> Table:
    """A copy of a list of arrays as a table."""
    target: Table = Table()
    for name, values in zip(source.ColNames, source.Cols):
        target.AddCol(values, name)
    for key, value in source.MetaData.items():
        target.SetMetaData(key, value)
    return target


def copy_etable_to_py(target: eTable, source: Table) -> None:
    """Copy the columns that both have."""
    for name in set(target.ColNames) & set(source.columns):
        copy_etensor_to_numpy(target.ColByName(name), tensor_of(source[name]))


def copy_py_to_etable(target: Table, source: eTable) -> None:
    """Copy the columns that both have."""
    for name in set(source.ColNames) & set(target.columns):
        copy_numpy_to_etensor(target.ColByNameTry(name), source.ColByName(name))


def etable_to_torch(source: eTable) -> Any:
    """A `TensorDataset` of all columns but text."""
    return _table(source).to_dataset()


def etable_to_pandas(source: eTable, skip_tensors: bool = False) -> Any:
    """A DataFrame; the numbers of tensors become columns, or are left out."""
    whole = _table(source)
    plain = [name for name in whole.columns if whole[name].ndim == 1]
    return (whole.select(*plain) if skip_tensors else whole).to_pandas(spread=True)


def pandas_to_etable(frame: Any) -> eTable:
    """The columns of a DataFrame."""
    target = eTable()
    target.Rows = len(frame.index)
    for name in frame.columns:
        target.AddCol(frame.loc[:, name].to_numpy(), name)
    return target


def _table(source: eTable) -> table.Table:
    return table.Table(dict(zip(source.ColNames, source.Cols)))
