"""Tensors that lie on several ranks: which part this one has, and a whole one as this rank holds it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torcheer.errors import BadArgument


def like_live(value: Any, live: Any) -> Any:
    """A whole tensor as this rank holds `live`: its shard, where that is sharded."""
    if not hasattr(live, "device_mesh") or not isinstance(value, torch.Tensor) or value.shape != live.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(live.device), live.device_mesh, live.placements, src_data_rank=None)


def shard_of(value: Any) -> tuple[torch.Tensor, list[int], bool]:
    """This rank's part of a sharded tensor, where it begins, and whether this rank saves it."""
    mesh, part = value.device_mesh, value.to_local()
    places = mesh.get_coordinate() or [0] * mesh.ndim
    copies = [place for place, placement in zip(places, value.placements) if not hasattr(placement, "dim")]
    axes = zip(value.placements, places, map(mesh.size, range(mesh.ndim)))
    cuts = [axis for axis in axes if hasattr(axis[0], "dim")]
    begin, shape = [0] * value.ndim, list(value.shape)
    # FSDP shards what a tensor-parallel plan has split before: torch marks that cut by a type of its own.
    for placement, place, count in sorted(cuts, key=lambda cut: type(cut[0]).__name__ != "Shard"):
        size = -(-shape[placement.dim] // count)
        start = min(place * size, shape[placement.dim])
        begin[placement.dim] += start
        shape[placement.dim] = min(start + size, shape[placement.dim]) - start
    if tuple(part.shape) != tuple(shape):
        raise BadArgument(
            f"a tensor of {tuple(value.shape)} is sharded as {value.placements}: a checkpoint has no such parts"
        )
    return part, begin, not any(copies)


def is_sharded(value: Any) -> bool:
    """Whether a tensor lies on several ranks."""
    return hasattr(value, "_local_tensor")


def local_part(value: Any) -> torch.Tensor:
    """What this rank has of a tensor: all of it, or its shard."""
    part: torch.Tensor = value._local_tensor if is_sharded(value) else value
    return part


def whole(value: Any) -> torch.Tensor:
    """A tensor as one process would have it; all ranks that have parts of it call this."""
    full: torch.Tensor = value.full_tensor() if is_sharded(value) else value
    return full


def forget_gathered(modules: Iterable[Any]) -> None:
    """Have FSDP gather weights anew: those that it has kept were changed since."""
    for module in modules:
        if any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__):
            module.reshard()
