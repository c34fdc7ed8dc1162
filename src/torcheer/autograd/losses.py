"""Losses in torchtrace's style: how far a prediction is from its target."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from torcheer.autograd.base import Operator
from torcheer.errors import WrongInputs
from torcheer.terminal import met_difference


class Loss(Operator):
    """A loss that compares a prediction with a target of the same shape, entry by entry."""

    ends_chain = True

    def __call__(self, x: Any, target: Any) -> Any:
        if torch.broadcast_shapes(x.shape, target.shape) != x.shape:
            raise WrongInputs(
                f"{self}: the target has shape {tuple(target.shape)}, the answer {tuple(x.shape)}, and to compare each "
                f"with each is hardly meant. Give the target the answer's shape, as with target.view{tuple(x.shape)}"
            )
        return super().__call__(x, target)


class MSE(Loss):
    r"""$\overline{(x - t)^2}$: large errors count most."""

    _name = "Mean Square Loss"

    def forward(self, x: Any, target: Any) -> Any:
        """Return the mean squared error."""
        met_difference("torchtrace", "loss shape")
        return ((x - target) ** 2).mean()


class Huber(Loss):
    r"""$\tfrac12 d^2$ for errors $d$ up to $\delta$, then a straight line: large errors count linearly.

    - `delta`: the error from which on it counts linearly.
    """

    _name = "Huber Loss"

    def __init__(self, delta: float = 1.0) -> None:
        self.delta = delta

    def forward(self, x: Any, target: Any) -> Any:
        """Return the mean of squared small errors and linear large ones."""
        error = (x - target).abs()
        return torch.where(error <= self.delta, error**2 / 2, self.delta * (error - self.delta / 2)).mean()


class BCE(Loss):
    r"""$-t \log x - (1 - t) \log(1 - x)$ for a probability $x$: the negative log-likelihood of the target."""

    _name = "Binary Cross Entropy"

    def forward(self, x: Any, target: Any) -> Any:
        """Return the mean loss of probabilities."""
        return functional.binary_cross_entropy(x, target.expand(x.shape))


class BCEWithLogits(Loss):
    r"""Binary cross entropy of logits: $x$ goes through a sigmoid first, in a stable form."""

    _name = "Binary Cross Entropy of scores"

    def forward(self, x: Any, target: Any) -> Any:
        """Return the mean loss of logits."""
        return functional.binary_cross_entropy_with_logits(x, target.expand(x.shape))


class CrossEntropy(Operator):
    r"""$-\log \text{softmax}(x)_t$: the negative log-probability of the target class."""

    _name = "Cross Entropy"
    ends_chain = True

    def forward(self, x: Any, target: Any) -> Any:
        """Return the mean loss.

        The scores are (N, classes, …), the target class numbers (N, …) or probabilities of the scores' shape.
        """
        return functional.cross_entropy(x, target)
