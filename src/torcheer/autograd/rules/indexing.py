"""Indexing, gathering, scattering and masking.

The backward of a read is a write, and the reverse.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import Shape, rule
from torcheer.errors import BadArgument


def visible(function: Any) -> Any:
    """Route a function of ours through `__torch_function__`, so that the tape sees it."""

    def call(*args: Any) -> Any:
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        if torch.overrides.has_torch_function(tensors):
            return torch.overrides.handle_torch_function(call, tensors, *args)
        return function(*args)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


@visible
def put_at(x: Tensor, index: Any, value: Any) -> Tensor:
    """Return a copy of `x` in which `x[index] = value`."""
    y = x.clone()
    y[index] = value
    return y


@visible
def put_back(g: Tensor, shape: Any, index: Any) -> Tensor:
    """Return zeros with `g` added at `index`; a position read twice gets both gradients."""
    y = g.new_zeros(shape)
    parts = index if isinstance(index, tuple) else (index,)
    if all(part is None or part is Ellipsis or type(part) in (int, slice) for part in parts):
        y[index] = g
        return y
    places = torch.arange(y.numel(), device=g.device).view(shape)[index]
    return y.view(-1).index_add_(0, places.reshape(-1), g.reshape(-1)).view(shape)


@rule("getitem")
def getitem(g: Any, x: Shape, index: Any) -> Any:
    r"""$\bar x_{\text{index}} \mathrel{+}= \bar y$: the selected entries get the gradient, all others zero."""
    return put_back(g, x.shape, index)


@rule("put_back")
def _put_back(g: Any, x: Shape, shape: Any, index: Any) -> Any:
    r"""$\bar x = \bar y_{\text{index}}$: the gradient is read where the values were written."""
    return g[index]


@rule("put_at")
def _put_at(g: Any, x: Shape, index: Any, value: Shape) -> Any:
    r"""$\bar x = \bar y$ but zero at index, $\bar v = \bar y_{\text{index}}$: overwritten
    values get no gradient."""
    return lambda: put_at(g, index, 0), None, lambda: g[index]


@rule("select")
def select(g: Any, x: Shape, dim: int, index: int) -> Any:
    r"""$\bar x_{\text{index}} = \bar y$: the selected slice gets the gradient, all others zero."""
    return put_back(g, x.shape, (slice(None),) * (dim % x.ndim) + (index,))


@rule("narrow")
def narrow(g: Any, x: Shape, dim: int, start: Any, length: int) -> Any:
    r"""$\bar x_{s:s+n} = \bar y$: the selected range gets the gradient, all else zero."""
    begin = int(start) % max(x.shape[dim], 1) if int(start) < 0 else int(start)
    return put_back(g, x.shape, (slice(None),) * (dim % x.ndim) + (slice(begin, begin + length),))


@rule("index_select")
def index_select(g: Any, x: Shape, dim: int, index: Any) -> Any:
    r"""$\bar x_{\text{index}} \mathrel{+}= \bar y$: a slice that was taken twice gets both gradients."""
    return g.new_zeros(x.shape).index_add(dim, index, g)


@rule("index_add")
def index_add(g: Any, x: Shape, dim: int, index: Any, source: Shape, alpha: Any = 1) -> Any:
    r"""$\bar x = \bar y$, $\bar s = \alpha\,\bar y_{\text{index}}$: the gradient is read where values were added."""
    return g, None, None, lambda: g.index_select(dim, index) * alpha


@rule("index_copy")
def index_copy(g: Any, x: Shape, dim: int, index: Any, source: Shape) -> Any:
    r"""$\bar x = \bar y$ but zero at index, $\bar s = \bar y_{\text{index}}$: overwritten
    values get no gradient."""
    return lambda: g.index_fill(dim, index, 0), None, None, lambda: g.index_select(dim, index)


@rule("index_fill")
def index_fill(g: Any, x: Shape, dim: int, index: Any, value: Shape) -> Any:
    r"""$\bar x = \bar y$ but zero at index: overwritten
    values get no gradient."""
    return lambda: g.index_fill(dim, index, 0), None, None, lambda: (g - g.index_fill(dim, index, 0)).sum()


@rule("gather")
def gather(g: Any, x: Shape, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    r"""$\bar x_{\text{index}} \mathrel{+}= \bar y$: each selected entry gets the sum of its copies' gradients."""
    return g.new_zeros(x.shape).scatter_add(dim, index, g)


@rule("scatter_add")
def scatter_add(g: Any, x: Shape, dim: int, index: Any, src: Shape) -> Any:
    r"""$\bar x = \bar y$, $\bar s = \bar y_{\text{index}}$: the gradient is read where values were added."""
    return g, None, None, lambda: g.gather(dim, index)


