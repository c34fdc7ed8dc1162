"""Convert any array to floats for drawing, with the facts of its caption and the shape to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import array_of, real_numbers
from torcheer.errors import BadArgument
from torcheer.vocabulary.array_statistics import finite_part

MOST_NUMBERS = 2**23  # of a larger array, every second along its longest axes, until it is smaller


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about an array that its caption shows."""

    shape: tuple[int, ...]
    type: str
    whole: bool  # whole numbers
    minimum: float = math.nan  # of the finite ones
    maximum: float = math.nan
    nans: int = 0
    infs: int = 0
    every: int = 1  # stride: only every n-th number is drawn


def numbers(array: Any) -> tuple[NDArray[Any], Facts]:
    """An array of any type as float32 or float64, and the facts about it; of a complex number, its magnitude."""
    array_values = _plain(array)
    shape, name = array_values.shape, array_values.dtype.name
    array_values, every = _reduced(array_values)
    if array_values.dtype.kind not in "biufc" and not _extended(array_values.dtype):
        raise BadArgument(f"an array of type {array_values.dtype} has no picture; numbers have")
    name = f"|{name}|" if array_values.dtype.kind == "c" else name
    values, is_integer = real_numbers(array_values), array_values.dtype.kind in "biu"
    _, minimum, maximum, nans, infs = finite_part(values)
    return values, Facts(shape, name, is_integer, minimum, maximum, nans, infs, every)


def _plain(array: Any) -> NDArray[Any]:
    """Convert to a numpy array; a torch tensor through its methods, without importing torch."""
    if not hasattr(array, "detach"):
        return np.asarray(array)
    return array_of(array.to_dense() if getattr(array, "is_sparse", False) else array)


def _extended(kind: np.dtype[Any]) -> bool:
    return kind.name.startswith(("bfloat", "float", "int", "uint"))  # of ml_dtypes, which numpy calls void


def _reduced(array: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Subsample an array that is too large, and the stride; a large picture equally in rows and columns."""
    steps, lengths = [1] * array.ndim, list(array.shape)
    while math.prod(lengths) > MOST_NUMBERS:
        longest = int(np.argmax(lengths))
        for axis in {array.ndim - 2, array.ndim - 1} if min(lengths[-2:]) > 500 and array.ndim > 1 else {longest}:
            steps[axis], lengths[axis] = steps[axis] * 2, -(-lengths[axis] // 2)
    every = math.prod(steps)
    return (array[tuple(slice(None, None, step) for step in steps)] if every > 1 else array), every


def core(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape without redundant axes of length one: leading ones, those of 1×1 maps, of a single column.

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
