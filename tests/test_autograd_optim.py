"""Our optimizers beside torch's of the same name, and what they say when asked for nonsense."""

from __future__ import annotations

import copy

import pytest
import torch

from torcheer.autograd import optim, record, tracer
from torcheer.autograd.nn import MSE, Linear, ReLU, Sequential
from torcheer.errors import BadArgument

OPTIONS = [
    ("SGD", {}),
    ("SGD", {"weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "dampening": 0.3}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("SGD", {"momentum": 0.8, "nesterov": True, "weight_decay": 0.05}),
    ("Adam", {}),
    ("Adam", {"betas": (0.7, 0.9), "eps": 1e-3}),
    ("Adam", {"weight_decay": 0.1}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {}),
    ("AdamW", {"weight_decay": 0.5}),
    ("AdamW", {"amsgrad": True}),
    ("RMSprop", {}),
    ("RMSprop", {"alpha": 0.8, "eps": 1e-4}),
    ("RMSprop", {"weight_decay": 0.1}),
    ("RMSprop", {"momentum": 0.9}),
    ("RMSprop", {"centered": True}),
    ("RMSprop", {"momentum": 0.9, "centered": True, "weight_decay": 0.1}),
]
NAMES = [f"{name} {' '.join(options)}" for name, options in OPTIONS]


def weights() -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(4, 3, generator=draw, dtype=torch.float64), torch.randn(3, generator=draw, dtype=torch.float64)]


def train(optimizer, params, steps: int = 50, seed: int = 1) -> list[torch.Tensor]:
    """The same gradients for everyone, of many sizes: what differs in the end is the optimizer's doing."""
    draw = torch.Generator().manual_seed(seed)
    for step in range(steps):
        for param in params:
            noise = torch.randn(param.shape, generator=draw, dtype=torch.float64)
            param.grad = noise * 10 ** (step % 5 - 2) + 0.1
        optimizer.step()
    return [param.detach().as_subclass(torch.Tensor) for param in params]


def tracers() -> list[tracer]:
    return [tracer(one).requires_grad_() for one in weights()]


def plain() -> list[torch.Tensor]:
    return [one.requires_grad_() for one in weights()]


def apart(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    return max((one - other).abs().max().item() for one, other in zip(ours, theirs))


@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=NAMES)
def test_fifty_steps_end_where_torchs_optimizer_ends(name, options):
    ours, theirs = tracers(), plain()
    found = train(getattr(optim, name)(ours, lr=0.02, **options), ours)
    wanted = train(getattr(torch.optim, name)(theirs, lr=0.02, **options), theirs)
    assert apart(found, weights()) > 0.01
    assert apart(found, wanted) < 1e-13


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_the_settings_are_torchs_where_none_are_given(name):
    ours, theirs = tracers(), plain()
    found = train(getattr(optim, name)(ours), ours)
    wanted = train(getattr(torch.optim, name)(theirs), theirs)
    assert apart(found, wanted) < 1e-13


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_each_group_has_settings_of_its_own(name):
    def groups(params):
        return [{"params": params[0], "lr": 0.1}, {"params": [params[1]], "weight_decay": 0.2}]

    ours, theirs = tracers(), plain()
    found = train(getattr(optim, name)(groups(ours), lr=0.01), ours)
    wanted = train(getattr(torch.optim, name)(groups(theirs), lr=0.01), theirs)
    assert apart(found, wanted) < 1e-13


@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=NAMES)
def test_a_resumed_run_ends_with_the_same_weights_bit_for_bit(name, options):
    make = getattr(optim, name)
    whole = tracers()
    optimizer = make(whole, lr=0.02, **options)
    train(optimizer, whole, 10)
    kept, values = optimizer.state_dict(), [one.detach().clone() for one in whole]
    train(optimizer, whole, 10, seed=2)

    resumed = [tracer(one).requires_grad_() for one in values]
    again = make(resumed)
    again.load_state_dict(kept)
    train(again, resumed, 10, seed=2)
    assert apart([one.detach() for one in resumed], [one.detach() for one in whole]) == 0


def test_a_state_is_a_copy_that_later_steps_do_not_change():
    params = tracers()
    optimizer = optim.Adam(params)
    train(optimizer, params, 1)
    kept = optimizer.state_dict()
    before = copy.deepcopy(kept)
    train(optimizer, params, 1)
    assert torch.equal(kept["state"][0]["mean"], before["state"][0]["mean"])
    assert kept["state"][0]["steps"] == 1


def test_a_state_can_be_saved_by_torch_without_pickled_code(tmp_path):
    params = tracers()
    optimizer = optim.Adam(params)
    train(optimizer, params, 2)
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    again = optim.Adam(tracers())
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert again.state_dict()["state"][1]["steps"] == 2


def test_model_and_optimizer_can_be_copied_together():
    model = Linear(2, 1)
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(2)).Sum().backward()
    optimizer.step()
    other, others = copy.deepcopy((model, optimizer))
    before = model.weight.tolist()
    other(torch.ones(2)).Sum().backward()
    others.step()
    assert model.weight.tolist() == before != other.weight.tolist()


