"""Histograms over time as a table, in the bins that a watch has."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from torcheer.runlog.table_records import Column, TableHead
from torcheer.samples import BINS, EDGES

_HUGE: Final = 1e300  # an edge beyond this stands for no edge


def histogram_head(name: str) -> TableHead:
    """The head of the table of histograms that people log by this name; its rows have a cell `histogram`."""
    bins = Column("histogram", "tensor", (BINS,), plotted=False, edges=EDGES[1:-1])
    return TableHead(f"{name} histogram", name, "Step", "", (Column("Step", "int", plotted=False), bins))


def rebinned(limits: Sequence[float], counts: Sequence[float]) -> list[int]:
    """Counts in a watch's bins: each goes where the middle of its bin lies, whose upper edge is its limit."""
    binned, low = [0] * BINS, limits[0] if limits else 0.0
    for limit, count in zip(limits, counts, strict=True):
        if count > 0:
            middle = low + (limit - low) / 2 if abs(limit) < _HUGE and abs(low) < _HUGE else min(low, limit, key=abs)
            binned[min(BINS - 1, max(0, bisect_right(EDGES, middle) - 1))] += round(count)
        low = limit
    return binned
