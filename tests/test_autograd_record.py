"""Ordinary torch code inside `record()`: what is recorded, what is left alone, what torch answers."""

from __future__ import annotations

import copy
import gc
import io
import threading
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from autograd_checks import assert_same_gradients, leaf
from torch import Tensor, nn
from torch.optim.optimizer import _global_optimizer_pre_hooks

from torcheer import autograd
from torcheer.errors import BadArgument, GraphFreed, NotTraced


def small_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 3))


# Torch's own autograd


def test_no_grad_fn_exists_anywhere_and_torchs_engine_is_never_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    def entered(*_: Any, **__: Any) -> None:
        raise AssertionError("torch's backward engine was entered")

    monkeypatch.setattr(torch.autograd.graph, "_engine_run_backward", entered)
    monkeypatch.setattr(torch.autograd, "_engine_run_backward", entered)
    model = small_net()
    optimizer = torch.optim.Adam(model.parameters())
    kept: list[Any] = []
    before = [thing for thing in gc.get_objects() if isinstance(thing, Tensor)]  # other tests' may have theirs
    with autograd.record():
        for _ in range(2):
            hidden = model[0](torch.randn(5, 4))
            loss = F.cross_entropy(model[1:](hidden), torch.tensor([0, 1, 2, 0, 1]))
            loss.backward(create_graph=True)
            kept += [hidden, loss, *[parameter.grad for parameter in model.parameters()]]
            optimizer.step()
            optimizer.zero_grad()
    known = set(map(id, before))
    tensors = [one for one in gc.get_objects() if isinstance(one, Tensor) and id(one) not in known] + kept
    assert len(tensors) > 30
    with torch._C.DisableTorchFunction():
        assert [one for one in tensors if one.grad_fn is not None] == []


def test_torch_is_as_it_was_found_afterwards_and_after_an_error() -> None:
    names = {
        (place, name): vars(place)[name]
        for place in (nn.Module, torch.autograd.Function, Tensor)
        for name in vars(place)
    }
    hooks = dict(_global_optimizer_pre_hooks)
    with autograd.record():
        assert nn.Module._call_impl is not names[nn.Module, "_call_impl"]
    with pytest.raises(ZeroDivisionError), autograd.record():
        small_net()(torch.randn(2, 4)).sum().backward()
        1 / 0  # noqa: B018
    assert [name for name, thing in names.items() if vars(name[0])[name[1]] is not thing] == []
    assert dict(_global_optimizer_pre_hooks) == hooks
    assert torch._C._len_torch_function_stack() == 0
    assert torch.is_grad_enabled()


def test_torchs_own_backward_works_again_afterwards() -> None:
    with autograd.record():
        pass
    x = leaf(3)
    (x * x).sum().backward()
    assert torch.equal(x.grad, 2 * x.detach())


def test_another_thread_is_left_alone() -> None:
    found = []

    def work() -> None:
        x = leaf(2)
        found.append((x * 2).grad_fn)

    with autograd.record():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found[0] is not None


# Graphs of any form


def test_a_tensor_used_twice_gets_both_gradients() -> None:
    assert_same_gradients(lambda a: (a.exp() * a.sin() + a).sum(), (3, 2))


def test_doubling_twice_needs_an_order_and_not_recursion() -> None:
    assert_same_gradients(lambda a: ((a + a) + (a + a)).sum(), (1,))


def test_a_layer_used_twice_gets_both_gradients() -> None:
    assert_same_gradients(lambda x, w: F.linear(torch.tanh(F.linear(x, w)), w).square().sum(), (2, 3), (3, 3))


def test_broadcasting_is_summed() -> None:
    assert_same_gradients(lambda a, b: (a * b + b).sum(), (4, 1, 3), (2, 1))


def test_a_chain_of_twenty_thousand_operations_needs_no_recursion() -> None:
    x = torch.ones((), dtype=torch.float64, requires_grad=True)
    with autograd.record():
        y = x
        for _ in range(20_000):
            y = y * 1.0
        y.backward()
    del y
    assert x.grad == 1


