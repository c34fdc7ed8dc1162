"""Sums and products that torch has one name for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.linalg import logabsdet
from torcheer.autograd.rules.rule_table import composite

types: Any = torch.return_types


def _plus(x: Tensor, product: Tensor, beta: Any, alpha: Any) -> Any:
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else (x if beta == 1 else x * beta) + product


@composite("addmv")
def addmv(x: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    r"""$\beta x + \alpha\,A b$: a matrix times a vector, with something added."""
    return _plus(x, mat @ vec, beta, alpha)


@composite("baddbmm")
def baddbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    r"""$\beta X_i + \alpha\,A_i B_i$: the products of a batch, each with something added."""
    return _plus(x, batch1 @ batch2, beta, alpha)


@composite("addmm")
def addmm(x: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    r"""$\beta X + \alpha\,A B$: a product, with something added."""
    return _plus(x, mat1 @ mat2, beta, alpha)


@composite("addbmm")
def addbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    r"""$\beta X + \alpha \sum_i A_i B_i$: the products of a batch, added up."""
    return _plus(x, (batch1 @ batch2).sum(0), beta, alpha)


@composite("addr")
def addr(x: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    r"""$\beta X + \alpha\,a b^\top$: a matrix of all products, with something added."""
    return _plus(x, torch.outer(vec1, vec2), beta, alpha)


@composite("addcmul")
def addcmul(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Any:
    r"""$x + v\,a\,b$: a product, with something added."""
    return x + value * tensor1 * tensor2


@composite("addcdiv")
def addcdiv(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Any:
    r"""$x + v\,a/b$: the step that optimizers take."""
    return x + value * tensor1 / tensor2


@composite("lerp")
def lerp(x: Tensor, end: Tensor, weight: Any) -> Any:
    r"""$x + w\,(e - x)$: a part of the way from one to the other."""
    return x + weight * (end - x)


@composite("inner")
def inner(x: Tensor, other: Tensor) -> Tensor:
    r"""$y_{ij} = \sum_k a_{ik}\,b_{jk}$: every row with every row."""
    return x * other if not x.dim() or not other.dim() else torch.tensordot(x, other, ([-1], [-1]))


@composite("linalg_vecdot")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    r"""$\sum_k a_k\,b_k$: rows with their partners."""
    return (x * y).sum(dim)


@composite("kron")
def kron(x: Tensor, other: Tensor) -> Tensor:
    r"""$y = (a_{11} B, a_{12} B; \dots)$: every entry of $A$ grows into a block."""
    axes = max(x.dim(), other.dim())
    a, b = [(1,) * (axes - one.dim()) + tuple(one.shape) for one in (x, other)]
    wide = x.reshape([size for one in a for size in (one, 1)]) * other.reshape([size for one in b for size in (1, one)])
    return wide.reshape([one * two for one, two in zip(a, b)])


@composite("bilinear")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Any = None) -> Any:
    r"""$y_o = \sum_{ij} a_i\,W_{oij}\,b_j + c_o$: every feature of one input meets every feature of the other."""
    y = torch.einsum("...i,oij,...j->...o", input1, weight, input2)
    return y if bias is None else y + bias


@composite("chain_matmul", "linalg_multi_dot")
def multi_dot(*matrices: Any) -> Any:
    r"""$A B C \dots$: one product after the other."""
    first, *rest = matrices[0] if len(matrices) == 1 else matrices
    for one in rest:
        first = first @ one
    return first


@composite("matrix_power", "linalg_matrix_power")
def matrix_power(x: Tensor, n: int) -> Any:
    r"""$A^n$: by squaring, or of the inverse where $n < 0$."""
    if n < 0:
        return matrix_power(torch.linalg.inv(x), -n)
    if n == 0:
        return x * 0 + torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    half = matrix_power(x, n // 2) if n > 1 else x
    return half if n == 1 else half @ half if n % 2 == 0 else half @ half @ x


@composite("trace")
def trace(x: Tensor) -> Tensor:
    r"""$\sum_i a_{ii}$: the diagonal, added up."""
    return x.diagonal().sum()


@composite("slogdet")
def slogdet(x: Tensor) -> Any:
    r"""$\operatorname{sign} \det A,\ \log |\det A|$: safe for volumes that are no number any more."""
    with torch.no_grad():
        sign = torch.linalg.slogdet(x)[0]
    return types.slogdet((sign, logabsdet(x)))


@composite("linalg_slogdet")
def linalg_slogdet(x: Tensor) -> Any:
    r"""$\operatorname{sign} \det A,\ \log |\det A|$: safe for volumes that are no number any more."""
    return types.linalg_slogdet(tuple(slogdet(x)))


@composite("logdet")
def logdet(x: Tensor) -> Tensor:
    r"""$\log \det A$: not a number where the determinant is negative."""
    sign, size = slogdet(x)
    return torch.where(sign < 0, torch.nan, size)


@composite("linalg_cholesky_ex")
def cholesky_ex(x: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    r"""$A = L L^\top$: with a word on whether it went well, instead of an error."""
    with torch.no_grad():
        root, info = torch.linalg.cholesky_ex(x, upper=upper, check_errors=check_errors)
    return types.linalg_cholesky_ex((root if info.any() else torch.linalg.cholesky(x, upper=upper), info))


# Spread


@composite("var")
def var(x: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Any:
    r"""$\sum (x - \mu)^2 / (n - 1)$: how far the values stand from their mean."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    less = correction if correction is not None else 1 if unbiased is None else int(unbiased)
    axes = tuple(range(x.dim())) if dim is None else dim
    centred = x - x.mean(axes, keepdim=True)
    squares = (centred * centred).sum(axes, keepdim=keepdim)
    return squares / max(x.numel() / max(squares.numel(), 1) - less, 0)


@composite("std")
def std(x: Tensor, *args: Any, **kwargs: Any) -> Any:
    r"""$\sqrt{\text{var}}$: the same in the unit of the values."""
    return _root(var(x, *args, **kwargs))


@composite("var_mean")
def var_mean(x: Tensor, dim: Any = None, *args: Any, keepdim: bool = False, **kwargs: Any) -> Any:
    r"""$\sum (x - \mu)^2 / (n - 1),\ \mu$: both at once."""
    mean = x.mean() if dim is None and not keepdim else x.mean(_axes(x, dim), keepdim=keepdim)
    return var(x, dim, *args, keepdim=keepdim, **kwargs), mean


@composite("std_mean")
def std_mean(x: Tensor, *args: Any, **kwargs: Any) -> Any:
    r"""$\sqrt{\text{var}},\ \mu$: both at once."""
    spread, mean = var_mean(x, *args, **kwargs)
    return _root(spread), mean


def _root(spread: Tensor) -> Tensor:
    """Where all values are the same, a root would be infinitely steep: taken as flat."""
    none = spread == 0
    return torch.sqrt(spread.masked_fill(none, 1)).masked_fill(none, 0)


def _axes(x: Tensor, dim: Any) -> Any:
    return tuple(range(x.dim())) if dim is None or isinstance(dim, bool) else dim


@composite("nanmean")
def nanmean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    r"""$\sum x_i / n$ over those that are numbers: the others are left out, and sent nothing."""
    count = (~x.isnan()).sum(_axes(x, dim), keepdim=keepdim)
    return torch.nansum(x, _axes(x, dim), keepdim=keepdim, dtype=dtype) / count
