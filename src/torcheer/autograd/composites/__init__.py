"""Operations built from simpler ones; each runs as its parts, which can be read.

Each takes the arguments of torch's function of the same name. Users add their own with `composite`.
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
