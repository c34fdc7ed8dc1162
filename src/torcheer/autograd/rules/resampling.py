"""Average pooling and upsampling.

Each is a matrix product along every axis, so its backward is the transposed matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import Shape, rule

_nn = torch._C._nn


def back_along_axes(g: Tensor, x: Any, axes: int, resample: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Apply the transposed resampling along each of the last axes.

    `resample(rows, axis)` is the forward pass along one axis.

    Resampling the rows of an identity matrix gives the matrix of the operation.
    """
    exact = torch.float64 if g.dtype is torch.float64 else torch.float32
    for axis in range(-axes, 0):
        with torch.no_grad():
            rows = torch.eye(x.shape[axis], dtype=exact, device=g.device)
            matrix = resample(rows[:, None, None], axis).squeeze(1).squeeze(1).to(g.dtype)
        g = (g.transpose(axis, -1) @ matrix.t()).transpose(axis, -1)
    return g


def _per_axis(value: Any, axes: int) -> list[Any]:
    """Return one value per axis, from one for all or one for each."""
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


def _average_pool(
    g: Any, x: Any, axes: int, kernel: Any, stride: Any, padding: Any, ceil: bool, include: bool, divisor: Any
) -> Any:
    """A window's mean is a product of means along each axis; with a given divisor, of sums."""
    lengths, pads = _per_axis(kernel, axes), _per_axis(padding, axes)
    steps = _per_axis(stride, axes) if stride or isinstance(stride, int) else lengths

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
    return _average_pool(g, x, 1, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@rule("avg_pool2d")
def avg_pool2d(
    g: Any, x: Shape, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
) -> Any:  # fmt: skip
    r"""$\bar x_i = \sum_{w \ni i} \bar y_w / |w|$: the pixels of a window share its gradient."""
    return _average_pool(g, x, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@rule("avg_pool3d")
def avg_pool3d(
    g: Any, x: Shape, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
) -> Any:  # fmt: skip
    r"""$\bar x_i = \sum_{w \ni i} \bar y_w / |w|$: the pixels of a window share its gradient."""
    return _average_pool(g, x, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _upsample(g: Any, x: Any, upsample: Any, *settings: Any, scales: Any) -> Any:
    """Backward of torch's `upsample`, one axis at a time.

    `scales` replaces the output size if given.
    """
    axes = g.dim() - 2

    def along(rows: Tensor, axis: int) -> Tensor:
        if scales is None:
            return upsample(rows, [1, g.shape[axis]], *settings, None)  # type: ignore[no-any-return]
        return upsample(rows, None, *settings, [1.0, scales[axis]])  # type: ignore[no-any-return]

    return back_along_axes(g, x, axes, along)


@rule("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def upsample_nearest(g: Any, x: Shape, output_size: Any, scale_factors: Any = None) -> Any:
    r"""$\bar x_i = \sum \bar y$ over the copies of pixel $i$: a copied pixel gets the sum of its
    copies' gradients."""
    return _upsample(g, x, _nn.upsample_nearest2d, scales=scale_factors)


@rule("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
def upsample_nearest_exact(g: Any, x: Shape, output_size: Any, scale_factors: Any = None) -> Any:
    r"""$\bar x_i = \sum \bar y$ over the copies of pixel $i$: the pixel with the nearest centre was copied."""
    return _upsample(g, x, _nn._upsample_nearest_exact2d, scales=scale_factors)


@rule("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def upsample_linear(g: Any, x: Shape, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Any:
    r"""$\bar X = A^\top \bar Y B$ with $Y = A X B^\top$: each pixel is weighted as in the
    forward interpolation."""
    return _upsample(g, x, _nn.upsample_bilinear2d, align_corners, scales=scale_factors)


@rule("upsample_bicubic2d")
def upsample_bicubic(g: Any, x: Shape, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Any:
    r"""$\bar X = A^\top \bar Y B$ with $Y = A X B^\top$: as linear interpolation, with
    four pixels along each axis."""
    return _upsample(g, x, _nn.upsample_bicubic2d, align_corners, scales=scale_factors)


@rule("_upsample_bilinear2d_aa")
def upsample_bilinear_smooth(g: Any, x: Shape, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Any:
    r"""$\bar X = A^\top \bar Y B$ with $Y = A X B^\top$: with antialiasing, every pixel
    contributes to some output."""
    return _upsample(g, x, _nn._upsample_bilinear2d_aa, align_corners, scales=scale_factors)


@rule("_upsample_bicubic2d_aa")
def upsample_bicubic_smooth(g: Any, x: Shape, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Any:
    r"""$\bar X = A^\top \bar Y B$ with $Y = A X B^\top$: with antialiasing, every pixel
    contributes to some output."""
    return _upsample(g, x, _nn._upsample_bicubic2d_aa, align_corners, scales=scale_factors)
