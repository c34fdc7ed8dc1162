"""Values as arrays: torch tensors (live capture) or numpy arrays (file), by duck typing."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import array_of
from torcheer.errors import BadArgument, ValueUnavailable
from torcheer.terminal import cut

BLOCK = 5  # rows and columns of an excerpt


def recording_paused() -> AbstractContextManager[Any]:
    """Return a context in which reading values is not recorded, for readers inside a recording."""
    torch = sys.modules.get("torch")
    return torch._C.DisableTorchFunction() if torch is not None else nullcontext()


def to_numpy(value: Any) -> NDArray[Any]:
    """Convert a value to numpy; dtypes it lacks become float32, nested tensors are padded."""
    if isinstance(value, np.ndarray) or not hasattr(value, "detach"):
        return np.asarray(value)
    with recording_paused():
        try:
            return _from_torch(_pad(value.detach()))
        except (RuntimeError, NotImplementedError, TypeError, AttributeError, BadArgument) as error:
            reason = str(error).partition("\n")[0][:200]
            raise ValueUnavailable(f"a {type(value).__name__} cannot be read as an array: {reason}") from None


def _pad(value: Any) -> Any:
    """Fill the gaps of nested and masked tensors with zeros; return others unchanged."""
    if getattr(value, "is_nested", False):
        return sys.modules["torch"].nested.to_padded_tensor(value, 0)
    return value.to_tensor(0) if hasattr(value, "get_mask") else value


def _from_torch(value: Any) -> NDArray[Any]:
    if getattr(value, "is_meta", False):
        raise ValueUnavailable("a tensor on the meta device has a shape but no values")
    if getattr(value, "is_quantized", False):
        value = value.dequantize()
    if getattr(value, "is_nested", False):
        value = value.to_padded_tensor(0)
    if "strided" not in str(value.layout):
        value = value.to_dense()
    return array_of(value)


def memory_bytes(values: Iterable[Any]) -> int:
    """Return the bytes of memory that tensors or arrays take together; storage that several share counts once."""
    sizes: dict[Any, int] = {}
    for value in values:
        for key, size in _memory_of(value):
            sizes[key] = size
    return sum(sizes.values())


def _memory_of(value: Any) -> Iterator[tuple[Any, int]]:
    """Yield the address and size of each block of memory behind a value."""
    if not hasattr(value, "untyped_storage"):
        yield ("array", value.__array_interface__["data"][0], value.nbytes), value.nbytes
        return
    with recording_paused():
        try:
            storage = value.untyped_storage()
            yield (str(value.device), storage.data_ptr() or id(value)), storage.nbytes()
        except (RuntimeError, NotImplementedError):  # sparse, nested, or of a subclass: made of other tensors
            yield id(value), value.numel() * value.element_size()


def excerpt(value: Any) -> str:
    """Return the first rows and columns of the last two dimensions, "..." if there are more."""
    try:
        with recording_paused():
            return _excerpt(value.detach() if hasattr(value, "detach") else value)
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError) as error:
        return f"(cannot be shown: {str(error).splitlines()[0][:200]})"


def _excerpt(value: Any) -> str:
    if getattr(value, "is_nested", False) or "strided" not in str(getattr(value, "layout", "strided")):
        return "\n".join(cut(str(value).splitlines(), 3 * BLOCK))  # there is no corner to show
    shape = tuple(value.shape)
    if 0 in shape:
        return _text(value)
    block = value[(0,) * (len(shape) - 2) + (slice(BLOCK),) * min(len(shape), 2)]
    return _text(block) + ("..." if tuple(block.shape) != shape else "")


def _text(block: Any) -> str:
    if hasattr(block, "detach"):
        return str(block)
    numbers = np.array2string(
        np.asarray(block), precision=4, separator=", ", prefix="tensor(", floatmode="maxprec_equal"
    )
    return f"tensor({numbers})"


def bits_equal(first: NDArray[Any], second: NDArray[Any]) -> bool:
    """Whether two arrays have equal shape, dtype and bits."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.dtype.hasobject:
        return bool(np.array_equal(first, second))
    return bool(np.array_equal(_bits(first), _bits(second)))


def equal_bits(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.bool_]:
    """Where two arrays of one shape hold the same bits; nowhere if their types differ."""
    if first.shape != second.shape or first.dtype != second.dtype or first.dtype.hasobject:
        return np.zeros(first.shape, bool)
    return np.asarray((_bits(first) == _bits(second)).reshape(*first.shape, first.itemsize).all(-1))


def _bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
