"""Code that writes in place means what it means written functionally."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from autograd_checks import assert_same_gradients, leaf
from torch import Tensor, nn

from torcheer import autograd
from torcheer.errors import LeafWritten, SavedValueChanged


def in_place(a: Tensor, b: Tensor) -> Tensor:
    h = a * 1
    e = h.exp()  # its rule reads its own result
    s = h * b  # its rule reads h
    h += b
    h[0] = b[1]
    row = h[1]
    row *= 2
    h[:, 1:].clamp_(max=1.0)
    return (h * e + s + row).sum()


def test_in_place_code_means_what_it_means_written_functionally() -> None:
    def functional(a: Tensor, b: Tensor) -> Tensor:
        h = a * 1
        e, s = h.exp(), h * b
        h = h + b
        h = torch.stack([b[1], h[1] * 2])
        h = torch.cat([h[:, :1], h[:, 1:].clamp(max=1.0)], 1)
        return (h * e + s + h[1]).sum()

    ours, theirs = (leaf(2, 3, seed=1), leaf(2, 3, seed=2)), (leaf(2, 3, seed=1), leaf(2, 3, seed=2))
    functional(*theirs).backward()
    with autograd.record():
        in_place(*ours).backward()
    for mine, other in zip(ours, theirs):
        torch.testing.assert_close(mine.grad, other.grad)


def test_a_view_taken_before_a_write_sees_it() -> None:
    def function(x: Tensor) -> Tensor:
        buffer = torch.zeros(3, dtype=torch.float64)
        view = buffer[1:]
        buffer[1] = x.sum()
        return (view * view).sum()

    assert_same_gradients(function, (2,))


def test_filling_a_buffer_step_by_step_is_traced() -> None:
    def function(x: Tensor) -> Tensor:
        out = torch.zeros(4, 2, dtype=torch.float64)
        for step in range(4):
            out[step] = x * step
        return out.square().sum()

    assert_same_gradients(function, (2,))


def test_a_value_that_is_overwritten_with_zeros_sends_nothing() -> None:
    def function(x: Tensor) -> Tensor:
        h = x * 2
        y = h * h
        h.zero_()
        return (y + h).sum()

    x = leaf(3)
    with autograd.record():
        function(x).backward()
    torch.testing.assert_close(x.grad, 8 * x.detach())


def test_relu_by_keyword_is_relu() -> None:
    assert_same_gradients(lambda x: F.relu(input=x * 2).sum() + F.relu(x * 3, True).sum(), (5,))


def test_inplace_modules_train_as_the_others() -> None:
    def function(x: Tensor) -> Tensor:
        h = nn.ReLU(inplace=True)(x * 2)
        h = F.dropout(h, 0.0, inplace=True)
        return F.leaky_relu_(h - 0.5, 0.1).sum()

    assert_same_gradients(function, (5,))


def test_writing_to_a_leaf_says_what_to_do() -> None:
    with autograd.record(), pytest.raises(LeafWritten, match=r"x = x \+"):
        leaf(2).add_(1)


def test_a_constant_that_was_changed_before_backward_is_noticed() -> None:
    x, mask = leaf(2), torch.ones(2, dtype=torch.float64)
    with autograd.record():
        y = (x * mask).sum()
        mask.zero_()
        with pytest.raises(SavedValueChanged, match="changed between"):
            y.backward()
