"""Operations that are made of others: run as their parts, so that each part can be read.

Every one takes the arguments of torch's function of the same name. With `composite` a user adds another.
"""

from torcheer.autograd.composites import (
    activations,
    algebra,
    attention,
    choices,
    distances,
    einsum,
    losses,
    margins,
    norms,
    numbers,
    pieces,
    pooling,
    recurrent,
    sampling,
)  # fmt: skip

__all__ = [
    "activations", "algebra", "attention", "choices", "distances", "einsum", "losses", "margins", "norms", "numbers",
    "pieces", "pooling", "recurrent", "sampling",
]  # fmt: skip
