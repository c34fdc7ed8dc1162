"""torchtrace's functions about the windows of a convolution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import grad as conv_gradients

from torcheer.errors import BadArgument

Pair = tuple[int, int]
gradients: Any = conv_gradients  # torch has no types for them


def refine_para(x: Any) -> Any:
    """Return a pair: one whole number stands for both."""
    if isinstance(x, int):
        return x, x
    if len(x) != 2:
        raise BadArgument(f"a size of an image is one number or two, not {x!r}")
    return x


def iterate_regions(image: Any, kernel: Pair, stride: Pair) -> Iterator[tuple[Any, int, int]]:
    """Yield every window of an image, with the row and the column of its result."""
    height, width = image.shape[-2:]
    for row in range(0, height - kernel[0] + 1, stride[0]):
        for column in range(0, width - kernel[1] + 1, stride[1]):
            window = image[..., row : row + kernel[0], column : column + kernel[1]]
            yield window, row // stride[0], column // stride[1]


def inverse_pad_2d(imgs: Any, padding: Sequence[int]) -> Any:
    """Cut off a padding of left, right, top and bottom."""
    left, right, top, bottom = padding
    height, width = imgs.shape[-2:]
    return imgs[..., top : height - bottom, left : width - right]


def generate_grad(
    imgs: Tensor, filters: Tensor, bias: Tensor | None, kernel: Pair, stride: Pair, padding: Pair, filter_grad: Tensor,
    bias_grad: Tensor, grad: Tensor,
) -> Tensor:  # fmt: skip
    """Return the gradient of the images of a convolution; add those of filters and bias to the tensors given.

    - `grad`: the gradient of its result.
    """
    with torch.no_grad():
        filter_grad += gradients.conv2d_weight(imgs, filters.shape, grad, stride, padding)
        bias_grad += grad.sum((0, 2, 3))
        return gradients.conv2d_input(imgs.shape, filters, grad, stride, padding)  # type: ignore[no-any-return]


def arange(length: int) -> Tensor:
    """Return the whole numbers from 0 to below `length`."""
    return torch.arange(length, dtype=torch.int32)
