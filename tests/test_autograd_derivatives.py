"""Gradients of gradients."""

from __future__ import annotations

import pytest
import torch
from autograd_checks import assert_same_gradients, leaf
from torch import Tensor

from torcheer import autograd
from torcheer.errors import NotTraced


def test_a_gradient_penalty_trains() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        y = torch.tanh(x @ w).sum()
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        return slope.square().sum() + y

    assert_same_gradients(function, (2, 3), (3, 3))


def test_hessian_and_jvp_equal_torchs() -> None:
    x, v = leaf(4).detach(), leaf(4, seed=1).detach()

    def function(x: Tensor) -> Tensor:
        return (x.sin() * x.prod()).sum() + (x * x).sum().sqrt()

    torch.testing.assert_close(autograd.hessian(function, x), torch.autograd.functional.hessian(function, x))
    ours = autograd.jvp(lambda x: torch.softmax(x, 0), x, v)
    theirs = torch.func.jvp(lambda x: torch.softmax(x, 0), (x,), (v,))
    torch.testing.assert_close(ours, theirs)


def test_third_order_comes_by_itself() -> None:
    x = leaf(1)
    with autograd.record():
        y = x.sin()
        for _ in range(3):
            (y,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
    torch.testing.assert_close(y.detach(), -x.detach().cos())


def test_an_unused_input_is_told_or_none() -> None:
    a, b = leaf(2), leaf(2)
    with autograd.record():
        y = (a * 2).sum()
        with pytest.raises(NotTraced, match="input 1"):
            torch.autograd.grad(y, [a, b], retain_graph=True)
        assert torch.autograd.grad(y, [a, b], allow_unused=True)[1] is None
