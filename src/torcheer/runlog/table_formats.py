"""A `Table` as numpy, pandas, arrow, torch and CSV have it, and back; types, NaN, text and tensor cells stay."""

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
    from torcheer.runlog.table import Table

Array = NDArray[Any]
_NOTE = "torcheer"  # in a DataFrame's attrs: what its cells are, where that cannot be seen


class Conversions:
    """Doors from a table to other kinds of tables, and back; each opened when it is used."""

    # -- numpy -------------------------------------------------------------------------------------------------------

    def to_dict(self: Any) -> dict[str, Array]:
        """Copies of its columns by name."""
        return {name: self[name].copy() for name in self.columns}

    def to_numpy(self: Any) -> Array:
        """A structured array: a field per column, tensors as they are, text as objects."""
        kinds = [(name, self[name].dtype, self[name].shape[1:]) for name in self.columns]
        found = np.empty(len(self), np.dtype(kinds))
        for name in self.columns:
            found[name] = self[name]
        return found

    @classmethod
    def from_numpy(cls: Any, data: Array | Mapping[str, Any], **about: Any) -> Table:
        """From a structured array, or a dict of arrays."""
        if isinstance(data, Mapping):
            return cls(data, **about)  # type: ignore[no-any-return]
        if not isinstance(data, np.ndarray) or data.dtype.names is None or data.ndim != 1:
            raise BadArgument("from_numpy takes a dict of arrays, or a structured array with one field per column")
        return cls({name: data[name] for name in data.dtype.names}, **about)  # type: ignore[no-any-return]

    # -- pandas ------------------------------------------------------------------------------------------------------

    def to_pandas(self: Any, *, spread: bool = False) -> Any:
        """A DataFrame; cells of tensors are arrays, or with `spread` a column for each number, as in eTorch."""
        pandas = _pandas()
        columns: dict[str, Any] = {}
        for name in self.columns:
            values = self[name]
            if values.ndim == 1:
                columns[name] = pandas.Series(values.copy(), dtype=None if values.dtype == object else values.dtype)
            elif spread:
                flat = values.reshape(len(values), math.prod(values.shape[1:]))
                columns |= {f"{name}_{place}": flat[:, place].copy() for place in range(flat.shape[1])}
            else:
                columns[name] = pandas.Series([cell.copy() for cell in values], dtype=object)
        frame = pandas.DataFrame(columns)
        if not spread:
            frame.attrs[_NOTE] = {name: (str(self[name].dtype), list(self[name].shape[1:])) for name in self.columns}
        return frame

    @classmethod
    def from_pandas(cls: Any, frame: Any, **about: Any) -> Table:
        """From a DataFrame; an index that has a name becomes a column."""
        if any(name is not None for name in frame.index.names):
            frame = frame.reset_index()
        notes = frame.attrs.get(_NOTE, {})
        columns = {}
        for place, name in enumerate(frame.columns):
            values = frame.iloc[:, place]
            kind, shape = notes.get(str(name), ("", []))
            if len(values) == 0 and kind:
                columns[str(name)] = np.empty((0, *shape), kind)
            else:
                columns[str(name)] = _from_series(values, str(name))
        return cls(columns, **about)  # type: ignore[no-any-return]

    # -- arrow -------------------------------------------------------------------------------------------------------

    def to_arrow(self: Any) -> Any:
        """An arrow table; cells of tensors are its fixed-shape tensors."""
        arrow = _arrow()
        return arrow.table({name: _to_arrow(arrow, self[name]) for name in self.columns})

    @classmethod
    def from_arrow(cls: Any, table: Any, **about: Any) -> Table:
        """From an arrow table: numbers, text, fixed-shape tensors, lists of equal length."""
        arrow = _arrow()
        columns = {name: _from_arrow(arrow, table.column(name), name) for name in table.column_names}
        return cls(columns, **about)  # type: ignore[no-any-return]

    # -- torch -------------------------------------------------------------------------------------------------------

    def to_torch(self: Any) -> dict[str, Any]:
        """A tensor for every column but those of text, which torch has none of."""
        torch = _torch()
        return {name: torch.from_numpy(self[name].copy()) for name in self.columns if self[name].dtype != object}

    def to_dataset(self: Any, *names: str) -> Any:
        """A `TensorDataset` of these columns, or of all that are no text: what a DataLoader takes."""
        tensors = self.to_torch()
        if text := [name for name in names if name not in tensors]:
            self[text[0]]  # an unknown one says so itself
            raise BadArgument(f"column {text[0]!r} holds text, which a TensorDataset cannot")
        return _torch().utils.data.TensorDataset(*(tensors[name] for name in names or tensors))

    @classmethod
    def from_torch(cls: Any, data: Any, names: Sequence[str] = (), **about: Any) -> Table:
        """From a dict of tensors, or from a `TensorDataset` with a name for each of its tensors."""
        if isinstance(data, Mapping):
            return cls(data, **about)  # type: ignore[no-any-return]
        tensors = getattr(data, "tensors", None)
        if tensors is None:
            raise BadArgument(f"from_torch takes a dict of tensors or a TensorDataset, not a {type(data).__name__}")
        if len(tensors) != len(names):
            raise BadArgument(f"the dataset has {len(tensors)} tensors, and names={tuple(names)} are {len(names)}")
        return cls(dict(zip(names, tensors)), **about)  # type: ignore[no-any-return]

    # -- CSV ---------------------------------------------------------------------------------------------------------

    def to_csv(self: Any, path: str | PathLike[str], *, header: str = "emergent") -> None:
        """Write it, tabs between its cells where the file is named .tsv, else commas. Headers say the types, as those
        of eTorch and emergent do: #Loss, $Name, %Input[2:0,0]<2:5,5>; with header="plain" just the names."""
        from torcheer.runlog.table_csv import write

        write(self, path, header)

    @classmethod
    def from_csv(cls: Any, path: str | PathLike[str], **about: Any) -> Table:
        """Read a file of eTorch, emergent, `to_csv`, or any other: types are in its headers, or found in its cells."""
        from torcheer.runlog.table_csv import read

        return cls(read(path), **about)  # type: ignore[no-any-return]


