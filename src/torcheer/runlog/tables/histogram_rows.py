"""Histograms over time as a table, in the bins that a watch has."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from torcheer.runlog.table_records import Column, TableHead
from torcheer.vocabulary.array_statistics import BINS, EDGES

_EDGES: Final = np.array(EDGES)
_HUGE: Final = 1e300  # an edge beyond this stands for no edge


def histogram_head(name: str) -> TableHead:
    """The head of the table of histograms that people log by this name; its rows have a cell `histogram`."""
    bins = Column("histogram", "tensor", (BINS,), plotted=False, edges=EDGES[1:-1])
    return TableHead(f"{name} histogram", name, "Step", "", (Column("Step", "int", plotted=False), bins))


def rebinned(limits: ArrayLike, counts: ArrayLike) -> list[int]:
    """Counts in a watch's bins: each goes where the middle of its bin lies, whose upper edge is its limit.

    What is no count, or infinite, is left out.
    """
    limits, counts = np.asarray(limits, np.float64), np.asarray(counts, np.float64)
    low = np.concatenate([limits[:1], limits[:-1]])
    with np.errstate(over="ignore", invalid="ignore"):
        nearer = np.where(np.abs(low) <= np.abs(limits), low, limits)
        is_bounded = (np.abs(limits) < _HUGE) & (np.abs(low) < _HUGE)
        middles = np.where(is_bounded, low + (limits - low) / 2, nearer)
    is_count = np.isfinite(counts) & (counts > 0) & ~np.isnan(middles)
    places = np.clip(np.searchsorted(_EDGES, middles[is_count], side="right") - 1, 0, BINS - 1)
    binned = np.bincount(places, np.rint(counts[is_count]), BINS)
    return [int(count) for count in binned]
