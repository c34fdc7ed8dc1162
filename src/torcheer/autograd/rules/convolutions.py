"""Convolutions and transposed convolutions.

The backward pass of a convolution is two more convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import Shape, rule

FORWARD = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
TRANSPOSED = {1: torch.conv_transpose1d, 2: torch.conv_transpose2d, 3: torch.conv_transpose3d}


@rule("conv1d", "conv2d", "conv3d", kept={"x": "weight", "weight": "x"})
def conv(
    g: Any, x: Any, weight: Any, bias: Shape = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Any:  # fmt: skip
    r"""$\bar X = W^\top \star \bar Y$, $\bar W = X \star \bar Y$, $\bar b = \sum \bar Y$: a gradient flows back
    along the paths of the forward pass, and a weight collects from every pixel it touched."""
    geometry = Geometry(x, weight, stride, padding, dilation, groups)
    return lambda: geometry.to_input(g), lambda: geometry.to_weight(g), lambda: g.sum(geometry.all_but_channels)


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", kept={"x": "weight", "weight": "x"})
def conv_transpose(
    g: Any, x: Any, weight: Any, bias: Shape = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    r"""$\bar X = W \star \bar Y$, $\bar W = \bar Y \star X$, $\bar b = \sum \bar Y$: a transposed
    convolution is the backward of a convolution, so its own backward is that convolution."""
    geometry = Geometry(g, weight, stride, padding, dilation, groups)
    return lambda: geometry.forward(g, x.shape), lambda: geometry.to_weight(x), lambda: g.sum(geometry.all_but_channels)


class Geometry:
    """Stride, padding, dilation and groups of a convolution, one entry per spatial axis."""

    def __init__(self, image: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int) -> None:
        self.axes = weight.dim() - 2
        self.single = image.dim() == self.axes + 1  # no batch
        self.image, self.weight, self.groups = image, weight, groups
        self.stride, self.dilation = self._each(stride), self._each(dilation)
        self.kernel = weight.shape[2:]
        self.all_but_channels = [place for place in range(image.dim()) if place != image.dim() - self.axes - 1]
        if isinstance(padding, str):  # "same" pads by the kernel's reach; an odd pixel goes to the end
            reach = [d * (k - 1) if padding == "same" else 0 for d, k in zip(self.dilation, self.kernel)]
            self.padding, self.odd = [pixels // 2 for pixels in reach], [pixels % 2 for pixels in reach]
        else:
            self.padding, self.odd = self._each(padding), [0] * self.axes

    def _each(self, number: Any) -> list[int]:
        if isinstance(number, Sequence):
            return list(number) * (self.axes if len(number) == 1 else 1)
        return [number] * self.axes

    def _batch(self, image: Tensor) -> Tensor:
        return image.unsqueeze(0) if self.single else image

    def forward(self, image: Tensor, size: Any) -> Tensor:
        """Run the convolution and crop the result to the spatial axes of `size`."""
        y = FORWARD[self.axes](image, self.weight, None, self.stride, self.padding, self.dilation, self.groups)
        for axis in range(-self.axes, 0):
            y = y.narrow(axis, 0, size[axis])
        return y

    def to_input(self, g: Tensor) -> Tensor:
        """Compute the image's gradient: spread each result over the pixels it read."""
        size = self.image.shape[-self.axes :]
        reach = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel)]
        least = [(n - 1) * s - 2 * p + r for n, s, p, r in zip(g.shape[-self.axes :], self.stride, self.padding, reach)]
        unread = [n - m for n, m in zip(size, least)]  # pixels at the end that no step of the kernel reached
        if (
            any(pixels >= max(s, d) for pixels, s, d in zip(unread, self.stride, self.dilation))
            or min(unread) < 0
            or any(self.odd)
        ):
            return self._to_input_by_cropping(g, size)
        transposed = TRANSPOSED[self.axes]
        return transposed(g, self.weight, None, self.stride, self.padding, unread, self.groups, self.dilation)

    def _to_input_by_cropping(self, g: Tensor, size: Any) -> Tensor:
        """Compute the same without padding, then crop or pad the result to the image's size."""
        full = TRANSPOSED[self.axes](g, self.weight, None, self.stride, 0, 0, self.groups, self.dilation)
        margins: list[int] = []
        for axis in reversed(range(self.axes)):
            before = self.padding[axis]
            margins += [-before, size[axis] + before - full.shape[full.dim() - self.axes + axis]]
        return torch.nn.functional.pad(full, margins)

    def to_weight(self, g: Tensor) -> Tensor:
        """Compute the weight's gradient: convolve the image with `g`, batch and channels swapped."""
        image, g = self._batch(self.image), self._batch(g)
        if any(self.odd):
            image = torch.nn.functional.pad(image, [side for pixels in reversed(self.odd) for side in (0, pixels)])
        size, groups = image.shape, self.groups
        image = image.reshape(size[0], groups, size[1] // groups, *size[2:]).transpose(0, 2)
        image = image.reshape(size[1] // groups, groups * size[0], *size[2:])
        result = FORWARD[self.axes](image, g.transpose(0, 1), None, self.dilation, self.padding, self.stride, groups)
        for axis, length in enumerate(self.kernel):
            result = result.narrow(2 + axis, 0, length)
        return result.transpose(0, 1)
