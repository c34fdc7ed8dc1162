"""Elementary functions of one number."""

from __future__ import annotations

import math
from typing import Any

import torch

from torcheer.autograd.rules.rule_table import Shape, rule


@rule("square")
def square(g: Any, x: Any) -> Any:
    r"""$\bar x = 2x \odot \bar y$: the power rule for two."""
    return g * (2 * x)


@rule("sqrt")
def sqrt(g: Any, y: Any, x: Shape) -> Any:
    r"""$\bar x = \bar y / (2y)$: the slope of a root is cheapest from the root itself."""
    return g / (2 * y)


@rule("rsqrt")
def rsqrt(g: Any, y: Any, x: Shape) -> Any:
    r"""$\bar x = -\tfrac12\,\bar y \odot y^3$: from $x^{-1/2}$ to $-\tfrac12 x^{-3/2}$, which is $y^3$."""
    return g * (y * y * y) * -0.5


@rule("reciprocal")
def reciprocal(g: Any, y: Any, x: Shape) -> Any:
    r"""$\bar x = -\bar y \odot y^2$: from $1/x$ to $-1/x^2$, and $1/x$ is the result."""
    return -g * y * y


@rule("exp")
def exp(g: Any, y: Any, x: Shape) -> Any:
    r"""$\bar x = \bar y \odot y$: exp is its own slope, so the result is all that must be kept."""
    return g * y


@rule("exp2")
def exp2(g: Any, y: Any, x: Shape) -> Any:
    r"""$\bar x = \bar y \odot y \log 2$: the slope of $2^x$ is itself, scaled."""
    return g * y * math.log(2)


@rule("expm1")
def expm1(g: Any, y: Any, x: Shape) -> Any:
    r"""$\bar x = \bar y \odot (y + 1)$: $e^x$ is the result with the one added back."""
    return g * (y + 1)


