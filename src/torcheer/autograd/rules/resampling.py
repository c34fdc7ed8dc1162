"""Averaging and stretching images: along each axis a matrix, so backward is the transposed one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import Shape, rule

_nn = torch._C._nn


def back_along_axes(g: Tensor, x: Any, axes: int, make: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Undo a resampling of the last axes: `make(rows, axis)` resamples single rows as it was done along that axis.

    What it makes of the rows of an identity matrix is the matrix of the whole operation.
    """
    exact = torch.float64 if g.dtype is torch.float64 else torch.float32
    for axis in range(-axes, 0):
        with torch.no_grad():
            rows = torch.eye(x.shape[axis], dtype=exact, device=g.device)
            matrix = make(rows[:, None, None], axis).squeeze(1).squeeze(1).to(g.dtype)
        g = (g.transpose(axis, -1) @ matrix.t()).transpose(axis, -1)
    return g


def _each(value: Any, axes: int) -> list[Any]:
    """One number for all axes, or one for each."""
    return [value] * axes if isinstance(value, int) else list(value) * (axes if len(value) == 1 else 1)


@rule("adaptive_avg_pool1d")
def adaptive_avg_pool1d(g: Any, x: Shape, output_size: Any) -> Any:
    r"""$\bar x = \bar y A^\top$ with $Y = X A$: the pixels of a window share its gradient."""
    return back_along_axes(g, x, 1, lambda rows, axis: _nn.adaptive_avg_pool2d(rows, [1, g.shape[axis]]))


@rule("adaptive_avg_pool2d")
def adaptive_avg_pool2d(g: Any, x: Shape, output_size: Any) -> Any:
    r"""$\bar X = A^\top \bar Y B$ with $Y = A X B^\top$: the pixels of a window share its gradient."""
    return back_along_axes(g, x, 2, lambda rows, axis: _nn.adaptive_avg_pool2d(rows, [1, g.shape[axis]]))


@rule("adaptive_avg_pool3d")
def adaptive_avg_pool3d(g: Any, x: Shape, output_size: Any) -> Any:
    r"""$\bar X = A^\top \bar Y$ along each axis: the pixels of a window share its gradient."""
    return back_along_axes(g, x, 3, lambda rows, axis: _nn.adaptive_avg_pool2d(rows, [1, g.shape[axis]]))


def _average(
    g: Any, x: Any, axes: int, kernel: Any, stride: Any, padding: Any, ceil: bool, include: bool, divisor: Any
) -> Any:
    """Window means are the product of means along each axis; with a divisor of one's own, of sums."""
    lengths, pads = _each(kernel, axes), _each(padding, axes)
    steps = _each(stride, axes) if stride or isinstance(stride, int) else lengths

    def pool(rows: Tensor, axis: int) -> Tensor:
        size, step, pad = [1, lengths[axis]], [1, steps[axis]], [0, pads[axis]]
        return _nn.avg_pool2d(rows, size, step, pad, ceil, include, 1 if divisor else None)

    return back_along_axes(g / divisor if divisor else g, x, axes, pool)


@rule("avg_pool1d")
def avg_pool1d(
    g: Any, x: Shape, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:  # fmt: skip
    r"""$\bar x_i = \sum_{w \ni i} \bar y_w / |w|$: the entries of a window share its gradient."""
    return _average(g, x, 1, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@rule("avg_pool2d")
def avg_pool2d(
    g: Any, x: Shape, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
) -> Any:  # fmt: skip
    r"""$\bar x_i = \sum_{w \ni i} \bar y_w / |w|$: the pixels of a window share its gradient."""
    return _average(g, x, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@rule("avg_pool3d")
def avg_pool3d(
    g: Any, x: Shape, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
) -> Any:  # fmt: skip
    r"""$\bar x_i = \sum_{w \ni i} \bar y_w / |w|$: the pixels of a window share its gradient."""
    return _average(g, x, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _stretched(g: Any, x: Any, stretch: Any, *settings: Any, scales: Any) -> Any:
    """Torch's stretching of images, held to one axis; `scales` stand in place of sizes where they were given."""
    axes = g.dim() - 2

    def along(rows: Tensor, axis: int) -> Tensor:
        if scales is None:
            return stretch(rows, [1, g.shape[axis]], *settings, None)  # type: ignore[no-any-return]
        return stretch(rows, None, *settings, [1.0, scales[axis]])  # type: ignore[no-any-return]

    return back_along_axes(g, x, axes, along)


@rule("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def upsample_nearest(g: Any, x: Shape, output_size: Any, scale_factors: Any = None) -> Any:
    r"""$\bar x_i = \sum \bar y$ over the copies of pixel $i$: what was copied gathers what its copies received."""
    return _stretched(g, x, _nn.upsample_nearest2d, scales=scale_factors)


@rule("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
def upsample_nearest_exact(g: Any, x: Shape, output_size: Any, scale_factors: Any = None) -> Any:
    r"""$\bar x_i = \sum \bar y$ over the copies of pixel $i$: the nearest centre was copied."""
    return _stretched(g, x, _nn._upsample_nearest_exact2d, scales=scale_factors)


@rule("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def upsample_linear(g: Any, x: Shape, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Any:
    r"""$\bar X = A^\top \bar Y B$ with $Y = A X B^\top$: a pixel gets from each mixture as much as it gave."""
    return _stretched(g, x, _nn.upsample_bilinear2d, align_corners, scales=scale_factors)


@rule("upsample_bicubic2d")
def upsample_bicubic(g: Any, x: Shape, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Any:
    r"""$\bar X = A^\top \bar Y B$ with $Y = A X B^\top$: four pixels along each axis gave, and get as they gave."""
    return _stretched(g, x, _nn.upsample_bicubic2d, align_corners, scales=scale_factors)


@rule("_upsample_bilinear2d_aa")
def upsample_bilinear_smooth(g: Any, x: Shape, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Any:
    r"""$\bar X = A^\top \bar Y B$ with $Y = A X B^\top$: shrunk with care, so each pixel gave to some mixture."""
    return _stretched(g, x, _nn._upsample_bilinear2d_aa, align_corners, scales=scale_factors)


@rule("_upsample_bicubic2d_aa")
def upsample_bicubic_smooth(g: Any, x: Shape, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Any:
    r"""$\bar X = A^\top \bar Y B$ with $Y = A X B^\top$: shrunk with care, so each pixel gave to some mixture."""
    return _stretched(g, x, _nn._upsample_bicubic2d_aa, align_corners, scales=scale_factors)
