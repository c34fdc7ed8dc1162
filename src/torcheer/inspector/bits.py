"""Numbers of the types that numpy lacks, from their bits, for a machine without ml_dtypes."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_FLOAT8: Final = {  # bits of the exponent, and what it is moved by
    "float8_e4m3fn": (4, 7), "float8_e4m3fnuz": (4, 8), "float8_e5m2": (5, 15), "float8_e5m2fnuz": (5, 16),
    "float8_e8m0fnu": (8, 127),
}  # fmt: skip


def numbers_of(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array itself; as float32, which holds them all, where it is only the bits of such numbers."""
    if array.dtype.kind != "u" or array.dtype.name == name:
        return array
    if name == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return _table(name)[array] if name in _FLOAT8 else array


@cache
def _table(name: str) -> NDArray[np.float32]:
    """What each of the 256 bytes stands for."""
    exponent_bits, bias = _FLOAT8[name]
    byte = np.arange(256)
    if exponent_bits == 8:  # powers of two, and nothing else
        return np.where(byte == 255, np.nan, 2.0 ** (byte - bias)).astype(np.float32)
    below = 1 << (7 - exponent_bits)  # a power of two has so many numbers up to the next
    exponent, part = byte % 128 // below, byte % below / below
    size = np.where(exponent == 0, part * 2.0 ** (1 - bias), (1 + part) * 2.0 ** (exponent - bias))
    if name.endswith("uz"):
        size[128] = np.nan  # where others have a negative zero
    elif name.endswith("fn"):
        size[byte % 128 == 127] = np.nan
    else:
        size[exponent == 31] = np.where(part[exponent == 31] == 0, np.inf, np.nan)
    return np.where(byte < 128, size, -size).astype(np.float32)