def test_gradients_accumulate_over_backwards() -> None:
    x = leaf(3)
    with autograd.record():
        x.sum().backward()
        (2 * x).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 3.0, dtype=torch.float64))


def test_two_leaves_do_not_share_one_gradient() -> None:
    a, b = leaf(2), leaf(2)
    with autograd.record():
        (a + b).sum().backward()
    a.grad.zero_()
    assert torch.equal(b.grad, torch.ones(2, dtype=torch.float64))


def test_a_gradient_can_be_written_to() -> None:
    a = leaf(2, 3)
    with autograd.record():
        a.sum().backward()
    a.grad[0, 0] = 7  # not a view of one number
    assert a.grad.sum() == 12


def test_every_intermediate_gradient_can_be_read_inside_and_afterwards() -> None:
    x = leaf(3)
    with autograd.record():
        h = x * x
        h.sin().sum().backward()
        inside = h.grad
    torch.testing.assert_close(inside, torch.cos(x.detach() ** 2))
    assert h.grad is inside


def test_a_second_backward_says_what_to_do() -> None:
    x = leaf(2)
    with autograd.record():
        y = x.exp().sum()
        y.backward()
        with pytest.raises(GraphFreed, match="retain_graph=True"):
            y.backward()


def test_retain_graph_lets_backward_run_again() -> None:
    x = leaf(2)
    with autograd.record():
        y = x.exp().sum()
        y.backward(retain_graph=True)
        y.backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().exp())


def test_backward_from_many_numbers_says_what_to_do() -> None:
    with autograd.record():
        with pytest.raises(BadArgument, match=r"shape \(3,\).*\.sum\(\)"):
            (leaf(3) * 2).backward()


def test_a_gradient_to_start_with_may_be_given() -> None:
    assert_same_gradients(lambda a: _WithGradient(a * a), (3,))


class _WithGradient:
    def __init__(self, y: Tensor) -> None:
        self.y = y

    def backward(self) -> None:
        self.y.backward(torch.arange(3, dtype=torch.float64))


def test_backward_of_something_untraced_says_why() -> None:
    with autograd.record(), pytest.raises(NotTraced, match="record"):
        torch.ones(1).backward()


def test_only_the_asked_inputs_get_a_gradient() -> None:
    a, b = leaf(2), leaf(2)
    with autograd.record():
        (a * b).sum().backward(inputs=[a])
    assert a.grad is not None and b.grad is None


# Switching off


def test_nothing_is_recorded_under_no_grad() -> None:
    x = leaf(2)
    with autograd.record():
        with torch.no_grad():
            y = x * 2
            with torch.enable_grad():
                z = x * 3
        assert not y.requires_grad and z.requires_grad
        assert (x * 2).requires_grad


def test_inference_mode_records_nothing() -> None:
    with autograd.record(), torch.inference_mode():
        assert not (leaf(2) * 2).requires_grad


def test_detach_cuts_the_way_back() -> None:
    assert_same_gradients(lambda a: (a * a.detach()).sum(), (3,))


def test_what_asks_for_no_gradient_gets_none() -> None:
    x, frozen = leaf(2), leaf(2).detach()
    with autograd.record():
        (x * frozen).sum().backward()
    assert frozen.grad is None


# Hooks


def test_a_hook_sees_and_may_change_a_gradient() -> None:
    x = leaf(2)
    seen = []
    with autograd.record():
        h = x * 3
        h.register_hook(seen.append)
        h.register_hook(lambda g: g * 10)
        x.register_hook(lambda g: g + 1)
        h.sum().backward()
    assert torch.equal(seen[0], torch.ones(2, dtype=torch.float64))
    assert torch.equal(x.grad, torch.full((2,), 31.0, dtype=torch.float64))


def test_a_removed_hook_is_not_asked() -> None:
    x = leaf(2)
    with autograd.record():
        x.register_hook(lambda g: g * 10).remove()
        x.sum().backward()
    assert torch.equal(x.grad, torch.ones(2, dtype=torch.float64))


def test_a_hook_after_accumulation_sees_the_leaf() -> None:
    x = leaf(2)
    seen = []
    with autograd.record():
        x.register_post_accumulate_grad_hook(lambda one: seen.append(one.grad.clone()))
        (x * 2).sum().backward()
    assert torch.equal(seen[0], torch.full((2,), 2.0, dtype=torch.float64))


