"""Converts a `Table` to numpy, pandas, arrow, torch and CSV, and back.

Keeps types, NaN, text and tensor cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import BadArgument, TorcheerError

if TYPE_CHECKING:
    import pandas

    from torcheer.runlog.table import Table

Array = NDArray[Any]
_NOTE = "torcheer"  # key in a DataFrame's attrs: dtypes and shapes of its cells


class Conversions:
    """Conversions of a table to other libraries' types, and back.

    Each library is imported when used.
    """

    # -- numpy -------------------------------------------------------------------------------------------------------

    def to_dict(self: Any) -> dict[str, Array]:
        """Copies of the columns by name."""
        return {name: self[name].copy() for name in self.columns}

    def to_numpy(self: Any) -> Array:
        """A structured array: a field per column, tensors as subarrays, text as objects."""
        kinds = [(name, self[name].dtype, self[name].shape[1:]) for name in self.columns]
        structured = np.empty(len(self), np.dtype(kinds))
        for name in self.columns:
            structured[name] = self[name]
        return structured

    @classmethod
    def from_numpy(cls: Any, data: Array | Mapping[str, Any], **settings: Any) -> Table:
        """Create a table from a structured array, or a dict of arrays."""
        if isinstance(data, Mapping):
            return cls(data, **settings)  # type: ignore[no-any-return]
        if not isinstance(data, np.ndarray) or data.dtype.names is None or data.ndim != 1:
            raise BadArgument("from_numpy takes a dict of arrays, or a structured array with one field per column")
        return cls({name: data[name] for name in data.dtype.names}, **settings)  # type: ignore[no-any-return]

    # -- pandas ------------------------------------------------------------------------------------------------------

    def to_pandas(self: Any, *, spread: bool = False) -> pandas.DataFrame:
        """A DataFrame; tensor cells are arrays, or with `spread` a column per number, as in eTorch."""
        pandas = _pandas()
        columns: dict[str, Any] = {}
        for name in self.columns:
            values = self[name]
            if values.ndim == 1:
                columns[name] = pandas.Series(values.copy(), dtype=None if values.dtype == object else values.dtype)
            elif spread:
                flat = values.reshape(len(values), math.prod(values.shape[1:]))
                columns |= {f"{name}_{position}": flat[:, position].copy() for position in range(flat.shape[1])}
            else:
                columns[name] = pandas.Series([cell.copy() for cell in values], dtype=object)
        frame = pandas.DataFrame(columns)
        if not spread:
            frame.attrs[_NOTE] = {name: (str(self[name].dtype), list(self[name].shape[1:])) for name in self.columns}
        return frame

    @classmethod
    def from_pandas(cls: Any, frame: Any, **settings: Any) -> Table:
        """Create a table from a DataFrame; a named index becomes a column."""
        if any(name is not None for name in frame.index.names):
            frame = frame.reset_index()
        notes = frame.attrs.get(_NOTE, {})
        columns = {}
        for position, name in enumerate(frame.columns):
            values = frame.iloc[:, position]
            kind, shape = notes.get(str(name), ("", []))
            if len(values) == 0 and kind:
                columns[str(name)] = np.empty((0, *shape), kind)
            else:
                columns[str(name)] = _from_series(values, str(name))
        return cls(columns, **settings)  # type: ignore[no-any-return]

    # -- arrow -------------------------------------------------------------------------------------------------------

    def to_arrow(self: Any) -> Any:
        """An arrow table; tensor cells become fixed-shape tensors."""
        arrow = _arrow()
        return arrow.table({name: _to_arrow(arrow, self[name]) for name in self.columns})

    @classmethod
    def from_arrow(cls: Any, table: Any, **settings: Any) -> Table:
        """Create a table from arrow: numbers, text, fixed-shape tensors, lists of equal length."""
        arrow = _arrow()
        columns = {name: _from_arrow(arrow, table.column(name), name) for name in table.column_names}
        return cls(columns, **settings)  # type: ignore[no-any-return]

    # -- torch -------------------------------------------------------------------------------------------------------

    def to_torch(self: Any) -> dict[str, Any]:
        """A tensor for every column except text, which torch has no type for."""
        torch = _torch()
        return {name: torch.from_numpy(self[name].copy()) for name in self.columns if self[name].dtype != object}

    def to_dataset(self: Any, *names: str) -> Any:
        """A `TensorDataset`, for a DataLoader, of these columns, or of all that hold no text."""
        tensors = self.to_torch()
        if text := [name for name in names if name not in tensors]:
            self[text[0]]  # raises for an unknown column
            raise BadArgument(f"column {text[0]!r} holds text, which a TensorDataset cannot")
        return _torch().utils.data.TensorDataset(*(tensors[name] for name in names or tensors))

    @classmethod
    def from_torch(cls: Any, data: Any, names: Sequence[str] = (), **settings: Any) -> Table:
        """Create a table from a dict of tensors, or a `TensorDataset` and its tensors' names."""
        if isinstance(data, Mapping):
            return cls(data, **settings)  # type: ignore[no-any-return]
        tensors = getattr(data, "tensors", None)
        if tensors is None:
            raise BadArgument(f"from_torch takes a dict of tensors or a TensorDataset, not a {type(data).__name__}")
        if len(tensors) != len(names):
            raise BadArgument(f"the dataset has {len(tensors)} tensors, and names={tuple(names)} are {len(names)}")
        return cls(dict(zip(names, tensors)), **settings)  # type: ignore[no-any-return]

    # -- CSV ---------------------------------------------------------------------------------------------------------

    def to_csv(self: Any, path: str | PathLike[str], *, header: str = "emergent") -> None:
        """Write the table as CSV: separated by tabs in a .tsv file, otherwise by commas.

        Headers include types, as eTorch's and emergent's do: #Loss, $Name, %Input[2:0,0]<2:5,5>; with header="plain"
        they are only the names.
        """
        from torcheer.runlog.tables.table_csv import write

        write(self, path, header)

    @classmethod
    def from_csv(cls: Any, path: str | PathLike[str], **settings: Any) -> Table:
        """Read a CSV of eTorch, emergent, `to_csv` or any other.

        Types come from its headers, or its cells.
        """
        from torcheer.runlog.tables.table_csv import read

        return cls(read(path), **settings)  # type: ignore[no-any-return]


