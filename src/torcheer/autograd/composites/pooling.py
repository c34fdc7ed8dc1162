"""Pooling."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.table import composite


@composite("max_pool2d")
def max_pool2d(x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Tensor:
    r"""The winner of each window: its place is remembered, so the gradient finds the way back."""
    with torch.no_grad():
        _, index = torch.nn.functional.max_pool2d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode)
    return x.flatten(-2).gather(-1, index.flatten(-2)).reshape(index.shape)
