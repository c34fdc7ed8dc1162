"""Layers, losses and models in torchtrace's style."""

from __future__ import annotations

import copy

import pytest
import torch
from autograd_checks import close
from seams import node_of

from torcheer.autograd import nn, optim, tracer
from torcheer.autograd.base import Operator
from torcheer.autograd.nn import Conv2d, Linear, Model, ReLU, Sequential
from torcheer.errors import BadArgument, WrongInputs

# Layers


def twin(layer, kind, *args, **kwargs):
    """torch's layer with the same weights."""
    made = kind(*args, **kwargs)
    made.load_state_dict({name: weight.detach().as_subclass(torch.Tensor) for name, weight in
                          (("weight", layer.weight), ("bias", layer.bias)) if weight is not None})  # fmt: skip
    return made


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (2, 4, 5, 3)])
def test_linear_takes_any_number_of_axes_and_has_torchs_gradients(shape, doubles):
    layer = Linear(3, 4)
    theirs = twin(layer, torch.nn.Linear, 3, 4)
    x = torch.randn(shape)
    (layer(x) ** 2).sum().backward()
    (theirs(x) ** 2).sum().backward()
    assert close(layer.weight.grad, theirs.weight.grad)
    assert close(layer.bias.grad, theirs.bias.grad)


@pytest.mark.parametrize(
    "stride, padding, shape", [(1, 0, (2, 3, 9, 9)), (2, 1, (2, 3, 10, 11)), (3, (2, 1), (3, 9, 9))]
)
def test_conv2d_has_torchs_gradients(stride, padding, shape, doubles):
    layer = Conv2d(3, 4, 3, stride, padding)
    theirs = twin(layer, torch.nn.Conv2d, 3, 4, 3, stride, padding)
    x = torch.randn(shape)
    ours_x, theirs_x = tracer(x).requires_grad_(), x.clone().requires_grad_()
    (layer(ours_x) ** 2).sum().backward()
    (theirs(theirs_x) ** 2).sum().backward()
    assert close(layer.weight.grad, theirs.weight.grad)
    assert close(layer.bias.grad, theirs.bias.grad)
    assert close(ours_x.grad, theirs_x.grad)


@pytest.mark.parametrize("make", [lambda home: home.Linear(7, 5), lambda home: home.Conv2d(3, 4, 5)])
def test_the_same_seed_gives_torchs_own_first_weights(make):
    torch.manual_seed(3)
    ours = make(nn)
    torch.manual_seed(3)
    theirs = make(torch.nn)
    assert close(ours.weight, theirs.weight)
    assert close(ours.bias, theirs.bias)


def test_layers_without_bias_have_one_weight():
    assert len(list(Linear(2, 3, bias=False).parameters())) == len(list(Conv2d(2, 3, 1, bias=False).parameters())) == 1


def test_weights_are_leaves_that_ask():
    assert all(type(one) is tracer and one.is_leaf and one.requires_grad for one in Conv2d(2, 3, 2).parameters())


def test_a_layer_accepts_a_plain_tensor_and_returns_a_tracer():
    assert type(ReLU()(torch.tensor([-1.0, 1.0]))) is tracer


def test_a_layer_used_twice_gets_both_gradients(doubles):
    layer = Linear(3, 3)
    theirs = twin(layer, torch.nn.Linear, 3, 3)
    x = torch.randn(2, 3)
    layer(layer(x)).Sum().backward()
    theirs(theirs(x)).sum().backward()
    assert close(layer.weight.grad, theirs.weight.grad)


def test_two_layers_may_share_a_weight():
    first, second = Linear(3, 3), Linear(3, 3)
    second.weight = first.weight
    assert len(list(Sequential(first, second).parameters())) == 3


