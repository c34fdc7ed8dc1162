"""One number for how far an answer is from its target."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from torcheer.autograd.base import Operator
from torcheer.errors import WrongInputs


class Loss(Operator):
    """Compares what a model says with what it should say, entry by entry."""

    def __call__(self, x: Any, target: Any) -> Any:
        if torch.broadcast_shapes(x.shape, target.shape) != x.shape:
            raise WrongInputs(
                f"{self}: the target has shape {tuple(target.shape)}, the answer {tuple(x.shape)}, and to compare each "
                f"with each is hardly meant. Give the target the answer's shape, as with target.view{tuple(x.shape)}"
            )
        return super().__call__(x, target)


class MSE(Loss):
    r"""$\overline{(x - t)^2}$: far misses count most."""

    _name = "Mean Square Loss"

    def forward(self, x: Any, target: Any) -> Any:
        """Square the misses."""
        return ((x - target) ** 2).mean()


class Huber(Loss):
    r"""$\tfrac12 d^2$ for misses $d$ up to $\delta$, then a straight line: far misses pull, but no harder."""

    _name = "Huber Loss"

    def __init__(self, delta: float = 1.0) -> None:
        self.delta = delta

    def forward(self, x: Any, target: Any) -> Any:
        """Square small misses, count large ones."""
        miss = (x - target).abs()
        return torch.where(miss <= self.delta, miss**2 / 2, self.delta * (miss - self.delta / 2)).mean()


class BCE(Loss):
    r"""$-t \log x - (1 - t) \log(1 - x)$ for a chance $x$: how surprised it was."""

    _name = "Binary Cross Entropy"

    def forward(self, x: Any, target: Any) -> Any:
        """Ask chances."""
        return functional.binary_cross_entropy(x, target.expand(x.shape))


class BCEWithLogits(Loss):
    r"""The same for scores: $x$ is taken through a sigmoid first, safely."""

    _name = "Binary Cross Entropy of scores"

    def forward(self, x: Any, target: Any) -> Any:
        """Ask scores."""
        return functional.binary_cross_entropy_with_logits(x, target.expand(x.shape))


class CrossEntropy(Operator):
    r"""$-\log \text{softmax}(x)_t$: how surprised the scores of classes were by the class that it was."""

    _name = "Cross Entropy"

    def forward(self, x: Any, target: Any) -> Any:
        """Scores (N, classes, …) against class numbers (N, …), or against shares of the scores' own shape."""
        return functional.cross_entropy(x, target)
