"""Max pooling and unpooling.

Average pooling is a rule: `rules/resampling.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import composite

_nn = torch._C._nn


def _max_pool(x: Tensor, axes: int, find: Any, *settings: Any) -> tuple[Tensor, Tensor]:
    """Gather the largest value of each window at its index, where its gradient returns to."""
    with torch.no_grad():
        index = find(x, *settings)[1]
    return x.flatten(-axes).gather(-1, index.flatten(-axes)).reshape(index.shape), index


@composite("max_pool1d")
def max_pool1d(*args: Any, **settings: Any) -> Any:
    r"""$y_w = \max_{i \in w} x_i$: only the largest entry of a window gets the gradient."""
    return max_pool1d_with_indices(*args, **settings)[0]


@composite("max_pool2d")
def max_pool2d(*args: Any, **settings: Any) -> Any:
    r"""$y_w = \max_{i \in w} x_i$: only the largest entry of a window gets the gradient."""
    return max_pool2d_with_indices(*args, **settings)[0]


@composite("max_pool3d")
def max_pool3d(*args: Any, **settings: Any) -> Any:
    r"""$y_w = \max_{i \in w} x_i$: only the largest entry of a window gets the gradient."""
    return max_pool3d_with_indices(*args, **settings)[0]


@composite("max_pool1d_with_indices")
def max_pool1d_with_indices(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[Tensor, Tensor]:
    r"""$y_w = x_{i_w}$, $i_w = \arg\max_{i \in w} x_i$: the largest entry of each window, and its index."""
    stride = kernel_size if stride is None else stride
    return _max_pool(x, 1, torch.max_pool1d_with_indices, kernel_size, stride, padding, dilation, ceil_mode)


@composite("max_pool2d_with_indices")
def max_pool2d_with_indices(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[Tensor, Tensor]:
    r"""$y_w = x_{i_w}$, $i_w = \arg\max_{i \in w} x_i$: the largest entry of each window, and its index."""
    stride = kernel_size if stride is None else stride
    return _max_pool(x, 2, _nn.max_pool2d_with_indices, kernel_size, stride, padding, dilation, ceil_mode)


@composite("max_pool3d_with_indices")
def max_pool3d_with_indices(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[Tensor, Tensor]:
    r"""$y_w = x_{i_w}$, $i_w = \arg\max_{i \in w} x_i$: the largest entry of each window, and its index."""
    stride = kernel_size if stride is None else stride
    return _max_pool(x, 3, _nn.max_pool3d_with_indices, kernel_size, stride, padding, dilation, ceil_mode)


@composite("adaptive_max_pool1d")
def adaptive_max_pool1d(x: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    r"""$y_w = \max_{i \in w} x_i$: a given number of windows, of about equal size."""
    return _max_pool(x, 1, torch.adaptive_max_pool1d, output_size)


@composite("adaptive_max_pool2d")
def adaptive_max_pool2d(x: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    r"""$y_w = \max_{i \in w} x_i$: a given number of windows, of about equal size."""
    return _max_pool(x, 2, _nn.adaptive_max_pool2d, output_size)


@composite("adaptive_max_pool3d")
def adaptive_max_pool3d(x: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    r"""$y_w = \max_{i \in w} x_i$: a given number of windows, of about equal size."""
    return _max_pool(x, 3, _nn.adaptive_max_pool3d, output_size)


@composite("fractional_max_pool2d")
def fractional_max_pool2d(x: Tensor, kernel_size: Any, output_size: Any, samples: Tensor) -> tuple[Tensor, Tensor]:
    r"""$y_w = \max_{i \in w} x_i$: the windows are placed at random."""
    return _max_pool(x, 2, _nn.fractional_max_pool2d, kernel_size, output_size, samples)


@composite("fractional_max_pool3d")
def fractional_max_pool3d(x: Tensor, kernel_size: Any, output_size: Any, samples: Tensor) -> tuple[Tensor, Tensor]:
    r"""$y_w = \max_{i \in w} x_i$: the windows are placed at random."""
    return _max_pool(x, 3, _nn.fractional_max_pool3d, kernel_size, output_size, samples)


@composite("max_unpool2d")
def max_unpool2d(x: Tensor, indices: Tensor, output_size: Any) -> Tensor:
    r"""$y_{i_w} = x_w$: each maximum back at its index, zeros elsewhere."""
    return _unpool(x, indices, 2, output_size)


@composite("max_unpool3d")
def max_unpool3d(x: Tensor, indices: Tensor, output_size: Any, stride: Any = None, padding: Any = None) -> Tensor:
    r"""$y_{i_w} = x_w$: each maximum back at its index, zeros elsewhere."""
    return _unpool(x, indices, 3, output_size)


def _unpool(x: Tensor, indices: Tensor, axes: int, size: Any) -> Tensor:
    shape = (*x.shape[:-axes], *size)
    zeros = x.new_zeros(shape).flatten(-axes)
    return zeros.scatter(-1, indices.flatten(-axes), x.flatten(-axes)).reshape(shape)