def test_nothing_is_recorded_under_no_grad():
    with torch.no_grad():
        out = Sequential(Linear(2, 2), ReLU())(torch.ones(2))
    assert node_of(out) is None
    assert type(out) is tracer


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((4, 6), r"View\(-1, 3, height, width\) makes images of it"),
        ((2, 9, 9, 3), r"channels stand last, move them with x.movedim\(-1, -3\)"),
        ((2, 4, 9, 9), r"Conv2d\(4, …\) would take it"),
        ((1, 1, 3, 9, 9), "makes images of it"),
    ],
)
def test_conv2d_says_which_images_it_takes(shape, hint):
    with pytest.raises(WrongInputs, match=rf"Conv2d 3 -> 8 takes images as \(batch, 3, height, width\), .*{hint}"):
        Conv2d(3, 8, 3)(torch.ones(shape))


# Losses


LOSSES = [
    (nn.MSE(), torch.nn.functional.mse_loss, lambda: (torch.randn(6, 2), torch.randn(6, 2))),
    (nn.Huber(0.7), lambda x, t: torch.nn.functional.huber_loss(x, t, delta=0.7),
     lambda: (torch.randn(6, 2), torch.randn(6, 2))),
    (nn.BCE(), torch.nn.functional.binary_cross_entropy, lambda: (torch.rand(6, 2), torch.rand(6, 2))),
    (nn.BCEWithLogits(), torch.nn.functional.binary_cross_entropy_with_logits,
     lambda: (torch.randn(6, 2), torch.rand(6, 2))),
    (nn.CrossEntropy(), torch.nn.functional.cross_entropy, lambda: (torch.randn(6, 4), torch.randint(4, (6,)))),
    (nn.CrossEntropy(), torch.nn.functional.cross_entropy, lambda: (torch.randn(6, 4), torch.rand(6, 4))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "torchs", "inputs"), LOSSES, ids=lambda one: str(one) if isinstance(one, Operator) else ""
)
def test_a_loss_has_torchs_value_and_gradient(loss, torchs, inputs, doubles):
    x, target = inputs()
    ours, theirs = tracer(x).requires_grad_(), x.clone().requires_grad_()
    value, wanted = loss(ours, target), torchs(theirs, target)
    value.backward()
    wanted.backward()
    assert close(value, wanted.detach())
    assert close(ours.grad, theirs.grad)


@pytest.mark.parametrize("loss", [nn.MSE(), nn.Huber(), nn.BCE(), nn.BCEWithLogits()], ids=str)
def test_a_loss_refuses_to_compare_each_with_each(loss):
    with pytest.raises(WrongInputs, match=r"target has shape \(4,\), the answer \(4, 1\), .* target.view\(4, 1\)"):
        loss(tracer(torch.full((4, 1), 0.5)), torch.rand(4))


def test_a_loss_accepts_one_target_for_all():
    assert nn.MSE()(tracer([1.0, 3.0]), torch.tensor(1.0)).item() == 2.0


# Models


class Branching(Model):
    """Two paths that meet, a layer used twice, and torch's own layer among ours."""

    def __init__(self):
        self.first, self.shared, self.torchs = Linear(4, 4), Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)
        return self.shared(torch.relu(x)) + self.shared(self.torchs(x).tanh())


def test_a_model_may_branch_and_hold_torchs_layers(doubles):
    model = Branching()
    x = torch.randn(3, 4)
    model(x).Sum().backward()
    leaves = [one.detach().as_subclass(torch.Tensor).clone().requires_grad_() for one in model.parameters()]
    first, first_bias, shared, shared_bias, torchs, torchs_bias = leaves
    h = x @ first.T + first_bias
    (torch.relu(h) @ shared.T + torch.tanh(h @ torchs.T + torchs_bias) @ shared.T + 2 * shared_bias).sum().backward()
    assert len(leaves) == 6
    assert all(close(ours.grad, theirs.grad) for ours, theirs in zip(model.parameters(), leaves))


def test_without_construct_a_model_prints_every_layer_it_holds():
    assert str(Branching()).startswith(
        "Sequence(\n    (0):Linear layer (4 X 4)\n    (1):Linear layer (4 X 4)\n    (2):"
    )


