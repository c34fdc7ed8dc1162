"""Merge the statistics of parts into those of the whole, of many values at once: `array_statistics.merge_rows`.

Percentiles cannot be made of percentiles: they are NaN where there were several parts.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.runlog.log_frames import COUNTS, STATISTICS
from torcheer.vocabulary.array_statistics import PERCENTILES, SUMMED, derived_columns, merge_rows

Array = NDArray[Any]
_TIME: Final = STATISTICS.index("time_secs")
_PERCENTILES: Final = [STATISTICS.index(f"p{percent}") for percent in PERCENTILES]
_STRIDE, _FINITE = COUNTS.index("stride"), COUNTS.index("finite")


def merge_statistics(statistics: Array, counts: Array, groups: Array) -> tuple[Array, Array]:
    """The statistics and counts of each group of rows; `groups` are numbers from 0 on, ascending, none left out."""
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    sizes = np.diff(starts, append=len(groups))
    merged, totals = statistics[starts].copy(), counts[starts].copy()
    totals[:, _STRIDE] = np.maximum.reduceat(counts[:, _STRIDE], starts)
    totals[:, _FINITE] = np.minimum.reduceat(np.where(counts[:, _FINITE] < 0, 2, counts[:, _FINITE]), starts)
    totals[:, _FINITE] = np.where(totals[:, _FINITE] == 2, -1, totals[:, _FINITE])
    merged[:, _TIME] = np.maximum.reduceat(statistics[:, _TIME], starts)
    several = np.flatnonzero(sizes > 1)
    if not several.size:
        return merged, totals
    parts = np.zeros((len(several), int(sizes.max()), len(SUMMED)))  # a part that a group lacks has no number
    is_there = np.arange(parts.shape[1]) < sizes[several, None]
    parts[is_there] = _summed(statistics, counts)[np.isin(groups, several)]
    columns = dict(zip(SUMMED, merge_rows(parts).T))
    for name, column in (columns | derived_columns(columns)).items():
        table, places = (totals, COUNTS) if name in COUNTS else (merged, STATISTICS)
        table[several, places.index(name)] = column
    merged[several[:, None], _PERCENTILES] = np.nan
    return merged, totals


def _summed(statistics: Array, counts: Array) -> Array:
    """Rows of SUMMED."""
    columns = [
        counts[:, COUNTS.index(name)] if name in COUNTS else statistics[:, STATISTICS.index(name)] for name in SUMMED
    ]
    return np.stack(columns, -1).astype(np.float64)
