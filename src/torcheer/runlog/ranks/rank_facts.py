"""What a rank's log says of itself, and which values of several ranks are replicas, parts or batches of their own."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from torcheer.ranks import Shard
from torcheer.vocabulary.variables import WATCHED_OF_WEIGHTS

_BITS: Final = 32  # of a checksum; above it stands every how many-th number it is of


@dataclass(frozen=True, slots=True)
class RankFacts:
    """One process of several, as its log describes it (`log_frames`, `rank`)."""

    rank: int = 0
    of: int = 1
    parts: dict[str, Shard] = field(default_factory=dict)  # by layer: the part of a sharded weight that it holds
    shares_outputs: bool = False  # whether other ranks may hold the same outputs: tensor parallel

    @classmethod
    def parse(cls, record: Any, rank: int = 0) -> RankFacts:
        """The facts in a frame; those of one process where there are none."""
        if not isinstance(record, Mapping) or type(record.get("of")) is not int:
            return cls(rank, rank + 1)
        parts = record.get("parts")
        shards = {name: Shard.parse(part) for name, part in parts.items()} if isinstance(parts, Mapping) else {}
        hashed = record.get("hashed")
        return cls(
            rank, record["of"], {name: shard for name, shard in shards.items() if shard is not None},
            isinstance(hashed, list) and "output" in hashed,
        )  # fmt: skip

    def part_of(self, layer: str, variable: str, bits: int | None) -> Hashable:
        """What a value is among those of other ranks at its step: of two that are equal, one is a replica."""
        if variable in WATCHED_OF_WEIGHTS:
            shard = self.parts.get(layer)
            return shard.at if shard is not None else ()
        if self.shares_outputs and bits is not None:
            return "bits", bits
        return "rank", self.rank

    def place_of(self, layer: str) -> Hashable:
        """Where a weight's part stands: ranks with the same hold replicas."""
        shard = self.parts.get(layer)
        return shard.at if shard is not None else ()


ONE_PROCESS: Final = RankFacts()


def are_comparable(first: int, second: int) -> bool:
    """Whether two hashes are of the same numbers of a tensor: all of them, or every n-th."""
    return first >> _BITS == second >> _BITS


def name_ranks(ranks: list[int]) -> str:
    """Some ranks for people: "rank 1", "ranks 1, 2 and 5"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