def test_backward_hooks_of_modules_are_asked() -> None:
    seen: list[Any] = []
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    model[1].register_full_backward_hook(lambda _, sent, came: seen.append((sent[0].clone(), came[0].clone())))
    x = leaf(2, 3)
    model(x).sum().backward()
    with autograd.record():
        model(x).sum().backward()
    for theirs, ours in zip(*seen):
        torch.testing.assert_close(ours, theirs)


# Types and devices


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_gradients_have_the_type_of_their_tensor(dtype: torch.dtype) -> None:
    x = torch.linspace(-1, 1, 6).to(dtype).requires_grad_()
    with autograd.record():
        (x.float() * x.tanh()).sum().backward()
    assert x.grad.dtype is dtype


def test_autocast_casts_are_recorded() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    twin = copy.deepcopy(model)
    x = torch.randn(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        loss = twin(x).float().square().mean()
    loss.backward()
    with autograd.record():
        with torch.autocast("cpu", torch.bfloat16):
            ours = model(x).float().square().mean()
        ours.backward()
    assert ours.item() == loss.item()
    for mine, other in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(mine.grad, other.grad, rtol=2e-2, atol=1e-3)


def test_complex_results_are_refused() -> None:
    with autograd.record(), pytest.raises(BadArgument, match="real numbers"):
        leaf(2) * 1j


# Training code


def test_an_optimizer_with_a_closure_works() -> None:
    weights = []
    for ours in (False, True):
        w = leaf(3)
        optimizer = torch.optim.LBFGS([w], max_iter=5)

        def closure() -> Tensor:
            optimizer.zero_grad()  # noqa: B023
            loss = (w.sin() * w).sum()  # noqa: B023
            loss.backward()
            return loss

        if ours:
            with autograd.record():
                optimizer.step(closure)
        else:
            optimizer.step(closure)
        weights.append(w.detach())
    torch.testing.assert_close(*weights)


def test_an_optimizer_that_fails_leaves_the_tape_on() -> None:
    class Failing(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            raise ZeroDivisionError

    x = leaf(2)
    with autograd.record():
        with pytest.raises(ZeroDivisionError):
            Failing([x], lr=1).step()
        y = (x * 2).sum()
        assert "torcheer" in repr(y.grad_fn)
        y.backward()
    assert x.grad is not None
    assert torch._C._len_torch_function_stack() == 0


def test_gradients_can_be_clipped() -> None:
    x = leaf(3)
    with autograd.record():
        (x * 100).sum().backward()
        nn.utils.clip_grad_norm_([x], 1.0)
    torch.testing.assert_close(x.grad.norm(), torch.ones((), dtype=torch.float64))


def test_a_model_can_be_built_inside() -> None:
    with autograd.record():
        model = small_net()
        model(torch.randn(2, 4)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_what_was_recorded_goes_with_the_loss_and_waits_for_no_collector() -> None:
    model = small_net()
    gc.disable()
    try:
        with autograd.record():
            x = torch.randn(2, 4)
            hidden = model[0](x)
            loss = model[1:](hidden).sum()
            watched = [weakref.ref(hidden), weakref.ref(loss), weakref.ref(hidden._torcheer)]
            loss.backward()
            del hidden, loss
            assert [one() for one in watched] == [None, None, None]
    finally:
        gc.enable()


def test_a_traced_tensor_can_be_copied_and_saved() -> None:
    x = leaf(2)
    with autograd.record():
        y = x * 2
        again = copy.deepcopy(y)
        file = io.BytesIO()
        torch.save(y, file)
    file.seek(0)
    assert torch.equal(again, y.detach()) and torch.equal(torch.load(file), y.detach())


def test_a_capture_inside_sees_the_model() -> None:
    import torcheer as tl

    model = small_net().eval()
    with autograd.record():
        history = tl.log_forward_pass(model, torch.randn(2, 4))
        loss = model(torch.randn(2, 4)).sum()
        loss.backward()
    assert len(history) > 3
    assert model[0].weight.grad is not None
