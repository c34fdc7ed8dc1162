"""Gradient hooks: a maker takes a parameter's name and returns the hook that torch calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torcheer.errors import BadArgument, TorcheerError

Hook = Callable[[Tensor], Tensor | None]


class NotFinite(TorcheerError, FloatingPointError):
    """A gradient is NaN."""


def install(model: nn.Module, make_hook: Callable[[str], Hook | None]) -> list[Any]:
    """Hook every parameter that is trained; each result's `remove()` undoes one.

    A maker that returns None leaves the parameter alone.
    """
    trained: list[tuple[str, Any]] = [
        (name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad
    ]
    hooks = [(parameter, make_hook(name)) for name, parameter in trained]
    return [parameter.register_hook(hook) for parameter, hook in hooks if hook is not None]


class PrintGradientNorm:
    """Print the norm of each gradient every n backward passes: printing waits for the GPU."""

    def __init__(self, every: int = 100) -> None:
        self.every = positive(every)

    def __call__(self, name: str) -> Hook:
        return Counted(self.every, lambda gradient: print(f"gradient of {name}: {float(gradient.norm()):.4g}"))


class StopOnNaN:
    """Stop training at a NaN gradient, checked every n backward passes."""

    def __init__(self, every: int = 1) -> None:
        self.every = positive(every)

    def __call__(self, name: str) -> Hook:
        def check(gradient: Tensor) -> None:
            if bool(gradient.isnan().any()):
                raise NotFinite(f"the gradient of {name} is not a number: a smaller learning rate or clipping may help")

        return Counted(self.every, check)


class GradientNoise:
    """Add Gaussian noise of standard deviation `std` to each gradient."""

    def __init__(self, std: float) -> None:
        self.std = std

    def __call__(self, name: str) -> Hook:
        return lambda gradient: gradient + self.std * torch.randn_like(gradient)


class Counted:
    """A hook that acts on every n-th gradient."""

    def __init__(self, every: int, act: Callable[[Tensor], None]) -> None:
        self._every, self._act, self._count = every, act, 0

    def __call__(self, gradient: Tensor) -> None:
        self._count += 1
        if self._count % self._every == 0:
            self._act(gradient)


def positive(every: int) -> int:
    """Return `every`; raise where it is below 1."""
    if every < 1:
        raise BadArgument(f"every={every}: a hook acts on every gradient, 1, or on fewer")
    return every
