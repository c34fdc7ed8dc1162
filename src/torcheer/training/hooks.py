"""Hooks on gradients: what is called with a parameter's name and returns what torch calls with its gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torcheer.errors import BadArgument, TorcheerError

Hook = Callable[[Tensor], Tensor | None]


class NotFinite(TorcheerError, FloatingPointError):
    """A gradient that is not a number."""


def install(model: nn.Module, make_hook: Callable[[str], Hook | None]) -> list[Any]:
    """Hook every parameter that is trained; each result's `remove()` undoes one.

    A maker that returns None leaves the parameter alone.
    """
    trained: list[tuple[str, Any]] = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    found = [(parameter, make_hook(name)) for name, parameter in trained]
    return [parameter.register_hook(hook) for parameter, hook in found if hook is not None]


class PrintGradientNorm:
    """Prints the norm of each gradient, every so many backward passes: to print is to wait for the GPU."""

    def __init__(self, every: int = 100) -> None:
        self.every = positive(every)

    def __call__(self, name: str) -> Hook:
        return Counted(self.every, lambda gradient: print(f"gradient of {name}: {float(gradient.norm()):.4g}"))


class StopOnNaN:
    """Stops the training at a gradient that is not a number, looking at every so many backward passes."""

    def __init__(self, every: int = 1) -> None:
        self.every = positive(every)

    def __call__(self, name: str) -> Hook:
        def look(gradient: Tensor) -> None:
            if bool(gradient.isnan().any()):
                raise NotFinite(f"the gradient of {name} is not a number: a smaller learning rate or clipping may help")

        return Counted(self.every, look)


class GradientNoise:
    """Adds random numbers of a standard deviation to each gradient."""

    def __init__(self, std: float) -> None:
        self.std = std

    def __call__(self, name: str) -> Hook:
        return lambda gradient: gradient + self.std * torch.randn_like(gradient)


class Counted:
    """A hook that acts on one of so many gradients."""

    def __init__(self, every: int, act: Callable[[Tensor], None]) -> None:
        self._every, self._act, self._seen = every, act, 0

    def __call__(self, gradient: Tensor) -> None:
        self._seen += 1
        if self._seen % self._every == 0:
            self._act(gradient)


def positive(every: int) -> int:
    """A number of gradients, or why it is none."""
    if every < 1:
        raise BadArgument(f"every={every}: a hook acts on every gradient, 1, or on fewer")
    return every
