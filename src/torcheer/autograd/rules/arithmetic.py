"""Arithmetic, powers, minimum and maximum of two numbers, conversions."""

from __future__ import annotations

import math
from typing import Any

import torch

from torcheer.autograd.rules.rule_table import Shape, rule


@rule("add")
def add(g: Any, a: Shape, b: Shape, alpha: Any = 1) -> Any:
    r"""$\bar a = \bar y$, $\bar b = \alpha\,\bar y$: a sum passes its gradient on to both, unchanged."""
    return g, g if alpha == 1 else g * alpha


@rule("sub")
def sub(g: Any, a: Shape, b: Shape, alpha: Any = 1) -> Any:
    r"""$\bar a = \bar y$, $\bar b = -\alpha\,\bar y$: the subtracted term gets the gradient with its sign changed."""
    return g, lambda: g * -alpha


@rule("rsub")
def rsub(g: Any, a: Shape, b: Shape, alpha: Any = 1) -> Any:
    r"""$\bar a = -\alpha\,\bar y$, $\bar b = \bar y$: this is b - a, as Python writes 1 - x."""
    return lambda: g * -alpha, g


@rule("mul", kept={"a": "b", "b": "a"})
def mul(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y \odot b$, $\bar b = \bar y \odot a$: each factor is scaled by the other one."""
    return lambda: g * b, lambda: g * a


@rule("div", kept={"a": "b"})
def div(g: Any, a: Any, b: Any, rounding_mode: Any = None) -> Any:
    r"""$\bar a = \bar y / b$, $\bar b = -\bar y \odot a / b^2$: a rounded quotient is flat, so its
    gradient is zero."""
    if rounding_mode is not None:
        return lambda: torch.zeros_like(g), lambda: torch.zeros_like(g)
    return lambda: g / b, lambda: -g * (a / b / b)


@rule("rdiv", kept={"b": "a"})
def rdiv(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = -\bar y \odot b / a^2$, $\bar b = \bar y / a$: this is b / a, as Python writes 1 / x."""
    return lambda: -g * (b / a / a), lambda: g / a


@rule("neg")
def neg(g: Any, x: Shape) -> Any:
    r"""$\bar x = -\bar y$: the gradient changes its sign as well."""
    return -g


@rule("clone", "positive", "contiguous", "conj", "conj_physical", "resolve_conj", "resolve_neg", "real")
def clone(g: Any, x: Shape, memory_format: Any = None) -> Any:
    r"""$\bar x = \bar y$: a copy has the same value, so it has the same gradient."""
    return g


@rule("pow", "float_power")
def pow(g: Any, y: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y \odot b\,a^{b-1}$, $\bar b = \bar y \odot y \log a$: for the exponent, $a^b = e^{b \log a}$."""
    if not isinstance(b, torch.Tensor):
        return lambda: torch.zeros_like(g) if b == 0 else g * (b * a ** (b - 1))
    to_base = lambda: g * torch.where(b == 0, 0.0, b * a ** torch.where(b == 0, 1.0, b - 1))  # noqa: E731
    return to_base, lambda: g * torch.where(y == 0, 0.0, y * _log(a))


def _log(base: Any) -> Any:
    """Logarithm of a base; 0 at zero, where the exponent does not change the power."""
    if isinstance(base, torch.Tensor):
        return torch.log(torch.where(base == 0, 1.0, base))
    return math.log(base) if base > 0 else math.nan if base < 0 else 0.0


@rule("atan2")
def atan2(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y\,b / (a^2 + b^2)$, $\bar b = -\bar y\,a / (a^2 + b^2)$: how the
    angle changes with each coordinate."""
    square = a * a + b * b
    square = square.masked_fill(square == 0, math.inf)  # at the origin the angle is undefined: no gradient
    return lambda: g * b / square, lambda: -g * a / square


@rule("hypot", kept={"a": "a", "b": "b"})
def hypot(g: Any, y: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y\,a / y$, $\bar b = \bar y\,b / y$: the hypotenuse grows by each side's share of it."""
    return lambda: g * (a / y), lambda: g * (b / y)


@rule("remainder", kept={"a": "b", "b": "b"})
def remainder(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y$, $\bar b = -\bar y \odot \lfloor a/b \rfloor$: the remainder follows a, less
    the whole quotient times b."""
    return g, lambda: -g * torch.div(a, b, rounding_mode="floor")


@rule("fmod", kept={"a": "b", "b": "b"})
def fmod(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y$, $\bar b = -\bar y \odot \text{trunc}(a/b)$: as remainder, but rounding towards zero."""
    return g, lambda: -g * torch.div(a, b, rounding_mode="trunc")


@rule("maximum")
def maximum(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y\,[a > b]$, $\bar b = \bar y\,[b > a]$: only the larger one gets the gradient;
    a tie is split in half."""
    shared = torch.where(a == b, g / 2, g)
    return lambda: shared.masked_fill(a < b, 0), lambda: shared.masked_fill(b < a, 0)


@rule("minimum")
def minimum(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y\,[a < b]$, $\bar b = \bar y\,[b < a]$: only the smaller one gets the gradient;
    a tie is split in half."""
    shared = torch.where(a == b, g / 2, g)
    return lambda: shared.masked_fill(a > b, 0), lambda: shared.masked_fill(b > a, 0)


@rule("fmax")
def fmax(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y\,[a \ge b]$, $\bar b = \bar y\,[a < b]$: as maximum, but a tie goes to the first."""
    first = (a >= b) | b.isnan()
    return lambda: g.masked_fill(~first, 0), lambda: g.masked_fill(first, 0)


@rule("fmin")
def fmin(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y\,[a \le b]$, $\bar b = \bar y\,[a > b]$: as minimum, but a tie goes to the first."""
    first = (a <= b) | b.isnan()
    return lambda: g.masked_fill(~first, 0), lambda: g.masked_fill(first, 0)


@rule("copysign")
def copysign(g: Any, y: Any, a: Any, b: Shape) -> Any:
    r"""$\bar a = \bar y \odot y / a$: the gradient changes sign where the value did; the sign is a step
    function, so $\bar b = 0$."""
    return lambda: g * torch.sign(a) * torch.sign(y), lambda: torch.zeros_like(g)


@rule("logaddexp")
def logaddexp(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y\,\sigma(a - b)$, $\bar b = \bar y\,\sigma(b - a)$: each by its share of the sum."""
    return lambda: g * torch.sigmoid(a - b), lambda: g * torch.sigmoid(b - a)


@rule("logaddexp2")
def logaddexp2(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y\,\sigma((a - b) \log 2)$, $\bar b = \bar y\,\sigma((b - a) \log 2)$: each by its share."""
    gap = (a - b) * math.log(2)
    return lambda: g * torch.sigmoid(gap), lambda: g * torch.sigmoid(-gap)


@rule("xlogy")
def xlogy(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y \log b$, $\bar b = \bar y\,a / b$: where $a = 0$ the result is zero for
    every b."""
    return lambda: torch.xlogy(g, b).masked_fill((a == 0) & (b <= 0), 0), lambda: g * (a / b)


@rule("special_xlog1py")
def xlog1py(g: Any, a: Any, b: Any) -> Any:
    r"""$\bar a = \bar y \log(1 + b)$, $\bar b = \bar y\,a / (1 + b)$: where $a = 0$ the result is
    zero for every b."""
    to_a = lambda: torch.special.xlog1py(g, b).masked_fill((a == 0) & (b <= -1), 0)  # noqa: E731
    return to_a, lambda: g * (a / (b + 1))


@rule("to", "type", "type_as", "float", "double", "half", "bfloat16", "cpu", "cuda", "_to_copy")
def to(g: Any, x: Shape, *args: Shape, **settings: Any) -> Any:
    r"""$\bar x = \bar y$: the same number in another dtype or on another device; its gradient is converted back."""
    return g.to(device=x.device, dtype=x.dtype)
