"""Arrays as bytes: little-endian, row by row, under a name for their type."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import ArchiveDamaged, BadArgument

_NUMPY = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32",
          "float64", "complex64", "complex128")  # fmt: skip
_OTHERS = {  # types that numpy lacks -> what their bits are kept as
    "bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "float8_e4m3fnuz": "uint8",
    "float8_e5m2fnuz": "uint8", "float8_e8m0fnu": "uint8",
}  # fmt: skip
TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(_OTHERS.get(name, name)).newbyteorder("<") for name in (*_NUMPY, *_OTHERS)
}


def to_bytes(array: Any) -> tuple[str, tuple[int, ...], memoryview]:
    """The name of an array's type, its shape, and its bytes."""
    if hasattr(array, "detach"):
        return _tensor_to_bytes(array)
    found = np.asarray(array)
    name = found.dtype.name
    if name not in TYPES:
        raise BadArgument(f"an array of type {found.dtype} cannot be kept; known are {', '.join(TYPES)}")
    bits = found.view(TYPES[name].newbyteorder("=")) if name in _OTHERS else found
    plain = np.ascontiguousarray(bits).astype(TYPES[name], copy=False)
    return name, found.shape, memoryview(plain.reshape(-1).view(np.uint8).data) if plain.size else memoryview(b"")


def _tensor_to_bytes(tensor: Any) -> tuple[str, tuple[int, ...], memoryview]:
    """The same for a torch tensor, without importing torch: whoever has one has it already."""
    torch = sys.modules["torch"]
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in TYPES:
        raise BadArgument(f"a tensor of type {tensor.dtype} cannot be kept; known are {', '.join(TYPES)}")
    with torch._C.DisableTorchFunction():
        plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        shape = tuple(plain.shape)
        if name in _OTHERS:
            plain = plain.reshape(-1).view(getattr(torch, _OTHERS[name]))
        _, _, data = to_bytes(plain.numpy())
    return name, shape, data


def from_bytes(name: str, shape: tuple[int, ...], data: Any) -> NDArray[Any]:
    """An array over bytes; a type that numpy lacks comes as ml_dtypes has it, where that is installed."""
    if name not in TYPES:
        raise ArchiveDamaged(f"a tensor of unknown type {name!r}; known are {', '.join(TYPES)}")
    found: NDArray[Any] = np.frombuffer(data, TYPES[name]).reshape(shape)
    if name in _OTHERS:
        try:
            import ml_dtypes
        except ImportError:
            return found  # the bits, as whole numbers
        found = found.view(getattr(ml_dtypes, name))
    return found
