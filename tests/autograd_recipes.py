"""Recipes for tensors, and calls made of them: what `autograd_samples.py` is written in.

`x(2, 3)` is a float tensor that asks for a gradient, `x(2, 3).t` the same with its memory in another order and
`x(2, 3).s` with gaps in it, `ints(5, 4)` four whole numbers below five.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Fresh:
    """A recipe for a float tensor."""

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    layout: str = ""
    change: Callable[[Tensor], Tensor] | None = None

    @property
    def t(self) -> Fresh:
        """Of the same shape, but its memory runs along the first axis."""
        return replace(self, layout="t")

    @property
    def s(self) -> Fresh:
        """Every second entry of something larger."""
        return replace(self, layout="s")

    def make(self, random: torch.Generator, dtype: torch.dtype) -> Tensor:
        """A tensor of its own, in this layout, that asks for a gradient."""
        value = torch.rand(self.shape, generator=random, dtype=torch.float64) * (self.high - self.low) + self.low
        value = (value if self.change is None else self.change(value)).to(dtype)
        if self.layout == "t":
            value = value.transpose(0, -1).contiguous().transpose(0, -1)
        elif self.layout == "s":
            value = torch.stack([value, value], -1)[..., 0]
        return value.requires_grad_()


class Fixed(NamedTuple):
    """A recipe for a tensor that asks for nothing."""

    make: Callable[[torch.Generator, torch.dtype], Tensor]


class Sample(NamedTuple):
    """One call."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def made(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[list[Tensor], Callable[..., Any]]:
        """Its fresh tensors, and the call as a function of them."""
        random = torch.Generator().manual_seed(seed)
        tensors: list[Tensor] = []

        def build(value: Any) -> Any:
            if isinstance(value, Fresh):
                tensors.append(value.make(random, dtype))
                return len(tensors) - 1, Fresh
            if isinstance(value, Fixed):
                return value.make(random, dtype)
            return [build(one) for one in value] if isinstance(value, list) else value

        def fill(value: Any, given: Any) -> Any:
            if isinstance(value, tuple) and len(value) == 2 and value[1] is Fresh:
                return given[value[0]]
            return [fill(one, given) for one in value] if isinstance(value, list) else value

        args, kwargs = [build(one) for one in self.args], {name: build(one) for name, one in self.kwargs.items()}

        def call(*given: Tensor) -> Any:
            torch.default_generator.manual_seed(seed)
            return self.call(*[fill(one, given) for one in args], **{n: fill(one, given) for n, one in kwargs.items()})

        return tensors, call


def x(*shape: int) -> Fresh:
    return Fresh(shape)


def p(*shape: int) -> Fresh:  # positive
    return Fresh(shape, 0.3, 2.0)


def u(*shape: int) -> Fresh:  # between -1 and 1
    return Fresh(shape, -0.9, 0.9)


def matrix(*shape: int) -> Fresh:  # with an inverse
    return Fresh(shape, change=lambda value: value + 4 * torch.eye(shape[-1], dtype=value.dtype))


def ints(high: int, *shape: int) -> Fixed:
    return Fixed(lambda random, dtype: torch.randint(high, shape, generator=random))


def exactly(*values: Any) -> Fixed:
    return Fixed(lambda random, dtype: torch.tensor(values[0] if len(values) == 1 else values))


def floats(*shape: int) -> Fixed:
    return Fixed(lambda random, dtype: torch.rand(shape, generator=random, dtype=torch.float64).to(dtype))


def mask(*shape: int) -> Fixed:
    return Fixed(lambda random, dtype: torch.rand(shape, generator=random) > 0.5)


def places(*shape: int) -> Fixed:
    return Fixed(lambda random, dtype: torch.arange(math.prod(shape)).view(shape))


def signs(*shape: int) -> Fixed:
    return Fixed(lambda random, dtype: torch.randint(2, shape, generator=random).to(dtype) * 2 - 1)


def S(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Sample:
    return Sample(call, args, kwargs)
