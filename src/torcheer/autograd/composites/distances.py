"""Norms and distances."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import composite

vector_norm = torch.linalg.vector_norm


@composite("norm")
def norm(x: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    r"""$(\sum |x_i|^p)^{1/p}$: the length of a vector."""
    if p == "nuc":
        return torch.linalg.matrix_norm(x, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    return vector_norm(x, 2 if p in ("fro", None) else p, dim, keepdim, dtype=dtype)


@composite("linalg_norm")
def linalg_norm(x: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    r"""$(\sum |x_i|^p)^{1/p}$: of a vector; with an order and two axes, of a matrix."""
    is_matrix = (dim is None and x.dim() == 2) or (isinstance(dim, (list, tuple)) and len(dim) == 2)
    if ord is not None and is_matrix:
        return torch.linalg.matrix_norm(x, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    return vector_norm(x, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


@composite("linalg_matrix_norm")
def matrix_norm(x: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Any:
    r"""$\sqrt{\sum a_{ij}^2}$, or the largest sum $\sum |a_{ij}|$ of a column (order 1) or row ($\infty$): how much a
    matrix can stretch."""
    x = x if dtype is None else x.to(dtype)
    if ord == "fro":
        return vector_norm(x, 2, dim, keepdim)
    rows, columns = [axis % x.dim() for axis in dim]
    if ord in ("nuc", 2, -2):
        values = torch.linalg.svdvals(x.movedim((rows, columns), (-2, -1)))  # no rule yet: raises MissingRule
        return values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
    inner, outer = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = x.abs().sum(inner, keepdim=True)
    y = torch.amax(sums, outer, keepdim=True) if ord > 0 else torch.amin(sums, outer, keepdim=True)
    return y if keepdim else y.squeeze((inner, outer))


@composite("dist")
def dist(x: Tensor, other: Tensor, p: Any = 2) -> Any:
    r"""$\|a - b\|_p$: the distance between two points."""
    return vector_norm(x - other, p)


@composite("pairwise_distance")
def pairwise_distance(x1: Tensor, x2: Tensor, p: Any = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    r"""$\|a - b + \varepsilon\|_p$: row by row; the small $\varepsilon$ keeps it above zero."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


@composite("cdist")
def cdist(x1: Tensor, x2: Tensor, p: Any = 2.0, compute_mode: Any = None) -> Any:
    r"""$y_{ij} = \|a_i - b_j\|_p$: the distance of every point to every other."""
    return vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


@composite("pdist")
def pdist(x: Tensor, p: Any = 2.0) -> Any:
    r"""$\|x_i - x_j\|_p$ for $i < j$: the distance of every pair, once."""
    first, second = torch.triu_indices(len(x), len(x), 1, device=x.device)
    return vector_norm(x[first] - x[second], p, -1)


@composite("cosine_similarity")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Any:
    r"""$a \cdot b / (\|a\|\,\|b\|)$: the cosine of the angle between two vectors."""
    x1, x2 = torch.broadcast_tensors(x1, x2)
    a, b = [x / vector_norm(x, 2, dim, keepdim=True).clamp(min=eps) for x in (x1, x2)]
    return (a * b).sum(dim)


@composite("renorm")
def renorm(x: Tensor, p: Any, dim: int, maxnorm: float) -> Any:
    r"""$x \cdot m / \|x\|_p$ where a slice is longer than $m$: scaled down to length $m$."""
    axes = [axis for axis in range(x.dim()) if axis != dim % x.dim()]
    size = vector_norm(x, p, axes, keepdim=True)
    return x * torch.where(size > maxnorm, maxnorm / (size + 1e-7), 1.0)
