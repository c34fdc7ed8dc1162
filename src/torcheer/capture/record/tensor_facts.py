"""What is known of a tensor without its values. Asking can itself raise; then that one fact is unknown."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from torcheer.records import TensorMeta

UNKNOWN = "unknown"


def fact(read: Callable[[], Any], otherwise: Any) -> Any:
    """One fact of a tensor, or `otherwise` where torch, or a subclass, refuses to say."""
    try:
        return read()
    except Exception:
        return otherwise


def meta_of(tensor: Any) -> TensorMeta:
    """What is known of a tensor without reading it."""
    if isinstance(tensor, TensorMeta):
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        try:
            shape = tuple(length if type(length) is int else -1 for length in tensor.shape)
            size = int(tensor.numel()) * tensor.element_size()
            return TensorMeta(shape, str(tensor.dtype), str(tensor.device), size, tensor.requires_grad)
        except Exception:  # one by one, then
            return TensorMeta(
                nested_shape(tensor),
                fact(lambda: str(tensor.dtype), UNKNOWN),
                fact(lambda: str(tensor.device), UNKNOWN),
                fact(lambda: int(tensor.numel()) * tensor.element_size(), 0),
                fact(lambda: bool(tensor.requires_grad), False),
            )


def nested_shape(tensor: Any) -> tuple[int, ...]:
    """The shape of a tensor that has no regular one; -1 where lengths differ."""
    count = fact(lambda: int(tensor.dim()), 0)
    lengths = [fact(partial(tensor.size, place), -1) for place in range(count)]
    return tuple(length if type(length) is int else -1 for length in lengths)


def grad_fn_name(tensor: Any) -> str:
    """The name of the autograd node behind a tensor, or ""; "unknown" for a view whose base was written since."""
    node = fact(lambda: getattr(tensor, "grad_fn", None), UNKNOWN)
    return node if isinstance(node, str) else type(node).__name__ if node is not None else ""
