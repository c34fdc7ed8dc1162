"""Splitting, stacking, repeating, flipping, diagonals."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.gradients.backward_pass import sum_to
from torcheer.autograd.rules.rule_table import composite


@composite("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes")
def split(x: Tensor, split_size_or_sections: Any = None, dim: int = 0, *, split_size: Any = None) -> Any:
    r"""$y_k = x_{a_k : b_k}$: consecutive slices of $x$."""
    size = split_size_or_sections if split_size is None else split_size
    length = x.shape[dim]
    if isinstance(size, int):
        size = [min(size, length - at) for at in range(0, length, max(size, 1))] or [0]
    starts = [sum(size[:place]) for place in range(len(size))]
    return tuple(x.narrow(dim, start, width) for start, width in zip(starts, size))


@composite("chunk", "unsafe_chunk")
def chunk(x: Tensor, chunks: int, dim: int = 0) -> Any:
    r"""$y_k = x_{a_k : b_k}$: slices of about equal length."""
    return split(x, max(-(-x.shape[dim] // chunks), 1), dim)


@composite("tensor_split")
def tensor_split(
    x: Tensor, indices_or_sections: Any = None, dim: int = 0, *, sections: Any = None, indices: Any = None,
    tensor_indices_or_sections: Any = None,
) -> Any:  # fmt: skip
    r"""$y_k = x_{a_k : b_k}$: cut at given indices, or into equal slices with the longer ones first."""
    spellings = [indices_or_sections, sections, indices, tensor_indices_or_sections]
    cuts = next(value for value in spellings if value is not None)
    cuts = cuts.tolist() if isinstance(cuts, Tensor) else cuts
    length = x.shape[dim]
    if isinstance(cuts, int):
        width, longer = divmod(length, cuts)
        return split(x, [width + (place < longer) for place in range(cuts)], dim)
    ends = [min(max(cut + length if cut < 0 else cut, 0), length) for cut in cuts] + [length]
    return tuple(x.narrow(dim, at, max(end - at, 0)) for at, end in zip([0, *ends], ends))


@composite("hsplit")
def hsplit(x: Tensor, *cuts: Any, **named: Any) -> Any:
    r"""$y_k = x_{:,\,a_k : b_k}$: cut from left to right."""
    return tensor_split(x, *cuts, dim=0 if x.dim() == 1 else 1, **named)


@composite("vsplit")
def vsplit(x: Tensor, *cuts: Any, **named: Any) -> Any:
    r"""$y_k = x_{a_k : b_k}$: cut from top to bottom."""
    return tensor_split(x, *cuts, dim=0, **named)


@composite("dsplit")
def dsplit(x: Tensor, *cuts: Any, **named: Any) -> Any:
    r"""$y_k = x_{:,:,\,a_k : b_k}$: cut from front to back."""
    return tensor_split(x, *cuts, dim=2, **named)


@composite("unbind")
def unbind(x: Tensor, dim: int = 0) -> Any:
    r"""$y_k = x_k$: slice by slice."""
    return tuple(x.select(dim, place) for place in range(x.shape[dim]))


# Stacking


def _as_list(tensors: Any) -> list[Tensor]:
    return list(tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors)


def _as_given(tensors: Any, results: list[Tensor]) -> Any:
    """Return one tensor for one that was passed alone, else a tuple."""
    return results[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else tuple(results)


@composite("atleast_1d")
def atleast_1d(*tensors: Any) -> Any:
    r"""$y = (x)$: a number as a vector of one entry."""
    return _as_given(tensors, [x if x.dim() else x.reshape(1) for x in _as_list(tensors)])


@composite("atleast_2d")
def atleast_2d(*tensors: Any) -> Any:
    r"""$y_{1j} = x_j$: a vector as a row."""
    return _as_given(tensors, [x if x.dim() > 1 else x.reshape(1, -1) for x in _as_list(tensors)])


@composite("atleast_3d")
def atleast_3d(*tensors: Any) -> Any:
    r"""$y_{ij1} = x_{ij}$: a matrix with a third axis appended."""
    flat = [x if x.dim() > 1 else x.reshape(1, -1) for x in _as_list(tensors)]
    return _as_given(tensors, [x if x.dim() > 2 else x.unsqueeze(-1) for x in flat])


@composite("hstack")
def hstack(tensors: Any) -> Tensor:
    r"""$(a\ b)$: side by side."""
    tensors = [atleast_1d(x) for x in tensors]
    return torch.cat(tensors, 0 if tensors[0].dim() == 1 else 1)


@composite("vstack", "row_stack")
def vstack(tensors: Any) -> Tensor:
    r"""$(a;\ b)$: one below the other."""
    return torch.cat([atleast_2d(x) for x in tensors], 0)


@composite("dstack")
def dstack(tensors: Any) -> Tensor:
    r"""$y_{ijk} = x^{(k)}_{ij}$: one behind the other."""
    return torch.cat([atleast_3d(x) for x in tensors], 2)


@composite("column_stack")
def column_stack(tensors: Any) -> Tensor:
    r"""$(a\ b)$: vectors as columns, side by side."""
    return torch.cat([x if x.dim() > 1 else x.reshape(-1, 1) for x in tensors], 1)


@composite("block_diag")
def block_diag(*tensors: Any) -> Tensor:
    r"""$y = (A\ 0;\ 0\ B)$: blocks along the diagonal, zeros elsewhere."""
    blocks = [atleast_2d(x) for x in _as_list(tensors)]
    widths = [x.shape[1] for x in blocks]
    rows = [torch.nn.functional.pad(x, (sum(widths[:k]), sum(widths[k + 1 :]))) for k, x in enumerate(blocks)]
    return torch.cat(rows)


@composite("meshgrid")
def meshgrid(*tensors: Any, indexing: Any = None) -> Any:
    r"""$y^{(1)}_{ij} = a_i$, $y^{(2)}_{ij} = b_j$: the coordinates of every point of a grid."""
    axes = [x.reshape(-1) for x in _as_list(tensors)]
    shape = [len(x) for x in axes]
    own_shapes = [[len(x) if k == place else 1 for k in range(len(axes))] for place, x in enumerate(axes)]
    grids = [x.reshape(own_shape).expand(shape) for x, own_shape in zip(axes, own_shapes)]
    return tuple(x.transpose(0, 1) if indexing == "xy" and len(axes) > 1 else x for x in grids)


@composite("broadcast_tensors")
def broadcast_tensors(*tensors: Any) -> Any:
    r"""$y^{(k)}_{ij} = x^{(k)}_{j}$: all expanded to their common shape."""
    parts = _as_list(tensors)
    shape = torch.broadcast_shapes(*[x.shape for x in parts])
    return tuple(x.expand(shape) for x in parts)


# Repeating, flipping, diagonals


@composite("repeat_interleave")
def repeat_interleave(x: Tensor, repeats: Any, dim: Any = None, *, output_size: Any = None) -> Tensor:
    r"""$y = (x_1, x_1, x_2, x_2, \dots)$: each entry repeated; it gets the sum of its copies' gradients."""
    x, dim = (x.flatten(), 0) if dim is None else (x, dim)
    places = torch.arange(x.shape[dim], device=x.device).repeat_interleave(repeats)
    return x.index_select(dim, places)