@rule("scatter")
def scatter(g: Any, x: Shape, dim: int, index: Any, src: Shape) -> Any:
    r"""$\bar x = \bar y$ but zero at index, $\bar s = \bar y_{\text{index}}$: overwritten
    values get no gradient."""
    return lambda: g.scatter(dim, index, 0), None, None, lambda: g.gather(dim, index)


@rule("take")
def take(g: Any, x: Shape, index: Any) -> Any:
    r"""$\bar x_{\text{index}} \mathrel{+}= \bar y$: indices count the elements row by row."""
    size = x.shape.numel()
    places = index.reshape(-1) % max(size, 1)  # a negative index counts from the end
    return g.new_zeros(size).index_add(0, places, g.reshape(-1)).reshape(x.shape)


@rule("put")
def put(g: Any, x: Shape, index: Any, source: Shape, accumulate: bool = False) -> Any:
    r"""$\bar x = \bar y$ but zero at index, $\bar s = \bar y_{\text{index}}$: overwritten
    values get no gradient, unless `accumulate` adds to them."""
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
    r"""$\bar x = \bar y\,[\lnot m]$: overwritten values get no gradient."""
    return lambda: g.masked_fill(mask, 0), None, lambda: g.masked_fill(~mask, 0).sum()


@rule("masked_select")
def masked_select(g: Any, x: Shape, mask: Any) -> Any:
    r"""$\bar x_m = \bar y$: the entries that the mask selected get the gradient."""
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    return put_back(g, shape, mask.expand(shape))


@rule("masked_scatter")
def masked_scatter(g: Any, x: Shape, mask: Any, source: Shape) -> Any:
    r"""$\bar x = \bar y\,[\lnot m]$, $\bar s = \bar y_m$: the first entries of the source
    are the ones written."""
    written = g[mask.expand(g.shape)]
    unused = source.shape.numel() - written.shape[0]
    return lambda: g.masked_fill(mask, 0), None, lambda: torch.cat([written, g.new_zeros(unused)]).reshape(source.shape)


@rule("diagonal")
def diagonal(g: Any, x: Shape, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    r"""$\bar x_{ii} = \bar y_i$: only the diagonal was read."""
    return g.new_zeros(x.shape).diagonal_scatter(g, offset, dim1, dim2)


@rule("diagonal_scatter")
def diagonal_scatter(g: Any, x: Shape, source: Shape, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    r"""$\bar x = \bar y$ but zero on the diagonal, $\bar s_i = \bar y_{ii}$: overwritten
    values get no gradient."""
    zeros = torch.zeros(source.shape, dtype=g.dtype, device=g.device)
    return lambda: g.diagonal_scatter(zeros, offset, dim1, dim2), lambda: g.diagonal(offset, dim1, dim2)


@rule("index_put")
def index_put(g: Any, x: Shape, indices: Any, values: Shape, accumulate: bool = False) -> Any:
    r"""$\bar x = \bar y$ but zero at index, $\bar v = \bar y_{\text{index}}$: overwritten
    values get no gradient, unless `accumulate` adds to them."""
    index = tuple(slice(None) if part is None else part for part in indices)
    return lambda: g if accumulate else put_at(g, index, 0), None, lambda: g[index]


@visible
def scatter_extreme(x: Tensor, dim: int, index: Tensor, src: Tensor, how: str, include_self: bool) -> Tensor:
    """Reduce what is scattered to each position to its largest ("amax") or smallest ("amin")."""
    return x.scatter_reduce(dim, index, src, how, include_self=include_self)


@rule("scatter_extreme")
def _scatter_extreme(g: Any, y: Any, x: Any, dim: int, index: Any, src: Any, how: str, include_self: bool) -> Any:
    r"""$\bar s_i = \bar y\,[s_i = y] / k$: the k entries that reach the extreme of a position share its gradient."""
    from_x, from_src = (x == y).to(g.dtype), (src == y.gather(dim, index)).to(g.dtype)
    if not include_self:
        from_x = from_x.scatter(dim, index, 0.0)
    share = g / from_x.scatter_add(dim, index, from_src).clamp(min=1)
    return lambda: share * from_x, None, None, lambda: share.gather(dim, index) * from_src


@rule("as_strided")
def as_strided(g: Any, x: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    r"""$\bar x_i = \sum \bar y$ over the places that show $x_i$: the strides say which."""
    places = torch.empty_like(x, dtype=torch.int64)
    start = 0 if storage_offset is None else storage_offset - x.storage_offset()
    if places.stride() != x.stride() or start < 0:
        raise BadArgument("as_strided of a tensor that is only part of its memory: take its clone() first")
    places.copy_(torch.arange(x.numel(), device=x.device).view(x.shape))
    sources = places.as_strided(size, stride, start)
    return g.new_zeros(x.numel()).index_add(0, sources.reshape(-1), g.reshape(-1)).reshape(x.shape)
