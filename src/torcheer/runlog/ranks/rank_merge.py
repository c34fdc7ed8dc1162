"""Merge the statistics of parts into those of the whole: as if all of their numbers had been summed up together.

Counts, sums, least and largest numbers and histograms are exact; means and variances are weighted by the finite
numbers behind them. Percentiles cannot be made of percentiles: they are NaN where there were several parts.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.runlog.log_frames import COUNTS, STATISTICS
from torcheer.samples import PERCENTILES

Array = NDArray[Any]
_TIME, _MIN, _MAX, _MEAN, _STD, _NORM = (
    STATISTICS.index(name) for name in ("time_secs", "minimum", "maximum", "mean", "std", "norm")
)
_ARE_PERCENTILES: Final = np.isin(STATISTICS, [f"p{percent}" for percent in PERCENTILES])
_SUMMED: Final = [COUNTS.index(name) for name in ("count", "zeros", "nans", "infs")]
_STRIDE, _FINITE, _COUNT = (COUNTS.index(name) for name in ("stride", "finite", "count"))
_BAD: Final = [COUNTS.index("nans"), COUNTS.index("infs")]


def merge_statistics(statistics: Array, counts: Array, groups: Array) -> tuple[Array, Array]:
    """The statistics and counts of each group of rows; `groups` are numbers from 0 on, ascending, none left out."""
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    sizes = np.diff(starts, append=len(groups))
    merged, totals = statistics[starts].copy(), counts[starts].copy()
    totals[:, _SUMMED] = np.add.reduceat(counts[:, _SUMMED], starts)
    totals[:, _STRIDE] = np.maximum.reduceat(counts[:, _STRIDE], starts)
    totals[:, _FINITE] = np.minimum.reduceat(np.where(counts[:, _FINITE] < 0, 2, counts[:, _FINITE]), starts)
    totals[:, _FINITE] = np.where(totals[:, _FINITE] == 2, -1, totals[:, _FINITE])
    weights = (counts[:, _COUNT] - counts[:, _BAD].sum(1)).astype(float)  # finite numbers
    numbers = np.where(weights[:, None] > 0, statistics, 0.0)  # a part without any has NaN
    total = np.add.reduceat(weights, starts)
    has_any = total > 0
    divisor = np.where(has_any, total, 1.0)
    mean = np.add.reduceat(numbers[:, _MEAN] * (weights / np.repeat(divisor, sizes)), starts)
    spread = numbers[:, _MEAN] - np.repeat(mean, sizes)
    variance = np.add.reduceat((numbers[:, _STD] ** 2 + spread**2) * (weights / np.repeat(divisor, sizes)), starts)
    largest = np.maximum.reduceat(np.abs(numbers[:, _NORM]), starts)
    scale = np.where(largest > 0, largest, 1.0)  # squares must not overflow
    norm = scale * np.sqrt(np.add.reduceat((numbers[:, _NORM] / np.repeat(scale, sizes)) ** 2, starts))
    several = sizes > 1
    for column, values in ((_MEAN, mean), (_STD, np.sqrt(variance)), (_NORM, norm)):
        merged[several, column] = np.where(has_any, values, np.nan)[several]
    merged[:, _MIN] = np.fmin.reduceat(statistics[:, _MIN], starts)
    merged[:, _MAX] = np.fmax.reduceat(statistics[:, _MAX], starts)
    merged[:, _TIME] = np.maximum.reduceat(statistics[:, _TIME], starts)
    merged[several[:, None] & _ARE_PERCENTILES] = np.nan
    return merged, totals
