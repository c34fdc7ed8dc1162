"""What a watch says of a run of several processes: which rank this is, and which parts of the weights it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from torcheer.ranks import Ranks, Shard, rank_of, shard_of
from torcheer.vocabulary.variables import WATCHED


def rank_facts(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> dict[str, Any]:
    """The facts of this rank for its log, as JSON; empty for one process."""
    rank, count = rank_of()
    if count == 1:
        return {}
    parts = {name: shard.as_json() for name, shard in _shards(parameters).items()}
    hashed = WATCHED if parts and not _is_fully_sharded(model) else ("weight",)
    return {"rank": rank, "of": count, "parts": parts, "hashed": list(hashed)}


def describe_part(parameters: Mapping[str, nn.Parameter], ranks: Ranks) -> str:
    """Say that only a part of the weights is watched; "" if all of it is."""
    rank, count = rank_of()
    parts = [shard for shard in _shards(parameters).values() if shard.shape != shard.whole] if ranks != "all" else []
    if not parts or count == 1:
        return ""
    return (
        f"{len(parts)} weights are sharded over {count} processes, and what is logged of them is rank {rank}'s part; "
        "tl.watch(…, ranks='all') logs every rank's, and readers put them together"
    )


def _shards(parameters: Mapping[str, nn.Parameter]) -> dict[str, Shard]:
    found = {name: shard_of(parameter) for name, parameter in parameters.items()}
    return {name: shard for name, shard in found.items() if shard is not None}


def _is_fully_sharded(model: nn.Module) -> bool:
    """Whether FSDP alone shards the model: then every rank has another batch. Else ranks may have the same outputs."""
    meshes = [tensor.device_mesh for tensor in model.parameters() if hasattr(tensor, "device_mesh")]
    is_sharded = any(type(module).__name__.startswith("FSDP") for module in model.modules())
    return is_sharded and all(mesh.ndim == 1 for mesh in meshes)
