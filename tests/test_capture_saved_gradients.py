"""Gradients of what was saved, one per backward call."""

import pytest
import torch
from models import relu_net
from torch import nn

import torcheer as tl
from torcheer.errors import BadArgument


@pytest.mark.parametrize("inplace", [False, True])
def test_every_layer_gets_the_gradient_autograd_computes(inplace):
    model, x = relu_net(inplace), torch.rand(3, 4, requires_grad=True)
    history = tl.log_forward_pass(model, x, save_gradients=True)
    history.backward()
    a = model[0](x)
    b = a.relu()
    c = model[2](b)
    expected = torch.autograd.grad(c.sum(), [x, a, b, c])
    found = [history[key].grad_contents for key in ("input_1", "linear_1", "relu_1", "linear_2")]
    assert all(torch.allclose(one, two) for one, two in zip(found, expected, strict=True))
    assert torch.equal(history.parameters["0.weight"].gradients[0], model[0].weight.grad)


def test_the_users_own_backward_is_heard_and_each_call_is_kept():
    model = relu_net()
    history = tl.log_forward_pass(model, torch.rand(3, 4), save_gradients=True)
    loss = history["output_1"].tensor_contents.sum()
    loss.backward(retain_graph=True)
    (2 * loss).backward()
    first, second = history["relu_1"].gradients
    assert torch.allclose(2 * first, second)
    assert torch.equal(history["relu_1"].grad_contents, second)


def test_a_backward_call_that_does_not_reach_a_layer_leaves_none():
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    with tl.recording(model, save_gradients=True) as history:
        x = torch.rand(1, 2)
        a, b = model[0](x).sum(), model[1](x).sum()
        a.backward()
        b.backward()
    assert [gradient is None for gradient in history["linear_1"].gradients] == [False, True]
    assert [gradient is None for gradient in history["linear_2"].gradients] == [True, False]


def test_only_saved_layers_get_gradients():
    history = tl.log_forward_pass(relu_net(), torch.rand(3, 4), save_gradients=True, layers_to_save=["relu_1", "2"])
    history.trace.value(history["linear_2"].index, 0).sum().backward()
    assert history["relu_1"].grad_contents is not None
    assert history["linear_2"].grad_contents is not None
    assert history["linear_1"].grad_contents is None


def test_parameters_of_a_lazy_module_get_gradients_from_its_first_pass_on():
    model, x = nn.Sequential(nn.LazyLinear(3), nn.ReLU()), torch.rand(2, 4)
    history = tl.log_forward_pass(model, x, save_gradients=True)
    history.backward()
    weight, bias = model[0].weight, model[0].bias
    assert weight.grad.shape == (3, 4) and torch.equal(history.parameters["0.weight"].gradients[0], weight.grad)
    assert torch.equal(history.parameters["0.bias"].gradients[0], bias.grad)


def test_hooks_leave_the_model_with_the_history():
    model = relu_net()
    history = tl.log_forward_pass(model, torch.rand(3, 4), save_gradients=True)
    assert model[0].weight._backward_hooks
    del history
    assert not model[0].weight._backward_hooks


def test_backward_without_gradients_or_without_a_scalar_says_what_to_do():
    history = tl.log_forward_pass(relu_net(), torch.rand(3, 4))
    with pytest.raises(BadArgument, match="save_gradients=True"):
        history.backward()
    history = tl.log_forward_pass(relu_net(), torch.rand(3, 4), save_gradients=True)
    with pytest.raises(BadArgument, match="single number"):
        history.backward(history["output_1"].tensor_contents)
    with torch.no_grad():
        history = tl.log_forward_pass(relu_net(), torch.rand(3, 4), save_gradients=True)
    with pytest.raises(BadArgument, match="require grad"):
        history.backward()


def test_positions_from_the_end_get_gradients_too():
    history = tl.log_forward_pass(relu_net(), torch.rand(3, 4), save_gradients=True, layers_to_save=["relu_1", -1, -2])
    history.backward(history[-1].tensor_contents.sum())
    assert all(history[key].grad_contents is not None for key in ("relu_1", -1, -2))


def test_listening_for_gradients_adds_nothing_to_the_record():
    found = []
    for listen in (False, True):
        model = relu_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with tl.recording(model, save_gradients=listen) as history:
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.ones(3, 4)).sum().backward()
                optimizer.step()
        found.append([op.name for op in history.ops])
    assert found[0] == found[1]
