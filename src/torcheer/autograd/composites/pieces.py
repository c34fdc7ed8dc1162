"""Cutting up, and choosing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.table import composite


@composite("split", "split_with_sizes", "unsafe_split")
def split(x: Tensor, split_size_or_sections: Any, dim: int = 0, split_size: Any = None) -> tuple[Tensor, ...]:
    r"""Stretches of $x$, one after the other."""
    size, length = split_size_or_sections, x.shape[dim]
    sizes = (
        list(size)
        if not isinstance(size, int)
        else [min(size, length - at) for at in range(0, length, max(size, 1))] or [0]
    )
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    return tuple(x.narrow(dim, start, size) for start, size in zip(starts, sizes))


@composite("chunk", "unsafe_chunk")
def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    r"""About equal stretches of $x$."""
    return split(x, max(-(-x.shape[dim] // chunks), 1), dim)


@composite("unbind", "__iter__")
def unbind(x: Tensor, dim: int = 0) -> Any:
    r"""The slices of $x$."""
    return tuple(x.select(dim, place) for place in range(x.shape[dim]))


def _chosen(x: Tensor, index: Tensor, dim: int, keepdim: bool) -> Tensor:
    found = x.gather(dim, index)
    return found if keepdim else found.squeeze(dim)


@composite("max")
def max_(x: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    r"""$\max x$; along an axis: the value of the winner, and its place."""
    if dim is None and other is None:
        return torch.amax(x)
    if other is not None or isinstance(dim, Tensor):
        return torch.maximum(x, dim if other is None else other)
    index = torch.argmax(x, dim, keepdim=True) if x.dim() else x.new_zeros((), dtype=torch.int64)
    values = _chosen(x, index, dim, keepdim or not x.dim())
    return torch.return_types.max((values, index if keepdim or not x.dim() else index.squeeze(dim)))


@composite("min")
def min_(x: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    r"""$\min x$; along an axis: the value of the smallest, and its place."""
    if dim is None and other is None:
        return torch.amin(x)
    if other is not None or isinstance(dim, Tensor):
        return torch.minimum(x, dim if other is None else other)
    index = torch.argmin(x, dim, keepdim=True) if x.dim() else x.new_zeros((), dtype=torch.int64)
    values = _chosen(x, index, dim, keepdim or not x.dim())
    return torch.return_types.min((values, index if keepdim or not x.dim() else index.squeeze(dim)))
