"""Picking values and putting them back: each is the other's backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.table import Shape, rule


def visible(function: Any) -> Any:
    """Let a function of our own arrive at the tape as torch's do."""

    def call(*args: Any) -> Any:
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        if torch.overrides.has_torch_function(tensors):
            return torch.overrides.handle_torch_function(call, tensors, *args)
        return function(*args)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


@visible
def put_at(x: Tensor, index: Any, value: Any) -> Tensor:
    """`x`, with `x[index] = value` done."""
    y = x.clone()
    y[index] = value
    return y


@visible
def put_back(g: Tensor, shape: Any, index: Any) -> Tensor:
    """Zeros, with `g` added where `index` points: a place that was picked twice gets both."""
    y = g.new_zeros(shape)
    parts = index if isinstance(index, tuple) else (index,)
    if all(part is None or part is Ellipsis or type(part) in (int, slice) for part in parts):
        y[index] = g
        return y
    places = torch.arange(y.numel(), device=g.device).view(shape)[index]
    return y.view(-1).index_add_(0, places.reshape(-1), g.reshape(-1)).view(shape)


@rule("getitem")
def getitem(g: Any, x: Shape, index: Any) -> Any:
    r"""$\bar x_{\text{index}} \mathrel{+}= \bar y$: what was picked gets the gradient, all else zero."""
    return put_back(g, x.shape, index)


@rule("put_back")
def _put_back(g: Any, x: Shape, shape: Any, index: Any) -> Any:
    r"""$\bar x = \bar y_{\text{index}}$: what was put somewhere is found there."""
    return g[index]


@rule("put_at")
def _put_at(g: Any, x: Shape, index: Any, value: Shape) -> Any:
    r"""$\bar x = \bar y$ but zero at index, $\bar v = \bar y_{\text{index}}$: the overwritten has no say any more."""
    return lambda: put_at(g, index, 0), None, lambda: g[index]


@rule("select")
def select(g: Any, x: Shape, dim: int, index: int) -> Any:
    r"""$\bar x_{\text{index}} = \bar y$: the chosen slice gets the gradient, all else zero."""
    return put_back(g, x.shape, (slice(None),) * (dim % x.ndim) + (index,))


@rule("narrow")
def narrow(g: Any, x: Shape, dim: int, start: Any, length: int) -> Any:
    r"""$\bar x_{s:s+n} = \bar y$: the stretch gets the gradient, all else zero."""
    begin = int(start) % max(x.shape[dim], 1) if int(start) < 0 else int(start)
    return put_back(g, x.shape, (slice(None),) * (dim % x.ndim) + (slice(begin, begin + length),))


@rule("index_select")
def index_select(g: Any, x: Shape, dim: int, index: Any) -> Any:
    r"""$\bar x_{\text{index}} \mathrel{+}= \bar y$: a slice that was taken twice gets both gradients."""
    return g.new_zeros(x.shape).index_add(dim, index, g)


@rule("index_add")
def index_add(g: Any, x: Shape, dim: int, index: Any, source: Shape, alpha: Any = 1) -> Any:
    r"""$\bar x = \bar y$, $\bar s = \alpha\,\bar y_{\text{index}}$: what was added somewhere is found there."""
    return g, None, None, lambda: g.index_select(dim, index) * alpha


@rule("index_copy")
def index_copy(g: Any, x: Shape, dim: int, index: Any, source: Shape) -> Any:
    r"""$\bar x = \bar y$ but zero at index, $\bar s = \bar y_{\text{index}}$: the overwritten has no say any more."""
    return lambda: g.index_fill(dim, index, 0), None, None, lambda: g.index_select(dim, index)


@rule("index_fill")
def index_fill(g: Any, x: Shape, dim: int, index: Any, value: Shape) -> Any:
    r"""$\bar x = \bar y$ but zero at index: the overwritten has no say any more."""
    return lambda: g.index_fill(dim, index, 0), None, None, lambda: g.index_select(dim, index).sum()


@rule("gather", "take_along_dim")
def gather(g: Any, x: Shape, dim: Any, index: Any, sparse_grad: bool = False) -> Any:
    r"""$\bar x_{\text{index}} \mathrel{+}= \bar y$: each picked entry gets what its copies received."""
    if isinstance(dim, Tensor):  # take_along_dim(x, index, dim)
        dim, index = index, dim
    return g.new_zeros(x.shape).scatter_add(dim, index, g)


@rule("scatter_add")
def scatter_add(g: Any, x: Shape, dim: int, index: Any, src: Shape) -> Any:
    r"""$\bar x = \bar y$, $\bar s = \bar y_{\text{index}}$: what was added somewhere is found there."""
    return g, None, None, lambda: g.gather(dim, index)


