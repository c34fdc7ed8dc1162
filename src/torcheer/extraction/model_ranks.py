"""A model whose weights lie on several ranks (FSDP2): all of them run each batch, the first one writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from torcheer.errors import BadArgument

_Value = TypeVar("_Value")


class ModelRanks:
    """The ranks that hold a model together. They run the same batches in the same order, as the first one decides."""

    def __init__(self) -> None:
        self.is_first = distributed.get_rank() == 0

    def agree(self, value: _Value) -> _Value:
        """Return the first rank's value on every rank; each has to call it."""
        values = [value]
        distributed.broadcast_object_list(values, src=0)
        return values[0]


def model_ranks(model: torch.nn.Module) -> ModelRanks | None:
    """Return the ranks that hold a model together; None for a model that each process has to itself."""
    parameters: Iterable[Any] = model.parameters()
    meshes = {parameter.device_mesh for parameter in parameters if _is_distributed(parameter)}
    if not meshes:
        return None
    from torch.distributed.fsdp import FSDPModule

    if not any(isinstance(module, FSDPModule) for module in model.modules()) or any(mesh.ndim > 1 for mesh in meshes):
        raise BadArgument(
            "the model's layers are split among ranks (tensor parallel, or a mesh of several dimensions): each has a "
            "part of a layer's value. Extract from a model that is sharded by fully_shard over all ranks"
        )
    if {mesh.size() for mesh in meshes} != {distributed.get_world_size()}:
        raise BadArgument(
            f"the model is sharded over {', '.join(str(mesh.size()) for mesh in meshes)} of "
            f"{distributed.get_world_size()} ranks; shard it over all of them"
        )
    return ModelRanks()


def whole(value: Any) -> Tensor:
    """Return a weight as one tensor; of one that is sharded, every rank has to ask."""
    tensor: Tensor = value.full_tensor() if _is_distributed(value) else value
    return tensor


def _is_distributed(value: Any) -> bool:
    """Return whether a tensor is a DTensor, whose class takes long to import."""
    return hasattr(value, "full_tensor") and hasattr(value, "device_mesh")