@rule("log")
def log(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y / x$: the same step matters less the larger the number."""
    return g / x


@rule("log2")
def log2(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y / (x \log 2)$: a logarithm to base two is the natural one, scaled."""
    return g / (x * math.log(2))


@rule("log10")
def log10(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y / (x \log 10)$: a logarithm to base ten is the natural one, scaled."""
    return g / (x * math.log(10))


@rule("log1p")
def log1p(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y / (1 + x)$: the logarithm, shifted by one."""
    return g / (1 + x)


@rule("sin")
def sin(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y \odot \cos x$: the slope of the sine is the cosine."""
    return g * torch.cos(x)


@rule("cos")
def cos(g: Any, x: Any) -> Any:
    r"""$\bar x = -\bar y \odot \sin x$: the slope of the cosine is minus the sine."""
    return -g * torch.sin(x)


@rule("tan")
def tan(g: Any, y: Any, x: Shape) -> Any:
    r"""$\bar x = \bar y \odot (1 + y^2)$: the slope of the tangent from the tangent itself."""
    return g * (1 + y * y)


@rule("asin")
def asin(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y / \sqrt{1 - x^2}$: the slope of an inverse is one over the slope, here the cosine."""
    return g * torch.rsqrt(1 - x * x)


@rule("acos")
def acos(g: Any, x: Any) -> Any:
    r"""$\bar x = -\bar y / \sqrt{1 - x^2}$: arccos is a quarter turn minus arcsin."""
    return -g * torch.rsqrt(1 - x * x)


@rule("atan")
def atan(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y / (1 + x^2)$: flat far out, steepest at zero."""
    return g / (1 + x * x)


@rule("sinh")
def sinh(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y \odot \cosh x$: the slope of sinh is cosh."""
    return g * torch.cosh(x)


@rule("cosh")
def cosh(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y \odot \sinh x$: the slope of cosh is sinh, with no change of sign."""
    return g * torch.sinh(x)


@rule("erf")
def erf(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y \odot \tfrac{2}{\sqrt\pi} e^{-x^2}$: erf is the integral
    of a bell curve, so its slope is the curve."""
    return g * (torch.exp(-x * x) * (2 / math.sqrt(math.pi)))


@rule("abs")
def abs(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y \odot \operatorname{sign} x$: the slope is 1 above zero, -1 below, and
    taken as 0 at zero."""
    return g * torch.sign(x)


@rule("sign", "sgn", "floor", "ceil", "round", "trunc", "fix", "angle")
def step(g: Any, x: Shape, *args: Shape, **settings: Any) -> Any:
    r"""$\bar x = 0$: step functions are flat almost everywhere, so the gradient is zero."""
    return torch.zeros_like(g)


@rule("frac")
def frac(g: Any, x: Shape) -> Any:
    r"""$\bar x = \bar y$: the fractional part moves with the number."""
    return g


@rule("asinh")
def asinh(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y / \sqrt{x^2 + 1}$: the slope of an inverse is one over the slope, here cosh."""
    return g * torch.rsqrt(x * x + 1)


@rule("acosh")
def acosh(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y / \sqrt{x^2 - 1}$: the slope of an inverse is one over the slope, here sinh."""
    return g * torch.rsqrt(x * x - 1)


@rule("atanh")
def atanh(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y / (1 - x^2)$: steeper and steeper towards one."""
    return g / (1 - x * x)


@rule("erfc")
def erfc(g: Any, x: Any) -> Any:
    r"""$\bar x = -\bar y \odot \tfrac{2}{\sqrt\pi} e^{-x^2}$: erfc is 1 - erf, so the
    slope has the other sign."""
    return g * (torch.exp(-x * x) * (-2 / math.sqrt(math.pi)))


@rule("erfinv")
def erfinv(g: Any, y: Any, x: Shape) -> Any:
    r"""$\bar x = \bar y \odot \tfrac{\sqrt\pi}{2} e^{y^2}$: the slope of an inverse is one over the slope."""
    return g * (torch.exp(y * y) * (math.sqrt(math.pi) / 2))


@rule("special_erfcx")
def erfcx(g: Any, y: Any, x: Any) -> Any:
    r"""$\bar x = \bar y \odot (2 x y - \tfrac{2}{\sqrt\pi})$: erfc times $e^{x^2}$, by the product rule."""
    return g * (2 * x * y - 2 / math.sqrt(math.pi))


@rule("special_entr")
def entr(g: Any, x: Any) -> Any:
    r"""$\bar x = -\bar y \odot (1 + \log x)$: what one outcome adds to the entropy, by the product rule."""
    return -g * (1 + torch.log(x))


@rule("lgamma")
def lgamma(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y \odot \psi(x)$: the slope of log-gamma is the digamma function."""
    return g * torch.digamma(x)


@rule("digamma")
def digamma(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y \odot \psi'(x)$: the slope of digamma is the next polygamma function."""
    return g * torch.polygamma(1, x)


@rule("polygamma")
def polygamma(g: Any, n: Any, x: Any) -> Any:
    r"""$\bar x = \bar y \odot \psi^{(n+1)}(x)$: each is the slope of the one before."""
    if isinstance(n, torch.Tensor):  # x.polygamma(n)
        return g * torch.polygamma(x + 1, n)
    return None, lambda: g * torch.polygamma(n + 1, x)


@rule("sinc")
def sinc(g: Any, y: Any, x: Any) -> Any:
    r"""$\bar x = \bar y \odot (\cos \pi x - y) / x$: flat at zero, where it is highest."""
    return g * torch.where(x == 0, 0.0, (torch.cos(math.pi * x) - y) / torch.where(x == 0, 1.0, x))


@rule("logit")
def logit(g: Any, x: Any, eps: Any = None) -> Any:
    r"""$\bar x = \bar y / (x\,(1 - x))$: the inverse of sigmoid has one over its slope;
    outside eps it is flat."""
    slope = g / (x * (1 - x))
    return slope if eps is None else slope.masked_fill((x < eps) | (x > 1 - eps), 0)


@rule("nan_to_num")
def nan_to_num(g: Any, x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    r"""$\bar x = \bar y\,[x \text{ is finite}]$: replaced values get no gradient."""
    return g.masked_fill(x.isnan() | x.isinf(), 0)
