"""`etensor`: tensors of Go's names, each around a numpy array."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import BadArgument
from torcheer_originals.etorch.go_values import Handle

Array = NDArray[Any]


class Type(str):
    """A type of numbers, or text."""

    def String(self) -> str:
        """Its name."""
        return str(self)


BOOL, UINT8, INT8, UINT16, INT16 = map(Type, ("BOOL", "UINT8", "INT8", "UINT16", "INT16"))
UINT32, INT32, UINT64, INT64, INT = map(Type, ("UINT32", "INT32", "UINT64", "INT64", "INT"))
FLOAT16, FLOAT32, FLOAT64, STRING = map(Type, ("FLOAT16", "FLOAT32", "FLOAT64", "STRING"))


class Slice(Sequence[Any]):
    """The values of a tensor in a row: they can be read, set, and copied into by `copy`."""

    def __init__(self, values: Array) -> None:
        self.values = values

    def copy(self, source: Any) -> None:
        """Copy values into these: as many as there are on both sides, as Go does."""
        flat = np.asarray(source.detach().cpu() if hasattr(source, "detach") else source).reshape(-1)
        count = min(len(flat), len(self.values))
        self.values[:count] = flat[:count]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values.tolist())

    def __getitem__(self, key: Any) -> Any:
        return self.values[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.values[key] = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.values, dtype)


class Shape:
    """The shape of a tensor or layer: `Shp.Shp` are its sizes."""

    def __init__(self, sizes: Sequence[int], names: Sequence[str] | None = None) -> None:
        self.Shp, self.Nms = [int(size) for size in sizes], list(names or ())

    def Len(self) -> int:
        """The number of values."""
        return math.prod(self.Shp) if self.Shp else 0

    def NumDims(self) -> int:
        """The number of dimensions."""
        return len(self.Shp)

    def Dim(self, dimension: int) -> int:
        """The size of a dimension."""
        return self.Shp[dimension]

    def Shapes(self) -> list[int]:
        """The sizes."""
        return list(self.Shp)


class Tensor(metaclass=Handle):
    """A tensor: `Values` is a flat view of `array`, which may be a column of a table."""

    type: Type = FLOAT64
    kind: np.dtype[Any] = np.dtype(np.float64)

    def __init__(self, array: Any = None) -> None:
        self.array: Array = np.zeros(0, self.kind) if array is None else np.asarray(array)

    @property
    def Values(self) -> Slice:
        """The values in a row, to read and to write."""
        return Slice(self.array.reshape(-1))

    @property
    def Shp(self) -> Shape:
        """The shape."""
        return Shape(self.array.shape)

    def SetShape(self, sizes: Sequence[int], strides: Any = None, names: Any = None) -> None:
        """Give it another shape; values stay where there is room."""
        grown = _zeros(sizes, self.kind)
        Slice(grown.reshape(-1)).copy(self.array)
        self.array = grown

    def Shapes(self) -> list[int]:
        """The sizes of the dimensions."""
        return list(self.array.shape)

    def Dim(self, dimension: int) -> int:
        """The size of a dimension."""
        return int(self.array.shape[dimension])

    def NumDims(self) -> int:
        """The number of dimensions."""
        return self.array.ndim

    def Len(self) -> int:
        """The number of values."""
        return self.array.size

    def DataType(self) -> Type:
        """The type of its values."""
        return self.type

    def Value1D(self, index: int) -> Any:
        """The value at a place in the row of values."""
        return self.array.reshape(-1)[index].item() if self.kind.kind != "O" else self.array.reshape(-1)[index]

    def Set1D(self, index: int, value: Any) -> None:
        """Set a value at a place in the row of values."""
        self.Values[index] = value

    def Value(self, index: Sequence[int]) -> Any:
        """The value at an index."""
        return self.array[tuple(index)]

    def Set(self, index: Sequence[int], value: Any) -> None:
        """Set the value at an index."""
        self.array[tuple(index)] = value

    FloatVal1D, SetFloat1D, FloatVal, SetFloat = Value1D, Set1D, Value, Set
    StringVal1D, SetString1D = Value1D, Set1D

    def SetZeros(self) -> None:
        """Set all values to 0, or empty text."""
        self.array[...] = "" if self.kind.kind == "O" else 0

    def CopyFrom(self, other: Any) -> None:
        """Copy the values of another tensor."""
        self.Values.copy(other)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.array, dtype)

    def __len__(self) -> int:
        return self.array.size

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.Shapes()})"


def _zeros(sizes: Sequence[int], kind: np.dtype[Any]) -> Array:
    return np.full(tuple(sizes), "", object) if kind.kind == "O" else np.zeros(tuple(sizes), kind)


def _tensor(name: str, code: Type, kind: Any) -> Any:
    return Handle(name, (Tensor,), {"type": code, "kind": np.dtype(kind), "__doc__": f"A tensor of {code}."})


Bits = _tensor("Bits", BOOL, np.bool_)
Uint8, Int8 = _tensor("Uint8", UINT8, np.uint8), _tensor("Int8", INT8, np.int8)
Uint16, Int16 = _tensor("Uint16", UINT16, np.uint16), _tensor("Int16", INT16, np.int16)
Uint32, Int32 = _tensor("Uint32", UINT32, np.uint32), _tensor("Int32", INT32, np.int32)
Uint64, Int64 = _tensor("Uint64", UINT64, np.uint64), _tensor("Int64", INT64, np.int64)
Int, Float16 = _tensor("Int", INT, np.int64), _tensor("Float16", FLOAT16, np.float16)
Float32, Float64 = _tensor("Float32", FLOAT32, np.float32), _tensor("Float64", FLOAT64, np.float64)
String = _tensor("String", STRING, object)
TENSORS: dict[Type, type[Tensor]] = {
    kind.type: kind for kind in (Bits, Uint8, Int8, Uint16, Int16, Uint32, Int32, Uint64, Int, Float16, String)
} | {INT64: Int64, FLOAT32: Float32, FLOAT64: Float64}
BY_KIND: dict[np.dtype[Any], Any] = {kind.kind: kind for code, kind in TENSORS.items() if code != INT}


def tensor_of(array: Array) -> Tensor:
    """The tensor around an array of any kind; it shares the memory, except that of text of a fixed width."""
    kind = array.dtype if array.dtype.kind not in "US" else np.dtype(object)
    if kind not in BY_KIND:
        raise BadArgument(f"an array of {array.dtype} is no tensor of etable's: {', '.join(map(str, TENSORS))}")
    tensor: Tensor = BY_KIND[kind](np.asarray(array, kind))
    return tensor


def zeros(code: str, sizes: Sequence[int]) -> Array:
    """An array of zeros, or empty text, of a type."""
    return _zeros(sizes, TENSORS[Type(code)].kind)


def _maker(kind: type[Tensor]) -> Callable[..., Tensor]:
    def make(sizes: Sequence[int], strides: Any = None, names: Any = None) -> Tensor:
        return kind(_zeros(sizes, kind.kind))

    make.__doc__ = f"A new tensor of {kind.type}, all zeros."
    return make


NewBits, NewString, NewInt = _maker(Bits), _maker(String), _maker(Int)
NewUint8, NewInt8, NewUint16, NewInt16 = _maker(Uint8), _maker(Int8), _maker(Uint16), _maker(Int16)
NewUint32, NewInt32, NewUint64, NewInt64 = _maker(Uint32), _maker(Int32), _maker(Uint64), _maker(Int64)
NewFloat32, NewFloat64 = _maker(Float32), _maker(Float64)