@contextmanager
def _needed(name: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise TorcheerError(f"tables become {name}'s where that is installed: pip install 'torcheer[all]'") from None


def _pandas() -> Any:
    with _needed("pandas"):
        import pandas
    return pandas


def _arrow() -> Any:
    with _needed("pyarrow"):
        import pyarrow
    return pyarrow


def _torch() -> Any:
    with _needed("torch"):
        import torch
    return torch


def _from_series(values: Any, name: str) -> Any:
    found = values.to_numpy()
    if found.dtype.kind in "biuf":
        return found
    kinds = {type(one) for one in found}
    if any(issubclass(kind, str) for kind in kinds):  # pandas says "no text" as None or NaN
        return ["" if _missing(one) else one for one in found]
    if str(values.dtype) in ("str", "string") and not kinds:
        return np.empty(0, object)
    cells: list[Any] = [np.nan if _missing(one) else one for one in found]
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
        column = arrow.chunked_array([one.storage for one in column.chunks], kind.storage_type)
    if arrow.types.is_fixed_size_list(column.type):
        shape = shape or (column.type.list_size,)
        flat = arrow.chunked_array([one.flatten() for one in column.chunks], column.type.value_type)
        if column.null_count or len(flat) != len(column) * int(np.prod(shape)):
            raise BadArgument(f"column {name!r} has cells without a tensor")
        return _numbers(arrow, flat).reshape(len(column), *shape)
    if arrow.types.is_list(column.type) or arrow.types.is_large_list(column.type):
        return [np.array(cell) for cell in column.to_pylist()]
    if arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type):
        return np.array([one or "" for one in column.to_pylist()], object)
    return _numbers(arrow, column)


def _numbers(arrow: Any, column: Any) -> Any:
    if arrow.types.is_boolean(column.type) or not column.null_count:
        return column.to_numpy() if column.num_chunks else np.empty(0, column.type.to_pandas_dtype())
    return column.cast(arrow.float64()).to_numpy()  # gaps among numbers are NaN
