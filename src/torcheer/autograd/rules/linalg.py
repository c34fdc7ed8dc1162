"""Linear algebra: inverses, determinants, linear systems."""

from __future__ import annotations

from typing import Any

import torch

from torcheer.autograd.rules.indexing import visible
from torcheer.autograd.rules.rule_table import Shape, rule

triangular = torch.linalg.solve_triangular


@rule("linalg_inv")
def inv(g: Any, y: Any, x: Shape) -> Any:
    r"""$\bar A = -Y^\top \bar Y\,Y^\top$: from $A Y = I$, which must hold while both move."""
    return -(y.mT @ g @ y.mT)


@rule("linalg_det")
def det(g: Any, y: Any, x: Any) -> Any:
    r"""$\bar A = \bar y\,y\,A^{-\top}$: a volume grows by the same share as its sides."""
    return (g * y)[..., None, None] * torch.linalg.inv(x).mT


@visible
def logabsdet(x: torch.Tensor) -> Any:
    """Return the logarithm of the absolute value of the determinant."""
    return torch.linalg.slogdet(x)[1]


@rule("logabsdet")
def _logabsdet(g: Any, x: Any) -> Any:
    r"""$\bar A = \bar y\,A^{-\top}$: the logarithm divides by the determinant itself."""
    return g[..., None, None] * torch.linalg.inv(x).mT


@rule("linalg_solve")
def solve(g: Any, y: Any, A: Any, B: Shape, left: bool = True) -> Any:
    r"""$\bar B = A^{-\top} \bar Y$, $\bar A = -\bar B\,Y^\top$: one more linear system, with
    the matrix transposed."""
    to_b = torch.linalg.solve(A.mT, g, left=left)
    if not left:
        return lambda: -(y.mT @ to_b), to_b
    if B.ndim == 1 or B.shape == A.shape[:-1]:  # one right-hand side
        return lambda: -(to_b.unsqueeze(-1) * y.unsqueeze(-2)), to_b
    return lambda: -(to_b @ y.mT), to_b


@rule("linalg_solve_triangular")
def solve_triangular(
    g: Any, y: Any, A: Any, B: Shape, upper: bool = False, left: bool = True, unitriangular: bool = False
) -> Any:
    r"""$\bar B = A^{-\top} \bar Y$, $\bar A = -\bar B\,Y^\top$ in its triangle: nothing else of $A$ was read."""
    to_b = triangular(A.mT, g, upper=not upper, left=left, unitriangular=unitriangular)
    inner = int(unitriangular)  # ones on the diagonal are not read either

    def to_a() -> Any:
        product = -(to_b @ y.mT) if left else -(y.mT @ to_b)
        return product.triu(inner) if upper else product.tril(-inner)

    return to_a, to_b


@rule("linalg_cholesky")
def cholesky(g: Any, y: Any, x: Shape, upper: bool = False) -> Any:
    r"""$\bar A = L^{-\top} \Phi(L^\top \bar L)\,L^{-1}$, $\Phi$ the lower triangle with half the diagonal: $A$ is
    symmetric, so both halves share."""
    lower, g = (y.mT, g.mT) if upper else (y, g)
    inside = (lower.mT @ g).tril()
    inside = (inside + inside.tril(-1).mT) / 2
    half = triangular(lower.mT, inside, upper=True)
    return triangular(lower, half, upper=False, left=False)


@rule("matrix_exp", "linalg_matrix_exp")
def matrix_exp(g: Any, x: Any) -> Any:
    r"""$(\cdot, \bar A;\ 0, \cdot) = \exp(A^\top, \bar Y;\ 0, A^\top)$: the exponential of a
    block matrix applies the product rule to every term of the series at once."""
    size, transposed = x.shape[-1], x.mT
    rows = [torch.cat([transposed, g], -1), torch.cat([torch.zeros_like(g), transposed], -1)]
    return torch.matrix_exp(torch.cat(rows, -2))[..., :size, size:]


@rule("cross")
def cross(g: Any, a: Any, b: Any, dim: Any = None) -> Any:
    r"""$\bar a = b \times \bar y$, $\bar b = \bar y \times a$: the triple
    product $a \cdot (b \times c)$ does not change when its factors rotate."""
    dim = next(place - g.ndim for place, size in enumerate(g.shape) if size == 3) if dim is None else dim
    return lambda: torch.linalg.cross(b, g, dim=dim), lambda: torch.linalg.cross(g, a, dim=dim)


@rule("linalg_cross")
def linalg_cross(g: Any, a: Any, b: Any, dim: int = -1) -> Any:
    r"""$\bar a = b \times \bar y$, $\bar b = \bar y \times a$: the triple
    product $a \cdot (b \times c)$ does not change when its factors rotate."""
    return lambda: torch.linalg.cross(b, g, dim=dim), lambda: torch.linalg.cross(g, a, dim=dim)
