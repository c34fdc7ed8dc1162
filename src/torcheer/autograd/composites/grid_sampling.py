"""Sampling an image at points between its pixels, and bags of embeddings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import composite
from torcheer.errors import MissingRule


@composite("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Any:
    r"""$y = \sum_c w_c\,x_c$ over the corners $c$ around each point: both weights and pixels get gradients."""
    sizes = list(x.shape[2:])
    points = [_pixels(grid[..., axis], size, padding, align_corners) for axis, size in enumerate(sizes[::-1])][::-1]
    if mode == 1:
        return _read_pixels(x, [point.detach().round() for point in points])
    if mode == 2:
        raise MissingRule("grid_sample in mode bicubic has no rule here; bilinear and nearest have one")
    y: Any = 0
    for corner in range(2 ** len(sizes)):
        weight: Any = 1
        places = []
        for axis, point in enumerate(points):
            low = point.detach().floor()
            upper = corner >> axis & 1
            weight = weight * (point - low if upper else low + 1 - point)
            places.append(low + upper)
        y = y + _read_pixels(x, places) * weight.unsqueeze(1)
    return y


def _pixels(point: Tensor, size: int, padding: int, align_corners: bool) -> Any:
    """Convert -1 … 1 to pixels.

    Points outside stay there (0), move to the border (1) or are reflected (2).
    """
    low, span = (0.0, size - 1) if align_corners else (-0.5, size)  # the ends are centres of pixels, or their edges
    place = (point + 1) / 2 * span + low
    if padding == 2:
        distance = (place - low).abs()
        reflections = torch.floor(distance.detach() / max(span, 1))
        offset = distance - reflections * span
        place = torch.where(reflections % 2 == 0, offset + low, span - offset + low)
    return place if padding == 0 else torch.nn.functional.hardtanh(place, 0.0, size - 1.0)


def _read_pixels(x: Tensor, places: list[Tensor]) -> Any:
    """Return the pixels at whole positions, zero outside the image."""
    sizes = x.shape[2:]
    inside, flat = torch.ones_like(places[0], dtype=torch.bool), torch.zeros_like(places[0], dtype=torch.int64)
    for place, size in zip(places, sizes):
        inside = inside & (place >= 0) & (place <= size - 1)
        flat = flat * size + place.clamp(0, size - 1).nan_to_num(0).long()
    index = flat.flatten(1).unsqueeze(1).expand(-1, x.shape[1], -1)
    y = x.flatten(2).gather(2, index).reshape(*x.shape[:2], *flat.shape[1:])
    return y.masked_fill(~inside.unsqueeze(1), 0)


@composite("affine_grid_generator")
def affine_grid(theta: Tensor, size: Any, align_corners: bool) -> Any:
    r"""$\theta\,(u, v, 1)^\top$ for every pixel $(u, v)$: the point each pixel samples, under an affine map."""
    axes = []
    for length in reversed(list(size)[2:]):
        ends = (length - 1) / length if not align_corners else 1.0
        points = torch.linspace(-ends, ends, length, dtype=theta.dtype, device=theta.device)
        axes.append(points if length > 1 else points * 0)
    grids = torch.meshgrid(*reversed(axes), indexing="ij")[::-1]
    points = torch.stack([*grids, torch.ones_like(grids[0])], -1)
    y = points.reshape(1, -1, points.shape[-1]) @ theta.mT
    return y.reshape(theta.shape[0], *points.shape[:-1], -1)


@composite("embedding_bag")
def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: Any = None,
) -> Any:  # fmt: skip
    r"""$y_b = \sum_{i \in b} w_i\,E_i$, or their mean or maximum: the words of a bag as one vector."""
    padding_idx = padding_idx % len(weight) if padding_idx is not None else None
    with torch.no_grad():
        outputs = torch.embedding_bag(
            weight, indices, offsets, False, mode, sparse, per_sample_weights, include_last_offset, padding_idx
        )
        count = len(offsets) - int(include_last_offset)
        places = torch.arange(len(indices), device=indices.device)
        bags = torch.searchsorted(offsets[:count].contiguous(), places, right=True) - 1
        is_counted = torch.ones_like(indices, dtype=torch.bool) if padding_idx is None else indices != padding_idx
        indices, bags = indices[is_counted], bags[is_counted]
    if mode == 2:
        largest = weight.gather(0, outputs[3])
        return largest.masked_fill((outputs[2] == 0).unsqueeze(1), 0), *outputs[1:]  # zeros for an empty bag
    rows = torch.embedding(weight, indices, -1, scale_grad_by_freq)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[is_counted].unsqueeze(1)
    y = rows.new_zeros(count, weight.shape[1]).index_add(0, bags, rows)
    return (y / bags.bincount(minlength=count).clamp(min=1).unsqueeze(1) if mode == 1 else y), *outputs[1:]
