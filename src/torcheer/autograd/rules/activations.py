"""The bends between layers, and softmax."""

from __future__ import annotations

from typing import Any

import torch

from torcheer.autograd.rules.table import Shape, rule


@rule("relu")
def relu(g: Any, y: Any, x: Shape, inplace: bool = False) -> Any:
    r"""$\bar x = \bar y \odot [y > 0]$: what was cut off forward is cut off backward."""
    return g * (y > 0)


@rule("sigmoid")
def sigmoid(g: Any, y: Any, x: Shape) -> Any:
    r"""$\bar x = \bar y \odot y\,(1 - y)$: the slope comes from the result, and is at most a quarter."""
    return g * (y * (1 - y))


@rule("tanh")
def tanh(g: Any, y: Any, x: Shape) -> Any:
    r"""$\bar x = \bar y \odot (1 - y^2)$: tanh's slope is cheapest from its own output."""
    return g * (1 - y * y)


@rule("softplus")
def softplus(g: Any, x: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    r"""$\bar x = \bar y \odot \sigma(\beta x)$: a smoothed relu has a smoothed step as its slope."""
    return g * torch.where(x * beta > threshold, 1.0, torch.sigmoid(x * beta))


@rule("leaky_relu")
def leaky_relu(g: Any, x: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    r"""$\bar x = \bar y \odot ([x > 0] + s\,[x \le 0])$: below zero a little still passes."""
    return g * torch.where(x > 0, 1.0, negative_slope)


@rule("clamp")
def clamp(g: Any, x: Any, min: Any = None, max: Any = None) -> Any:
    r"""$\bar x = \bar y \odot [\text{min} \le x \le \text{max}]$: what was held back at a limit sends nothing."""
    low = x >= min if min is not None else torch.ones_like(x, dtype=torch.bool)
    high = x <= max if max is not None else torch.ones_like(x, dtype=torch.bool)
    return g * (low & high), lambda: g * ~low, lambda: g * (low & ~high)


@rule("softmax", "_softmax")
def softmax(g: Any, y: Any, x: Shape, dim: int, dtype: Any = None) -> Any:
    r"""$\bar x = y \odot (\bar y - \textstyle\sum y \odot \bar y)$: shares compete, so each gives up the average."""
    return y * (g - (g * y).sum(dim, keepdim=True))


@rule("log_softmax", "_log_softmax")
def log_softmax(g: Any, y: Any, x: Shape, dim: int, dtype: Any = None) -> Any:
    r"""$\bar x = \bar y - e^y \sum \bar y$: in logarithms, what all receive is taken from each by its share."""
    return g - torch.exp(y) * g.sum(dim, keepdim=True)


@rule("logsumexp")
def logsumexp(g: Any, y: Any, x: Any, dim: Any, keepdim: bool = False) -> Any:
    r"""$\bar x = \bar y\,e^{x - y}$: a soft maximum is moved by each entry's share of it."""
    from torcheer.autograd.rules.reductions import stretch

    return stretch(g, x, dim, keepdim) * torch.exp(x - stretch(y, x, dim, keepdim))
