"""Sick and healthy models under the real probes: the right rule speaks of the right layer, or none does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fast_cases import fast_first
from inspector_runs import blobs
from models import Transformer, mlp
from seams import Rules, resolve_rules
from torch import Tensor, nn
from watch_checks import Probed

import torcheer as tl
from torcheer.inspector import Transport
from torcheer.samples import Alert, summarise

pytestmark = pytest.mark.usefixtures("one_thread")
WHAT = ("output", "grad", "weight", "update")  # what `tl.watch` looks at where nothing is said
SGD, Adam = torch.optim.SGD, torch.optim.Adam
Before = Callable[[int], Any]


def lenet() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 4),
    )  # fmt: skip


def told(
    model: nn.Module,
    steps: int,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    batches: Any = None,
    every: int = 1,
    accumulate: int = 1,
    rules: Any = "default",
    before: Before = lambda step: None,
    measured: Callable[[int], dict[str, float]] = lambda step: {},
) -> list[Alert]:
    """Train a model as people do, with real probes on it; what the rules tell of what those sent."""
    optimizer, batches = optimizer or SGD(model.parameters(), 0.05), batches or blobs()
    with Probed(model, what=WHAT, every=every) as probed:
        for step in range(steps):
            before(step)
            x, y = batches(step)
            loss = nn.functional.cross_entropy(model(x), y)
            (loss / accumulate).backward()
            if (step + 1) % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
            for name, value in {"loss": loss.detach(), **measured(step)}.items():
                probed.sender.send_metric(name, value, probed.probes.current_step)
            probed.taken()
    problems: list[str] = []
    judge = Rules(resolve_rules(rules), problems.append)
    alerts = [alert for one in probed.taken() for alert in judge.judge(one, summarise(one))] + judge.close()
    assert problems == probed.problems == []
    return alerts


def rules_of(alerts: list[Alert]) -> set[tuple[str, str, str]]:
    return {(alert.rule, alert.layer, alert.variable) for alert in alerts}


# -- healthy


@pytest.mark.parametrize(("accumulate", "every"), fast_first([(1, 1), (4, 1), (4, 5)]))
@pytest.mark.parametrize(
    ("make", "batches", "optimizer"),
    [
        (mlp, blobs(), lambda weights: SGD(weights, 0.1)),
        (lenet, blobs(4, 64, 32, (1, 8, 8)), lambda weights: Adam(weights, 0.003)),
        (Transformer, blobs(4, 200, 32, (10, 20)), lambda weights: torch.optim.AdamW(weights, 0.002)),
    ],
    ids=["mlp", "lenet", "transformer"],
)
def test_of_a_healthy_model_nothing_is_told(
    make: Any, batches: Any, optimizer: Any, accumulate: int, every: int
) -> None:
    model = make()
    with torch.no_grad():
        first = nn.functional.cross_entropy(model(batches(0)[0]), batches(0)[1])
    steps = 60 * accumulate
    found = told(
        model, steps, batches=batches, optimizer=optimizer(model.parameters()), accumulate=accumulate, every=every
    )
    assert [str(alert) for alert in found] == []
    with torch.no_grad():
        assert nn.functional.cross_entropy(model(batches(0)[0]), batches(0)[1]) < first / 2  # it was healthy


# -- sick


def fill(tensor: Tensor, value: float, at: int) -> Before:
    def before(step: int) -> None:
        if step == at:
            with torch.no_grad():
                tensor.fill_(value)

    return before


def test_a_weight_that_is_nan_is_told_where_it_is() -> None:
    model = mlp()
    (alert,) = told(model, 12, before=fill(model[2].weight[0, 0], float("nan"), 7))
    assert (alert.rule, alert.layer, alert.step, alert.severity) == ("nan_inf", "2.weight", 7, "error")


def test_an_output_that_is_infinite_is_told_where_it_began() -> None:
    class Root(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 1 / (x.abs() - x.abs()) if self.broken else x

        broken = False

    model = mlp()
    model.insert(2, Root())

    def before(step: int) -> None:
        Root.broken = step >= 5

    first = told(model, 12, before=before)[0]
    assert (first.rule, first.layer, first.variable, first.step) == ("nan_inf", "2", "output", 5)
    assert "infinite" in first.what


def test_gradients_that_vanish_are_told_of_the_first_layers() -> None:
    found = {alert.rule: alert for alert in told(mlp(nn.Sigmoid, 20), 12)}
    assert (found["vanishing_gradient"].layer, found["vanishing_gradient"].variable) == ("0", "grad")
    assert found["poor_initialisation"].variable == "output"


def test_gradients_that_explode_are_told_before_they_are_nan() -> None:
    model = mlp()
    found = [alert.rule for alert in told(model, 30, optimizer=SGD(model.parameters(), 3.0))]
    assert found[0] == "exploding_gradient" and "nan_inf" in found[1:]


def test_a_relu_that_is_dead_is_told_by_its_own_name() -> None:
    model = mlp()
    found = told(model, 25, before=fill(model[2].bias, -100.0, 5))
    assert ("dead_relu", "3", "output") in rules_of(found)
    assert next(alert for alert in found if alert.rule == "dead_relu").since == 5


@pytest.mark.parametrize(("activation", "low"), [(nn.Tanh, "-1"), (nn.Sigmoid, "0")])
def test_an_activation_that_is_saturated_is_told(activation: Any, low: str) -> None:
    model = mlp(activation)
    for weights in model.parameters():
        weights.data *= 80
    (alert,) = told(model, 10, optimizer=SGD(model.parameters(), 1e-4), rules=["saturation"])
    assert (alert.layer, alert.variable, alert.since) == ("1", "output", 0) and f"bounds {low} and 1" in alert.what


@pytest.mark.parametrize("softmax", [False, True])
def test_of_a_large_sigmoid_a_sample_is_enough(softmax: bool) -> None:
    torch.manual_seed(0)
    inside = nn.Softmax(1) if softmax else nn.Sigmoid()
    model = nn.Sequential(nn.Linear(20, 100), nn.Linear(100, 6000), inside, nn.Linear(6000, 4))  # too large to go whole
    model[0].weight.data *= 2000
    with Probed(model, what="output", limit_bytes=40_000) as probed:
        for step in range(8):
            model(blobs()(step)[0])
    sizes = {one.sample.array.size for one in probed.taken() if one.key == ("2", "output")}
    assert max(sizes) <= 10_000
    judge = Rules(resolve_rules(["saturation"]))
    found = [alert for one in probed.taken() for alert in judge.judge(one, summarise(one))] + judge.close()
    assert rules_of(found) == (set() if softmax else {("saturation", "2", "output")})


def test_a_weight_that_no_optimizer_has_is_told() -> None:
    model = mlp()
    mine = [*model[0].parameters(), *model[4].parameters(), *model[6].parameters()]
    (alert,) = told(model, 40, optimizer=SGD(mine, 0.05))
    assert (alert.rule, alert.layer, alert.since) == ("unchanged", "2.weight", 0)


def test_layers_that_are_frozen_on_purpose_are_not_told() -> None:
    model = mlp().requires_grad_(False)
    model[6].requires_grad_(True)
    assert told(model, 60, optimizer=Adam(model[6].parameters(), 0.01)) == []


@pytest.mark.parametrize(("explodes", "expected"), [(False, set()), (True, {"exploding_gradient"})])
def test_gradients_that_a_scaler_has_made_large_are_told_only_where_they_explode(
    explodes: bool, expected: set[str]
) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = mlp(nn.Tanh)

        def forward(self, x: Tensor) -> Any:
            answer = self.model(x) * 1.0
            answer.register_hook(lambda gradient: gradient * 2.0**22)  # as `scaler.scale(loss)` has it
            return answer

    def before(step: int) -> None:
        if step == 30 and explodes:
            model.model[4].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 1e6,))

    model = Scaled()
    found = told(model, 50, optimizer=Adam(model.parameters(), 0.001), before=before)  # to which sizes are all one
    assert {alert.rule for alert in found} == expected


def test_an_output_of_zeros_is_told() -> None:
    model = mlp()
    model[2] = nn.Linear(32, 16)
    model[4] = nn.Linear(16, 32)
    for weights in model[2].parameters():
        nn.init.zeros_(weights).requires_grad_(False)
    found = told(model, 20)
    told_of = {(alert.layer, alert.variable) for alert in found if alert.rule == "all_zero"}
    also = {name for alert in found if alert.rule == "all_zero" for name in alert.values.get("also", ())}
    assert ("2", "output") in told_of or "2 (output)" in also


@pytest.mark.parametrize(("accumulate", "every"), [(1, 1), (8, 20)])
@pytest.mark.parametrize(
    ("rate", "what"),
    [({"lr": 1.0, "weight_decay": 1.5}, "more than 0.1"), ({"lr": 1e-6}, "less than 1e-07")],
    ids=["large", "small"],
)
def test_a_step_that_is_too_large_or_too_small_is_told(rate: Any, what: str, accumulate: int, every: int) -> None:
    """Also where gradients are accumulated, and a loss is logged at every pass in between."""
    model = mlp()
    groups = [{"params": model[2].weight, **rate}, {"params": [*model[0].parameters(), *model[6].parameters()]}]
    found = told(
        model, 18 * max(accumulate, every), optimizer=SGD(groups, 0.01), accumulate=accumulate, every=every,
        rules=["update_ratio"],
    )  # fmt: skip
    assert rules_of(found) == {("update_ratio", "2.weight", "update")} and what in found[0].what


@pytest.mark.parametrize(("scale", "what"), [(30.0, "grown"), (0.01, "shrunk")])
def test_a_poor_beginning_is_told_at_the_first_step(scale: float, what: str) -> None:
    model = mlp(layers=10)
    for weights in model.parameters():
        weights.data *= scale
    found = [alert for alert in told(model, 2) if alert.rule == "poor_initialisation"]
    assert [(alert.variable, alert.step) for alert in found] == [("output", 0)] and what in found[0].what


def test_a_loss_that_does_not_fall_is_told() -> None:
    source = torch.Generator().manual_seed(0)

    def noise(step: int) -> tuple[Tensor, Tensor]:
        return torch.randn(32, 20, generator=source), torch.randint(4, (32,), generator=source)

    model = mlp()
    found = told(model, 500, batches=noise, optimizer=SGD(model.parameters(), 1e-3), every=50)
    assert ("loss_plateau", "loss", "metric") in rules_of(found)


def test_a_model_that_learns_by_heart_is_told() -> None:
    source, model = torch.Generator().manual_seed(0), mlp()
    x, y = torch.randn(64, 20, generator=source), torch.randint(4, (64,), generator=source)

    def held_out(step: int) -> dict[str, float]:
        if step % 10:
            return {}
        with torch.no_grad():
            return {"val_loss": float(nn.functional.cross_entropy(model(x[32:]), y[32:]))}

    train = lambda step: (x[:32], y[:32])  # noqa: E731
    found = told(model, 200, batches=train, optimizer=Adam(model.parameters(), 0.01), every=50, measured=held_out)
    (alert,) = [alert for alert in found if alert.rule == "overfitting"]
    assert (alert.layer, alert.variable) == ("val_loss", "metric") and "keep the weights of step" in alert.advice


# -- the loader


@pytest.mark.parametrize(("loading_secs", "step_secs"), [(0.3, 0.0), (0.0, 0.3)])
def test_a_loader_that_is_waited_for_is_told_and_another_is_not(loading_secs: float, step_secs: float) -> None:
    def loader() -> Iterator[tuple[Tensor, Tensor]]:
        for step in range(9):
            time.sleep(loading_secs)
            yield blobs()(step)

    model, alerts = mlp(), list[Alert]()
    optimizer = SGD(model.parameters(), 0.05)
    rules = {"stalled_loader": {"window": 5, "patience": 2}}
    with tl.watch(
        model, every=1, rules=rules, on_alert=alerts.append, transport=Transport(bytes=8 << 20, drain_secs=60.0)
    ):
        for x, y in loader():
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            time.sleep(step_secs)  # far more than a busy machine takes from the loader
            optimizer.step()
    assert [alert.rule for alert in alerts] == (["stalled_loader"] if loading_secs else [])
    assert all("pass before each step" in alert.what and "num_workers" in alert.advice for alert in alerts)
