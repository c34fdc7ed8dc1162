"""The encoding of a Sample for archive, ring and page.

A JSON descriptor and the array's bytes.

The bytes are little-endian in row-major order; the descriptor names their type.
"""

from __future__ import annotations

import ctypes
import math
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.records import Sample
from torcheer.terminal import short_repr
from torcheer.vocabulary.dtypes import DTYPES, FLOATS, decode_bits

TYPES: dict[str, np.dtype[Any]] = {name: dtype.array_type for name, dtype in DTYPES.items()}
_SIZES = {name: dtype.bytes for name, dtype in DTYPES.items()}
_MAX_DIMENSIONS, _MAX_BYTES = 64, 2**63 - 1  # numpy's limits


Fill = Callable[[memoryview], None]  # writes the payload of a sample
Offer = tuple[dict[str, Any], int, Fill]  # a sample to be sent: its header, the bytes of its payload, who writes them


@dataclass(slots=True)  # not frozen, which would double the cost of making one
class MemoryCopy:
    """A `Fill` that copies bytes at an address, which `owner` keeps valid."""

    owner: Any
    address: int
    size_bytes: int

    def __call__(self, view: memoryview) -> None:
        """Copy them into a view."""
        self.write_at(address_of(view))

    def write_at(self, address: int) -> None:
        """Copy them to another address."""
        ctypes.memmove(address, self.address, self.size_bytes)


def address_of(view: memoryview) -> int:
    """Return where the memory of a writable view begins; 0 where it is empty."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else 0


def encode(sample: Sample) -> tuple[dict[str, Any], memoryview]:
    """Encode a sample as descriptor and bytes.

    Its step is stored apart, as many samples share one.
    """
    name, shape, payload = to_bytes(sample.array)
    return describe(sample, name, shape), payload


def describe(sample: Sample, name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the descriptor of a sample whose array has this type and shape."""
    if not isinstance(sample.layer, str) or not isinstance(sample.variable, str):
        raise BadArgument(f"layer {sample.layer!r} and variable {sample.variable!r} of a sample must be text")
    return {
        "layer": sample.layer, "variable": sample.variable, "item": whole_number(sample.item, "item"),
        "type": name, "shape": shape,
    }  # fmt: skip


def decode(descriptor: Mapping[str, Any], payload: Any, step: int) -> Sample:
    """Decode a sample; its array is a view of the payload."""
    layer, variable, item, name, shape = described(descriptor)
    if memoryview(payload).nbytes != bytes_of(name, shape):
        raise ArchiveDamaged(
            f"{layer!r} has {memoryview(payload).nbytes} bytes, which is not what {name} {shape} needs"
        )
    return Sample(step, layer, variable, item, from_bytes(name, shape, payload))


def described(descriptor: Mapping[str, Any]) -> tuple[str, str, int, str, tuple[int, ...]]:
    """Validate a descriptor; return layer, variable, item, type and shape."""
    try:
        layer, variable, item, name = (
            descriptor["layer"],
            descriptor["variable"],
            descriptor["item"],
            descriptor["type"],
        )
        shape = descriptor["shape"]
        is_valid = type(layer) is str and type(variable) is str and type(item) is int and name in TYPES
        is_valid = is_valid and type(shape) in (list, tuple) and len(shape) <= _MAX_DIMENSIONS
        for length in shape:
            is_valid = is_valid and type(length) is int and length >= 0
        if is_valid and 0 in shape:  # an empty payload does not bound the other dimensions
            is_valid = math.prod(length or 1 for length in shape) * _SIZES[name] <= _MAX_BYTES
    except (KeyError, TypeError) as error:
        raise ArchiveDamaged(f"a sample cannot be read: {error!r}") from None
    if not is_valid:
        raise ArchiveDamaged(
            f"{short_repr(layer)} of type {short_repr(name)} and shape {short_repr(shape)} is no sample"
        )
    return layer, variable, item, name, tuple(shape)


def array_bytes(descriptor: Mapping[str, Any]) -> int:
    """Return the size in bytes of the array that a descriptor describes."""
    _, _, _, name, shape = described(descriptor)
    return bytes_of(name, shape)


def bytes_of(name: str, shape: tuple[int, ...]) -> int:
    """Return the size of an array in bytes."""
    return math.prod(shape) * _SIZES[name]


def whole_number(value: Any, field: str) -> int:
    """Convert a whole number, numpy's included, to int for JSON."""
    try:
        return int(operator.index(value))
    except TypeError:
        raise BadArgument(f"{field} of a sample is {value!r}, which is not a whole number") from None


def to_bytes(array: Any) -> tuple[str, tuple[int, ...], memoryview]:
    """Return the name of an array's type, its shape, and its bytes."""
    if reason := refusal(array):
        raise BadArgument(reason)
    if hasattr(array, "detach"):
        return _tensor_to_bytes(array)
    values = np.asarray(array)
    name = type_name(values.dtype)
    bits = values if DTYPES[name].in_numpy else values.view(TYPES[name].newbyteorder("="))
    return name, values.shape, _bytes(np.ascontiguousarray(bits).astype(TYPES[name], copy=False))


