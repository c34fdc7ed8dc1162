"""A module's tensor as the items of a batch, each of the shape that its layer is drawn with."""

from __future__ import annotations

import torch
from torch import Tensor

from torcheer.host.follow.layer_places import Place
from torcheer.network.network_records import GAP_BITS


def arrange(tensor: Tensor, place: Place) -> tuple[Tensor, bool]:
    """Move the batch axis first and give each item the layer's shape; whether its items still have that shape."""
    tensor = tensor.detach()
    if place.batch_axis == -1:
        tensor = tensor[None]
    elif place.batch_axis:
        tensor = tensor.movedim(place.batch_axis, 0)
    tensor = tensor[:, None] if tensor.dim() == 1 else tensor
    if tuple(tensor.shape[1:]) == place.shape:
        return tensor, True
    if not tensor.numel():
        return tensor.new_empty((0, *place.shape)), True
    units = torch.Size(place.shape).numel()
    flat = tensor.dim() <= len(place.shape)  # otherwise it has a batch axis, and items of another length
    if flat and units and tensor.numel() % units == 0 and tensor.shape[0] * units != tensor.numel():
        return tensor.reshape(-1, *place.shape), True  # concatenated sequences
    if tensor.dim() == len(place.shape) + 1 and tensor.is_floating_point():  # another length than in the description
        return _fitted(tensor, place), False
    return tensor.reshape(tensor.shape[0], -1) if tensor.shape[0] * units == tensor.numel() else tensor, False


def _fitted(tensor: Tensor, place: Place) -> Tensor:
    """Cut off what is longer than the layer's shape; what is shorter has gaps."""
    gaps = torch.full((tensor.shape[0], *place.shape), GAP_BITS, dtype=torch.int32, device=tensor.device)
    fitted = gaps.view(torch.float32)
    common = tuple(slice(0, min(a, b)) for a, b in zip(tensor.shape[1:], place.shape))
    fitted[(slice(None), *common)] = tensor[(slice(None), *common)].float()
    return fitted
