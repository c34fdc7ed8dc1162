"""Statistics of a whole array, read piece by piece: moments, histogram, zeros, NaN, units that are zero throughout."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import real_numbers
from torcheer.studio.connections.messages import TensorStatistics
from torcheer.studio.tensors.tensor_slices import PIECE, pieces
from torcheer.vocabulary.array_statistics import TABLE, Statistics, Summation

Array = NDArray[Any]
BINS: Final = 48
_MOST_DEAD: Final = 1000  # numbers of units that are listed


def describe_numbers(array: Array, unit_axis: int) -> TensorStatistics:
    """Statistics of all numbers of an array; `unit_axis` tells its units apart, -1: it has none."""
    summation, plus = Summation(), 0
    for piece in pieces(array):
        summation.add(piece)
        plus += int(np.count_nonzero(np.isposinf(real_numbers(piece)))) if summation.has_nonfinite else 0
    summary = summation.finish()
    with np.errstate(all="ignore"):
        counts, edges = _histogram(array, summary) if summary.finite else ([], [])
        dead = _dead_units(array, unit_axis) if unit_axis >= 0 else np.empty(0, np.int64)
    return TensorStatistics(
        count=array.size, nans=summary.nans, plus_infs=plus, minus_infs=summary.infs - plus, zeros=summary.zeros,
        measured=tuple((row.title.lower(), getattr(summary, row.name)) for row in TABLE if not row.is_count),
        edges=tuple(edges), counts=tuple(counts), units=array.shape[unit_axis] if unit_axis >= 0 else 0,
        dead=len(dead), dead_units=tuple(int(unit) for unit in dead[:_MOST_DEAD]), unit_axis=unit_axis,
    )  # fmt: skip


def _histogram(array: Array, summary: Statistics) -> tuple[list[int], list[float]]:
    """Counts of the finite numbers in equal bins from the smallest to the largest; one bin where these are equal."""
    least, greatest = summary.minimum, summary.maximum
    bins = BINS if 0 < greatest - least < np.inf else 1
    counts, scale = np.zeros(bins, np.int64), bins / (greatest - least) if bins > 1 else 0.0
    for piece in pieces(array):
        numbers = real_numbers(piece).astype(np.float64)
        finite = numbers[np.isfinite(numbers)] if summary.finite < summary.count else numbers
        places = ((finite - least) * scale).astype(np.int64) if bins > 1 else np.zeros(finite.size, np.int64)
        counts += np.bincount(np.minimum(places, bins - 1), minlength=bins)
    return counts.tolist(), np.linspace(least, greatest, bins + 1).tolist()


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
