"""Picking values and putting them back: each is the other's backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import Shape, rule
from torcheer.errors import BadArgument


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
    return lambda: g.index_fill(dim, index, 0), None, None, lambda: (g - g.index_fill(dim, index, 0)).sum()


@rule("gather")
def gather(g: Any, x: Shape, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    r"""$\bar x_{\text{index}} \mathrel{+}= \bar y$: each picked entry gets what its copies received."""
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
    size = x.shape.numel()
    places = index.reshape(-1) % max(size, 1)  # from the end where negative
    return g.new_zeros(size).index_add(0, places, g.reshape(-1)).reshape(x.shape)


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
    flat = g.reshape(len(rows), weight.shape[1])
    if padding_idx >= 0:
        flat = flat.masked_fill((rows == padding_idx).unsqueeze(1), 0)
    if scale_grad_by_freq:
        flat = flat / rows.bincount(minlength=weight.shape[0])[rows].unsqueeze(1)
    return g.new_zeros(weight.shape).index_add(0, rows, flat)


@rule("where")
def where(g: Any, condition: Any, a: Shape, b: Shape) -> Any:
    r"""$\bar a = \bar y\,[c]$, $\bar b = \bar y\,[\lnot c]$: each entry goes back to where it was taken from."""
    if condition.dtype is not torch.bool:  # a.where(condition, b)
        return lambda: g.masked_fill(~a, 0), None, lambda: g.masked_fill(a, 0)
    return None, lambda: g.masked_fill(~condition, 0), lambda: g.masked_fill(condition, 0)


@rule("masked_fill")
def masked_fill(g: Any, x: Shape, mask: Any, value: Shape) -> Any:
    r"""$\bar x = \bar y\,[\lnot m]$: what was painted over has no say any more."""
    return lambda: g.masked_fill(mask, 0), None, lambda: g.masked_fill(~mask, 0).sum()


@rule("masked_select")
def masked_select(g: Any, x: Shape, mask: Any) -> Any:
    r"""$\bar x_m = \bar y$: what the mask let through gets its gradient."""
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    return put_back(g, shape, mask.expand(shape))


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


@rule("index_put")
def index_put(g: Any, x: Shape, indices: Any, values: Shape, accumulate: bool = False) -> Any:
    r"""$\bar x = \bar y$ but zero at index, $\bar v = \bar y_{\text{index}}$: what is added overwrites nothing."""
    index = tuple(slice(None) if one is None else one for one in indices)
    return lambda: g if accumulate else put_at(g, index, 0), None, lambda: g[index]


@visible
def scatter_extreme(x: Tensor, dim: int, index: Tensor, src: Tensor, how: str, include_self: bool) -> Tensor:
    """The largest ("amax") or smallest ("amin") of all that is sent to each place."""
    return x.scatter_reduce(dim, index, src, how, include_self=include_self)


@rule("scatter_extreme")
def _scatter_extreme(g: Any, y: Any, x: Any, dim: int, index: Any, src: Any, how: str, include_self: bool) -> Any:
    r"""$\bar s_i = \bar y\,[s_i = y] / k$: the k that reach the extreme of their place share its gradient."""
    ours, theirs = (x == y).to(g.dtype), (src == y.gather(dim, index)).to(g.dtype)
    if not include_self:
        ours = ours.scatter(dim, index, 0.0)
    share = g / ours.scatter_add(dim, index, theirs).clamp(min=1)
    return lambda: share * ours, None, None, lambda: share.gather(dim, index) * theirs


@rule("as_strided")
def as_strided(g: Any, x: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    r"""$\bar x_i = \sum \bar y$ over the places that show $x_i$: the steps in memory say which."""
    places = torch.empty_like(x, dtype=torch.int64)
    start = 0 if storage_offset is None else storage_offset - x.storage_offset()
    if places.stride() != x.stride() or start < 0:
        raise BadArgument("as_strided of a tensor that is only part of its memory: take its clone() first")
    places.copy_(torch.arange(x.numel(), device=x.device).view(x.shape))
    shown = places.as_strided(size, stride, start)
    return g.new_zeros(x.numel()).index_add(0, shown.reshape(-1), g.reshape(-1)).reshape(x.shape)
