"""Rules are quiet on healthy trainings, and say the right thing of the right layer and step on sick ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fast_cases import fast_first
from inspector_runs import blobs, judged, training
from models import Transformer, mlp
from torch import nn

pytestmark = pytest.mark.usefixtures("one_thread")
SGD, Adam = torch.optim.SGD, torch.optim.Adam
IMAGES, SERIES = blobs(4, 64, 32, (1, 8, 8)), blobs(4, 200, 32, (10, 20))


def cnn() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(256, 4),
    )  # fmt: skip


class Residual(nn.Module):
    """Two blocks whose second halves begin at zero, as is often advised."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(20, 32)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32)) for _ in range(2))
        self.norm, self.last = nn.LayerNorm(32), nn.Linear(32, 4)
        for block in self.blocks:
            nn.init.zeros_(block[2].weight)
            nn.init.zeros_(block[2].bias)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(self.norm(x))


# Healthy


@pytest.mark.parametrize(
    ("make", "batches", "optimizer"),
    fast_first(
        [
            (mlp, blobs(), lambda weights: SGD(weights, 0.05)),
            (cnn, IMAGES, lambda weights: Adam(weights, 0.001)),
            (Transformer, SERIES, lambda weights: torch.optim.AdamW(weights, 0.002)),
            (mlp, blobs(), lambda weights: Adam(weights, 0.01)),
            (lambda: mlp(nn.Tanh), blobs(), lambda weights: SGD(weights, 0.1, momentum=0.9)),
            (lambda: mlp(nn.Sigmoid, 2), blobs(), lambda weights: Adam(weights, 0.01)),
            (lambda: nn.Sequential(mlp(), nn.LogSoftmax(1)), blobs(), lambda weights: Adam(weights, 0.003)),
            (cnn, IMAGES, lambda weights: SGD(weights, 0.05, momentum=0.9)),
            (Residual, blobs(), lambda weights: torch.optim.AdamW(weights, 0.001)),
        ],
        3,
    ),
    ids=["mlp", "cnn_adam", "transformer", "adam", "tanh", "sigmoid", "softmax", "cnn", "residual"],
)
def test_a_healthy_training_gives_no_alert(make: Any, batches: Any, optimizer: Any) -> None:
    model, losses = make(), []

    def values() -> Any:
        steps = 200 if isinstance(model, nn.Sequential) else 60
        for value in training(model, batches, steps, optimizer=optimizer(model.parameters())):
            if value.key == ("loss", "metric"):
                losses.append(float(value.sample.array))
            yield value

    assert [str(alert) for alert in judged(values())] == []
    assert losses[-1] < losses[0] / 2  # it was a healthy one


@pytest.mark.slow
def test_a_training_that_has_learned_all_gives_no_alert() -> None:
    model, batch = mlp(), blobs()(0)  # one batch, over and over
    assert judged(training(model, lambda step: batch, 300, optimizer=Adam(model.parameters(), 0.005))) == []


def test_gradient_accumulation_gives_no_alert() -> None:
    model = mlp()

    class Seldom(SGD):
        calls = 0

        def step(self, closure: Any = None) -> None:
            Seldom.calls += 1
            if Seldom.calls % 16 == 0:
                super().step(closure)

    assert judged(training(model, blobs(), 100, optimizer=Seldom(model.parameters(), 0.05))) == []


# Sick


def test_a_learning_rate_of_100_is_told() -> None:
    model = mlp()
    alerts = judged(training(model, blobs(), 30, optimizer=SGD(model.parameters(), 100.0)))
    assert {alert.rule for alert in alerts} <= {"exploding_gradient", "nan_inf", "dead_relu"}
    worst = next(alert for alert in alerts if alert.rule == "nan_inf")
    assert worst.severity == "error" and worst.step < 10 and "lower the learning rate" in worst.advice


def test_a_learning_rate_of_10_explodes_before_it_ends() -> None:
    model = mlp()
    first, *_, last = judged(training(model, blobs(), 30, optimizer=SGD(model.parameters(), 10.0)))
    assert (first.rule, last.rule) == ("exploding_gradient", "nan_inf") and first.step < last.step
    assert "clip the gradients" in first.advice


def test_weights_that_begin_at_zero_are_told_at_the_first_step() -> None:
    model = mlp()
    for weights in model.parameters():
        nn.init.zeros_(weights)
    first, second = judged(training(model, blobs(), 20))
    assert str(first) == (
        "poor_initialisation at step 0: 0.weight (weight): all of its 640 weights begin as 0, and stay alike; the same "
        "in 3 more: 2.weight (weight), 4.weight (weight), 6.weight (weight). Try: begin with random weights, as "
        "torch.nn's layers do."
    )
    assert (second.rule, second.layer, second.since) == ("all_zero", "0.weight", 0)
    assert "2 (output)" in second.values["also"]


def test_one_matrix_of_equal_weights_is_told() -> None:
    model = mlp()
    nn.init.constant_(model[2].weight, 0.02)
    found = judged(training(model, blobs(), 20))
    assert [(one.rule, one.layer, one.variable) for one in found] == [("poor_initialisation", "2.weight", "weight")]


