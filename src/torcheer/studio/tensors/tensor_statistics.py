"""Statistics of a whole array, read piece by piece: moments, histogram, zeros, NaN, units that are zero throughout."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import real_numbers
from torcheer.studio.connections.messages import TensorStatistics
from torcheer.studio.tensors.tensor_slices import PIECE, pieces

Array = NDArray[Any]
BINS: Final = 48
_MOST_DEAD: Final = 1000  # numbers of units that are listed


def describe_numbers(array: Array, unit_axis: int) -> TensorStatistics:
    """Statistics of all numbers of an array; `unit_axis` tells its units apart, -1: it has none."""
    with np.errstate(all="ignore"):
        summary = _Summary()
        for piece in pieces(array):
            summary.add(_as_floats(piece))
        counts, edges = _histogram(array, summary.least, summary.most)
        dead = _dead_units(array, unit_axis) if unit_axis >= 0 else np.empty(0, np.int64)
    return TensorStatistics(
        count=array.size, nans=summary.nans, plus_infs=summary.plus, minus_infs=summary.minus, zeros=summary.zeros,
        least=summary.least, most=summary.most, mean=summary.mean, std=summary.std, norm=summary.norm,
        edges=tuple(edges), counts=tuple(counts), units=array.shape[unit_axis] if unit_axis >= 0 else 0,
        dead=len(dead), dead_units=tuple(int(unit) for unit in dead[:_MOST_DEAD]), unit_axis=unit_axis,
    )  # fmt: skip


class _Summary:
    """Counts and moments of the finite numbers so far, joined as Chan and others do: sums of squares cancel."""

    def __init__(self) -> None:
        self.nans = self.plus = self.minus = self.zeros = self.finite = 0
        self.least = self.most = self._mean = self._squares = self._raw = 0.0

    def add(self, numbers: Array) -> None:
        finite = _finite(numbers)
        if finite.size < numbers.size:
            self.nans += int(np.count_nonzero(np.isnan(numbers)))
            self.plus += int(np.count_nonzero(np.isposinf(numbers)))
            self.minus += int(np.count_nonzero(np.isneginf(numbers)))
        self.zeros += finite.size - int(np.count_nonzero(finite))
        if not finite.size:
            return
        least, most, mean = float(finite.min()), float(finite.max()), float(finite.mean())
        self.least = min(self.least, least) if self.finite else least
        self.most = max(self.most, most) if self.finite else most
        size, shift = finite.size, mean - self._mean
        total = self.finite + size
        self._raw += float(finite @ finite)
        finite = finite - mean
        self._squares += float(finite @ finite) + shift * shift * self.finite * size / total
        self._mean += shift * size / total
        self.finite = total

    @property
    def mean(self) -> float:
        return self._mean

    @property
    def std(self) -> float:
        """Of all numbers, not of a sample: a constant array has 0."""
        return sqrt(self._squares / self.finite) if self.finite else 0.0

    @property
    def norm(self) -> float:
        return sqrt(self._raw)


def _as_floats(piece: Array) -> Array:
    return real_numbers(piece).astype(np.float64)


def _finite(numbers: Array) -> Array:
    """The finite numbers: all of them, without a copy, where the extremes are."""
    if numbers.size and np.isfinite(numbers.min()) and np.isfinite(numbers.max()):  # both propagate NaN
        return numbers
    return numbers[np.isfinite(numbers)]


def _histogram(array: Array, least: float, most: float) -> tuple[list[int], list[float]]:
    """Counts of the finite numbers in equal bins from the least to the most; one bin where these are equal."""
    bins = BINS if 0 < most - least < np.inf else 1
    counts, scale = np.zeros(bins, np.int64), bins / (most - least) if bins > 1 else 0.0
    for piece in pieces(array):
        finite = _finite(_as_floats(piece))
        places = ((finite - least) * scale).astype(np.int64) if bins > 1 else np.zeros(finite.size, np.int64)
        counts += np.bincount(np.minimum(places, bins - 1), minlength=bins)
    return (counts.tolist(), np.linspace(least, most, bins + 1).tolist()) if counts.any() else ([], [])


def _dead_units(array: Array, axis: int) -> Array:
    """The units along an axis whose every number is exactly 0."""
    if not array.size:
        return np.empty(0, np.int64)
    fired = np.zeros(array.shape[axis], bool)
    stacked = array.reshape(prod(array.shape[:axis]), array.shape[axis], prod(array.shape[axis + 1 :]))
    for units, part in _unit_pieces(stacked):
        fired[units] |= (np.asarray(part) != 0).any(axis=(0, 2))
    return np.flatnonzero(~fired)


def _unit_pieces(stacked: Array) -> Iterator[tuple[slice, Array]]:
    before, units, after = stacked.shape
    wide = min(after, PIECE)
    tall = min(units, max(PIECE // wide, 1))
    deep = max(PIECE // (wide * tall), 1)
    for first in range(0, before, deep):
        for unit in range(0, units, tall):
            for start in range(0, after, wide):
                place = slice(unit, unit + tall)
                yield place, stacked[first : first + deep, place, start : start + wide]
