"""Einsum and tensordot, computed as matrix products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import composite


@composite("einsum")
def einsum(*args: Any) -> Tensor:
    r"""$y_{ik} = \sum_j a_{ij}\,b_{jk}$ for "ij,jk->ik": letters missing on the right are summed over."""
    equation, operands = _parse_arguments(args)
    inputs, output = _name_axes(equation, operands)
    y, axes = _take_diagonals(operands[0], inputs[0])
    for place in range(1, len(operands)):
        needed = set(output).union(*inputs[place + 1 :])
        y, axes = _matrix_product(y, axes, *_take_diagonals(operands[place], inputs[place]), needed)
    y, axes = _sum_over(y, axes, output)
    return y.permute([axes.index(name) for name in output])


@composite("tensordot")
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Any = None) -> Tensor:
    r"""$Y = A B$ with several axes taken as one: the axes in `dims` are matched and summed over."""
    dims = dims.tolist() if isinstance(dims, Tensor) else dims
    left, right = (range(-dims, 0), range(dims)) if isinstance(dims, int) else dims
    a_axes, b_axes = [f"a{axis}" for axis in range(a.dim())], [f"b{axis}" for axis in range(b.dim())]
    needed = set(a_axes) | set(b_axes)
    for a_axis, b_axis in zip(left, right):
        a_axes[a_axis] = b_axes[b_axis] = f"shared {a_axis}"
    return _matrix_product(a, a_axes, b, b_axes, needed)[0]


def _parse_arguments(args: tuple[Any, ...]) -> tuple[str, list[Tensor]]:
    """Return the equation and operands of a call.

    Its forms: einsum("ij,jk", a, b), einsum("ij,jk", [a, b]) and einsum(a, [0, 1], b, [1, 2], [0, 2]).
    """
    if isinstance(args[0], str):
        return args[0].replace(" ", ""), list(args[1] if isinstance(args[1], (list, tuple)) else args[1:])
    texts = ["".join("..." if axis is Ellipsis else chr(97 + axis) for axis in axes) for axes in args[1::2]]
    count = len(args) // 2
    last = args[-1] if len(args) % 2 else None
    output = "" if last is None else "->" + "".join("..." if axis is Ellipsis else chr(97 + axis) for axis in last)
    return ",".join(texts[:count]) + output, list(args[: 2 * count : 2])


def _name_axes(equation: str, operands: list[Tensor]) -> tuple[list[list[str]], list[str]]:
    """Name the axes of each operand and of the result.

    Those under an ellipsis are counted from the right.
    """
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    counts = [x.dim() - len(text.replace("...", "")) for text, x in zip(texts, operands)]
    inputs = [_axis_names(text, count) for text, count in zip(texts, counts)]
    most = max((count for text, count in zip(texts, counts) if "..." in text), default=0)
    if arrow:
        return inputs, _axis_names(right, most)
    letters = left.replace("...", "").replace(",", "")
    return inputs, _axis_names(
        "..." + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1)), most
    )


def _axis_names(text: str, hidden: int) -> list[str]:
    before, dots, after = text.partition("...")
    return [*before, *([f"...{place}" for place in range(-hidden, 0)] if dots else []), *after]


def _take_diagonals(x: Tensor, axes: list[str]) -> tuple[Tensor, list[str]]:
    """Replace axes with the same letter in one operand by their diagonal."""
    axes = list(axes)
    for name in dict.fromkeys(axes):
        while axes.count(name) > 1:
            first = axes.index(name)
            second = axes.index(name, first + 1)
            x = x.diagonal(0, first, second)  # the diagonal becomes the last axis
            axes = [axis for place, axis in enumerate(axes) if place not in (first, second)] + [name]
    return x, axes


def _sum_over(x: Tensor, axes: list[str], needed: Any) -> tuple[Tensor, list[str]]:
    """Sum over the axes that are not needed any more."""
    over = [place for place, name in enumerate(axes) if name not in needed]
    return (x.sum(over) if over else x), [name for name in axes if name in needed]


def _matrix_product(
    a: Tensor, a_axes: list[str], b: Tensor, b_axes: list[str], needed: set[str]
) -> tuple[Tensor, list[str]]:
    """Multiply two operands as batched matrices.

    Shared axes that are needed later are the batch, the others are summed over.
    """
    a, a_axes = _sum_over(a, a_axes, needed | set(b_axes))
    b, b_axes = _sum_over(b, b_axes, needed | set(a_axes))
    batch = [name for name in a_axes if name in b_axes and name in needed]
    inner = [name for name in a_axes if name in b_axes and name not in needed]
    rows = [name for name in a_axes if name not in b_axes]
    columns = [name for name in b_axes if name not in a_axes]
    size = {name: max(a.shape[a_axes.index(name)], b.shape[b_axes.index(name)]) for name in batch + inner}
    size |= {name: a.shape[a_axes.index(name)] for name in rows}
    size |= {name: b.shape[b_axes.index(name)] for name in columns}
    left = _as_matrices(a, a_axes, batch, rows, inner, size)
    right = _as_matrices(b, b_axes, batch, inner, columns, size)
    axes = batch + rows + columns
    return (left @ right if inner else left * right).reshape([size[name] for name in axes]), axes


def _as_matrices(x: Tensor, axes: list[str], batch: Any, rows: Any, columns: Any, size: Any) -> Tensor:
    """Arrange an operand as a batch of matrices.

    Axes of length one are broadcast to the other operand's.
    """
    x = x.permute([axes.index(name) for name in batch + rows + columns])
    x = x.expand([size[name] for name in batch + rows + columns])
    count = [torch.Size([size[name] for name in names]).numel() for names in (rows, columns)]
    return x.reshape([size[name] for name in batch] + count)