def test_ordinary_parameters_under_record_are_moved_too():
    layer = torch.nn.Linear(2, 1)
    optimizer = optim.SGD(layer.parameters(), lr=1.0)
    before = layer.bias.item()
    with record():
        layer(torch.ones(2)).sum().backward()
        optimizer.step()
    assert layer.bias.item() == pytest.approx(before - 1)


def test_a_parameter_without_a_gradient_stays():
    moved, stays = tracer([1.0]).requires_grad_(), tracer([1.0]).requires_grad_()
    optimizer = optim.AdamW([moved, stays], lr=0.5)
    moved.Sum().backward()
    optimizer.step()
    assert moved.item() != 1.0
    assert stays.item() == 1.0


def test_zero_grad_forgets():
    a = tracer([1.0]).requires_grad_()
    a.Sum().backward()
    optim.SGD([a]).zero_grad()
    assert a.grad is None


def test_a_closure_computes_the_loss_and_step_returns_it():
    a = tracer([3.0]).requires_grad_()
    optimizer = optim.SGD(a, lr=0.5)

    def closure():
        loss = (a * a).Sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 9.0
    assert a.item() == 0.0


@pytest.mark.parametrize("make", [optim.SGD, optim.RMSprop, optim.Adam, optim.AdamW])
def test_a_small_network_learns(make):
    torch.manual_seed(0)
    model = Sequential(Linear(3, 16), ReLU(), Linear(16, 1))
    optimizer = make(model.parameters(), lr=0.1 if make is optim.SGD else 0.01)
    x = torch.rand(64, 3)
    target, losses = x.sum(1, keepdim=True), []
    for _ in range(60):
        optimizer.zero_grad()
        loss = MSE()(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10


def test_an_optimizer_of_ones_own_is_one_method():
    class Signs(optim.Optimizer):
        def update(self, param, grad, state, group):
            param.sub_(grad.sign(), alpha=group["lr"])

    a = tracer([5.0, -5.0]).requires_grad_()
    optimizer = Signs([a], lr=2.0)
    (a * a).Sum().backward()
    optimizer.step()
    assert a.tolist() == [3.0, -3.0]


def test_an_optimizer_prints_its_settings():
    assert repr(optim.SGD(tracers(), lr=0.5)) == (
        "SGD(2 parameters, lr=0.5, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False)"
    )


# What is refused


@pytest.mark.parametrize("empty", [[], iter(()), ReLU().parameters()])
def test_no_parameters_are_an_error(empty):
    with pytest.raises(
        BadArgument, match=r"SGD was given no parameters. An empty list, or a generator that was used up"
    ):
        optim.SGD(empty)


def test_a_parameter_that_stands_twice_is_an_error():
    a = tracer([1.0]).requires_grad_()
    with pytest.raises(BadArgument, match=r"parameter 0 of shape \(1,\) stands in the optimizer twice"):
        optim.SGD([{"params": [a]}, {"params": [a]}])


@pytest.mark.parametrize(
    ("make", "options", "text"),
    [
        (optim.SGD, {"lr": -1.0}, "lr is -1.0, and it cannot be below zero"),
        (optim.SGD, {"nesterov": True}, "it needs momentum above 0 and dampening 0"),
        (optim.Adam, {"betas": (0.9, 1.0)}, "betas are .* from 0 to below 1"),
        (optim.RMSprop, {"eps": -1e-8}, "eps is -1e-08"),
    ],
)
def test_settings_that_cannot_work_are_errors(make, options, text):
    with pytest.raises(BadArgument, match=text):
        make(tracers(), **options)


def test_a_state_of_other_parameters_is_refused():
    kept = optim.SGD(tracers()).state_dict()
    with pytest.raises(BadArgument, match=r"groups of \[2\] parameters, this one of \[1\]"):
        optim.SGD(tracers()[:1]).load_state_dict(kept)


def test_a_state_of_other_shapes_is_refused():
    params = tracers()
    optimizer = optim.SGD(params, momentum=0.9)
    train(optimizer, params, 1)
    with pytest.raises(BadArgument, match=r"saved velocity has shape \(4, 3\), its parameter \(3,\)"):
        optim.SGD(params[::-1], momentum=0.9).load_state_dict(optimizer.state_dict())


# What is refused

REFUSED = {
    "an unknown setting is an error with the nearest known one": (
        lambda: optim.SGD([{"params": tracers(), "momentun": 0.9}]),
        r"SGD has no setting 'momentun'. Did you mean 'momentum'\?",
    ),
    "a setting that is like none is an error with those there are": (
        lambda: optim.SGD([{"params": tracers(), "zzz": 0.9}]),
        r"SGD has no setting 'zzz'. It has lr, momentum",
    ),
    "a group without parameters is an error": (
        lambda: optim.SGD([{"lr": 0.1}]),
        r"a group of parameters is \{'params'",
    ),
    "a computed tensor is no parameter": (
        lambda: optim.SGD([tracer([1.0]).requires_grad_() * 2]),
        r"parameter 0 of shape .* was computed from others",
    ),
    "something else is no parameter": (
        lambda: optim.SGD([tracer([1.0]), "weight"]),
        "parameter 1 of SGD is str, not a tensor",
    ),
}


@pytest.mark.parametrize(("call", "says"), REFUSED.values(), ids=REFUSED)
def test_optimizers_refuse_and_say_why(call, says):
    with pytest.raises(BadArgument, match=says):
        call()
