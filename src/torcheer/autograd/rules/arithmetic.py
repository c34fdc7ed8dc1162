"""Adding, multiplying, powers and the functions of one number."""

from __future__ import annotations

import math
from typing import Any

import torch

from torcheer.autograd.rules.table import ForOther, Shape, rule


@rule("add")
def add(g: Any, a: Shape, b: Shape, alpha: Any = 1) -> Any:
    r"""$\bar a = \bar y$, $\bar b = \alpha\,\bar y$: a sum passes its gradient on to both, unchanged."""
    return g, g if alpha == 1 else g * alpha


@rule("sub")
def sub(g: Any, a: Shape, b: Shape, alpha: Any = 1) -> Any:
    r"""$\bar a = \bar y$, $\bar b = -\alpha\,\bar y$: what is taken away counts against the result."""
    return g, lambda: g * -alpha


@rule("rsub")
def rsub(g: Any, a: Shape, b: Shape, alpha: Any = 1) -> Any:
    r"""$\bar a = -\alpha\,\bar y$, $\bar b = \bar y$: this is b - a, as Python writes 1 - x."""
    return lambda: g * -alpha, g


@rule("mul")
def mul(g: Any, a: ForOther, b: ForOther) -> Any:
    r"""$\bar a = \bar y \odot b$, $\bar b = \bar y \odot a$: each factor is scaled by the other one."""
    return lambda: g * b, lambda: g * a


@rule("div")
def div(g: Any, a: ForOther, b: Any, rounding_mode: Any = None) -> Any:
    r"""$\bar a = \bar y / b$, $\bar b = -\bar y \odot a / b^2$: a rounded quotient is flat and sends nothing."""
    if rounding_mode is not None:
        return lambda: g * 0, lambda: g * 0
    return lambda: g / b, lambda: -g * a / (b * b)


@rule("rdiv")
def rdiv(g: Any, a: Any, b: ForOther) -> Any:
    r"""$\bar a = -\bar y \odot b / a^2$, $\bar b = \bar y / a$: this is b / a, as Python writes 1 / x."""
    return lambda: -g * b / (a * a), lambda: g / a


@rule("neg")
def neg(g: Any, x: Shape) -> Any:
    r"""$\bar x = -\bar y$: the sign goes back too."""
    return -g


@rule("positive", "clone", "contiguous", "alias")
def clone(g: Any, x: Shape, memory_format: Any = None) -> Any:
    r"""$\bar x = \bar y$: a copy has the same value, so it has the same gradient."""
    return g


@rule("pow", "float_power")
def pow(g: Any, y: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y \odot b\,a^{b-1}$, $\bar b = \bar y \odot y \log a$: for the exponent, $a^b = e^{b \log a}$."""

    def to_base() -> Any:
        if isinstance(b, torch.Tensor):
            return g * torch.where(b == 0, 0.0, b * a ** torch.where(b == 0, 1.0, b - 1))
        return g * 0 if b == 0 else g * (b * a ** (b - 1))

    return to_base, lambda: g * y * torch.where(torch.as_tensor(y) == 0, 0.0, _log(a))


@rule("rpow")
def rpow(g: Any, y: Any, x: Shape, base: Any) -> Any:
    r"""$\bar x = \bar y \odot y \log b$: this is $b^x$, as Python writes 2 ** x."""
    return lambda: g * y * _log(base)


def _log(base: Any) -> Any:
    if isinstance(base, torch.Tensor):
        return torch.log(base)
    return math.log(base) if base > 0 else 0.0 if base == 0 else math.nan


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
    r"""$\bar x = \bar y \odot (y + 1)$: $e^x$ is the result with the one put back."""
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
    r"""$\bar x = \bar y / (1 + x)$: the logarithm, one step to the side."""
    return g / (1 + x)


@rule("sin")
def sin(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y \odot \cos x$: the slope of the sine is the cosine."""
    return g * torch.cos(x)


@rule("cos")
def cos(g: Any, x: Any) -> Any:
    r"""$\bar x = -\bar y \odot \sin x$: the cosine falls where the sine is high."""
    return -g * torch.sin(x)


@rule("tan")
def tan(g: Any, y: Any, x: Shape) -> Any:
    r"""$\bar x = \bar y \odot (1 + y^2)$: the slope of the tangent from the tangent itself."""
    return g * (1 + y * y)


@rule("asin")
def asin(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y / \sqrt{1 - x^2}$: the inverse of a slope, read off the circle."""
    return g * torch.rsqrt(1 - x * x)


@rule("acos")
def acos(g: Any, x: Any) -> Any:
    r"""$\bar x = -\bar y / \sqrt{1 - x^2}$: arccos is a quarter turn less arcsin."""
    return -g * torch.rsqrt(1 - x * x)


@rule("atan")
def atan(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y / (1 + x^2)$: flat far out, steepest at zero."""
    return g / (1 + x * x)


@rule("atan2")
def atan2(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y\,b / (a^2 + b^2)$, $\bar b = -\bar y\,a / (a^2 + b^2)$: how an angle turns with its sides."""
    square_norm = a * a + b * b
    return lambda: g * b / square_norm, lambda: -g * a / square_norm


@rule("sinh")
def sinh(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y \odot \cosh x$: the hyperbolic pair, without a sign."""
    return g * torch.cosh(x)


@rule("cosh")
def cosh(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y \odot \sinh x$: the hyperbolic pair, without a sign."""
    return g * torch.sinh(x)


@rule("erf")
def erf(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y \odot \tfrac{2}{\sqrt\pi} e^{-x^2}$: erf sums up a bell curve, so its slope is the curve."""
    return g * (torch.exp(-x * x) * (2 / math.sqrt(math.pi)))


@rule("abs")
def abs(g: Any, x: Any) -> Any:
    r"""$\bar x = \bar y \odot \operatorname{sign} x$: distance grows the way the number points; at zero it has no side."""
    return g * torch.sign(x)


@rule("sign", "sgn", "floor", "ceil", "round", "trunc", "fix", "floor_divide", "heaviside")
def step(g: Any, x: Shape, *rest: Shape, **settings: Any) -> Any:
    r"""$\bar x = 0$: steps are flat almost everywhere, so nothing goes back."""
    return g * 0


@rule("remainder", "fmod")
def remainder(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y$, $\bar b = -\bar y \odot \lfloor a/b \rfloor$: what is left moves with a, less the whole parts."""
    return g, lambda: -g * torch.div(a - torch.remainder(a, b), b, rounding_mode="floor")


@rule("frac")
def frac(g: Any, x: Shape) -> Any:
    r"""$\bar x = \bar y$: the part behind the point moves with the number."""
    return g


@rule("maximum", "fmax")
def maximum(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y\,[a > b]$, $\bar b = \bar y\,[b > a]$: only the winner is heard; a tie is shared."""
    tie = (a == b) * 0.5
    return lambda: g * ((a > b) + tie).to(g.dtype), lambda: g * ((b > a) + tie).to(g.dtype)


@rule("minimum", "fmin")
def minimum(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y\,[a < b]$, $\bar b = \bar y\,[b < a]$: only the smaller is heard; a tie is shared."""
    tie = (a == b) * 0.5
    return lambda: g * ((a < b) + tie).to(g.dtype), lambda: g * ((b < a) + tie).to(g.dtype)


@rule("to", "type", "type_as", "float", "double", "half", "bfloat16", "cpu", "cuda", "_to_copy")
def to(g: Any, x: Shape, *rest: Shape, **settings: Any) -> Any:
    r"""$\bar x = \bar y$: the same number in another form; its gradient is brought back to the old one."""
    return g.to(device=x.device, dtype=x.dtype)
