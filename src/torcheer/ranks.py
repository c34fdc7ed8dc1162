"""Which of several processes this is, and which part of a distributed tensor it holds; nothing here loads torch.

A shard is where it begins in the whole (`at`) and its shape. Two processes with the same `at` hold replicas.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from torcheer.errors import BadArgument, ValueUnavailable
from torcheer.terminal import first_names

Ranks = int | str | Sequence[int]  # whoever acts in a run of several processes: a rank, several, or "all"
_MARK: Final = "@rank"
Place = tuple[int, ...]
_STRIDED: Final = "split_factor"  # an attribute of shards that are cut after those of later axes of the mesh


def rank_of() -> tuple[int, int]:
    """The rank of this process and the world size: (0, 1) for one process.

    From the default process group where there is one, else from what torchrun has set for one to be made.
    """
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)  # without it there is no group
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    count = from_environment("WORLD_SIZE", 1, least=1)
    if count == 1:
        return 0, 1  # whatever RANK says, which other programs set too
    rank = from_environment("RANK", 0)
    if rank >= count:
        raise BadArgument(f"RANK is {rank} and WORLD_SIZE {count}: ranks are counted from 0, up to {count - 1}")
    return rank, count


def from_environment(name: str, otherwise: int, least: int = 0) -> int:
    """A number that torchrun sets, or `otherwise`."""
    text = os.environ.get(name, str(otherwise))
    if not text.isdecimal() or int(text) < least:
        raise BadArgument(f"{name}={text!r} in the environment: torchrun sets a whole number of {least} or more there")
    return int(text)


def is_main() -> bool:
    """Whether this is rank 0, also for one process: the rank that writes what is written once."""
    return rank_of()[0] == 0


def world_size() -> int:
    """How many processes work together; 1 for one alone."""
    return rank_of()[1]


def local_rank() -> int:
    """The place of this process among those of its machine: the index of its GPU."""
    return from_environment("LOCAL_RANK", 0)


def acts(ranks: Ranks) -> bool:
    """Whether this process is one of `ranks`; always where there is one process alone."""
    rank, count = rank_of()
    chosen = chosen_ranks(ranks, count)
    if max(chosen) >= count:
        raise BadArgument(f"ranks={ranks!r}: there {'is' if count == 1 else 'are'} {count}, counted from 0")
    return rank in chosen


def chosen_ranks(ranks: Ranks, count: int) -> tuple[int, ...]:
    """The ranks that `ranks` names, also those that are not among the `count` there are; raises where it names none."""
    if ranks == "all":
        return tuple(range(count))
    given = list(ranks) if isinstance(ranks, list | tuple | range) else [ranks]
    chosen = [rank for rank in given if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0]
    if not chosen or len(chosen) < len(given):
        raise BadArgument(f"ranks={ranks!r}: use a rank such as 0, a list of ranks, or 'all'")
    return tuple(chosen)


def ranked(name: str) -> str:
    """The name of this rank's part of something that each rank writes: rank 0 has the name itself."""
    rank, _ = rank_of()
    return f"{name}{_MARK}{rank}" if rank else name


def split_rank(name: str) -> tuple[str, int]:
    """The name and the rank that `ranked` has joined."""
    base, _, rank = name.partition(_MARK)
    return (base, int(rank)) if rank.isdecimal() else (name, 0)


