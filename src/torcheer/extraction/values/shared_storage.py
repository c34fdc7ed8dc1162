"""Who else holds a tensor's memory."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


def storage_holders(tensor: Tensor) -> int:
    """Return how many tensors, arrays and other objects share a tensor's storage, itself included."""
    return _use_count(tensor) - _own_uses()


def storage_id(tensor: Tensor) -> int:
    """Return a number that only tensors with the same storage have."""
    return int(tensor.untyped_storage()._cdata)


def _use_count(tensor: Tensor) -> int:
    return torch._C._storage_Use_Count(storage_id(tensor))


@cache
def _own_uses() -> int:
    return _use_count(torch.empty(1)) - 1  # the query itself adds references
