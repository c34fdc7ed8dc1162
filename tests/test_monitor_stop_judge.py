"""`stop_on` ends a loop before its next step: judged at the boundary, by the rules that the child applies."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from models import small
from seams import finite_checks, stop_judge
from test_tap_fused_batch import batches_on_the_cpu  # noqa: F401  (a fixture)
from torch import nn
from waiting import wait_until
from watch_checks import Probed, batch

import torcheer as tl
from torcheer.inspector import Transport, Watch
from torcheer.samples import Alert, Delivery

STEPS = 60
pytestmark = pytest.mark.usefixtures("one_thread")


def loop(
    *, poison: int = 22, log: bool = False, before: Callable[[Watch, int], Any] = lambda w, step: None, **options: Any
) -> tuple[Watch, int]:
    """A loop of steps of a millisecond whose data have a NaN at one step; the watch, and the last step that ran."""
    torch.manual_seed(0)
    model, last = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)), -1
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    options = {"tell": lambda text: None, "on_alert": lambda alert: None, "stop_on": "nan_inf"} | options
    with tl.watch(model, transport=Transport(bytes=8 << 20, drain_secs=60.0), **options) as w:
        for step in range(STEPS):
            before(w, step)
            x = torch.rand(32, 8)
            if step == poison:
                x[0, 0] = math.nan
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), torch.randint(0, 3, (32,)))
            loss.backward()
            optimizer.step()
            if log:
                w.log(loss=loss if step % 2 else loss.item())
            last = step
    return w, last


@pytest.mark.parametrize("stop_on", ["nan_inf", "error"])
def test_a_loop_of_short_steps_ends_before_the_step_after_a_nan(stop_on: str) -> None:
    w, last = loop(every=1, stop_on=stop_on)
    assert last == 22 and w.should_stop
    assert [(alert.rule, alert.step, alert.layer, alert.variable) for alert in w.alerts] == [
        ("nan_inf", 22, "0", "input")
    ]
    assert w.problems == []


def test_of_every_fifth_step_the_first_that_is_looked_at_ends_the_loop_and_says_what_it_cannot_know() -> None:
    w, last = loop(every=5)
    assert last == 25 and w.alerts[0].step == 25
    assert "it may have begun after step 20, the last look before" in w.alerts[0].what


@pytest.mark.parametrize("poison", [22, 23])
def test_a_metric_that_is_logged_between_two_looks_ends_the_loop_too(poison: int) -> None:
    w, last = loop(every=1000, log=True, poison=poison)
    assert last == poison and (w.alerts[0].layer, w.alerts[0].variable) == ("loss", "metric")


def test_without_a_block_the_loop_is_told_right_after_the_step() -> None:
    model, told = small(), []
    w = tl.watch(model, every=1, stop_on="error", tell=lambda text: None, on_alert=told.append)
    for step in range(5):
        x, _ = batch(step)
        model(x * math.nan if step == 3 else x).sum().backward()
        if w.should_stop:
            break
    assert step == 3 and [alert.step for alert in told] == [3]
    w.close()
    assert w.problems == []


def test_a_loop_stops_where_its_child_is_silent_and_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_judge, "_NAMED_SECS", 0.05)
    told: list[Alert] = []

    def stop_child(w: Watch, step: int) -> None:
        assert w._link is not None
        if step == 20:
            assert wait_until(lambda: w.account.handled)
            os.kill(w._link.process.pid, signal.SIGSTOP)

    def hear(alert: Alert) -> None:
        told.append(alert)
        for w in watches:
            assert w._link is not None
            os.kill(w._link.process.pid, signal.SIGCONT)

    watches: list[Watch] = []
    _, last = loop(every=1, before=lambda w, step: (watches.append(w), stop_child(w, step)), on_alert=hear)
    assert last == 22 and [(alert.rule, alert.step) for alert in told] == [("nan_inf", 22)]
    assert "it may have begun" not in told[0].what  # the step before was looked at


def test_a_nan_for_which_the_ring_has_no_room_stops_the_loop_and_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop_judge, "_NAMED_SECS", 60.0)

    def refuse(w: Watch, step: int) -> None:
        assert w._link is not None
        if step == 22:
            w._sender._turns._link = Full(w._link.ring)  # type: ignore[assignment]

    w, last = loop(every=1, before=refuse, to=tmp_path)
    assert last == 22 and sum(w.drops.values()) > 0
    assert [(alert.rule, alert.step) for alert in tl.load(tmp_path).alerts] == [("nan_inf", 22)]
    assert [(alert.rule, alert.step, bool(alert.id)) for alert in w.alerts] == [("nan_inf", 22, True)]


class Full:
    """A ring without room."""

    def __init__(self, ring: Any) -> None:
        self.refuse = ring.refuse

    def offer(self, header: dict[str, Any], *_: Any) -> bool:
        return bool(self.refuse(header))

    offer_together = offer_batch = lambda self, values: False


def zeros_from(step: int) -> nn.Module:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.passes = nn.Linear(4, 3), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.passes += 1
            return self.layer(x) * float(self.passes <= step)  # type: ignore[no-any-return]

    return nn.Sequential(Model())


PATIENT = {"rules": {"all_zero": {"patience": 3}}, "stop_on": "all_zero", "every": 1, "on_alert": lambda alert: None}


def test_a_rule_with_a_history_ends_the_loop_before_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_judge, "ANSWER_SECS", 60.0)
    model, last = zeros_from(10), -1
    with tl.watch(model, tell=lambda text: None, **PATIENT) as w:
        for step in range(STEPS):
            model(torch.rand(2, 4)).sum().backward()
            last = step
    assert last == 12 and [(alert.rule, alert.step, alert.since) for alert in w.alerts] == [("all_zero", 12, 10)]


def test_a_rule_with_a_history_is_waited_for_no_longer_than_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_judge, "ANSWER_SECS", 0.01)
    model, last = zeros_from(0), -1
    with tl.watch(model, tell=lambda text: None, **PATIENT) as w:
        assert w._link is not None
        w.log(loss=1.0)
        assert wait_until(lambda: w.account.handled)
        os.kill(w._link.process.pid, signal.SIGSTOP)
        for step in range(8):
            model(torch.rand(2, 4)).sum().backward()
            last = step
        os.kill(w._link.process.pid, signal.SIGCONT)
    assert last == 7
    assert w.problems == ["stop_on: all_zero of step 2 came too late to stop the loop, which had ended after step 7"]


def test_a_block_that_ends_with_a_fatal_alert_says_that_the_stop_came_too_late() -> None:
    w, last = loop(every=1, poison=STEPS - 1)
    assert last == STEPS - 1 and [alert.rule for alert in w.alerts] == ["nan_inf"]
    assert w.problems == ["stop_on: nan_inf of step 59 came too late to stop the loop, which had ended after step 59"]


def test_nothing_is_looked_at_without_stop_on_nor_between_watched_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    finite = finite_checks.all_finite
    monkeypatch.setattr(finite_checks, "all_finite", lambda tensor: looked.append(1) or finite(tensor))
    loop(every=7, stop_on=(), poison=-1)
    loop(every=7, stop_on="dead_relu", rules=["dead_relu"], poison=-1)
    assert looked == []
    steps: list[tuple[int, int]] = []
    loop(every=7, poison=-1, before=lambda w, step: steps.append((step, len(looked))))
    grown = {step for (step, count), (_, after) in zip(steps, [*steps[1:], (STEPS, len(looked))]) if after > count}
    assert grown == set(range(0, STEPS, 7))


def test_a_mask_of_infinities_from_a_rule_that_leaves_them_out_stops_nothing() -> None:
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.masked_fill(x > 0.5, -math.inf)

    model, last = nn.Sequential(Masked()), -1
    with tl.watch(model, every=1, rules={"nan_inf": {"inf": False}}, stop_on="nan_inf", tell=lambda text: None):
        for step in range(4):
            model(torch.rand(4, 4))
            last = step
    assert last == 3


# -- values of a device


@pytest.mark.parametrize("whole", [(), ("*",)])
def test_values_that_are_reduced_on_a_device_are_judged_when_they_have_arrived(
    whole: Any,
    batches_on_the_cpu: list[int],  # noqa: F811
) -> None:
    found: list[Delivery] = []
    model = small()
    with Probed(model, whole=whole) as probed:
        probed.sender.limits.devices = frozenset({"cpu"})
        probed.sender.nonfinite.found = found.append
        for step in range(4):
            x, y = batch(step)
            loss = nn.functional.cross_entropy(model(x), y)
            (loss * (math.nan if step == 3 else 1.0)).backward()
            probed.sender.harvest(wait=True)
            assert bool(found) == (step == 3)
    assert {sent.sample.step for sent in found} == {3}
    assert {sent.sample.variable for sent in found} == {"grad"}
