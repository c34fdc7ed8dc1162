"""What tests of recorded code have in common."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer import autograd


def leaf(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def assert_same_gradients(function: Any, *shapes: tuple[int, ...]) -> None:
    """Our gradients of a function of leaves equal torch's."""
    ours = [leaf(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    theirs = [one.detach().clone().requires_grad_() for one in ours]
    function(*theirs).backward()
    with autograd.record():
        function(*ours).backward()
    for mine, other in zip(ours, theirs):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-12, atol=1e-12)


def asking(*values: float) -> Tensor:
    """A leaf of these numbers."""
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-12) -> bool:
    """Whether a tracer holds the same numbers as a tensor."""
    return torch.allclose(ours.detach().as_subclass(Tensor), theirs, rtol=tolerance, atol=tolerance)
