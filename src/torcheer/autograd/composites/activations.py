"""Bends that are made of others, and dropout."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torcheer.autograd.rules.table import composite


@composite("gelu")
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    r"""$x\,\Phi(x)$: a number times the chance that a normal draw is smaller."""
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))


@composite("silu")
def silu(x: Tensor) -> Tensor:
    r"""$x\,\sigma(x)$: a number times its own gate."""
    return x * torch.sigmoid(x)


@composite("mish")
def mish(x: Tensor) -> Tensor:
    r"""$x \tanh(\text{softplus}(x))$."""
    return x * torch.tanh(torch.nn.functional.softplus(x))


@composite("elu")
def elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    r"""$x$ above zero, $\alpha(e^x - 1)$ below."""
    below = alpha * torch.expm1(torch.clamp(x, max=0) * input_scale)
    return scale * torch.where(x > 0, x, below)


@composite("selu")
def selu(x: Tensor) -> Tensor:
    r"""elu with the two numbers that keep mean and variance."""
    return elu(x, 1.6732632423543772, 1.0507009873554805)


@composite("celu")
def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    r"""$x$ above zero, $\alpha(e^{x/\alpha} - 1)$ below."""
    return elu(x, alpha, 1.0, 1 / alpha)


@composite("relu6")
def relu6(x: Tensor) -> Tensor:
    r"""$\min(\max(x, 0), 6)$."""
    return torch.clamp(x, 0, 6)


@composite("hardtanh")
def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    r"""$x$ held between two limits."""
    return torch.clamp(x, min_val, max_val)


@composite("hardsigmoid")
def hardsigmoid(x: Tensor) -> Tensor:
    r"""$\min(\max(x + 3, 0), 6) / 6$."""
    return torch.clamp(x + 3, 0, 6) / 6


@composite("hardswish")
def hardswish(x: Tensor) -> Tensor:
    r"""$x \cdot \text{hardsigmoid}(x)$."""
    return x * torch.clamp(x + 3, 0, 6) / 6


@composite("log_sigmoid")
def log_sigmoid(x: Tensor) -> Tensor:
    r"""$-\text{softplus}(-x)$: stable on both sides."""
    return -torch.nn.functional.softplus(-x)


@composite("prelu")
def prelu(x: Tensor, weight: Tensor) -> Tensor:
    r"""$x$ above zero, $a\,x$ below, with $a$ learned for each channel."""
    slope = weight if weight.numel() == 1 else weight.reshape(-1, *(1,) * (x.dim() - 2))
    return torch.where(x > 0, x, slope * x)


@composite("glu")
def glu(x: Tensor, dim: int = -1) -> Tensor:
    r"""$a\,\sigma(b)$ for the two halves $a, b$."""
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half) * torch.sigmoid(x.narrow(dim, half, half))


@composite("dropout", "dropout1d", "alpha_free_dropout")
def dropout(
    x: Tensor, p: float = 0.5, train: bool = True, inplace: bool = False, training: bool | None = None
) -> Tensor:
    r"""$x \odot m / (1-p)$ with a mask $m$ drawn once: what was dropped sends nothing back."""
    if not (train if training is None else training) or p == 0:
        return x
    if p == 1:
        return x * 0
    mask = torch.empty_like(x).bernoulli_(1 - p).div_(1 - p)
    return x.mul_(mask) if inplace else x * mask


@composite("feature_dropout")
def feature_dropout(x: Tensor, p: float = 0.5, train: bool = True) -> Tensor:
    r"""Dropout of whole channels."""
    if not train or p == 0:
        return x
    return x * x.new_empty(*x.shape[:2], *(1,) * (x.dim() - 2)).bernoulli_(1 - p).div_(1 - p)
