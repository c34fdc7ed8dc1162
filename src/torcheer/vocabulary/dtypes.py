"""Types of numbers: one row for each, from which codecs, readers, tables and the page derive what they know of it.

A new type is a row here and its test in tests/test_vocabulary_dtypes.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["bool", "uint", "int", "float", "complex", "block"]


@dataclass(frozen=True, slots=True)
class Dtype:
    """A type of numbers, by torch's name; a kind of blocks by GGUF's."""

    name: str
    kind: Kind
    bytes: int  # of an element
    numbers: int = 1  # in an element: several share the bytes of a packed type, and of a block
    exponent_bits: int = 0  # of a float, and of each part of a complex number
    fraction_bits: int = 0  # without the one that is implied
    bias: int = 0  # of the exponent
    nonfinite: Literal["ieee", "all ones", "minus zero", ""] = "ieee"  # which bits are NaN; only "ieee" has infinities
    in_numpy: bool = True  # else its bits are kept as unsigned integers, and ml_dtypes may know it
    has_arithmetic: bool = True  # False: torch stores and converts it, and lacks most operations
    safetensors: str = ""  # its name in a header
    onnx: int = -1  # its number in TensorProto
    gguf: int = -1  # its number in a table of tensors
    pt2: int = -1  # its number in what torch.export saves
    storages: str = ""  # the classes that torch.save names for it

    def in_numbers(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the numbers in elements of some shape: the last axis of a packed type is longer."""
        return shape if self.numbers == 1 else (*shape[:-1], self.numbers * (shape[-1] if shape else 1))

    def in_elements(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the whole elements in numbers of some shape."""
        return shape if self.numbers == 1 or not shape else (*shape[:-1], shape[-1] // self.numbers)

    @property
    def rounding_unit(self) -> float:
        """Half the relative distance of neighbouring numbers, which is the most that rounding changes one."""
        return float(2.0 ** -(self.fraction_bits + 1))

    @property
    def least_exponent(self) -> int:
        """The power of two that is the smallest step between numbers."""
        return 1 - self.bias - self.fraction_bits

    @property
    def array_type(self) -> np.dtype[Any]:
        """What numpy keeps its bytes as: the type itself, or unsigned integers; little-endian."""
        return np.dtype(self.name if self.in_numpy else f"uint{8 * self.bytes}").newbyteorder("<")


def _float(name: str, bytes: int, exponent_bits: int, fraction_bits: int, **facts: Any) -> Dtype:
    facts = {"bias": 2 ** (exponent_bits - 1) - 1} | facts
    return Dtype(name, "float", bytes, exponent_bits=exponent_bits, fraction_bits=fraction_bits, **facts)


def _small_float(name: str, exponent_bits: int, fraction_bits: int, **facts: Any) -> Dtype:
    return _float(name, 1, exponent_bits, fraction_bits, in_numpy=False, has_arithmetic=False, **facts)


_BYTES: Final = "ByteStorage UntypedStorage QUInt8Storage QUInt4x2Storage QUInt2x4Storage"
_ROWS: Final = (
    Dtype("bool", "bool", 1, safetensors="BOOL", onnx=9, pt2=12, storages="BoolStorage"),
    Dtype("uint8", "uint", 1, safetensors="U8", onnx=2, pt2=1, storages=_BYTES),
    Dtype("int8", "int", 1, safetensors="I8", onnx=3, gguf=24, pt2=2, storages="CharStorage QInt8Storage"),
    Dtype("uint16", "uint", 2, safetensors="U16", onnx=4, pt2=28, has_arithmetic=False),
    Dtype("int16", "int", 2, safetensors="I16", onnx=5, gguf=25, pt2=3, storages="ShortStorage"),
    Dtype("uint32", "uint", 4, safetensors="U32", onnx=12, pt2=34, has_arithmetic=False),
    Dtype("int32", "int", 4, safetensors="I32", onnx=6, gguf=26, pt2=4, storages="IntStorage QInt32Storage"),
    Dtype("uint64", "uint", 8, safetensors="U64", onnx=13, pt2=35, has_arithmetic=False),
    Dtype("int64", "int", 8, safetensors="I64", onnx=7, gguf=27, pt2=5, storages="LongStorage"),
    _float("float16", 2, 5, 10, safetensors="F16", onnx=10, gguf=1, pt2=6, storages="HalfStorage"),
    _float("float32", 4, 8, 23, safetensors="F32", onnx=1, gguf=0, pt2=7, storages="FloatStorage"),
    _float("float64", 8, 11, 52, safetensors="F64", onnx=11, gguf=28, pt2=8, storages="DoubleStorage"),
    Dtype("complex64", "complex", 8, exponent_bits=8, fraction_bits=23, bias=127, safetensors="C64", onnx=14, pt2=10,
          storages="ComplexFloatStorage"),
    Dtype("complex128", "complex", 16, exponent_bits=11, fraction_bits=52, bias=1023, onnx=15, pt2=11,
          storages="ComplexDoubleStorage"),
    _float("bfloat16", 2, 8, 7, in_numpy=False, safetensors="BF16", onnx=16, gguf=30, pt2=13,
           storages="BFloat16Storage"),
    _small_float("float8_e4m3fn", 4, 3, nonfinite="all ones", safetensors="F8_E4M3", onnx=17, pt2=29),
    _small_float("float8_e5m2", 5, 2, safetensors="F8_E5M2", onnx=19, pt2=30),
    _small_float("float8_e4m3fnuz", 4, 3, bias=8, nonfinite="minus zero", safetensors="F8_E4M3FNUZ", onnx=18, pt2=31),
    _small_float("float8_e5m2fnuz", 5, 2, bias=16, nonfinite="minus zero", safetensors="F8_E5M2FNUZ", onnx=20, pt2=32),
    _small_float("float8_e8m0fnu", 8, 0, nonfinite="all ones", safetensors="F8_E8M0", onnx=24, pt2=33),
    _small_float("float4_e2m1fn_x2", 2, 1, numbers=2, nonfinite="", safetensors="F4", onnx=23),
    *(Dtype(name, "block", bytes, numbers, in_numpy=False, has_arithmetic=False, gguf=gguf)
      for gguf, name, numbers, bytes in (
          (2, "Q4_0", 32, 18), (3, "Q4_1", 32, 20), (6, "Q5_0", 32, 22), (7, "Q5_1", 32, 24), (8, "Q8_0", 32, 34),
          (9, "Q8_1", 32, 36), (10, "Q2_K", 256, 84), (11, "Q3_K", 256, 110), (12, "Q4_K", 256, 144),
          (13, "Q5_K", 256, 176), (14, "Q6_K", 256, 210), (15, "Q8_K", 256, 292), (16, "IQ2_XXS", 256, 66),
          (17, "IQ2_XS", 256, 74), (18, "IQ3_XXS", 256, 98), (19, "IQ1_S", 256, 50), (20, "IQ4_NL", 32, 18),
          (21, "IQ3_S", 256, 110), (22, "IQ2_S", 256, 82), (23, "IQ4_XS", 256, 136), (29, "IQ1_M", 256, 56),
          (34, "TQ1_0", 256, 54), (35, "TQ2_0", 256, 66), (39, "MXFP4", 32, 17))),
)  # fmt: skip

BLOCKS: Final = {row.name: row for row in _ROWS if row.kind == "block"}  # only GGUF has them
DTYPES: Final = {row.name: row for row in _ROWS if row.kind != "block"}
FLOATS: Final = {name: row for name, row in DTYPES.items() if row.kind == "float"}


def codes(format: Literal["safetensors", "onnx", "gguf", "pt2"]) -> dict[Any, Dtype]:
    """Return the types that a format of files has, by what it calls them."""
    return {code: row for row in _ROWS if (code := getattr(row, format)) not in ("", -1)}


def torch_types(rows: Iterable[Dtype]) -> dict[Any, Dtype]:
    """Return torch's own objects for some types; one that this torch lacks is left out."""
    torch = sys.modules["torch"]
    return {getattr(torch, row.name): row for row in rows if hasattr(torch, row.name)}


def decode_bits(dtype: Dtype, bits: NDArray[Any]) -> NDArray[Any]:
    """Convert the bits of a float that numpy lacks to float32, which holds its numbers exactly.

    The last axis of a packed type becomes as many times as long as numbers share an element.
    """
    if dtype.name == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    numbers: NDArray[Any] = _numbers_of_bytes(dtype)[bits]
    return numbers.reshape(dtype.in_numbers(bits.shape))


@cache
def _numbers_of_bytes(dtype: Dtype) -> NDArray[np.float32]:
    """Return the number of each of the 256 bytes; of a packed type its numbers, that of the lowest bits first."""
    width = 8 // dtype.numbers
    code = np.arange(256)
    if dtype.numbers > 1:
        code = (code[:, None] >> (width * np.arange(dtype.numbers))) & (2**width - 1)
    is_signed = width > dtype.exponent_bits + dtype.fraction_bits
    size_codes = 2 ** (width - is_signed)  # from here on, codes have the sign
    size, steps = code % size_codes, 2**dtype.fraction_bits
    exponent, fraction = size // steps, size % steps / steps
    is_subnormal = (exponent == 0) & (dtype.fraction_bits > 0)
    number = np.where(is_subnormal, fraction * 2.0 ** (1 - dtype.bias), (1 + fraction) * 2.0 ** (exponent - dtype.bias))
    if dtype.nonfinite == "ieee":
        is_top = exponent == 2**dtype.exponent_bits - 1
        number = np.where(is_top, np.where(fraction == 0, np.inf, np.nan), number)
    elif dtype.nonfinite == "all ones":
        number = np.where(size == size_codes - 1, np.nan, number)
    elif dtype.nonfinite == "minus zero":
        number = np.where(code == size_codes, np.nan, number)
    return np.asarray(np.where(code < size_codes, number, -number), np.float32)
