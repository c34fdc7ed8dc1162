"""What a second round of sceptics tried: writes, freezing, hooks and states that overlap."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from autograd_checks import asking, assert_same_gradients
from torch import Tensor, nn

from torcheer import autograd
from torcheer.errors import SavedValueChanged

# Writes


def test_a_result_that_was_written_to_and_is_still_held_counts_once() -> None:
    def function(x: Tensor) -> Tensor:
        h = x * 1
        h += 1
        function.held = h  # type: ignore[attr-defined]
        return (h + h * h).sum()

    assert_same_gradients(function, (3,))


def test_a_net_that_adds_in_place_and_returns_its_features() -> None:
    torch.manual_seed(0)
    one, two = nn.Linear(3, 3).double(), nn.Linear(3, 3).double()

    def function(x: Tensor) -> Tensor:
        features = []
        for layer in (one, two):
            y = layer(torch.relu(x))
            y += x
            features.append(y)
            x = y
        return sum(feature.square().sum() for feature in features)

    assert_same_gradients(function, (2, 3))


def test_the_gradient_of_a_written_result_is_that_of_what_it_became() -> None:
    x = asking(1.0)
    with autograd.record():
        h = x * 2
        h.mul_(3)
        (h * 5).sum().backward()
    assert h.grad.item() == 5 and x.grad.item() == 30


def test_writing_through_a_view_made_before_its_whole_was_traced() -> None:
    def function(x: Tensor) -> Tensor:
        buffer = torch.zeros(2, 3, dtype=torch.float64)
        row = buffer[0]
        buffer.add_(x)
        row[0] = 0.0
        return buffer.sum()

    assert_same_gradients(function, (3,))


def test_a_frozen_parameter_that_is_written_to_is_traced() -> None:
    def function(x: Tensor) -> Tensor:
        memory = nn.Parameter(torch.zeros(3, dtype=torch.float64), requires_grad=False)
        memory.copy_(x)
        return (memory * memory).sum() + x.sum()

    assert_same_gradients(function, (3,))


def test_an_unseen_write_is_not_forgotten_by_a_seen_one() -> None:
    x = asking(1.0)
    with autograd.record():
        y = x * 1
        z = y.sin()
        with torch.no_grad():
            y.add_(1)
        y.mul_(2)
        with pytest.raises(SavedValueChanged):
            z.sum().backward()


def test_a_piece_of_fewer_axes_takes_its_gradient() -> None:
    def function(x: Tensor) -> Tensor:
        h = torch.zeros(2, 3, dtype=torch.float64)
        h[0] = x
        return h.sum()

    assert_same_gradients(function, (1, 3))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * g


def test_what_a_custom_function_saved_and_was_overwritten_is_noticed() -> None:
    x = asking(2.0)
    with autograd.record():
        h = x * 1
        y = Square.apply(h)
        h.mul_(3)
        with pytest.raises(SavedValueChanged, match="Square"):
            (y.sum() + h.sum()).backward()


# Asking, and no longer


def test_who_asks_is_decided_when_the_operation_runs() -> None:
    """As in training a GAN: the critic is frozen for one loss and not for the other."""
    grads = []
    for ours in (False, True):
        torch.manual_seed(0)
        critic, fake = nn.Linear(3, 1).double(), torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
        with autograd.record() if ours else torch.enable_grad():
            critic.requires_grad_(False)
            first = critic(fake).mean()
            critic.requires_grad_(True)
            (first + critic(fake.detach()).mean()).backward()
        grads.append([critic.weight.grad, fake.grad])
    for one, two in zip(*grads):
        torch.testing.assert_close(one, two)


def test_a_constant_that_asks_later_was_a_constant() -> None:
    x, w = asking(1.0, 2.0), torch.ones(1, 2, dtype=torch.float64)
    with autograd.record():
        y = F.linear(x * 2, w)
        w.requires_grad_()
        y.sum().backward()
    assert w.grad is None and x.grad.tolist() == [2, 2]


def test_arguments_are_kept_as_they_were() -> None:
    x, rows, dims, k = torch.ones(3, 2, requires_grad=True), [0, 1], [0], torch.tensor(0)
    with autograd.record():
        y = x[rows].sum() + x.flip(dims).sum(dims)[0] + x[k : k + 1].sum()
        rows[0], dims[0] = 2, 1
        k += 2
        y.backward()
    assert x.grad.tolist() == [[3, 2], [2, 1], [1, 0]]


# Gradients that others hold


def test_what_a_hook_keeps_is_not_changed_by_the_next_backward() -> None:
    x, seen = asking(1.0, 2.0), []
    x.register_hook(seen.append)
    with autograd.record():
        (x * x).sum().backward()
        (x * x).sum().backward()
        x.grad.zero_()
    assert [one.tolist() for one in seen] == [[2, 4], [2, 4]]


def test_what_a_custom_backward_returns_stays_its_own() -> None:
    keep = torch.ones(1, dtype=torch.float64)

    class Constant(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return keep

    x = asking(1.0)
    with autograd.record():
        for _ in range(3):
            Constant.apply(x).sum().backward()
    assert keep.item() == 1 and x.grad.item() == 3


def test_operations_that_saved_nothing_may_be_shared_by_two_backwards() -> None:
    x = asking(1.0, 2.0)
    with autograd.record():
        shared = x[:1].unsqueeze(0).transpose(0, 1).sum(0)
        shared.sum().backward()
        (shared * 2).sum().backward()
    assert x.grad.tolist() == [3, 0]


# States that overlap


def test_an_optimizer_inside_an_optimizer_in_nested_blocks() -> None:
    class Outer(torch.optim.SGD):
        def __init__(self, parameters: Any, inner: Any) -> None:
            super().__init__(parameters, lr=0.0)
            self.inner = inner

        def step(self, closure: Any = None) -> None:
            self.inner.step()

    w = asking(1.0)
    optimizer = Outer([w], torch.optim.SGD([w], lr=1.0))
    with autograd.record(), autograd.record():
        (w * 2).sum().backward()
        optimizer.step()
        y = (w * 3).sum()
        assert y.requires_grad
    assert w.item() == -1 and torch._C._len_torch_function_stack() == 0


def test_blocks_that_end_in_another_order_leave_the_compiler_as_it_was() -> None:
    import torch._dynamo

    before = torch._dynamo.eval_frame._stance.stance
    first, second = autograd.record(), autograd.record()
    first.__enter__()
    second.__enter__()
    assert torch._dynamo.eval_frame._stance.stance == "force_eager"
    second.__exit__(None, None, None)
    first.__exit__(None, None, None)
    assert torch._dynamo.eval_frame._stance.stance == before