def test_a_name_that_was_set_is_printed():
    assert str(Sequential(ReLU().set_name("bend"))) == "Sequence(\n    (0):bend\n)"
    assert str(Sequential(ReLU()).set_name("Net")) == "Net(\n    (0):ReLU()\n)"


def test_eval_and_train_reach_every_part():
    model = Branching().eval()
    assert not any(part.training for part in (model, model.first, model.torchs))
    model.train()
    assert all(part.training for part in (model, model.first, model.torchs))


def test_a_sequence_can_be_counted_and_cut():
    model = Sequential([Linear(2, 3), ReLU(), Linear(3, 1)])
    assert len(model) == 3
    assert str(model[1:]) == "Sequence(\n    (0):ReLU()\n    (1):Linear layer (3 X 1)\n)"
    assert [type(one) for one in model] == [Linear, ReLU, Linear]


def test_weights_go_from_one_model_to_another():
    first, second = Sequential(Linear(2, 3), Linear(3, 1)), Sequential(Linear(2, 3), Linear(3, 1))
    second.load_seq_list(first.seq_list())
    x = torch.rand(5, 2)
    assert torch.equal(first(x), second(x))


def test_a_list_of_weights_holds_the_weights_themselves_and_a_deep_copy_does_not():
    layer = Linear(2, 2)
    live, kept = layer.seq_list(), copy.deepcopy(layer.seq_list())
    layer.weight.data.fill_(7)
    assert live[0] is layer.weight
    assert not (kept[0] == 7).any()
    assert torch.equal(layer.load_seq_list(kept).weight, kept[0])


def test_a_frozen_weight_keeps_its_place():
    layer = Linear(2, 2)
    layer.weight.requires_grad_(False)
    layer(torch.ones(2)).Sum().backward()
    assert layer.weight.grad is None
    assert len(layer.seq_list()) == 2


def test_a_model_can_be_converted_and_its_optimizer_still_knows_it():
    model = Linear(2, 2)
    optimizer = optim.SGD(model.parameters(), lr=1.0)
    model.to(torch.float64)
    model(torch.ones(2, dtype=torch.float64)).Sum().backward()
    before = model.bias.tolist()
    optimizer.step()
    assert model.weight.dtype == torch.float64
    assert model.bias.tolist() == [one - 1 for one in before]


def test_a_copied_model_learns_on_its_own():
    model = Sequential(Linear(2, 2))
    other = copy.deepcopy(model)
    other(torch.ones(2)).Sum().backward()
    assert model[0].weight.grad is None
    assert other[0].weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]


# What is refused

REFUSED = {
    "linear says how many features it takes": (
        lambda: Linear(8, 4)(torch.ones(3, 5)),
        WrongInputs,
        r"Linear layer \(8 X 4\) takes 8 features .* shape \(3, 5\).* or Linear\(5, 4\)",
    ),
    "gather says how many numbers it takes": (
        lambda: tracer(torch.zeros(2, 3)).Gather(torch.zeros(5, dtype=torch.int64)),
        WrongInputs,
        r"one whole number for each of the 2 rows of \(2, 3\), .* shape \(5,\)",
    ),
    "a sequence refuses what cannot be called": (
        lambda: Sequential(ReLU(), 3),
        BadArgument,
        "number 1 is 3, which cannot be called",
    ),
    "weights of another shape are refused": (
        lambda: Linear(3, 2).load_seq_list(Linear(2, 3).seq_list()),
        BadArgument,
        r"tensor 0 has shape \(3, 2\), its weight \(2, 3\)",
    ),
    "a list of another length is refused": (
        lambda: Sequential(Linear(2, 2), Linear(2, 2)).load_seq_list(Linear(2, 2).seq_list()),
        BadArgument,
        "2 tensors for 4 weights; is the list of this model",
    ),
}


@pytest.mark.parametrize(("call", "error", "says"), REFUSED.values(), ids=REFUSED)
def test_layers_refuse_and_say_why(call, error, says):
    with pytest.raises(error, match=says):
        call()
