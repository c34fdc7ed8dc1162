"""What is known of tensors that are not kept: flat cells of facts, from which text and records are made when asked."""

from __future__ import annotations

import weakref
from math import prod
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Parameter

from torcheer.capture.record.tensor_facts import grad_fn_name, meta_of
from torcheer.records import TensorMeta

PLAIN = (Tensor, Parameter)

# The cells of one tensor: a weak reference to it, its shape, dtype and device, and the class of its autograd node
# (False: it requires no gradient). Of a tensor that is not plain: its TensorMeta in place of the shape, and the name
# of that class.
CELLS = 5
_SHAPE, _GRAD = 1, 4


class ReleasedOutputs(NamedTuple):
    """The output cell of a row that gave several tensors; a row of one has the offset of its cells instead."""

    offset: int
    size: int
    returned: int  # the first ones were returned; the others were only written


RELEASED = frozenset((int, ReleasedOutputs))  # types of the output cell of a row whose tensors were released


def add_facts(cells: list[Any], tensor: Tensor) -> None:
    """Append the cells of any tensor; a fact of one that is not plain may be unknown."""
    if type(tensor) in PLAIN:
        try:
            grad: Any = tensor.requires_grad and type(tensor.grad_fn)
            cells += (weakref.ref(tensor), tensor.shape, tensor.dtype, tensor.device, grad)
            return
        except Exception:  # nested tensors have no shape, views of written memory no autograd node
            pass
    meta = meta_of(tensor)
    cells += (weakref.ref(tensor), meta, None, None, meta.requires_grad and grad_fn_name(tensor))


def read_meta(cells: list[Any], offset: int) -> TensorMeta:
    """Return the metadata of a released tensor."""
    _, shape, dtype, device, grad = cells[offset : offset + CELLS]
    if isinstance(shape, TensorMeta):
        return shape
    return TensorMeta(tuple(shape), str(dtype), str(device), prod(shape) * dtype.itemsize, grad is not False)


def read_grad_fn(cells: list[Any], offset: int) -> str:
    """Return the name of a released tensor's autograd node or ""."""
    grad = cells[offset + _GRAD]
    if isinstance(grad, str):
        return grad
    return "" if grad is False or grad is type(None) else str(grad.__name__)
