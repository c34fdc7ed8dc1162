"""Values of several ranks merged step by step, as their logs are followed; the last steps are held."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torcheer.runlog.log_frames import COUNTS
from torcheer.runlog.ranks.rank_facts import RankFacts
from torcheer.runlog.ranks.rank_merge import merge_statistics
from torcheer.samples import Key
from torcheer.vocabulary.array_statistics import BINS

Array = NDArray[Any]
_STEPS: Final = 16  # by which ranks may be apart
_BINNED: Final = COUNTS.index("binned")


class RankFrame(NamedTuple):
    """The values of one frame of a rank's log."""

    facts: RankFacts
    step: int
    names: Sequence[Sequence[Any]]  # layer, variable, …
    statistics: Array
    counts: Array
    hashes: Sequence[int | None]
    histograms: Array | None


class _Step:
    """The merged values of one step."""

    def __init__(self) -> None:
        self.rows: dict[Key, tuple[Array, Array, Array | None]] = {}  # statistics, counts, histogram
        self.parts: dict[Key, set[Hashable]] = {}  # those that were merged


class RankSteps:
    """Merges frames of ranks that come in any order, a few steps apart."""

    def __init__(self) -> None:
        self._steps: dict[int, _Step] = {}
        self.late = 0  # values that came after their step was closed

    def add(self, frame: RankFrame) -> list[tuple[Key, Array, Array, Array | None]]:
        """Merge a frame; return the values that are new or have changed: statistics, counts, histogram."""
        if frame.step not in self._steps:
            if len(self._steps) >= _STEPS and frame.step < min(self._steps):
                self.late += len(frame.names)
                return []
            self._steps[frame.step] = _Step()
            if len(self._steps) > _STEPS:
                del self._steps[min(self._steps)]
        step = self._steps[frame.step]
        changed: list[Key] = []
        known: list[tuple[Key, int]] = []
        for place, name in enumerate(frame.names):
            key = (name[0], name[1])
            part = frame.facts.part_of(*key, frame.hashes[place] if frame.hashes else None)
            parts = step.parts.setdefault(key, set())
            if part in parts:
                continue  # a replica
            parts.add(part)
            changed.append(key)
            if key in step.rows:
                known.append((key, place))
            else:
                step.rows[key] = (frame.statistics[place], frame.counts[place], _histogram(frame, place))
        self._merge(step, frame, known)
        return [(key, *step.rows[key]) for key in changed]

    @staticmethod
    def _merge(step: _Step, frame: RankFrame, known: list[tuple[Key, int]]) -> None:
        if not known:
            return
        rows, places = [step.rows[key] for key, _ in known], [place for _, place in known]
        statistics = np.stack([np.stack([row[0] for row in rows]), frame.statistics[places]], 1)
        counts = np.stack([np.stack([row[1] for row in rows]), frame.counts[places]], 1)
        groups = np.repeat(np.arange(len(known)), 2)
        merged, totals = merge_statistics(
            statistics.reshape(-1, statistics.shape[-1]), counts.reshape(-1, counts.shape[-1]), groups
        )
        for number, (key, place) in enumerate(known):
            histograms = [part for part in (rows[number][2], _histogram(frame, place)) if part is not None]
            step.rows[key] = (merged[number], totals[number], np.sum(histograms, 0) if histograms else None)


def _histogram(frame: RankFrame, place: int) -> Array | None:
    binned = int(frame.counts[place, _BINNED])
    if frame.histograms is None or not 0 <= binned < len(frame.histograms):
        return None
    histogram: Array = np.zeros(BINS, np.int64)
    histogram += frame.histograms[binned]
    return histogram
