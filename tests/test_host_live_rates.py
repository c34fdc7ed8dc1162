"""A rate that is set on a live page: its schedule goes on from there, whatever its scheduler computes it from."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from seams import Live, RunLog, schedulers_of
from studio_socket import Page
from torch import nn
from torch.optim import SGD, Adam, Optimizer
from torch.optim import lr_scheduler as lr
from waiting import wait_until

import torcheer as tl

pytestmark = pytest.mark.usefixtures("one_thread")
STEPS, CHANGED_AT = 24, 9


class Own(lr.LRScheduler):
    """As people write them: a formula of the base rate."""

    def get_lr(self) -> list[Any]:
        return [base / (1 + self.last_epoch) ** 0.5 for base in self.base_lrs]


def _sequence(one: Optimizer) -> lr.LRScheduler:
    first, second = lr.LinearLR(one, 0.1, total_iters=5), lr.CosineAnnealingWarmRestarts(one, 7)
    return lr.SequentialLR(one, [first, second, lr.LambdaLR(one, lambda at: 0.9**at)], milestones=[5, 16])


SCHEDULERS: dict[str, Callable[[Optimizer], Any]] = {
    "lambda": lambda one: lr.LambdaLR(one, lambda at: 1 / (1 + at)),
    "multiplicative": lambda one: lr.MultiplicativeLR(one, lambda at: 0.9),
    "step": lambda one: lr.StepLR(one, 4, 0.5),
    "multi step": lambda one: lr.MultiStepLR(one, [3, 12, 20], 0.3),
    "constant": lambda one: lr.ConstantLR(one, 0.5, total_iters=12),
    "linear": lambda one: lr.LinearLR(one, 0.2, total_iters=15),
    "exponential": lambda one: lr.ExponentialLR(one, 0.9),
    "polynomial": lambda one: lr.PolynomialLR(one, 20, 2.0),
    "cosine": lambda one: lr.CosineAnnealingLR(one, 30),
    "warm restarts": lambda one: lr.CosineAnnealingWarmRestarts(one, 6),
    "one cycle": lambda one: lr.OneCycleLR(one, 0.4, total_steps=40),
    "one cycle, three phases": lambda one: lr.OneCycleLR(one, 0.4, total_steps=40, three_phase=True),
    "cyclic": lambda one: lr.CyclicLR(one, 0.05, 0.2, step_size_up=5, cycle_momentum=False),
    "sequence": _sequence,
    "chained": lambda one: lr.ChainedScheduler([lr.ConstantLR(one, 0.5, 5), lr.ExponentialLR(one, 0.9)]),
    "own": Own,
}


def rates(make: Callable[[Optimizer], Any], change: float = 0.0) -> list[float]:
    """What the rate was at each step; changed by hand before one of them, to so many times what it was."""
    model = nn.Linear(2, 2)
    optimizer = SGD(model.parameters(), 0.2)
    scheduler = make(optimizer)
    found = []
    with tl.live(model, optimizer=optimizer, open_server=False) as view:
        for step in range(STEPS):
            if step == CHANGED_AT and change:
                view._control.change("lr", optimizer.param_groups[0]["lr"] * change)
            found.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            scheduler.step()
            if hasattr(scheduler, "get_last_lr"):
                assert scheduler.get_last_lr() == [optimizer.param_groups[0]["lr"]]
    return found


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_schedule_goes_on_from_the_rate_that_was_set(name: str) -> None:
    plain, changed = rates(SCHEDULERS[name]), rates(SCHEDULERS[name], 0.25)
    assert changed[:CHANGED_AT] == plain[:CHANGED_AT]
    assert changed[CHANGED_AT:] == pytest.approx([0.25 * rate for rate in plain[CHANGED_AT:]], rel=1e-6)


def test_a_plateau_goes_on_from_the_rate_that_was_set() -> None:
    model = nn.Linear(2, 2)
    optimizer = SGD(model.parameters(), 0.2)
    scheduler = lr.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    with tl.live(model, optimizer=optimizer, open_server=False) as view:
        view._control.change("lr", 0.08)
        for _ in range(3):
            scheduler.step(1.0)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.04)


@pytest.mark.parametrize("name", ["lambda", "one cycle", "sequence", "own"])
def test_a_rate_of_nothing_is_kept_and_can_be_raised_again(name: str) -> None:
    model = nn.Linear(2, 2)
    optimizer = SGD(model.parameters(), 0.2)
    scheduler = SCHEDULERS[name](optimizer)
    plain = rates(SCHEDULERS[name])
    with tl.live(model, optimizer=optimizer, open_server=False) as view:
        for step in range(STEPS):
            if step == 6:
                view._control.change("lr", 0.0)
            if step == 12:
                view._control.change("lr", plain[12])
            now = optimizer.param_groups[0]["lr"]
            assert now < 1e-25 if 6 <= step < 12 else now == pytest.approx(plain[step], rel=1e-6)
            optimizer.step()
            scheduler.step()


def test_a_schedule_that_stands_at_zero_gets_the_rate_as_its_base() -> None:
    model = nn.Linear(2, 2)
    optimizer = SGD(model.parameters(), 0.2)
    scheduler = lr.LambdaLR(optimizer, lambda at: min(at, 4) / 4)
    with tl.live(model, optimizer=optimizer, open_server=False) as view:
        view._control.change("lr", 0.1)
        for _ in range(6):
            optimizer.step()
            scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


def test_the_momentum_of_a_cycle_survives_as_well() -> None:
    model = nn.Linear(2, 2)
    optimizer = SGD(model.parameters(), 0.2, momentum=0.9)
    scheduler = lr.OneCycleLR(optimizer, 0.4, total_steps=40)
    with tl.live(model, optimizer=optimizer, open_server=False) as view:
        before = optimizer.param_groups[0]["momentum"]
        view._control.change("momentum", before / 2)
        for _ in range(5):
            optimizer.step()
            scheduler.step()
        assert 0.42 < optimizer.param_groups[0]["momentum"] < before / 2


def test_each_group_and_each_optimizer_is_changed_alone() -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    groups = [{"params": one.weight, "lr": torch.tensor(0.1)}, {"params": one.bias, "lr": torch.tensor(0.3)}]
    optimizer, second = Adam(groups, capturable=False, foreach=False), SGD(other.parameters(), 0.5)
    schedulers = [lr.LambdaLR(optimizer, lambda at: 0.5**at), lr.LambdaLR(second, lambda at: 0.5**at)]
    assert schedulers_of(optimizer) == schedulers[:1] and schedulers_of(second) == schedulers[1:]
    with tl.live(one, optimizer=optimizer, open_server=False) as view:
        view._control.change("group 2: lr", 0.6)
        for scheduler in schedulers:
            scheduler.optimizer.step()
            scheduler.step()
    found = [float(group["lr"]) for group in (*optimizer.param_groups, *second.param_groups)]
    assert found == pytest.approx([0.05, 0.3, 0.25])


def test_looking_for_schedulers_keeps_none_alive() -> None:
    optimizer = SGD(nn.Linear(2, 2).parameters(), 0.2)
    scheduler = weakref.ref(lr.LambdaLR(optimizer, lambda at: 1.0))
    assert len(schedulers_of(optimizer)) <= 1
    gc.collect()
    assert scheduler() is None and schedulers_of(optimizer) == []


def test_a_rate_that_the_loop_itself_sets_back_is_told() -> None:
    model = nn.Linear(2, 2)
    optimizer = SGD(model.parameters(), 0.2)
    with tl.live(model, optimizer=optimizer, open_server=False) as view:
        view._control.change("lr", 0.1)
        view._form._sent_at = 0.0
        view._form.send()
        assert not alerts(view)
        optimizer.param_groups[0]["lr"] = 0.2
        view._form._sent_at = 0.0
        view._form.send()
        assert alerts(view) == ["lr was set to 0.1 on the page, and the loop has set it to 0.2 since"]


def alerts(view: Live) -> list[str]:
    assert view.host.path is not None
    return [str(alert) for alert in RunLog(view.host.path.parent).alerts]


def test_a_rate_that_is_set_on_a_real_page_survives_the_next_steps() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    optimizer = SGD(model.parameters(), 0.2)
    scheduler = lr.LambdaLR(optimizer, lambda at: 1.0)

    def step() -> float:
        model(torch.rand(2, 4)).sum().backward()
        optimizer.step()
        scheduler.step()
        time.sleep(0.002)
        return float(optimizer.param_groups[0]["lr"])

    with tl.live(model, optimizer=optimizer, browser=False) as view, Page(view.url) as page:
        step()
        page.say("change", name="lr", value=0.05)
        wait_until(lambda: step() == 0.05, "the rate to be set")
        assert {step() for _ in range(20)} == {0.05}
    view.close()
