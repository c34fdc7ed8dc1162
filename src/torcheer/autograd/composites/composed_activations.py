"""Activations built from simpler operations, and dropout."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import composite


@composite("gelu")
def gelu(x: Tensor, approximate: str = "none") -> Any:
    r"""$x\,\Phi(x)$: a number times the probability that a standard normal sample is smaller."""
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))


@composite("silu")
def silu(x: Tensor) -> Any:
    r"""$x\,\sigma(x)$: a number times its own gate."""
    return x * torch.sigmoid(x)


@composite("mish")
def mish(x: Tensor) -> Any:
    r"""$x \tanh(\text{softplus}(x))$: a number times a smooth gate."""
    return x * torch.tanh(torch.nn.functional.softplus(x))


@composite("elu")
def elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    r"""$x$ above zero, $\alpha(e^x - 1)$ below: smooth instead of cut off, so negative inputs
    get some gradient."""
    negative = alpha * torch.expm1(torch.clamp(x, max=0) * input_scale)
    return scale * torch.where(x > 0, x, negative)


@composite("selu")
def selu(x: Tensor) -> Any:
    r"""$\lambda\,\text{elu}_\alpha(x)$: with the two constants that preserve mean and variance from layer
    to layer."""
    return elu(x, 1.6732632423543772, 1.0507009873554805)


@composite("celu")
def celu(x: Tensor, alpha: float = 1.0) -> Any:
    r"""$x$ above zero, $\alpha(e^{x/\alpha} - 1)$ below: as elu, with the same slope on both sides of zero."""
    return elu(x, alpha, 1.0, 1 / alpha)


@composite("relu6")
def relu6(x: Tensor) -> Any:
    r"""$\min(\max(x, 0), 6)$: relu with a ceiling."""
    return torch.nn.functional.hardtanh(x, 0.0, 6.0)


@composite("hardsigmoid")
def hardsigmoid(x: Tensor) -> Any:
    r"""$\min(\max(x + 3, 0), 6) / 6$: a piecewise linear sigmoid."""
    return torch.nn.functional.hardtanh(x + 3, 0.0, 6.0) / 6


@composite("hardswish")
def hardswish(x: Tensor) -> Any:
    r"""$x \cdot \text{hardsigmoid}(x)$: silu with a piecewise linear gate."""
    return x * torch.clamp(x + 3, 0, 6) / 6


@composite("log_sigmoid")
def log_sigmoid(x: Tensor) -> Any:
    r"""$-\text{softplus}(-x)$: stable on both sides."""
    return -torch.nn.functional.softplus(-x)


@composite("prelu")
def prelu(x: Tensor, weight: Tensor) -> Any:
    r"""$x$ above zero, $a\,x$ below: the slope $a$ is learned, for each channel."""
    slope = weight.reshape(()) if weight.numel() == 1 else weight.reshape(-1, *(1,) * (x.dim() - 2))
    return torch.where(x > 0, x, slope * torch.clamp(x, max=0))


@composite("glu")
def glu(x: Tensor, dim: int = -1) -> Any:
    r"""$a\,\sigma(b)$: one half of the channels gates the other."""
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half) * torch.sigmoid(x.narrow(dim, half, half))


@composite("dropout")
def dropout(x: Tensor, p: float = 0.5, train: bool = True, inplace: bool = False, training: bool | None = None) -> Any:
    r"""$x \odot m / (1-p)$ with a mask $m$ drawn once: dropped entries get no gradient."""
    if not (train if training is None else training) or p == 0:
        return x
    if p == 1:
        return x * 0
    mask = torch.empty_like(x).bernoulli_(1 - p).div_(1 - p)
    return x.mul_(mask) if inplace else x * mask


@composite("feature_dropout")
def feature_dropout(x: Tensor, p: float = 0.5, train: bool = True) -> Any:
    r"""$x \odot m / (1-p)$: dropout of whole channels."""
    if not train or p == 0:
        return x
    return x * 0 if p == 1 else x * _draw_mask(x, p, True).div_(1 - p)


@composite("alpha_dropout")
def alpha_dropout(x: Tensor, p: float = 0.5, train: bool = True, *, channels: bool = False) -> Any:
    r"""$a\,(x \odot m + \alpha' (1 - m)) + b$: dropped to selu's lowest value, then mean and variance
    are restored."""
    if not train or p == 0:
        return x
    if p == 1:
        return x * 0
    lowest = 1.7580993408473766
    scale = 1 / math.sqrt((lowest * lowest * p + 1) * (1 - p))
    mask = _draw_mask(x, p, channels)
    shift = (mask - 1) * (lowest * scale) + lowest * scale * p
    return x * (mask * scale) + shift


@composite("feature_alpha_dropout")
def feature_alpha_dropout(x: Tensor, p: float = 0.5, train: bool = True) -> Any:
    r"""$a\,(x \odot m + \alpha' (1 - m)) + b$: alpha_dropout of whole channels."""
    return alpha_dropout(x, p, train, channels=True)


def _draw_mask(x: Tensor, p: float, channels: bool) -> Any:
    """Draw a mask of ones (kept) and zeros (dropped), per entry or per channel."""
    empty = x.new_empty(*x.shape[:2], *(1,) * (x.dim() - 2)) if channels else torch.empty_like(x)
    return empty.bernoulli_(1 - p)


@composite("rrelu")
def rrelu(x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None) -> Any:
    r"""$x$ above zero, $r\,x$ below: the slope $r$ is drawn for each entry; in eval it is the mean slope."""
    if not training:
        return torch.nn.functional.leaky_relu(x, (lower + upper) / 2)
    slopes = torch.empty_like(x)
    with torch.no_grad():
        torch.ops.aten.rrelu_with_noise(x, slopes, lower, upper, True, generator)
    return x * slopes
