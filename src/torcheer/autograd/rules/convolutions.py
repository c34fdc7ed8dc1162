"""Convolutions. A convolution's backward is two more of them."""

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
    r"""$\bar X = W^\top \star \bar Y$, $\bar W = X \star \bar Y$, $\bar b = \sum \bar Y$: each pixel goes back along
    the paths it came by, and a weight meets every pixel it touched."""
    how = Geometry(x, weight, stride, padding, dilation, groups)
    return lambda: how.to_input(g), lambda: how.to_weight(g), lambda: g.sum(how.all_but_channels)


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", kept={"x": "weight", "weight": "x"})
def conv_transpose(
    g: Any, x: Any, weight: Any, bias: Shape = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    r"""$\bar X = W \star \bar Y$, $\bar W = \bar Y \star X$, $\bar b = \sum \bar Y$: the backward of a convolution, run
    forward, has the convolution as its backward."""
    how = Geometry(g, weight, stride, padding, dilation, groups)
    return lambda: how.forward(g, x.shape), lambda: how.to_weight(x), lambda: g.sum(how.all_but_channels)


class Geometry:
    """How a kernel walks over an image."""

    def __init__(self, image: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int) -> None:
        self.axes = weight.dim() - 2
        self.single = image.dim() == self.axes + 1  # no batch
        self.image, self.weight, self.groups = image, weight, groups
        self.stride, self.dilation = self._each(stride), self._each(dilation)
        self.kernel = weight.shape[2:]
        self.all_but_channels = [place for place in range(image.dim()) if place != image.dim() - self.axes - 1]
        if isinstance(padding, str):  # "same" is as much around as the kernel reaches, the odd one after
            reach = [d * (k - 1) if padding == "same" else 0 for d, k in zip(self.dilation, self.kernel)]
            self.padding, self.odd = [one // 2 for one in reach], [one % 2 for one in reach]
        else:
            self.padding, self.odd = self._each(padding), [0] * self.axes

    def _each(self, number: Any) -> list[int]:
        if isinstance(number, Sequence):
            return list(number) * (self.axes if len(number) == 1 else 1)
        return [number] * self.axes

    def _batch(self, image: Tensor) -> Tensor:
        return image.unsqueeze(0) if self.single else image

    def forward(self, image: Tensor, size: Any) -> Tensor:
        """The convolution itself, as far as `size` goes."""
        y = FORWARD[self.axes](image, self.weight, None, self.stride, self.padding, self.dilation, self.groups)
        for axis in range(-self.axes, 0):
            y = y.narrow(axis, 0, size[axis])
        return y

    def to_input(self, g: Tensor) -> Tensor:
        """Spread each result over the pixels it was made from."""
        size = self.image.shape[-self.axes :]
        reach = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel)]
        least = [(n - 1) * s - 2 * p + r for n, s, p, r in zip(g.shape[-self.axes :], self.stride, self.padding, reach)]
        left = [n - m for n, m in zip(size, least)]  # pixels at the end that no step of the kernel reached
        if (
            any(one >= max(s, d) for one, s, d in zip(left, self.stride, self.dilation))
            or min(left) < 0
            or any(self.odd)
        ):
            return self._to_input_at_length(g, size)
        make = TRANSPOSED[self.axes]
        return make(g, self.weight, None, self.stride, self.padding, left, self.groups, self.dilation)

    def _to_input_at_length(self, g: Tensor, size: Any) -> Tensor:
        """The same without padding, then cut or filled to the image's size."""
        whole = TRANSPOSED[self.axes](g, self.weight, None, self.stride, 0, 0, self.groups, self.dilation)
        cut: list[int] = []
        for axis in reversed(range(self.axes)):
            before = self.padding[axis]
            cut += [-before, size[axis] + before - whole.shape[whole.dim() - self.axes + axis]]
        return torch.nn.functional.pad(whole, cut)

    def to_weight(self, g: Tensor) -> Tensor:
        """Hold the gradient over the image as a kernel: batch and channels change places."""
        image, g = self._batch(self.image), self._batch(g)
        if any(self.odd):
            image = torch.nn.functional.pad(image, [side for one in reversed(self.odd) for side in (0, one)])
        size, groups = image.shape, self.groups
        image = image.reshape(size[0], groups, size[1] // groups, *size[2:]).transpose(0, 2)
        image = image.reshape(size[1] // groups, groups * size[0], *size[2:])
        found = FORWARD[self.axes](image, g.transpose(0, 1), None, self.dilation, self.padding, self.stride, groups)
        for axis, length in enumerate(self.kernel):
            found = found.narrow(2 + axis, 0, length)
        return found.transpose(0, 1)
