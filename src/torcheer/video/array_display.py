"""Any array as plain floating-point numbers, what can be said of them in words, and the shape that is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import BadArgument

MOST_NUMBERS = 2**23  # of a larger array, every second along its longest axes, until it is smaller


@dataclass(frozen=True, slots=True)
class Facts:
    """What is said about an array in words."""

    shape: tuple[int, ...]
    type: str
    whole: bool  # whole numbers
    minimum: float = math.nan  # of the finite ones
    maximum: float = math.nan
    nans: int = 0
    infs: int = 0
    every: int = 1  # of these numbers, the n-th were looked at


def numbers(array: Any) -> tuple[NDArray[Any], Facts]:
    """An array of any type as float32 or float64, and the facts about it; of a complex number, its magnitude."""
    found = _plain(array)
    shape, name = found.shape, found.dtype.name
    found, every = _reduced(found)
    if found.dtype.kind == "c":
        found, name = np.abs(found.astype(np.complex128)), f"|{name}|"
    elif found.dtype.kind not in "biuf" and not _extended(found.dtype):
        raise BadArgument(f"an array of type {found.dtype} has no picture; numbers have")
    exact = found.dtype.itemsize <= 2 or found.dtype == np.float32
    values = found.astype(np.float32 if exact else np.float64, copy=False)
    whole = found.dtype.kind in "biu"
    minimum, maximum, nans, infs = ends(values) if values.size else (math.nan, math.nan, 0, 0)
    return values, Facts(shape, name, whole, minimum, maximum, nans, infs, every)


def ends(values: NDArray[Any]) -> tuple[float, float, int, int]:
    """The smallest and largest finite number, and how many are not a number or infinite."""
    minimum, maximum = float(values.min()), float(values.max())
    if math.isfinite(minimum) and math.isfinite(maximum):
        return minimum, maximum, 0, 0
    finite, nans = values[np.isfinite(values)], int(np.isnan(values).sum())
    minimum, maximum = (float(finite.min()), float(finite.max())) if finite.size else (math.nan, math.nan)
    return minimum, maximum, nans, values.size - finite.size - nans


def _plain(array: Any) -> NDArray[Any]:
    """numpy's own array of whatever was given; a torch tensor is asked by its methods, torch is not imported."""
    if not hasattr(array, "detach"):
        return np.asarray(array)
    tensor = array.detach().cpu()
    tensor = tensor.to_dense() if getattr(tensor, "is_sparse", False) else tensor
    if tensor.is_floating_point() and tensor.element_size() < 4:
        tensor = tensor.float()  # numpy has no bfloat16
    return np.asarray(tensor.resolve_conj().resolve_neg().numpy())


def _extended(kind: np.dtype[Any]) -> bool:
    return kind.name.startswith(("bfloat", "float", "int", "uint"))  # of ml_dtypes: they say they are void


def _reduced(array: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Every n-th of too many numbers, and n; of a large picture, every second row and column alike."""
    steps, lengths = [1] * array.ndim, list(array.shape)
    while math.prod(lengths) > MOST_NUMBERS:
        longest = int(np.argmax(lengths))
        for axis in {array.ndim - 2, array.ndim - 1} if min(lengths[-2:]) > 500 and array.ndim > 1 else {longest}:
            steps[axis], lengths[axis] = steps[axis] * 2, -(-lengths[axis] // 2)
    every = math.prod(steps)
    return (array[tuple(slice(None, None, step) for step in steps)] if every > 1 else array), every


def core(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape without axes of length one that say nothing: leading ones, those of 1×1 maps, of a single column.

    >>> core((1, 28, 28)), core((64, 512, 1, 1)), core((10, 1)), core((1, 1)), core((8, 1, 5, 5))
    ((28, 28), (64, 512), (10,), (), (8, 1, 5, 5))
    """
    lengths = tuple(shape)
    while lengths and lengths[0] == 1:
        lengths = lengths[1:]
    while lengths and lengths[-1] == 1 and (len(lengths) == 2 or all(length == 1 for length in lengths[2:])):
        lengths = lengths[:-1]
    return lengths


def matrix(values: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Any array as a matrix, its numbers in their order, and how many cells at its end are none of them.

    It is cut between the axes where the matrix is nearest to a square; a single axis is broken into rows.
    """
    lengths = core(values.shape)
    if len(lengths) == 2:
        return values.reshape(lengths), 0
    if len(lengths) > 2:
        rows = [math.prod(lengths[:cut]) for cut in range(1, len(lengths))]
        best = min(rows, key=lambda rows: abs(math.log(rows * rows / values.size)))
        return values.reshape(best, -1), 0
    columns = math.isqrt(values.size - 1) + 1
    padded = np.zeros(columns * -(-values.size // columns), values.dtype)
    padded[: values.size] = values.reshape(-1)
    return padded.reshape(-1, columns), padded.size - values.size
