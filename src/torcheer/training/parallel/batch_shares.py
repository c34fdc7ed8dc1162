"""Which samples of a global batch a rank takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import default_collate


@dataclass(frozen=True, slots=True)
class Share:
    """The part of every batch that one of several ranks computes."""

    rank: int
    count: int  # ranks that share a batch

    def of(self, samples: Sequence[Any]) -> tuple[Sequence[Any], bool]:
        """Return this rank's samples of a batch, and whether it only stands in.

        A batch with fewer samples than ranks is computed by the first rank; the others run something with weight 0, as
        collectives want every rank.
        """
        if len(samples) < self.count:
            return (samples, False) if self.rank == 0 else (samples[:1], True)
        size, more = divmod(len(samples), self.count)
        begin = self.rank * size + min(self.rank, more)
        return samples[begin : begin + size + (self.rank < more)], False


@dataclass(frozen=True, slots=True)
class StandIn:
    """A loader's batch of a rank that has no samples of its own."""

    batch: Any


class StandInBatches(tuple[Any, ...]):
    """The batches of a step, of which this rank has no samples: their weight is 0."""

    __slots__ = ()


@dataclass(frozen=True)
class CollatedShare:
    """Collate a rank's share of the samples of a stream's batch."""

    collate: Callable[[list[Any]], Any] | None
    share: Share

    def __call__(self, samples: list[Any]) -> Any:
        mine, stands_in = self.share.of(samples)
        batch = (self.collate or default_collate)(list(mine))
        return StandIn(batch) if stands_in else batch


def mark_stand_ins(steps: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the batches of each step; as `StandInBatches` where a loader has none for this rank."""
    for step in steps:
        if any(type(batch) is StandIn for batch in step):
            yield StandInBatches(batch.batch if type(batch) is StandIn else batch for batch in step)
        else:
            yield step
