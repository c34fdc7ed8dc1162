"""What sceptics tried: each of these was once wrong, or might have been."""

from __future__ import annotations

import gc
import io
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from autograd_checks import asking
from seams import node_of
from torch import Tensor, nn

from torcheer import autograd
from torcheer.errors import BadArgument, GraphFreed, NotTraced, RuleMistake, SavedValueChanged

# Hooks


def test_a_hook_registered_before_the_block_is_asked() -> None:
    w, done = asking(1.0, 2.0), []
    w.register_hook(lambda g: g * 10)
    w.register_post_accumulate_grad_hook(lambda one: done.append(one.grad.clone()))
    with autograd.record():
        (w * 1).sum().backward()
    assert w.grad.tolist() == [10, 10] and done[0].tolist() == [10, 10]


def test_a_hook_registered_inside_stays_with_a_leaf_and_a_model_can_be_saved() -> None:
    model = nn.Linear(2, 1)
    with autograd.record():
        handle = model.weight.register_hook(lambda g: g * 2)
        model(torch.ones(1, 2)).sum().backward()
        handle.remove()
    assert model.weight.grad.tolist() == [[2, 2]]
    torch.save(model, io.BytesIO())


def test_one_of_two_hooks_of_a_result_can_be_removed() -> None:
    x, seen = asking(1.0), []
    with autograd.record():
        h = x * 1
        first = h.register_hook(lambda g: seen.append("first"))
        h.register_hook(lambda g: seen.append("second"))
        first.remove()
        h.sum().backward()
    assert seen == ["second"]


def test_a_hook_that_removes_itself_lets_the_next_one_be_asked() -> None:
    x = asking(1.0)
    with autograd.record():
        h = x * 1
        handles: list[Any] = []
        handles.append(h.register_hook(lambda g: handles[0].remove()))
        h.register_hook(lambda g: g * 3)
        h.sum().backward()
    assert x.grad.tolist() == [3]


# Values that changed where nobody was looking


