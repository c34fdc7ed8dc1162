"""Operations that are made of others: run as their parts, so that each part can be read.

Every one takes the arguments of torch's function of the same name. With `composite` a user adds another.
"""

from torcheer.autograd.composites import (  # fmt: skip
    algebra,
    attention,
    composed_activations,
    distances,
    einsum,
    extremes,
    grid_sampling,
    loss_functions,
    margin_losses,
    norms,
    pooling,
    recurrent,
    scalar_functions,
    splitting,
)

__all__ = [
    "algebra",
    "attention",
    "composed_activations",
    "distances",
    "einsum",
    "extremes",
    "grid_sampling",
    "loss_functions",
    "margin_losses",
    "norms",
    "pooling",
    "recurrent",
    "scalar_functions",
    "splitting",
]  # fmt: skip
