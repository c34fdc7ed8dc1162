"""Functions of one or two numbers, built from simpler ones."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import composite


@composite("rpow")
def rpow(x: Any, base: Any) -> Any:
    r"""$b^x$: as Python writes 2 ** x."""
    return torch.pow(base, x)


@composite("rmod")
def rmod(x: Any, other: Any) -> Any:
    r"""$b \bmod x$: as Python writes 2 % x."""
    return torch.remainder(torch.as_tensor(other, dtype=x.dtype, device=x.device), x)


@composite("clamp_min")
def clamp_min(x: Tensor, min: Any) -> Tensor:
    r"""$\max(x, \text{min})$: limited from below."""
    return torch.clamp(x, min=min)


@composite("clamp_max")
def clamp_max(x: Tensor, max: Any) -> Tensor:
    r"""$\min(x, \text{max})$: limited from above."""
    return torch.clamp(x, max=max)


@composite("deg2rad")
def deg2rad(x: Tensor) -> Any:
    r"""$x\,\pi / 180$: a full turn is $2\pi$."""
    return x * (math.pi / 180)


@composite("rad2deg")
def rad2deg(x: Tensor) -> Any:
    r"""$x \cdot 180 / \pi$: a full turn is 360."""
    return x * (180 / math.pi)


@composite("ldexp")
def ldexp(x: Tensor, other: Any) -> Any:
    r"""$x\,2^e$: as floating-point numbers are stored."""
    return x * torch.pow(2.0, other)


@composite("mvlgamma")
def mvlgamma(x: Tensor, p: int) -> Any:
    r"""$\sum_{j<p} \log \Gamma(x - j/2) + \tfrac{p(p-1)}{4} \log \pi$: the multivariate log-gamma function."""
    halves = torch.arange(p, dtype=x.dtype, device=x.device) / 2
    return torch.lgamma(x.unsqueeze(-1) - halves).sum(-1) + p * (p - 1) / 4 * math.log(math.pi)


@composite("special_ndtr")
def ndtr(x: Tensor) -> Any:
    r"""$\Phi(x) = \tfrac12\,\text{erfc}(-x/\sqrt2)$: the probability that a standard normal sample is smaller."""
    return 0.5 * torch.erfc(x * -math.sqrt(0.5))


@composite("fill")
def fill(x: Tensor, value: Any) -> Tensor:
    r"""$y_i = v$: $x$ is overwritten and gets no gradient."""
    return value.expand(x.shape).to(x.dtype) if isinstance(value, Tensor) else torch.full_like(x, value)