# -- parts of tensors ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of a tensor that one rank holds."""

    whole: Place  # the shape of all of it
    at: Place  # where the part begins
    shape: Place  # of the part
    placements: str  # as torch prints them: "(Shard(dim=0),)"
    is_partial: bool = False  # whether it is a summand of the whole, not a part of it

    @classmethod
    def parse(cls, record: Any) -> Shard | None:
        """The shard that `as_json` has described; None if it is of another version."""
        try:
            whole, at, shape = (tuple(int(n) for n in record[name]) for name in ("whole", "at", "shape"))
            if len(whole) == len(at) == len(shape):
                return cls(whole, at, shape, str(record["placements"]), bool(record.get("is_partial")))
        except (KeyError, TypeError, ValueError):
            pass
        return None

    def as_json(self) -> dict[str, Any]:
        """The facts as JSON can hold them."""
        record: dict[str, Any] = {"whole": list(self.whole), "at": list(self.at), "shape": list(self.shape)}
        return record | {"placements": self.placements} | ({"is_partial": True} if self.is_partial else {})

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where the part stands in the whole."""
        return tuple(slice(start, start + length) for start, length in zip(self.at, self.shape))

    def __str__(self) -> str:
        ranges = ", ".join(f"{part.start}:{part.stop}" for part in self.slices)
        return f"[{ranges}] of shape {self.whole}"


def shard_of(tensor: Any) -> Shard | None:
    """Which part of a distributed tensor (DTensor) this process holds; None for others. No message is sent."""
    placements, mesh = getattr(tensor, "placements", None), getattr(tensor, "device_mesh", None)
    if placements is None or mesh is None:
        return None
    whole, coordinate = tuple(tensor.shape), mesh.get_coordinate()
    at, shape = [0] * len(whole), list(whole)
    if coordinate is None:  # this process is outside of the mesh
        return Shard(whole, whole, (0,) * len(whole), str(placements))
    # A strided shard is cut after those of later axes of the mesh: tensor parallel first, then FSDP.
    axes = [axis for axis, placement in enumerate(placements) if placement.is_shard() or hasattr(placement, _STRIDED)]
    is_strided = {axis: hasattr(placements[axis], _STRIDED) for axis in axes}
    for axis in sorted(axes, key=lambda axis: (is_strided[axis], -axis if is_strided[axis] else axis)):
        dimension = placements[axis].dim
        start, length = _chunk(shape[dimension], mesh.size(axis), coordinate[axis])
        at[dimension], shape[dimension] = at[dimension] + start, length
    is_partial = any(placement.is_partial() for placement in placements)
    return Shard(whole, tuple(at), tuple(shape), str(tuple(placements)), is_partial)


def settled(tensor: Any) -> Any:
    """A tensor itself; of one that a collective is still computing (AsyncCollectiveTensor) the plain one, waited for.

    Its collective was issued by the model, on every rank: waiting for it sends nothing.
    """
    return tensor.trigger_wait() if hasattr(tensor, "trigger_wait") else tensor


def _chunk(length: int, count: int, number: int) -> tuple[int, int]:
    """Where one of `count` parts begins and how long it is, as torch.chunk cuts."""
    size = -(-length // count)
    start = min(size * number, length)
    return start, min(size, length - start)


def assemble(
    parts: Sequence[tuple[str, Shard, Any]], name: str, ranks: int, empty: Callable[[Place], Any] | None = None
) -> Any:
    """The whole of its parts, each with the name of whom it is from; raises, saying what is missing of it.

    `ranks`: how many processes there were. `empty` makes an array of a shape; by default one of numpy's.
    """
    whole = parts[0][1].whole
    if any(shard.is_partial for _, shard, _ in parts):
        raise ValueUnavailable(
            f"{name} is not whole on any rank: each holds a summand ({parts[0][1].placements}), and adding them is a "
            "computation of its own. The parts are there, rank by rank"
        )
    array = empty(whole) if empty is not None else np.zeros(whole, parts[0][2].dtype)
    covered = 0
    for at in dict.fromkeys(shard.at for _, shard, _ in parts):
        shard, values = next((shard, values) for _, shard, values in parts if shard.at == at)
        if tuple(values.shape) != shard.shape or shard.whole != whole:
            raise ValueUnavailable(f"{name}: a part has shape {tuple(values.shape)} where {shard} was expected")
        array[shard.slices] = values
        covered += math.prod(shard.shape)
    if covered < math.prod(whole):
        there = first_names(f"{owner} {shard}" for owner, shard, _ in parts)
        raise ValueUnavailable(
            f"{name} lacks {math.prod(whole) - covered:,} of its {math.prod(whole):,} numbers: of {ranks} ranks there "
            f"is only {there}. The others were not saved, or their folders are missing"
        )
    return array
