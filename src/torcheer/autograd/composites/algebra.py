"""Combined sums and products, determinants, matrix powers, variance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.linalg import logabsdet
from torcheer.autograd.rules.rule_table import composite

types: Any = torch.return_types


def _add_product(x: Tensor, product: Tensor, beta: Any, alpha: Any) -> Any:
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else (x if beta == 1 else x * beta) + product


@composite("addmv")
def addmv(x: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    r"""$\beta x + \alpha\,A b$: a matrix times a vector, plus a vector."""
    return _add_product(x, mat @ vec, beta, alpha)


@composite("baddbmm")
def baddbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    r"""$\beta X_i + \alpha\,A_i B_i$: a batch of matrix products, each plus a matrix."""
    return _add_product(x, batch1 @ batch2, beta, alpha)


@composite("addmm")
def addmm(x: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    r"""$\beta X + \alpha\,A B$: a matrix product, plus a matrix."""
    return _add_product(x, mat1 @ mat2, beta, alpha)


@composite("addbmm")
def addbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    r"""$\beta X + \alpha \sum_i A_i B_i$: the sum of a batch of matrix products, plus a matrix."""
    return _add_product(x, (batch1 @ batch2).sum(0), beta, alpha)


@composite("addr")
def addr(x: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    r"""$\beta X + \alpha\,a b^\top$: an outer product, plus a matrix."""
    return _add_product(x, torch.outer(vec1, vec2), beta, alpha)


@composite("addcmul")
def addcmul(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Any:
    r"""$x + v\,a\,b$: an elementwise product, added with a factor."""
    return x + value * tensor1 * tensor2


@composite("addcdiv")
def addcdiv(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Any:
    r"""$x + v\,a/b$: the step that optimizers take."""
    return x + value * tensor1 / tensor2


@composite("lerp")
def lerp(x: Tensor, end: Tensor, weight: Any) -> Any:
    r"""$x + w\,(e - x)$: linear interpolation between two tensors."""
    return x + weight * (end - x)


@composite("inner")
def inner(x: Tensor, other: Tensor) -> Tensor:
    r"""$y_{ij} = \sum_k a_{ik}\,b_{jk}$: the dot product of every row with every row."""
    return x * other if not x.dim() or not other.dim() else torch.tensordot(x, other, ([-1], [-1]))


@composite("linalg_vecdot")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    r"""$\sum_k a_k\,b_k$: the dot product of corresponding rows."""
    return (x * y).sum(dim)


@composite("kron")
def kron(x: Tensor, other: Tensor) -> Tensor:
    r"""$y = (a_{11} B, a_{12} B; \dots)$: every entry of $A$, times $B$, becomes a block."""
    axes = max(x.dim(), other.dim())
    a, b = [(1,) * (axes - tensor.dim()) + tuple(tensor.shape) for tensor in (x, other)]
    blocks = x.reshape([size for length in a for size in (length, 1)]) * other.reshape(
        [size for length in b for size in (1, length)]
    )
    return blocks.reshape([rows * columns for rows, columns in zip(a, b)])


@composite("bilinear")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Any = None) -> Any:
    r"""$y_o = \sum_{ij} a_i\,W_{oij}\,b_j + c_o$: every feature of one input times every one of the other."""
    y = torch.einsum("...i,oij,...j->...o", input1, weight, input2)
    return y if bias is None else y + bias


@composite("chain_matmul", "linalg_multi_dot")
def multi_dot(*matrices: Any) -> Any:
    r"""$A B C \dots$: the products are taken from left to right."""
    product, *factors = matrices[0] if len(matrices) == 1 else matrices
    for factor in factors:
        product = product @ factor
    return product


@composite("matrix_power", "linalg_matrix_power")
def matrix_power(x: Tensor, n: int) -> Any:
    r"""$A^n$: by repeated squaring; of the inverse where $n < 0$."""
    if n < 0:
        return matrix_power(torch.linalg.inv(x), -n)
    if n == 0:
        return x * 0 + torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    half = matrix_power(x, n // 2) if n > 1 else x
    return half if n == 1 else half @ half if n % 2 == 0 else half @ half @ x


@composite("trace")
def trace(x: Tensor) -> Tensor:
    r"""$\sum_i a_{ii}$: the sum of the diagonal."""
    return x.diagonal().sum()


@composite("slogdet")
def slogdet(x: Tensor) -> Any:
    r"""$\operatorname{sign} \det A,\ \log |\det A|$: works where the determinant itself would overflow."""
    with torch.no_grad():
        sign = torch.linalg.slogdet(x)[0]
    return types.slogdet((sign, logabsdet(x)))


@composite("linalg_slogdet")
def linalg_slogdet(x: Tensor) -> Any:
    r"""$\operatorname{sign} \det A,\ \log |\det A|$: works where the determinant itself would overflow."""
    return types.linalg_slogdet(tuple(slogdet(x)))


@composite("logdet")
def logdet(x: Tensor) -> Tensor:
    r"""$\log \det A$: not a number where the determinant is negative."""
    sign, size = slogdet(x)
    return torch.where(sign < 0, torch.nan, size)


@composite("linalg_cholesky_ex")
def cholesky_ex(x: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    r"""$A = L L^\top$: a failure is reported as a number instead of an error."""
    with torch.no_grad():
        root, info = torch.linalg.cholesky_ex(x, upper=upper, check_errors=check_errors)
    return types.linalg_cholesky_ex((root if info.any() else torch.linalg.cholesky(x, upper=upper), info))


# Variance and standard deviation


@composite("var")
def var(x: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Any:
    r"""$\sum (x - \mu)^2 / (n - 1)$: how far the values are from their mean."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    removed = correction if correction is not None else 1 if unbiased is None else int(unbiased)
    axes = tuple(range(x.dim())) if dim is None else dim
    centred = x - x.mean(axes, keepdim=True)
    squares = (centred * centred).sum(axes, keepdim=keepdim)
    return squares / max(x.numel() / max(squares.numel(), 1) - removed, 0)


@composite("std")
def std(x: Tensor, *args: Any, **kwargs: Any) -> Any:
    r"""$\sqrt{\text{var}}$: the same in the unit of the values."""
    return _sqrt(var(x, *args, **kwargs))


@composite("var_mean")
def var_mean(x: Tensor, dim: Any = None, *args: Any, keepdim: bool = False, **kwargs: Any) -> Any:
    r"""$\sum (x - \mu)^2 / (n - 1),\ \mu$: both at once."""
    mean = x.mean() if dim is None and not keepdim else x.mean(_axes(x, dim), keepdim=keepdim)
    return var(x, dim, *args, keepdim=keepdim, **kwargs), mean


@composite("std_mean")
def std_mean(x: Tensor, *args: Any, **kwargs: Any) -> Any:
    r"""$\sqrt{\text{var}},\ \mu$: both at once."""
    spread, mean = var_mean(x, *args, **kwargs)
    return _sqrt(spread), mean


def _sqrt(spread: Tensor) -> Tensor:
    """Take a square root whose slope at zero is zero instead of infinite."""
    is_zero = spread == 0
    return torch.sqrt(spread.masked_fill(is_zero, 1)).masked_fill(is_zero, 0)


def _axes(x: Tensor, dim: Any) -> Any:
    return tuple(range(x.dim())) if dim is None or isinstance(dim, bool) else dim


@composite("nanmean")
def nanmean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    r"""$\sum x_i / n$ over those that are numbers: the others are left out and get no gradient."""
    count = (~x.isnan()).sum(_axes(x, dim), keepdim=keepdim)
    return torch.nansum(x, _axes(x, dim), keepdim=keepdim, dtype=dtype) / count
