"""In which order one array holds the numbers of another: as it is, with exchanged axes, or otherwise reordered."""

from __future__ import annotations

from itertools import permutations
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.history.alignment.value_samples import bounded, positions, root_mean_square, unbounded

Array = NDArray[Any]
Axes = tuple[int, ...]
MOST_AXES = 5
AS_IS, REORDERED = (), (-1,)  # orders besides exchanged axes


def relative_error(first: Array, second: Array) -> float:
    """Return the root mean square difference of two flat arrays, relative to the larger of the two."""
    if first.size == 0:
        return 0.0
    a, b = first.astype(np.float64), second.astype(np.float64)
    odd = unbounded(a), unbounded(b)
    if not np.array_equal(odd[0], odd[1]) or not np.array_equal(np.sign(a[odd[0]]), np.sign(b[odd[1]]), equal_nan=True):
        return inf
    a, b = np.where(odd[0], 0.0, a), np.where(odd[1], 0.0, b)
    scale = max(root_mean_square(a), root_mean_square(b))
    return root_mean_square(a - b) / scale if scale else 0.0


def squeezed(array: Array) -> Array:
    """Return the array without axes of length 1."""
    return array.reshape([length for length in array.shape if length != 1])


def arranged(array: Array, order: Axes) -> Array:
    """Return the numbers of `array`, flat, with its axes exchanged as `order` says."""
    return (squeezed(array).transpose(order) if order else array).reshape(-1)


def orders_of(shape: tuple[int, ...]) -> list[Axes]:
    """Return every exchange of axes that changes the order of the numbers."""
    if not 2 <= len(shape) <= MOST_AXES:
        return []
    return [order for order in permutations(range(len(shape))) if order != tuple(range(len(shape)))]


def sample_in_order(array: Array, order: Axes) -> Array:
    """Return what `arranged(array, order)` holds at the places of a sample."""
    array = squeezed(array)
    turned = array.transpose(order)
    places = np.unravel_index(positions(array.size), turned.shape)
    return bounded(turned[places].astype(np.float64))


def sample_distances(sample: Array, samples: Array) -> Array:
    """Return the relative distance of one sample to each row of `samples`."""
    scale = np.maximum(np.linalg.norm(samples, axis=1), np.linalg.norm(sample))
    gaps = np.linalg.norm(samples - sample, axis=1)
    return np.asarray(np.divide(gaps, scale, out=np.zeros_like(gaps), where=scale > 0))


def is_reordered(first: Array, second: Array, limit: float) -> bool:
    """Whether two arrays hold the same numbers in any order."""
    if first.size != second.size:
        return False
    return relative_error(np.sort(first, axis=None), np.sort(second, axis=None)) <= limit