@composite("tile")
def tile(x: Tensor, *dims: Any) -> Tensor:
    r"""$y = (x, x, \dots)$: the whole tensor repeated."""
    times = tuple(dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)
    return x.repeat((1,) * (x.dim() - len(times)) + times)


@composite("fliplr")
def fliplr(x: Tensor) -> Tensor:
    r"""$y_{i,j} = x_{i,n-j}$: left and right swapped."""
    return x.flip(1)


@composite("flipud")
def flipud(x: Tensor) -> Tensor:
    r"""$y_{i} = x_{n-i}$: top and bottom swapped."""
    return x.flip(0)


@composite("rot90")
def rot90(x: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    r"""$y_{i,j} = x_{j,n-i}$: $k$ quarter turns."""
    first, second = dims
    turned = x.flip([first, second]) if k % 4 > 1 else x
    return turned.flip(second).transpose(first, second) if k % 2 else turned.clone()


@composite("diff")
def diff(x: Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    r"""$y_i = x_{i+1} - x_i$: the differences of neighbours, $n$ times."""
    parts = [part for part in (prepend, x, append) if part is not None and n]
    x = torch.cat(parts, dim) if len(parts) > 1 else x
    for _ in range(n):
        length = x.shape[dim]
        x = x.narrow(dim, min(1, length), max(length - 1, 0)) - x.narrow(dim, 0, max(length - 1, 0))
    return x


@composite("diag_embed")
def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    r"""$y_{ii} = x_i$: a vector on a diagonal, zeros elsewhere."""
    size = x.shape[-1] + abs(offset)
    places = sorted([dim1 % (x.dim() + 1), dim2 % (x.dim() + 1)])
    shape = list(x.shape[:-1])
    for place in places:
        shape.insert(place, size)
    return x.new_zeros(shape).diagonal_scatter(x, offset, dim1, dim2)


@composite("diag")
def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    r"""$y_{ii} = x_i$, or $y_i = x_{ii}$: a vector on a diagonal, or a diagonal as a vector."""
    return diag_embed(x, diagonal) if x.dim() == 1 else x.diagonal(diagonal)


@composite("diagflat")
def diagflat(x: Tensor, offset: int = 0) -> Any:
    r"""$y_{ii} = x_i$: all entries, row by row, on a diagonal."""
    return diag_embed(x.flatten(), offset)


@composite("linalg_diagonal")
def linalg_diagonal(x: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    r"""$y_i = x_{ii}$: the diagonal of each matrix."""
    return x.diagonal(offset, dim1, dim2)


@composite("sum_to_size")
def sum_to_size(x: Tensor, *size: Any) -> Any:
    r"""$y = \sum x$ over the axes that broadcasting would expand: its inverse."""
    return sum_to(x, torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size))