def test_gradients_vanish_in_twenty_sigmoids() -> None:
    found = {alert.rule: alert for alert in judged(training(mlp(nn.Sigmoid, 20), blobs(), 12))}
    assert found.keys() == {"poor_initialisation", "vanishing_gradient", "unchanged"}
    vanished = found["vanishing_gradient"]
    assert (vanished.layer, vanished.variable, vanished.since, vanished.step) == ("0", "grad", 0, 4)
    assert (
        "0.weight (weight_grad)" in vanished.values["also"] and "38.weight (weight_grad)" not in vanished.values["also"]
    )
    assert vanished.what.startswith("its norm is ") and "ReLU or GELU instead of sigmoid" in vanished.advice
    assert "shrunk from 0.86 to" in found["poor_initialisation"].what


def test_too_large_weights_are_told_where_they_have_grown_too_much() -> None:
    model = mlp(layers=10)
    for weights in model.parameters():
        weights.data *= 30
    found = judged(training(model, blobs(), 1))
    assert [(one.rule, one.variable) for one in found] == [("poor_initialisation", "output")]
    assert "grown from" in found[0].what and "begin with smaller weights" in found[0].advice


def test_a_dead_layer_is_told_of_the_relu_and_not_of_the_layer_before_it() -> None:
    model = mlp()
    nn.init.constant_(model[2].bias, -100.0)
    dead, *others = judged(training(model, blobs(), 20))
    assert (dead.rule, dead.layer, dead.since, dead.step) == ("dead_relu", "3", 0, 9)
    assert dead.what == "32 of its 32 units are 0 for every input"
    assert dead.advice == "look at the biases before it, or use a leaky ReLU or GELU"  # the rate killed none of them
    assert {(one.rule, one.layer) for one in others} == {("all_zero", "2"), ("unchanged", "0.weight")}


@pytest.mark.parametrize("dead", [10, 24])
def test_dead_units_are_counted(dead: int) -> None:
    model = mlp()

    def before(step: int) -> None:
        if step == 5:
            nn.init.constant_(model[2].bias[:dead], -100.0)

    found = judged(training(model, blobs(), 40, before=before))
    if dead < 16:
        assert found == []  # too few
    else:
        assert [(one.rule, one.layer, one.since) for one in found] == [("dead_relu", "3", 5)]
        assert 24 <= int(found[0].what.split()[0]) < 28


def test_dead_channels_are_counted_and_not_single_places() -> None:
    model = cnn()
    nn.init.constant_(model[4].bias[:12], -100.0)
    found = judged(training(model, IMAGES, 15))
    assert [(one.rule, one.layer, one.since) for one in found] == [("dead_relu", "5", 0)]
    assert "of its 16 units" in found[0].what


@pytest.mark.parametrize(("activation", "low"), [(nn.Tanh, "-1"), (nn.Sigmoid, "0")])
def test_saturated_activations_are_told(activation: Any, low: str) -> None:
    model = mlp(activation)
    for weights in model.parameters():
        weights.data *= 80
    found = judged(training(model, blobs(), 10, optimizer=SGD(model.parameters(), 1e-4)), ["saturation"])
    assert [(one.layer, one.since, one.step) for one in found] == [("1", 0, 4)]
    assert f"of its outputs are within 0.01 of its bounds {low} and 1; the same in 2 more" in found[0].what


def test_a_sure_answer_is_not_saturation() -> None:
    model = nn.Sequential(mlp(), nn.Sigmoid())
    model[0][-1].weight.data *= 500
    loss = lambda output, targets: nn.functional.mse_loss(output, nn.functional.one_hot(targets, 4).float())  # noqa: E731
    assert judged(training(model, blobs(), 10, loss_of=loss), ["saturation"]) == []


def test_nan_is_told_at_once_where_and_when_it_came() -> None:
    model = mlp()

    def before(step: int) -> None:
        if step == 37:
            model[4].register_forward_hook(lambda module, inputs, output: output * float("nan"))

    (found,) = judged(training(model, blobs(), 60, before=before))
    assert (found.rule, found.layer, found.variable, found.step, found.since) == ("nan_inf", "4", "output", 37, 37)
    assert found.severity == "error" and found.what == "of 1,024 numbers 1,024 NaN"
    assert found.advice.startswith("look in it and in the layers before it for a division by zero")


def test_a_frozen_layer_is_told_since_it_is() -> None:
    model = mlp()

    def before(step: int) -> None:
        if step == 20:
            model[2].requires_grad_(False)
            model[2].weight.grad = model[2].bias.grad = None

    (found,) = judged(training(model, blobs(), 60, before=before))
    assert (found.rule, found.layer, found.since, found.step) == ("unchanged", "2.weight", 20, 30)
    assert found.what == "it does not change, while 3 of 4 weights do"
    assert "if it is frozen on purpose, all is well" in found.advice


def test_a_layer_that_the_optimizer_does_not_have_is_told() -> None:
    model = mlp()
    optimizer = SGD([*model[0].parameters(), *model[4].parameters(), *model[6].parameters()], 0.05)
    (found,) = judged(training(model, blobs(), 60, optimizer=optimizer))
    assert (found.rule, found.layer, found.since) == ("unchanged", "2.weight", 0)
    assert found.what.endswith("though it gets a gradient") and found.advice.startswith("give it to the optimizer")


def test_an_optimizer_that_steps_by_nothing_is_told() -> None:
    model = mlp()
    (found,) = judged(training(model, blobs(), 120, optimizer=SGD(model.parameters(), 0.0)))
    assert (found.rule, found.since) == ("unchanged", 0)
    assert found.what == "none of the 4 watched weights changes, though an optimizer steps them"
    assert "raise the learning rate" in found.advice
