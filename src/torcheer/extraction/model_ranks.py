"""A model whose weights lie on several ranks (FSDP2, tensor parallel): all run each batch, the first one writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from torcheer.errors import BadArgument
from torcheer.extraction.fingerprints import fingerprint

_Value = TypeVar("_Value")


class ModelRanks:
    """The ranks that hold a model together. They run the same batches in the same order, as the first one decides."""

    def __init__(self, *, is_split: bool) -> None:
        """`is_split`: whether layers are computed in parts (tensor parallel), not only stored so (FSDP2)."""
        self.is_first, self._is_split = distributed.get_rank() == 0, is_split

    def agree(self, value: _Value) -> _Value:
        """Return the first rank's value on every rank; each has to call it."""
        values = [value]
        distributed.broadcast_object_list(values, src=0)
        return values[0]

    def check_whole(self, values: Mapping[str, Any]) -> None:
        """Raise for layers whose values of one batch differ: each rank has a part. Every rank has to call it."""
        if not self._is_split:
            return
        sums: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(sums, {layer: _sum_of(value) for layer, value in values.items()})
        if parts := [layer for layer in values if len({rank[layer] for rank in sums}) > 1]:
            raise BadArgument(
                f"{', '.join(map(repr, parts))}: the model is split among ranks (tensor parallel), and each has "
                "another part of this value. Take a layer whose output is whole on all ranks, as after "
                "RowwiseParallel, or a model that is sharded by fully_shard"
            )


def model_ranks(model: torch.nn.Module) -> ModelRanks | None:
    """Return the ranks that hold a model together; None for a model that each process has to itself."""
    parameters: Iterable[Any] = model.parameters()
    meshes = {parameter.device_mesh for parameter in parameters if _is_distributed(parameter)}
    if not meshes:
        return None
    from torch.distributed.fsdp import FSDPModule

    is_stored_so = any(isinstance(module, FSDPModule) for module in model.modules())
    if {mesh.size() for mesh in meshes} != {distributed.get_world_size()}:
        raise BadArgument(
            f"the model is sharded over {', '.join(str(mesh.size()) for mesh in meshes)} of "
            f"{distributed.get_world_size()} ranks; shard it over all of them"
        )
    return ModelRanks(is_split=not is_stored_so or any(mesh.ndim > 1 for mesh in meshes))


def whole(value: Any) -> Tensor:
    """Return a weight as one tensor; of one that is sharded, every rank has to ask."""
    tensor: Tensor = value.full_tensor() if _is_distributed(value) else value
    return tensor


def _sum_of(value: Any) -> int:
    """Return a checksum of a layer's value; of a DTensor, which is a part, one that no other rank has."""
    if any(map(_is_distributed, value if isinstance(value, (tuple, list)) else [value])):
        return -1 - distributed.get_rank()
    return fingerprint([("", value)])


def _is_distributed(value: Any) -> bool:
    """Return whether a tensor is a DTensor, whose class takes long to import."""
    return hasattr(value, "full_tensor") and hasattr(value, "device_mesh")
