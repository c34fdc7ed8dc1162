"""Sums and products that torch has one name for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.table import composite


@composite("addmm", "addbmm_free", "addmv", "baddbmm")
def addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    r"""$\beta x + \alpha\,A B$."""
    product = a @ b
    return (x if beta == 1 else x * beta) + (product if alpha == 1 else product * alpha)


@composite("addcmul")
def addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Tensor:
    r"""$x + v\,a\,b$."""
    return x + value * a * b


@composite("addcdiv")
def addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Tensor:
    r"""$x + v\,a/b$."""
    return x + value * a / b


@composite("lerp")
def lerp(x: Tensor, end: Tensor, weight: Any) -> Tensor:
    r"""$x + w\,(e - x)$: a step of the way."""
    return x + weight * (end - x)


@composite("var")
def var(x: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Tensor:
    r"""$\sum (x - \mu)^2 / (n - 1)$."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    less = correction if correction is not None else 1 if unbiased is None else int(unbiased)
    axes = tuple(range(x.dim())) if dim is None else dim
    centred = x - x.mean(axes, keepdim=True)
    squares = (centred * centred).sum(axes, keepdim=keepdim)
    return squares / max(x.numel() / max(squares.numel(), 1) - less, 0)


@composite("std")
def std(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    r"""$\sqrt{\text{var}}$."""
    return torch.sqrt(var(x, *args, **kwargs))


@composite("var_mean")
def var_mean(x: Tensor, dim: Any = None, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    r"""Both at once."""
    return var(x, dim, *args, **kwargs), x.mean(dim, keepdim=kwargs.get("keepdim", False))


@composite("std_mean")
def std_mean(x: Tensor, dim: Any = None, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    r"""Both at once."""
    return std(x, dim, *args, **kwargs), x.mean(dim, keepdim=kwargs.get("keepdim", False))
