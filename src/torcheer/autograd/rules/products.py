"""Matrix and vector products."""

from __future__ import annotations

from typing import Any

from torcheer.autograd.rules.rule_table import Shape, rule


@rule("matmul", "mm", "bmm", "mv", "dot", "vdot", kept={"a": "b", "b": "a"})
def matmul(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar A = \bar Y B^\top$, $\bar B = A^\top \bar Y$: the shapes allow no other order."""
    if a.dim() == 1 and b.dim() == 1:
        return lambda: g * b, lambda: g * a
    if b.dim() == 1:  # a matrix and a vector: entry i is row i of A with b
        return lambda: g.unsqueeze(-1) * b, lambda: (a.mT @ g.unsqueeze(-1)).squeeze(-1)
    if a.dim() == 1:
        return lambda: (b @ g.unsqueeze(-1)).squeeze(-1), lambda: a.unsqueeze(-1) * g.unsqueeze(-2)
    if b.dim() == 2 and a.dim() > 2:  # one matrix for the whole batch: all rows at once
        return lambda: g @ b.mT, lambda: a.flatten(0, -2).mT @ g.flatten(0, -2)
    return lambda: g @ b.mT, lambda: a.mT @ g


@rule("rmatmul", kept={"a": "b", "b": "a"})
def rmatmul(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar B = \bar Y A^\top$, $\bar A = B^\top \bar Y$: this is b @ a, called for the operand on the right."""
    return matmul(g, b, a)[::-1]


@rule("linear", kept={"x": "weight", "weight": "x"})
def linear(g: Any, x: Any, weight: Any, bias: Shape = None) -> Any:
    r"""$\bar X = \bar Y W$, $\bar W = \bar Y^\top X$, $\bar b = \sum \bar Y$: every row adds to the weights."""
    count = g.shape[:-1].numel()
    rows = g.reshape(count, g.shape[-1])
    to_weight = lambda: rows.t() @ x.reshape(count, x.shape[-1])  # noqa: E731
    return lambda: g @ weight, to_weight, lambda: rows.sum(0)


@rule("outer", "ger", kept={"a": "b", "b": "a"})
def outer(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar Y b$, $\bar b = \bar Y^\top a$: entry ij is $a_i b_j$."""
    return lambda: g @ b, lambda: g.t() @ a
