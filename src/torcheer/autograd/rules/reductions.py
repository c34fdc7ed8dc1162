"""Many numbers to one: sums, means, extremes, running sums."""

from __future__ import annotations

from typing import Any

import torch

from torcheer.autograd.rules.table import Shape, rule


def stretch(value: Any, like: Any, dim: Any, keepdim: bool) -> Any:
    """Give a reduced value its old axes back, each as wide as it was."""
    if not keepdim and dim is not None and like.ndim:
        dims = [dim] if isinstance(dim, int) else list(dim)
        for axis in sorted(axis % like.ndim for axis in dims):
            value = value.unsqueeze(axis)
        if not dims:
            value = value.reshape((1,) * like.ndim)
    return value.expand(like.shape)


@rule("sum", "nansum")
def sum(g: Any, x: Shape, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    r"""$\bar x_i = \bar y$: every term moves a sum one to one, so each gets a copy."""
    return stretch(g, x, dim, keepdim)


@rule("mean")
def mean(g: Any, x: Shape, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    r"""$\bar x_i = \bar y / n$: the n terms share the gradient."""
    share = stretch(g, x, dim, keepdim)
    return share / (x.shape.numel() / max(g.shape.numel(), 1))


@rule("cumsum")
def cumsum(g: Any, x: Shape, dim: int, dtype: Any = None) -> Any:
    r"""$\bar x_i = \sum_{j \ge i} \bar y_j$: an early term is part of all later sums."""
    return g.flip(dim).cumsum(dim).flip(dim)


@rule("amax", "amin")
def amax(g: Any, y: Any, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    r"""$\bar x_i = \bar y\,[x_i = y] / k$: the k entries that reach the extreme share its gradient."""
    from_all = dim == () or dim is None
    best = x == stretch(y, x, list(range(x.ndim)) if from_all else dim, keepdim)
    count = best.sum(list(range(x.ndim)) if from_all else dim, keepdim=True)
    return stretch(g, x, list(range(x.ndim)) if from_all else dim, keepdim) * (best / count).to(g.dtype)


@rule("prod")
def prod(g: Any, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    r"""$\bar x_i = \bar y \prod_{j \ne i} x_j$: each factor is scaled by all the others, even where one is zero."""
    flat = x.reshape(-1) if dim is None else x.movedim(dim, -1)
    size = flat.shape[-1]
    others = flat.unsqueeze(-2).masked_fill(torch.eye(size, dtype=torch.bool, device=x.device), 1.0).prod(-1)
    if dim is None:
        return g * others.reshape(x.shape)
    return stretch(g, x, dim, keepdim) * others.movedim(-1, dim)