def test_an_optimizer_step_before_backward_is_noticed_through_a_view_too() -> None:
    w, x = nn.Parameter(torch.ones(2, 2)), torch.ones(1, 2, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    w.grad = torch.ones(2, 2)
    with autograd.record():
        h = (x @ w.T).sum()
        optimizer.step()
        with pytest.raises(SavedValueChanged, match="matmul"):
            h.backward()


@pytest.mark.parametrize("way", ["no_grad", "detach"])
def test_a_saved_value_written_to_unseen_is_noticed(way: str) -> None:
    x = asking(1.0, 2.0)
    with autograd.record():
        y = x * 2
        z = (y * y).sum()
        if way == "no_grad":
            with torch.no_grad():
                y.add_(1)
        else:
            y.detach().add_(1)
        with pytest.raises(SavedValueChanged):
            z.backward()


def test_what_no_rule_reads_may_be_changed() -> None:
    w, constant = asking(1.0, 2.0), torch.ones(2, dtype=torch.float64)
    with autograd.record():
        y = (w * 2).sum() + (torch.cat([w, constant]) * 1).sum()
        with torch.no_grad():
            w.add_(1)
        constant.zero_()
        y.backward()
    assert w.grad.tolist() == [3, 3]


def test_backward_from_a_view_that_was_overwritten_since() -> None:
    x = asking(1.0, 2.0)
    with autograd.record():
        whole = x * 1
        view = whole[0]
        whole.mul_(3)
        view.backward()
    assert x.grad.tolist() == [3, 0]


def test_backward_from_a_view_of_a_buffer_that_was_written_to() -> None:
    x = asking(1.0, 2.0)
    with autograd.record():
        buffer = torch.zeros(2, dtype=torch.float64)
        view = buffer[0]
        buffer.copy_(x)
        view.backward()
    assert x.grad.tolist() == [1, 0]


def test_a_view_with_gaps_can_be_written_to() -> None:
    x, w = asking(1.0, 2.0, 3.0, 4.0), asking(5.0)
    with autograd.record():
        every_other = x[::2].detach()
        tail = every_other[1:]
        tail.mul_(w)
        every_other.sum().backward()
    assert w.grad.tolist() == [3]


def test_writing_to_a_buffer_leaves_no_cycle() -> None:
    gc.collect()
    gc.disable()
    try:
        with autograd.record():
            x = asking(1.0)
            buffer = torch.zeros(3, dtype=torch.float64)
            buffer[0] = x.sum()
            buffer[1:].mul_(2)
            node = node_of(buffer)
            gone = weakref.ref(node)
            del node, buffer
            assert gone() is None
    finally:
        gc.enable()


# Gradients of their own


def test_a_gradient_returned_twice_is_two_gradients() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            return a + b

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            h = g * 2
            return h, h

    a, b = asking(1.0), asking(1.0)
    with autograd.record():
        Twice.apply(a, b).sum().backward()
    a.grad.zero_()
    assert b.grad.tolist() == [2]


def test_gradients_with_a_graph_can_be_clipped() -> None:
    x, y = asking(1.0, 2.0), asking(3.0, 4.0)
    with autograd.record():
        (x + y).sum().backward(create_graph=True)
        assert x.grad is not y.grad
        nn.utils.clip_grad_norm_([x, y], 0.5)
    assert torch.cat([x.grad, y.grad]).norm().item() == pytest.approx(0.5, rel=1e-4)


def test_the_gradient_given_to_backward_is_not_taken() -> None:
    x, given = asking(1.0), torch.ones(1, dtype=torch.float64)
    with autograd.record():
        y = x * 2
        y.backward(given)
    assert y.grad is not given


def test_a_second_backward_adds_where_the_gradient_lies() -> None:
    x = asking(1.0, 2.0)
    flat = torch.zeros(2, dtype=torch.float64)
    x.grad = flat
    with autograd.record():
        (x * 3).sum().backward()
    assert flat.tolist() == [3, 3]


def test_what_saved_nothing_may_be_gone_through_twice() -> None:
    a = asking(1.0)
    with autograd.record():
        c = (a + a) + (a + a)
        c.backward()
        c.backward()
    assert a.grad.item() == 8


# Numbers


def test_half_precision_divides_and_normalises_without_overflow() -> None:
    b = torch.tensor([300.0], dtype=torch.float16, requires_grad=True)
    big = torch.tensor([[300.0, -300, 600, -600]], dtype=torch.float16, requires_grad=True)
    with autograd.record():
        (1 / b).sum().backward()
        normal = F.layer_norm(big, (4,))
    assert b.grad.item() == pytest.approx(-1 / 90000, rel=0.1)
    torch.testing.assert_close(normal.detach(), F.layer_norm(big.detach(), (4,)))


def test_a_leaky_slope_is_exact_in_double_precision() -> None:
    x = asking(-1.0)
    with autograd.record():
        F.leaky_relu(x, 0.01).sum().backward()
    assert x.grad.item() == 0.01


@pytest.mark.parametrize(
    "loss", [F.cross_entropy, lambda x, t: F.mse_loss(x, x.detach() * 2), lambda x, t: F.layer_norm(x, (3,))]
)
def test_under_autocast_a_composite_has_the_type_that_torch_gives_it(loss: Any) -> None:
    x = torch.randn(2, 3, dtype=torch.bfloat16, requires_grad=True)
    target = torch.tensor([0, 1])
    with torch.autocast("cpu", torch.bfloat16):
        theirs = loss(x, target)
        with autograd.record():
            ours = loss(x, target)
            assert ours.requires_grad
    assert ours.dtype is theirs.dtype
    torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=2e-2, atol=1e-2)


def test_a_batch_of_ignored_targets_sends_zeros() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    with autograd.record():
        F.cross_entropy(x, torch.tensor([-100, -100])).backward()
    assert not x.grad.any()


# Torch code that has nothing to do with gradients


def test_a_data_loader_with_workers_runs_inside() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0).view(4, 2))
    with autograd.record():
        batches = [batch for (batch,) in torch.utils.data.DataLoader(data, batch_size=2, num_workers=1)]
    assert torch.equal(torch.cat(batches), data.tensors[0])