@contextmanager
def _required(name: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise TorcheerError(f"tables become {name}'s where that is installed: pip install 'torcheer[all]'") from None


def _pandas() -> Any:
    with _required("pandas"):
        import pandas
    return pandas


def _arrow() -> Any:
    with _required("pyarrow"):
        import pyarrow
    return pyarrow


def _torch() -> Any:
    with _required("torch"):
        import torch
    return torch


def _from_series(values: Any, name: str) -> Any:
    array = values.to_numpy()
    if array.dtype.kind in "biuf":
        return array
    kinds = {type(cell) for cell in array}
    if any(issubclass(kind, str) for kind in kinds):  # pandas represents missing text as None or NaN
        return ["" if _missing(cell) else cell for cell in array]
    if str(values.dtype) in ("str", "string") and not kinds:
        return np.empty(0, object)
    cells: list[Any] = [np.nan if _missing(cell) else cell for cell in array]
    return np.stack(cells) if kinds == {np.ndarray} and len({cell.shape for cell in cells}) == 1 else cells


def _missing(value: Any) -> bool:
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _to_arrow(arrow: Any, values: Array) -> Any:
    if values.dtype == object:
        return arrow.array(values.tolist(), arrow.string())
    flat = arrow.array(np.ascontiguousarray(values).reshape(-1))
    if values.ndim == 1:
        return flat
    size = int(np.prod(values.shape[1:]))
    cells = arrow.FixedSizeListArray.from_arrays(flat, size)
    return arrow.ExtensionArray.from_storage(arrow.fixed_shape_tensor(flat.type, values.shape[1:]), cells)


def _from_arrow(arrow: Any, column: Any, name: str) -> Any:
    kind, shape = column.type, None
    if isinstance(kind, arrow.FixedShapeTensorType):
        if kind.permutation not in (None, list(range(len(kind.shape)))):
            raise BadArgument(f"column {name!r} holds tensors whose axes are permuted")
        shape = tuple(kind.shape)
        column = arrow.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
    if arrow.types.is_fixed_size_list(column.type):
        shape = shape or (column.type.list_size,)
        flat = arrow.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type)
        if column.null_count or len(flat) != len(column) * int(np.prod(shape)):
            raise BadArgument(f"column {name!r} has cells without a tensor")
        return _numbers(arrow, flat).reshape(len(column), *shape)
    if arrow.types.is_list(column.type) or arrow.types.is_large_list(column.type):
        return [np.array(cell) for cell in column.to_pylist()]
    if arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type):
        return np.array([text or "" for text in column.to_pylist()], object)
    return _numbers(arrow, column)


def _numbers(arrow: Any, column: Any) -> Any:
    if arrow.types.is_boolean(column.type) or not column.null_count:
        return column.to_numpy() if column.num_chunks else np.empty(0, column.type.to_pandas_dtype())
    return column.cast(arrow.float64()).to_numpy()  # nulls among numbers become NaN
