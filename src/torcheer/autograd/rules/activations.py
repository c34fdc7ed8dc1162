"""Activation functions and softmax."""

from __future__ import annotations

from typing import Any

import torch

from torcheer.autograd.rules.reductions import stretch
from torcheer.autograd.rules.rule_table import Shape, rule, wide


@rule("relu")
def relu(g: Any, y: Any, x: Shape, inplace: bool = False) -> Any:
    r"""$\bar x = \bar y \odot [y > 0]$: what was cut off forward is cut off backward."""
    return g.masked_fill(y <= 0, 0)


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
    return torch.where(x > 0, g, g * negative_slope)


@rule("clamp")
def clamp(g: Any, x: Any, min: Any = None, max: Any = None) -> Any:
    r"""$\bar x = \bar y\,[\text{min} \le x \le \text{max}]$: outside its limits a value was replaced by
    the limit, which gets the gradient instead."""
    nowhere = torch.zeros_like(x, dtype=torch.bool)
    low = nowhere if min is None else x < min
    high = nowhere if max is None else x > max
    to_x = g.masked_fill(low | high | x.isnan(), 0)
    if min is not None and max is not None:  # where min > max, the result is max
        low, high = low & (min < max), high | (max < min)
    return to_x, lambda: g.masked_fill(~low, 0), lambda: g.masked_fill(~high, 0)


@rule("hardtanh")
def hardtanh(g: Any, x: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    r"""$\bar x = \bar y\,[a < x < b]$: as clamp, but at the limits themselves nothing passes."""
    return g.masked_fill((x <= min_val) | (x >= max_val), 0)


@rule("threshold")
def threshold(g: Any, x: Any, threshold: Any, value: Any, inplace: bool = False) -> Any:
    r"""$\bar x = \bar y\,[x > t]$: replaced values get no gradient."""
    return g.masked_fill(x <= threshold, 0)


@rule("hardshrink")
def hardshrink(g: Any, x: Any, lambd: float = 0.5) -> Any:
    r"""$\bar x = \bar y\,[|x| > \lambda]$: small numbers were set to zero and get no gradient."""
    return g.masked_fill((x >= -lambd) & (x <= lambd), 0)


@rule("softshrink")
def softshrink(g: Any, x: Any, lambd: float = 0.5) -> Any:
    r"""$\bar x = \bar y\,[|x| > \lambda]$: all other values move towards zero by the same
    amount, so their slope is 1."""
    return g.masked_fill((x >= -lambd) & (x <= lambd), 0)


@rule("softmax", "_softmax")
def softmax(g: Any, y: Any, x: Shape, dim: int, dtype: Any = None) -> Any:
    r"""$\bar x = y \odot (\bar y - \textstyle\sum y \odot \bar y)$: the outputs sum to one, so
    each gives up the weighted average of the gradients."""
    g, y = wide(g), wide(y)
    return y * (g - (g * y).sum(dim, keepdim=True))


@rule("log_softmax", "_log_softmax")
def log_softmax(g: Any, y: Any, x: Shape, dim: int, dtype: Any = None) -> Any:
    r"""$\bar x = \bar y - e^y \sum \bar y$: the sum of the gradients is subtracted from each
    entry in proportion to its probability."""
    g, y = wide(g), wide(y)
    return g - torch.exp(y) * g.sum(dim, keepdim=True)


@rule("logsumexp")
def logsumexp(g: Any, y: Any, x: Any, dim: Any, keepdim: bool = False) -> Any:
    r"""$\bar x = \bar y\,e^{x - y}$: a soft maximum follows each entry by its softmax weight."""
    return stretch(g, x, dim, keepdim) * torch.exp(x - stretch(y, x, dim, keepdim))


@rule("binary_cross_entropy")
def binary_cross_entropy(g: Any, x: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    r"""$\bar x = \bar y\,(x - t) / (x\,(1 - x))$: a confident wrong prediction gets the
    largest gradient; at 0 and 1 the slope is kept finite."""
    g = g / x.numel() if reduction == 1 else g  # 0: none, 1: the mean, 2: the sum
    g = g if weight is None else g * weight
    log_x, log_complement = torch.log(x).clamp(min=-100), torch.log(1 - x).clamp(min=-100)
    return lambda: g * (x - target) / (x * (1 - x)).clamp(min=1e-12), lambda: g * (log_complement - log_x)
