"""The values of several ranks' logs as one: replicas once, parts and batches merged, kept shards assembled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import ValueUnavailable
from torcheer.ranks import assemble
from torcheer.runlog.log_frames import COLUMNS, COUNTS, STATISTICS
from torcheer.runlog.ranks.rank_facts import RankFacts, name_ranks
from torcheer.runlog.ranks.rank_merge import merge_statistics
from torcheer.runlog.watched_values import WatchedValues
from torcheer.samples import Key
from torcheer.vocabulary.array_statistics import BINS
from torcheer.vocabulary.variables import WATCHED_OF_WEIGHTS

Array = NDArray[Any]
_Source = tuple[int, int]  # a rank, and the place of a value among its own


class RankValues(WatchedValues):
    """Every key and step once, with the statistics of all ranks' numbers."""

    def __init__(self, ranks: Mapping[int, tuple[RankFacts, WatchedValues]]) -> None:
        self._ranks, self.names, self.places = dict(ranks), list[list[Any]](), dict[Key, list[int]]()
        self._sources: list[list[_Source]] = []
        keys = dict.fromkeys(key for _, values in ranks.values() for key in values.places)
        steps: list[int] = []
        for key in keys:
            for step, sources in self._by_step(key).items():
                self.places.setdefault(key, []).append(len(steps))
                self.names.append(self._name(key, sources[0]))
                self._sources.append(sources)
                steps.append(step)
        self.steps = np.array(steps, np.int64)
        self._merged = dict(zip(COLUMNS, self._merge()))

    def _by_step(self, key: Key) -> dict[int, list[_Source]]:
        """Where the parts of a key are, at each step; of replicas the first rank's."""
        found: dict[int, dict[Any, _Source]] = {}
        for rank, (facts, values) in self._ranks.items():
            for place in values.places.get(key, ()):
                part = facts.part_of(*key, values.bits[place])
                found.setdefault(int(values.steps[place]), {}).setdefault(part, (rank, place))
        return {step: list(found[step].values()) for step in sorted(found)}

    def _name(self, key: Key, source: _Source) -> list[Any]:
        rank, place = source
        facts, values = self._ranks[rank]
        name, shard = list(values.names[place]), facts.parts.get(key[0])
        if shard is not None and key[1] in WATCHED_OF_WEIGHTS:
            name[3] = list(shard.whole)
        return name

    def _merge(self) -> tuple[Array, Array]:
        if not self._sources:
            return np.empty((0, len(STATISTICS))), np.empty((0, len(COUNTS)), np.int64)
        ranks, places = np.array([source for parts in self._sources for source in parts]).T
        numbers = [np.empty((len(places), len(STATISTICS))), np.empty((len(places), len(COUNTS)), np.int64)]
        for rank in np.unique(ranks).tolist():
            for kind, merged in zip(COLUMNS, numbers):
                merged[ranks == rank] = self._ranks[rank][1].numbers(kind, places[ranks == rank])
        groups = np.repeat(np.arange(len(self._sources)), [*map(len, self._sources)])
        return merge_statistics(numbers[0], numbers[1], groups)

    def numbers(self, kind: str, places: Array) -> Array:
        """The `statistics` or `counts` of some values, a row each."""
        return self._merged[kind][places]

    def histogram(self, place: int) -> Array:
        """The histogram of a value: the sum of its parts'."""
        total: Array = np.zeros(BINS, np.int64)
        for rank, own in self._sources[place]:
            total += self._ranks[rank][1].histogram(own)
        return total

    def is_scalar(self, place: int) -> bool:
        """Whether a value is a cell of a row."""
        rank, own = self._sources[place][0]
        return self._ranks[rank][1].is_scalar(own)

    def has_histogram(self, place: int) -> bool:
        """Whether a value has a histogram."""
        return any(self._ranks[rank][1].has_histogram(own) for rank, own in self._sources[place])

    def keeps(self, place: int) -> bool:
        """Whether an array of it was kept by a rank."""
        return any(self._ranks[rank][1].keeps(own) for rank, own in self._sources[place])

    def kept(self, place: int) -> Array:
        """The whole array: of shards all of them; a scalar is the ranks' mean."""
        if self.is_scalar(place):
            return np.array(self._number("mean", place))
        layer, variable = self.names[place][:2]
        what = f"{layer} ({variable}) of step {self.steps[place]}"
        sources = [(rank, own) for rank, own in self._sources[place] if self._ranks[rank][1].keeps(own)]
        arrays = [(rank, self._ranks[rank][1].kept(own)) for rank, own in sources]
        shards = {rank: self._ranks[rank][0].parts.get(layer) for rank, _ in arrays}
        parts = [(f"rank {rank}", shard, array) for rank, array in arrays if (shard := shards[rank]) is not None]
        if variable in WATCHED_OF_WEIGHTS and parts:
            whole: Array = assemble(parts, what, max(facts.of for facts, _ in self._ranks.values()))
            return whole
        if len(arrays) > 1:
            raise ValueUnavailable(
                f"{what}: {name_ranks([rank for rank, _ in arrays])} have each its own, of their own batches; "
                f"watched.ranks[{arrays[0][0]}][{layer!r}, {variable!r}] has one"
            )
        return arrays[0][1]
