"""Metadata of tensors.

Reading a fact can raise (sparse, nested, subclasses); then only that fact is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torcheer.capture.torch_state import DisableTorchFunctionSubclass
from torcheer.encoding import held_bytes
from torcheer.records import TensorMeta

UNKNOWN = "unknown"


def read_fact(read: Callable[[], Any], default: Any) -> Any:
    """Read one fact of a tensor; return `default` if torch or a subclass raises."""
    try:
        return read()
    except Exception:
        return default


def meta_of(tensor: Any) -> TensorMeta:
    """Return a tensor's metadata without reading its values."""
    if isinstance(tensor, TensorMeta):
        return tensor
    with DisableTorchFunctionSubclass():
        try:
            shape = tuple(length if type(length) is int else -1 for length in tensor.shape)
            size = held_bytes(tensor)
            return TensorMeta(shape, str(tensor.dtype), str(tensor.device), size, tensor.requires_grad)
        except Exception:  # read the facts one by one
            return TensorMeta(
                nested_shape(tensor),
                read_fact(lambda: str(tensor.dtype), UNKNOWN),
                read_fact(lambda: str(tensor.device), UNKNOWN),
                read_fact(lambda: held_bytes(tensor), 0),
                read_fact(lambda: bool(tensor.requires_grad), False),
            )


def nested_shape(tensor: Any) -> tuple[int, ...]:
    """Return the shape of a nested tensor, with -1 where lengths differ."""
    count = read_fact(lambda: int(tensor.dim()), 0)
    lengths = [read_fact(partial(tensor.size, place), -1) for place in range(count)]
    return tuple(length if type(length) is int else -1 for length in lengths)


def grad_fn_name(tensor: Any) -> str:
    """Return the name of a tensor's autograd node or "".

    It is "unknown" for a view whose base was written since.
    """
    node = read_fact(lambda: getattr(tensor, "grad_fn", None), UNKNOWN)
    return node if isinstance(node, str) else type(node).__name__ if node is not None else ""
