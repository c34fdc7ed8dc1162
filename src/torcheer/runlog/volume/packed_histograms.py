"""Histograms of a log's frame without their empty bins: one array of uint32 that gives single rows at once.

First where each row begins, and where the last one ends; then, row by row, a number for each bin that is not empty: the
bin in the upper seven bits, its count in the others.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.vocabulary.array_statistics import BINS

Array = NDArray[Any]
_COUNT_BITS: Final = 25
_MOST: Final = (1 << _COUNT_BITS) - 1  # of a bin; a histogram is of at most 65,536 numbers


def pack_histograms(histograms: Array) -> Array:
    """Pack counts, a row each, of `BINS` bins."""
    rows, bins = np.nonzero(histograms)
    starts = np.searchsorted(rows, np.arange(len(histograms) + 1)) + len(histograms) + 1
    counts = np.minimum(histograms[rows, bins], _MOST)
    return np.concatenate([starts, bins << _COUNT_BITS | counts]).astype(np.uint32)


def unpack_row(packed: Array, row: int) -> Array:
    """The counts of one row, dense."""
    entries = packed[int(packed[row]) : int(packed[row + 1])]
    histogram: Array = np.zeros(BINS, np.int64)
    histogram[entries >> _COUNT_BITS] = entries & _MOST
    return histogram


def unpack_histograms(packed: Array) -> Array:
    """All rows, dense."""
    first = int(packed[0]) if len(packed) else 1
    starts, entries = packed[:first].astype(np.int64) - first, packed[first:]
    histograms: Array = np.zeros((first - 1, BINS), np.int64)
    histograms[np.repeat(np.arange(first - 1), np.diff(starts)), entries >> _COUNT_BITS] = entries & _MOST
    return histograms
