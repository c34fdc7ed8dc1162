"""The part of a tensor that an operation is about to write."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torcheer.capture.record.function_table import BY_DIMENSION, TorchCall
from torcheer.capture.torch_state import is_wrapped, version_of
from torcheer.capture.values.memory_layout import PLAIN, MemoryRegion, region_of, storage_of

_BASIC = frozenset((int, slice, type(None), type(Ellipsis)))
_WHOLE_NUMBERS = (torch.int64, torch.int32)  # not bool and uint8: masks are as large as what they select from


class Window(NamedTuple):
    """The part of a tensor that an operation will write."""

    tensor: Tensor
    part: Tensor  # the view of it that is written; all of it if unknown
    region: MemoryRegion | None  # of the part; None: no plain memory
    index: Any  # of the elements within the part; None: all of them
    bytes: int  # upper bound of what is written
    number: int  # id of the storage
    version: int  # torch's version counter before the write


def window_of(call: TorchCall, args: tuple[Any, ...], tensor: Tensor) -> Window:
    """Return the part of a tensor that a call is about to write."""
    index, part = _index(call, args, tensor), tensor
    if index is not None and all(type(item) in _BASIC for item in index):
        with suppress(IndexError):  # the call itself will raise it
            part = (tensor.detach() if tensor.requires_grad else tensor)[index]
        index = None
    region = region_of(part)
    size = 0 if region is None else region.bytes if index is None else _most_bytes(tensor, index)
    return Window(tensor, part, region, index, size, storage_of(tensor), version_of(tensor))


def _index(call: TorchCall, args: tuple[Any, ...], tensor: Tensor) -> tuple[Any, ...] | None:
    """Return the index of a call that writes by index.

    None if it may write everything, or costs as much as that.
    """
    name = call.name
    if name == "__setitem__" and len(args) > 1:
        index = args[1] if type(args[1]) is tuple else (args[1],)
    elif name == "index_put_" and len(args) > 1:
        index = tuple(slice(None) if part is None else part for part in args[1])
    elif name in BY_DIMENSION and len(args) > 2 and type(args[1]) is int:
        index = (*(slice(None),) * (args[1] % max(tensor.dim(), 1)), args[2])
    else:
        return None
    if type(tensor) not in PLAIN or is_wrapped(tensor) or args[0] is not tensor or tensor.layout is not torch.strided:
        return None
    if len(index) > tensor.dim() + index.count(None):  # a 0-dimensional tensor, or one index too many
        return None
    return index if all(type(part) in _BASIC or _is_list_of_places(part) for part in index) else None


def _is_list_of_places(part: Any) -> bool:
    return type(part) is Tensor and part.dtype in _WHOLE_NUMBERS and not is_wrapped(part)


def _most_bytes(tensor: Tensor, index: tuple[Any, ...]) -> int:
    """Return an upper bound of the bytes that an index by lists of positions reaches.

    Each list, times all of the other dimensions.
    """
    cells, dimension = tensor.numel() * tensor.element_size(), 0
    lists = [part for part in index if type(part) is Tensor]
    for part in index:
        if part is Ellipsis:
            return cells  # not worth counting
        if type(part) is Tensor or type(part) is int:
            cells //= max(tensor.shape[dimension], 1)
        dimension += part is not None
    return cells * math.prod(part.numel() for part in lists)