def test_out_is_only_refused_where_a_gradient_would_be_lost() -> None:
    with autograd.record():
        out = torch.zeros(2)
        torch.add(torch.ones(2), torch.ones(2), out=out)
        with pytest.raises(BadArgument, match="out"):
            torch.add(torch.ones(2, requires_grad=True), torch.ones(2), out=out)
    assert out.tolist() == [2, 2]


def test_two_results_of_a_function_in_another_default_type() -> None:
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Any:
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            return 2 * a + 3 * b

    torch.set_default_dtype(torch.float64)
    try:
        x = asking(1.0)
        with autograd.record():
            a, b = Both.apply(x)
            y = (a + b).sum()
            assert "Both" in str(autograd.explain(y))
            y.backward()
    finally:
        torch.set_default_dtype(torch.float32)
    assert x.grad.tolist() == [5]


def test_a_traced_result_can_be_saved_after_the_block() -> None:
    with autograd.record():
        y = asking(1.0) * 2
    file = io.BytesIO()
    torch.save(y, file)
    file.seek(0)
    again = torch.load(file)
    with autograd.record():
        assert not (again * 2).requires_grad


# What is refused


def test_a_scripted_function_is_refused() -> None:
    scripted = torch.jit.script(_doubled)
    before = torch._C.ScriptFunction.__call__
    with autograd.record():
        assert scripted(torch.ones(1)).item() == 2
        with pytest.raises(NotTraced, match="TorchScript"):
            scripted(asking(1.0) * 1)
    assert torch._C.ScriptFunction.__call__ is before


def _doubled(x: Tensor) -> Tensor:
    return x * 2


def test_numpy_of_a_traced_tensor_asks_for_detach() -> None:
    with autograd.record():
        y = asking(1.0) * 2
        with pytest.raises(NotTraced, match="detach"):
            y.numpy()
        assert y.detach().numpy().tolist() == [2]


def test_borrowing_does_not_lose_complex_results() -> None:
    with autograd.record(borrow=True), pytest.raises(BadArgument, match="complex"):
        torch.fft.rfft(asking(1.0, 2.0))


def test_too_few_gradients_are_told() -> None:
    class Few(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            return a + b

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g

    with autograd.record(), pytest.raises(RuleMistake, match="1 gradients for 2 arguments"):
        Few.apply(asking(1.0), asking(2.0)).sum().backward()


def test_requires_grad_cannot_be_taken_from_a_result() -> None:
    with autograd.record():
        y = asking(1.0) * 2
        with pytest.raises(BadArgument, match="detach"):
            y.requires_grad_(False)
        with pytest.raises(BadArgument, match="detach"):
            y.requires_grad = False


def test_showing_a_freed_graph_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with autograd.record():
        y = asking(1.0).exp().sum()
        y.backward()
        with pytest.raises(GraphFreed):
            autograd.backward(y, show=True)


def test_wrong_numbers_of_gradients_and_wrong_types_are_told() -> None:
    with autograd.record():
        y = asking(1.0) * 2
        with pytest.raises(BadArgument, match="2 gradients were given for 1"):
            autograd.grad(y, y, [torch.ones(1), torch.ones(1)])
        with pytest.raises(BadArgument, match="int"):
            autograd.explain(3)
    with pytest.raises(BadArgument, match="tuple"):
        autograd.jacobian(lambda x: (x, x), torch.ones(1))


def test_a_function_that_ignores_its_input_has_a_gradient_of_zero() -> None:
    assert autograd.gradcheck(lambda x: torch.ones(2, dtype=torch.float64), torch.ones(2), show=False)
    assert not autograd.hessian(lambda x: torch.ones(()), torch.ones(2)).any()


def test_a_module_can_be_checked() -> None:
    assert autograd.gradcheck(nn.Linear(2, 2), torch.randn(1, 2), show=False)


def test_the_pieces_of_a_cat_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = asking(1.0, 2.0), asking(3.0)
    with autograd.record():
        autograd.backward((torch.cat([a * 1, b * 1]) * 2).sum(), show=True)
    assert "cat()     (3) → (2), (1)" in capsys.readouterr().out