@rule("scatter")
def scatter(g: Any, x: Shape, dim: int, index: Any, src: Shape) -> Any:
    r"""$\bar x = \bar y$ but zero at index, $\bar s = \bar y_{\text{index}}$: the overwritten has no say any more."""
    return lambda: g.scatter(dim, index, 0), None, None, lambda: g.gather(dim, index)


@rule("take")
def take(g: Any, x: Shape, index: Any) -> Any:
    r"""$\bar x_{\text{index}} \mathrel{+}= \bar y$: places are counted row by row."""
    flat = g.new_zeros(x.shape.numel()).index_add(0, index.reshape(-1), g.reshape(-1))
    return flat.reshape(x.shape)


@rule("put")
def put(g: Any, x: Shape, index: Any, source: Shape, accumulate: bool = False) -> Any:
    r"""$\bar x = \bar y$ but zero at index, $\bar s = \bar y_{\text{index}}$: a piece is put back into its whole."""
    zeros = torch.zeros(index.shape, dtype=g.dtype, device=g.device)
    return lambda: g if accumulate else g.put(index, zeros), None, lambda: g.take(index)


@rule("embedding")
def embedding(
    g: Any, weight: Shape, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    r"""$\bar W_{\text{index}} \mathrel{+}= \bar y$: a word's row gathers the gradients of all its occurrences."""
    rows = indices.reshape(-1)
    flat = g.reshape(-1, weight.shape[1])
    if padding_idx >= 0:
        flat = flat * (rows != padding_idx).unsqueeze(1)
    return g.new_zeros(weight.shape).index_add(0, rows, flat)


@rule("where")
def where(g: Any, condition: Any, a: Shape, b: Shape) -> Any:
    r"""$\bar a = \bar y\,[c]$, $\bar b = \bar y\,[\lnot c]$: each entry goes back to where it was taken from."""
    return None, lambda: g * condition, lambda: g * ~condition


@rule("masked_fill")
def masked_fill(g: Any, x: Shape, mask: Any, value: Shape) -> Any:
    r"""$\bar x = \bar y\,[\lnot m]$: what was painted over has no say any more."""
    return lambda: g.masked_fill(mask, 0), None, lambda: (g * mask).sum()


@rule("masked_select")
def masked_select(g: Any, x: Shape, mask: Any) -> Any:
    r"""$\bar x_m = \bar y$: what the mask let through gets its gradient."""
    return put_back(
        g, torch.broadcast_shapes(x.shape, mask.shape), mask.expand(torch.broadcast_shapes(x.shape, mask.shape))
    )


@rule("masked_scatter")
def masked_scatter(g: Any, x: Shape, mask: Any, source: Shape) -> Any:
    r"""$\bar x = \bar y\,[\lnot m]$, $\bar s = \bar y_m$: the source's first entries are what was written."""
    picked = g[mask.expand(g.shape)]
    rest = source.shape.numel() - picked.shape[0]
    return lambda: g.masked_fill(mask, 0), None, lambda: torch.cat([picked, g.new_zeros(rest)]).reshape(source.shape)


@rule("diagonal")
def diagonal(g: Any, x: Shape, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    r"""$\bar x_{ii} = \bar y_i$: only the diagonal was read."""
    return g.new_zeros(x.shape).diagonal_scatter(g, offset, dim1, dim2)


@rule("diagonal_scatter")
def diagonal_scatter(g: Any, x: Shape, source: Shape, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    r"""$\bar x = \bar y$ but zero on the diagonal, $\bar s_i = \bar y_{ii}$: the overwritten has no say any more."""
    zeros = torch.zeros(source.shape, dtype=g.dtype, device=g.device)
    return lambda: g.diagonal_scatter(zeros, offset, dim1, dim2), lambda: g.diagonal(offset, dim1, dim2)


@rule("pad", "constant_pad_nd")
def pad(g: Any, x: Shape, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    r"""$\bar x = $ the inner part of $\bar y$: the border was not there before."""
    for place in range(0, len(pad), 2):
        axis = x.ndim - 1 - place // 2
        g = torch.nn.functional.pad(g, [0, 0] * (place // 2) + [-pad[place], -pad[place + 1]])
        assert g.shape[axis] == x.shape[axis]
    return g


@rule("unfold")
def unfold(g: Any, x: Shape, dimension: int, size: int, step: int) -> Any:
    r"""$\bar x_i = \sum \bar y$ over the windows that show it: windows overlap, so their gradients add up."""
    places = torch.arange(x.shape.numel(), device=g.device).view(x.shape).unfold(dimension, size, step)
    return g.new_zeros(x.shape.numel()).index_add(0, places.reshape(-1), g.reshape(-1)).reshape(x.shape)
