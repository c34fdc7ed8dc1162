"""The rule `loss_spike`: a jump of a loss is told, once; noise, schedules and beginnings are not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from inspector_runs import judged
from seams import LossLevel, resolve_rules
from torch import nn

import torcheer as tl
from torcheer.records import Sample
from torcheer.samples import Alert, Delivery

pytestmark = pytest.mark.usefixtures("one_thread")


def told(losses: Iterable[float], name: str = "loss", rules: Any = ("loss_spike",)) -> list[Alert]:
    values = (Delivery(Sample(step, name, "metric", array=np.asarray(float(loss)))) for step, loss in enumerate(losses))
    return [alert for alert in judged(values, rules) if alert.rule == "loss_spike"]


def noisy(count: int = 1000, seed: int = 0, level: float = 1.0, noise: float = 0.1) -> Any:
    return level + noise * np.random.default_rng(seed).standard_normal(count)


def falling(count: int = 1000, seed: int = 0) -> Any:
    level = 0.2 + 2.0 * np.exp(-np.arange(count) / 150)
    return level * (1 + 0.15 * np.random.default_rng(seed).standard_normal(count))


# -- jumps


def test_a_jump_is_told_with_what_was_usual() -> None:
    losses = falling()
    losses[700] = 3.0
    (found,) = told(losses)
    assert (found.rule, found.layer, found.variable, found.step, found.since) == (
        "loss_spike",
        "loss",
        "metric",
        700,
        700,
    )
    before = losses[600:700]
    assert found.what == (
        f"it jumped to 3: in the 100 before it the median is {np.median(before):.4g}, the largest {before.max():.4g}"
    )
    assert found.values["loss"] == 3.0 and "look at this step's batch" in found.advice


@pytest.mark.parametrize("length", [1, 5, 40])
def test_a_jump_that_lasts_is_told_once_and_the_next_again(length: int) -> None:
    losses = noisy()
    losses[400 : 400 + length] += 5
    losses[700] += 5
    assert [alert.step for alert in told(losses)] == [400, 700]


def test_a_new_level_is_told_once_and_jumps_above_it_again() -> None:
    losses = noisy()
    losses[400:] += 3
    losses[800] += 5
    assert [alert.step for alert in told(losses)] == [400, 800]


@pytest.mark.parametrize("name", ["loss", "train_loss", "d_loss", "Loss/G"])
def test_any_loss_of_training_is_judged_by_itself(name: str) -> None:
    losses = noisy()
    losses[500] = 9
    assert [alert.layer for alert in told(losses, name)] == [name]


@pytest.mark.parametrize("name", ["val_loss", "test/loss", "accuracy", "step_secs"])
def test_other_numbers_are_not(name: str) -> None:
    losses = noisy()
    losses[500] = 9
    assert told(losses, name) == []


def test_settings_change_what_is_told() -> None:
    losses = noisy()
    losses[500] = 2.5
    assert told(losses)
    for changed in ({"rise": 2.0}, {"factor": 9.0}, {"done": 2.0}, {"metric": "error"}):
        assert told(losses, rules={"loss_spike": changed}) == [], changed


def test_a_loss_that_is_not_a_number_is_another_rule_s_and_forgets_nothing() -> None:
    losses = noisy()
    losses[400:410], losses[500] = np.nan, 9.0
    assert [alert.step for alert in told(losses)] == [500]


# -- no jumps


def test_the_loss_of_a_wrong_label_is_usual_while_the_others_fall_away_below_it() -> None:
    losses = 0.04 + 1 / (1 + np.exp((np.arange(400) - 50) / 8))
    losses[[91, 93]] += 1.0
    losses[[130, 250, 330]] += 1.1
    assert told(losses) == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "draw",
    [
        lambda random: 1 + 0.3 * random.standard_normal(4000), lambda random: random.exponential(1.0, 4000),
        lambda random: random.lognormal(-2, 1.5, 4000), lambda random: random.gamma(0.3, 1.0, 4000),
        lambda random: random.standard_normal(4000),
    ],
    ids=["normal", "exponential", "lognormal", "gamma", "both signs"],
)  # fmt: skip
def test_noise_that_stays_the_same_is_not_told(draw: Any, seed: int) -> None:
    level = LossLevel(resolve_rules(["loss_spike"])["loss_spike"])
    assert [loss for loss in draw(np.random.default_rng(seed)).tolist() if level.add(loss)] == []


@pytest.mark.parametrize("seed", range(3))
def test_what_jumps_now_and_then_is_usual_after_the_fourth(seed: int) -> None:
    random = np.random.default_rng(seed)
    losses = np.where(random.random(4000) < 0.02, random.exponential(3, 4000), random.lognormal(-5, 0.5, 4000))
    assert len(told(losses, rules={"loss_spike": {"most": 100}})) <= 5


def test_a_beginning_and_a_drop_are_not_told() -> None:
    begins = [50.0, 3.0, 40.0, 2.5, *noisy(60), 9.0, *noisy(20)]
    assert told(begins) == []
    drops = np.concatenate([noisy(500), noisy(500, level=0.3, noise=0.03)])
    assert told(drops) == []


def test_a_rise_step_by_step_is_not_told() -> None:
    step = np.arange(1000)
    restarts = 0.2 + 0.8 * np.minimum((step % 250) / 30, np.exp(-(step % 250) / 60))
    assert told(restarts * noisy(1000)) == []


def test_a_loss_that_has_come_near_zero_may_tremble() -> None:
    losses = [*falling(300), *np.random.default_rng(0).lognormal(-12, 0.2, 500)]
    losses[600] = 0.01
    assert told(losses) == []
    losses[600] = 1.0
    assert [alert.step for alert in told(losses)] == [600]


# -- a real loop


def test_a_bad_batch_in_a_watched_loop_is_told_at_its_step_and_can_end_the_block() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer, teacher, steps = torch.optim.SGD(model.parameters(), 0.5), torch.randn(8, 4), 0
    with tl.watch(model, every=50, rules=["loss_spike"], stop_on="loss_spike", on_alert=lambda alert: None) as w:
        for steps in range(100_000):
            x = torch.randn(32, 8)
            y = (x @ teacher).argmax(1)
            loss = nn.functional.cross_entropy(model(x), (y + 1) % 4 if steps == 300 else y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.log(loss=loss)
    (found,) = w.alerts
    assert (found.rule, found.layer, found.step) == ("loss_spike", "loss", 300) and 300 < steps < 99_999
