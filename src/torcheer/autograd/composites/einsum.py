"""Sums of products over named axes, as matrix products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import composite


@composite("einsum")
def einsum(*args: Any) -> Tensor:
    r"""$y_{ik} = \sum_j a_{ij}\,b_{jk}$ for "ij,jk->ik": letters that are missing on the right are summed over."""
    equation, operands = _written_out(args)
    inputs, output = _axes(equation, operands)
    y, axes = _once(operands[0], inputs[0])
    for place in range(1, len(operands)):
        needed = set(output).union(*inputs[place + 1 :])
        y, axes = _product(y, axes, *_once(operands[place], inputs[place]), needed)
    y, axes = _summed(y, axes, output)
    return y.permute([axes.index(one) for one in output])


@composite("tensordot")
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Any = None) -> Tensor:
    r"""$Y = A B$ with several axes taken as one: those of `dims` meet and are summed over."""
    dims = dims.tolist() if isinstance(dims, Tensor) else dims
    left, right = (range(-dims, 0), range(dims)) if isinstance(dims, int) else dims
    ours, theirs = [f"a{axis}" for axis in range(a.dim())], [f"b{axis}" for axis in range(b.dim())]
    needed = set(ours) | set(theirs)
    for one, two in zip(left, right):
        ours[one] = theirs[two] = f"shared {one}"
    return _product(a, ours, b, theirs, needed)[0]


def _written_out(args: tuple[Any, ...]) -> tuple[str, list[Tensor]]:
    """The forms einsum("ij,jk", a, b), einsum("ij,jk", [a, b]) and einsum(a, [0, 1], b, [1, 2], [0, 2])."""
    if isinstance(args[0], str):
        return args[0].replace(" ", ""), list(args[1] if isinstance(args[1], (list, tuple)) else args[1:])
    texts = ["".join("..." if one is Ellipsis else chr(97 + one) for one in axes) for axes in args[1::2]]
    count = len(args) // 2
    last = args[-1] if len(args) % 2 else None
    output = "" if last is None else "->" + "".join("..." if one is Ellipsis else chr(97 + one) for one in last)
    return ",".join(texts[:count]) + output, list(args[: 2 * count : 2])


def _axes(equation: str, operands: list[Tensor]) -> tuple[list[list[str]], list[str]]:
    """The names of each operand's axes and of the result's; those under an ellipsis are counted from the right."""
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    counts = [x.dim() - len(text.replace("...", "")) for text, x in zip(texts, operands)]
    inputs = [_named(text, count) for text, count in zip(texts, counts)]
    most = max((count for text, count in zip(texts, counts) if "..." in text), default=0)
    if arrow:
        return inputs, _named(right, most)
    letters = left.replace("...", "").replace(",", "")
    return inputs, _named("..." + "".join(sorted(one for one in set(letters) if letters.count(one) == 1)), most)


def _named(text: str, hidden: int) -> list[str]:
    before, dots, after = text.partition("...")
    return [*before, *([f"...{place}" for place in range(-hidden, 0)] if dots else []), *after]


def _once(x: Tensor, axes: list[str]) -> tuple[Tensor, list[str]]:
    """A letter that comes twice in one operand stands for its diagonal."""
    axes = list(axes)
    for name in dict.fromkeys(axes):
        while axes.count(name) > 1:
            first = axes.index(name)
            second = axes.index(name, first + 1)
            x = x.diagonal(0, first, second)  # the diagonal becomes the last axis
            axes = [one for place, one in enumerate(axes) if place not in (first, second)] + [name]
    return x, axes


def _summed(x: Tensor, axes: list[str], needed: Any) -> tuple[Tensor, list[str]]:
    """Without the axes that nobody asks for any more."""
    over = [place for place, name in enumerate(axes) if name not in needed]
    return (x.sum(over) if over else x), [name for name in axes if name in needed]


def _product(a: Tensor, ours: list[str], b: Tensor, theirs: list[str], needed: set[str]) -> tuple[Tensor, list[str]]:
    """Two operands as one matrix product: shared axes that are needed later are the batch, the others are summed."""
    a, ours = _summed(a, ours, needed | set(theirs))
    b, theirs = _summed(b, theirs, needed | set(ours))
    batch = [name for name in ours if name in theirs and name in needed]
    middle = [name for name in ours if name in theirs and name not in needed]
    rows = [name for name in ours if name not in theirs]
    columns = [name for name in theirs if name not in ours]
    size = {name: max(a.shape[ours.index(name)], b.shape[theirs.index(name)]) for name in batch + middle}
    size |= {name: a.shape[ours.index(name)] for name in rows} | {name: b.shape[theirs.index(name)] for name in columns}
    left = _arranged(a, ours, batch, rows, middle, size)
    right = _arranged(b, theirs, batch, middle, columns, size)
    axes = batch + rows + columns
    return (left @ right if middle else left * right).reshape([size[name] for name in axes]), axes


def _arranged(x: Tensor, axes: list[str], batch: Any, rows: Any, columns: Any, size: Any) -> Tensor:
    """As a batch of matrices, with axes of length one stretched where the other operand is longer."""
    x = x.permute([axes.index(name) for name in batch + rows + columns])
    x = x.expand([size[name] for name in batch + rows + columns])
    count = [torch.Size([size[name] for name in names]).numel() for names in (rows, columns)]
    return x.reshape([size[name] for name in batch] + count)