def _tensor_to_bytes(tensor: Any) -> tuple[str, tuple[int, ...], memoryview]:
    """Do the same for a torch tensor, without importing torch: a tensor implies it is imported."""
    torch, name = sys.modules["torch"], type_name(tensor.dtype)
    with torch._C.DisableTorchFunction():
        values = tensor.detach()
        if not values.is_cpu or values.is_conj() or values.is_neg():
            values = values.cpu().resolve_conj().resolve_neg()
        values = values.contiguous()
        shape = tuple(values.shape)
        if not DTYPES[name].in_numpy:
            values = values.reshape(-1).view(getattr(torch, TYPES[name].name))
        return name, shape, _bytes(values.numpy().astype(TYPES[name], copy=False))


def _bytes(values: NDArray[Any]) -> memoryview:
    return memoryview(values.reshape(-1).view(np.uint8).data) if values.size else memoryview(b"")


def refusal(array: Any) -> str:
    """Return why an array cannot be stored; "" if it can."""
    if not hasattr(array, "detach"):
        kind = np.asarray(array).dtype
    elif _is_wrapper(array):
        return not_supported(array)
    elif array.layout is not sys.modules["torch"].strided or array.is_meta or array.is_nested or array.dim() > 64:
        return f"a tensor of layout {array.layout} on {array.device} cannot be kept; to_dense() may help"
    else:
        kind = array.dtype
    return "" if type_name(kind) in TYPES else f"an array of type {kind} cannot be kept; known are {', '.join(TYPES)}"


def not_supported(tensor: Any) -> str:
    """Return why a tensor of another package's class (quantised, masked, …) cannot be stored."""
    return f"{type(tensor).__name__} is not supported: only its own code can read its numbers"


def held_bytes(tensor: Any) -> int:
    """Return the bytes of a tensor's numbers; of a wrapper subclass (quantised weights) those of the tensors inside.

    A distributed tensor counts as the whole that it is a part of.
    """
    if is_composed(tensor):
        return sum(held_bytes(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0])
    return int(tensor.numel()) * int(tensor.element_size())


def is_composed(tensor: Any) -> bool:
    """Return whether a tensor's numbers lie in several others: a quantised weight, not a distributed one."""
    is_divided = hasattr(tensor, "__tensor_flatten__") and not hasattr(tensor, "_local_tensor")
    return is_divided and _is_wrapper(tensor)


def _is_wrapper(tensor: Any) -> bool:
    """Return whether a tensor is a wrapper subclass without its own storage."""
    disabled = sys.modules["torch"]._C._disabled_torch_dispatch_impl
    return getattr(type(tensor), "__torch_dispatch__", disabled) is not disabled and not tensor.is_nested


def type_name(kind: Any) -> str:
    """Return the name of a numpy or torch type, without "torch."; of bits, that of the type that they are of."""
    about = getattr(kind, "metadata", None)
    return str(about["bits_of"]) if about and "bits_of" in about else _plain_name(kind)


@cache
def _plain_name(kind: Any) -> str:
    return str(kind.name if isinstance(kind, np.dtype) else kind).removeprefix("torch.")


def from_bytes(name: str, shape: tuple[int, ...], data: Any) -> NDArray[Any]:
    """Return an array over bytes; a type that numpy lacks uses ml_dtypes.

    Where that is not installed, or lacks it too, these are bits, as unsigned integers whose dtype says so: written
    again, they are what they were.
    """
    if name not in TYPES:
        raise ArchiveDamaged(f"a tensor of unknown type {name!r}; known are {', '.join(TYPES)}")
    array: NDArray[Any] = np.frombuffer(data, TYPES[name]).reshape(shape)
    if not DTYPES[name].in_numpy:
        bits = np.dtype(TYPES[name], metadata={"bits_of": name})
        try:
            import ml_dtypes
        except ImportError:
            return array.view(bits)
        array = array.view(getattr(ml_dtypes, name, bits))
    return array


def array_of(tensor: Any) -> NDArray[Any]:
    """Return a torch tensor as an array; a type that numpy lacks as float32, which holds its numbers exactly."""
    name, shape, payload = to_bytes(tensor)
    return numbers_of(name, np.frombuffer(payload, TYPES[name]).reshape(shape))


def crc32(data: Any, start: int = 0) -> int:
    """Compute zlib's CRC-32, with isal if installed: ten times as fast, faster than a disk."""
    return int(_crc32()(data, start))


def has_fast_crc32() -> bool:
    """Return whether isal computes the checksums."""
    return "isal" in str(_crc32().__module__)


@cache
def _crc32() -> Any:
    try:
        from isal.isal_zlib import crc32
    except ImportError:
        from zlib import crc32
    return crc32


def numbers_of(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Convert the bits of bfloat16 or float8 to float32, which holds them exactly.

    Return others unchanged.
    """
    are_bits = array.dtype.kind == "u" and array.dtype.name != name and name in FLOATS
    return decode_bits(FLOATS[name], array) if are_bits else array


def real_numbers(array: Any) -> NDArray[Any]:
    """Convert to real numbers.

    Complex by magnitude, bool to 0 and 1, types that numpy lacks to float32.
    """
    values: NDArray[Any] = np.asarray(array)
    kind = values.dtype.kind
    if kind == "c":
        with np.errstate(all="ignore"):
            return np.asarray(np.abs(values.astype(np.complex128)))  # no float32 holds some magnitudes of two of them
    if kind == "f" and values.dtype.itemsize in (4, 8):
        return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))
    if kind in "fiu" and values.dtype.itemsize > 2:
        return values.astype(np.float64)
    return values.astype(np.float32)
