"""Reductions: sums, means, products, extremes, norms, cumulative sums."""

from __future__ import annotations

import math
from typing import Any

import torch

from torcheer.autograd.rules.rule_table import Shape, rule


def stretch(value: Any, like: Any, dim: Any, keepdim: bool) -> Any:
    """Expand a reduced value to the shape of `like`, from before the reduction over `dim`."""
    if not keepdim and dim is not None and like.ndim:
        dims = [dim] if isinstance(dim, int) else list(dim)
        for axis in sorted(axis % like.ndim for axis in dims):
            value = value.unsqueeze(axis)
        if not dims:
            value = value.reshape((1,) * like.ndim)
    return value.expand(like.shape)


@rule("sum")
def sum(g: Any, x: Shape, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    r"""$\bar x_i = \bar y$: every term moves a sum one to one, so each gets a copy."""
    return stretch(g, x, dim, keepdim)


@rule("nansum")
def nansum(g: Any, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    r"""$\bar x_i = \bar y\,[x_i \text{ is a number}]$: entries that were left out get no gradient."""
    return stretch(g, x, dim, keepdim).masked_fill(x.isnan(), 0)


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
    dim = list(range(x.ndim)) if dim == () or dim is None else dim
    best = (x == stretch(y, x, dim, keepdim)).to(g.dtype)
    return stretch(g, x, dim, keepdim) * (best / best.sum(dim, keepdim=True))


@rule("prod")
def prod(g: Any, y: Any, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    r"""$\bar x_i = \bar y \prod_{j \ne i} x_j$: each factor is scaled by all the others, even where one is zero."""
    if not (x == 0).any() or not x.ndim:
        return stretch(g, x, dim, keepdim) * (stretch(y, x, dim, keepdim) / x if x.ndim else 1)
    rows = x.reshape(-1) if dim is None else x.movedim(dim, -1)
    diagonal = torch.eye(rows.shape[-1], dtype=torch.bool, device=x.device)
    products = rows.unsqueeze(-2).masked_fill(diagonal, 1.0).prod(-1)
    return stretch(g, x, dim, keepdim) * (products.reshape(x.shape) if dim is None else products.movedim(-1, dim))


@rule("cumprod")
def cumprod(g: Any, x: Any, dim: int, dtype: Any = None) -> Any:
    r"""$\bar x_i = \sum_{j \ge i} \bar y_j \prod_{k \le j,\,k \ne i} x_k$: an early factor is in all later products."""
    if not x.ndim:
        return g
    rows = x.movedim(dim, -1)
    diagonal = torch.eye(rows.shape[-1], dtype=torch.bool, device=x.device)
    products = rows.unsqueeze(-2).masked_fill(diagonal, 1.0).cumprod(-1).triu()
    return (g.movedim(dim, -1).unsqueeze(-2) * products).sum(-1).movedim(-1, dim)


@rule("logcumsumexp")
def logcumsumexp(g: Any, y: Any, x: Any, dim: int) -> Any:
    r"""$\bar x_i = \sum_{j \ge i} \bar y_j\,e^{x_i - y_j}$: an early term has a share in all later sums."""
    if not x.ndim:
        return g
    terms, sums = x.movedim(dim, -1).unsqueeze(-1), y.movedim(dim, -1).unsqueeze(-2)
    later = torch.ones(x.shape[dim], x.shape[dim], dtype=torch.bool, device=x.device).triu()
    shares = torch.exp((terms - sums).masked_fill(~later, -math.inf))
    return (g.movedim(dim, -1).unsqueeze(-2) * shares).sum(-1).movedim(-1, dim)


@rule("linalg_vector_norm")
def vector_norm(g: Any, y: Any, x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    r"""$\bar x_i = \bar y\,\operatorname{sign}(x_i)\,(|x_i| / y)^{p-1}$: for $p = 2$ the gradient points along $x$;
    at zero it is taken as zero."""
    g, y = stretch(g, x, dim, keepdim), stretch(y, x, dim, keepdim)
    if ord in (math.inf, -math.inf):
        best = (torch.abs(x) == y).to(g.dtype)
        return g * torch.sign(x) * (best / best.sum(dim, keepdim=True))
    y = y.masked_fill(y == 0, math.inf)
    if ord >= 2:
        return g * (x / y) * (1.0 if ord == 2 else torch.abs(x / y) ** (ord - 2))
    share = torch.abs(x / y).masked_fill(x == 0, 1.0)
    return g * torch.sign(x) * (1.0 if ord == 1 else 0.0 if ord == 0 else share ** (ord - 1))
