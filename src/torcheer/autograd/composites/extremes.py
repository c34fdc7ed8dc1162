"""Maximum, minimum, sorting, quantiles, and writes to selected positions.

The index of the selected value is computed first, without gradients; then the value is gathered at that index, and the
rule of `gather` sends the gradient back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.indexing import put_at, scatter_extreme
from torcheer.autograd.rules.rule_table import composite
from torcheer.errors import MissingRule

types = torch.return_types


def _index_of(find: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Return the indices that a function such as torch.max finds."""
    with torch.no_grad():
        return find(x, *args, **kwargs)[1]  # type: ignore[no-any-return]


def _gather(x: Tensor, index: Tensor, dim: int, keepdim: bool = True) -> Tensor:
    """Gather the values at `index` along an axis."""
    if keepdim or not x.dim():
        return x.gather(dim, index)
    return x.gather(dim, index.unsqueeze(dim)).squeeze(dim)


def _mean_of_equal(x: Tensor, value: Tensor) -> Tensor:
    """Return the mean of all entries equal to `value`, so that they share its gradient."""
    return torch.masked_select(x, x == value).mean()


@composite("max")
def max_(x: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    r"""$\max x$: along an axis, the largest value and its index."""
    if dim is None and other is None:
        return torch.amax(x)
    if other is not None or isinstance(dim, Tensor):
        return torch.maximum(x, dim if other is None else other)
    index = _index_of(torch.max, x, dim, keepdim)
    return types.max((_gather(x, index, dim, keepdim), index))


@composite("min")
def min_(x: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    r"""$\min x$: along an axis, the smallest value and its index."""
    if dim is None and other is None:
        return torch.amin(x)
    if other is not None or isinstance(dim, Tensor):
        return torch.minimum(x, dim if other is None else other)
    index = _index_of(torch.min, x, dim, keepdim)
    return types.min((_gather(x, index, dim, keepdim), index))


@composite("aminmax")
def aminmax(x: Tensor, *, dim: Any = None, keepdim: bool = False) -> Any:
    r"""$\min x,\ \max x$: both at once."""
    axes = tuple(range(x.dim())) if dim is None else dim
    return types.aminmax((torch.amin(x, axes, keepdim), torch.amax(x, axes, keepdim)))


@composite("sort")
def sort(x: Tensor, dim: int = -1, descending: bool = False, stable: Any = False) -> Any:
    r"""$y_i = x_{p(i)}$: an order is a permutation, and the gradient goes back along it."""
    index = _index_of(torch.sort, x, dim=dim, descending=descending, stable=bool(stable))
    return types.sort((_gather(x, index, dim), index))


@composite("msort")
def msort(x: Tensor) -> Any:
    r"""$y_i = x_{p(i)}$: sorted along the first axis."""
    return sort(x, 0)[0]


@composite("topk")
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    r"""$y_i = x_{p(i)}$ for the k largest: all others get no gradient."""
    index = _index_of(torch.topk, x, k, dim, largest, sorted)
    return types.topk((_gather(x, index, dim), index))


@composite("kthvalue")
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    r"""$y = x_{p(k)}$: the k-th smallest value, and its index."""
    index = _index_of(torch.kthvalue, x, k, dim, keepdim)
    return types.kthvalue((_gather(x, index, dim, keepdim), index))


@composite("mode")
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    r"""$y = x_p$: an occurrence of the most frequent value, and its index."""
    index = _index_of(torch.mode, x, dim, keepdim)
    return types.mode((_gather(x, index, dim, keepdim), index))


@composite("median")
def median(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    r"""$y = x_{p(n/2)}$: the middle value."""
    if dim is None:
        return _mean_of_equal(x, torch.median(x.detach()))
    index = _index_of(torch.median, x, dim, keepdim)
    return types.median((_gather(x, index, dim, keepdim), index))


@composite("nanmedian")
def nanmedian(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    r"""$y = x_{p(n/2)}$: the middle value of those that are numbers."""
    if dim is None:
        return _mean_of_equal(x, torch.nanmedian(x.detach()))
    index = _index_of(torch.nanmedian, x, dim, keepdim)
    return types.nanmedian((_gather(x, index, dim, keepdim), index))


@composite("cummax")
def cummax(x: Tensor, dim: int) -> Any:
    r"""$y_i = \max_{j \le i} x_j$: the largest value so far collects the gradients until a larger one follows."""
    index = _index_of(torch.cummax, x, dim)
    return types.cummax((_gather(x, index, dim), index))


@composite("cummin")
def cummin(x: Tensor, dim: int) -> Any:
    r"""$y_i = \min_{j \le i} x_j$: the smallest value so far collects the gradients until a smaller one follows."""
    index = _index_of(torch.cummin, x, dim)
    return types.cummin((_gather(x, index, dim), index))


@composite("quantile")
def quantile(x: Tensor, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear") -> Any:
    r"""$(1 - w)\,x_{p(i)} + w\,x_{p(i+1)}$: sorted, then interpolated between the two nearest
    ranks."""
    rows = x.flatten() if dim is None or not x.dim() else x.movedim(dim, -1)
    ordered = sort(rows)[0]
    ordered = torch.where(
        ordered[..., -1:].isnan(), torch.nan, ordered
    )  # a single nan makes the result nan; nans are sorted last
    rank = torch.as_tensor(q, dtype=x.dtype, device=x.device) * (rows.shape[-1] - 1)
    rank = {"lower": rank.floor(), "higher": rank.ceil(), "nearest": rank.round()}.get(interpolation, rank)
    low, high = rank.floor().long(), rank.ceil().long()
    weight = rank - low if interpolation != "midpoint" else (high - low) * 0.5
    y = ordered[..., low] * (1 - weight) + ordered[..., high] * weight
    if keepdim:
        kept_shape = [1 if dim is None or axis == dim % x.dim() else size for axis, size in enumerate(x.shape)]
        return y.movedim(-1, 0).reshape(-1, *kept_shape) if rank.dim() else y.reshape(kept_shape)
    return y.movedim(-1, 0) if rank.dim() else y


# Reading and writing at indices


@composite("take_along_dim")
def take_along_dim(x: Tensor, indices: Tensor, dim: Any = None) -> Tensor:
    r"""$y_i = x_{\text{index}_i}$ along an axis: the other axes are broadcast."""
    if dim is None:
        return x.flatten().gather(0, indices.flatten())
    dim, indices = dim % x.dim(), indices % x.shape[dim]
    x_shape, index_shape = list(x.shape), list(indices.shape)
    x_shape[dim] = index_shape[dim] = 1
    shape = list(torch.broadcast_shapes(x_shape, index_shape))
    expanded = x.expand(shape[:dim] + [x.shape[dim]] + shape[dim + 1 :])
    return expanded.gather(dim, indices.expand(shape[:dim] + [indices.shape[dim]] + shape[dim + 1 :]))


@composite("scatter_reduce")
def scatter_reduce(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    r"""$y_i = x_i + \sum s_j$ over the $j$ sent to $i$, or their mean or extreme: other positions stay as they are."""
    if reduce in ("amax", "amin"):
        return scatter_extreme(x, dim, index, src, reduce, include_self)
    if reduce == "prod":
        raise MissingRule('scatter_reduce(reduce="prod") has no rule here; sum, mean, amax and amin have one')
    y = (x if include_self else x.scatter(dim, index, 0.0)).scatter_add(dim, index, src)
    if reduce == "sum":
        return y
    ones = torch.ones_like(x) if include_self else torch.ones_like(x).scatter(dim, index, 0.0)
    return y / ones.scatter_add(dim, index, torch.ones_like(src)).clamp(min=1)


@composite("select_scatter")
def select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Any:
    r"""$y = x$, $y_{\text{index}} = s$: one slice is replaced."""
    return put_at(x, (slice(None),) * (dim % x.dim()) + (index,), src)


@composite("slice_scatter")
def slice_scatter(x: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    r"""$y = x$, $y_{a:b:c} = s$: a range is replaced."""
    return put_at(x, (slice(None),) * (dim % x.dim()) + (slice(start, end, step),), src)
