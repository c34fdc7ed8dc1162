"""What of a watch can be changed while it runs, and when it looks by the clock."""

from __future__ import annotations

import math
import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from models import small
from seams import Rules, resolve_rules, statistics_of
from torch import nn
from waiting import wait_until
from watch_checks import train

import torcheer as tl
from torcheer.errors import BadArgument
from torcheer.inspector import Every, Transport, Watch, open_watch
from torcheer.inspector.rules import RULES
from torcheer.records import Sample
from torcheer.samples import Delivery

RING = Transport(bytes=1 << 20, drain_secs=60.0)


def quiet(**settings: object) -> Watch:
    return tl.watch(nn.Linear(2, 2), tell=lambda text: None, on_alert=lambda alert: None, transport=RING, **settings)  # type: ignore[arg-type]


def sent(w: Watch, **metrics: float) -> None:
    """Send numbers and wait until the child is done with them."""
    w.log(**metrics)
    assert wait_until(lambda: w.account.handled == w.account.offered)


def test_rules_can_be_changed_while_it_runs() -> None:
    with quiet(rules=None) as w:
        sent(w, loss=math.nan)
        w.rules = {"nan_inf": {"inf": False}}
        assert wait_until(lambda: w.log(loss=math.nan) or w.alerts)
        assert w.rules["nan_inf"] == resolve_rules()["nan_inf"] | {"inf": False} and set(w.rules) == set(RULES)
        w.rules = w.rules | {"nan_inf": False}
        assert w.rules == {**resolve_rules(), "nan_inf": False}
        before = len(w.alerts)
        sent(w, other=math.nan, val_loss=1.0)
        sent(w, loss=math.nan)
    assert len(w.alerts) == before


def test_a_child_that_is_started_again_knows_the_rules_as_they_are() -> None:
    with quiet(rules=None) as w:
        w.rules = ["nan_inf"]
        assert w._link is not None
        os.kill(w._link.process.pid, signal.SIGKILL)
        w._link.process.join(10)
        w.log(loss=math.nan)
        assert wait_until(lambda: w.alerts)
    assert [alert.rule for alert in w.alerts] == ["nan_inf"] and w.account.restarts == 1


def test_what_ends_the_run_can_be_changed_while_it_runs() -> None:
    model, reached = small(), []
    with tl.watch(model, every=1, tell=lambda text: None, on_alert=lambda alert: None, transport=RING) as w:
        assert w.stop_on == ()
        train(model, 1)
        w.stop_on = "nan_inf"
        w.log(loss=math.nan)
        assert w.stop_on == ("nan_inf",) and wait_until(lambda: w.alerts)
        train(model, 1)
        reached.append("the next step")
    assert w.should_stop and w.step == 1 and reached == []


def test_changes_that_make_no_sense_are_refused_and_nothing_changes() -> None:
    with quiet(stop_on="nan_inf") as w:
        before = w.rules
        with pytest.raises(BadArgument, match="no rule named 'nan'"):
            w.rules = ["nan"]
        with pytest.raises(BadArgument, match="rule dead_relu has no setting 'shaer'"):
            w.rules = {"dead_relu": {"shaer": 0.5}}
        with pytest.raises(BadArgument, match="stop_on='nan_inf': no such rule is on"):
            w.rules = None
        with pytest.raises(BadArgument, match=r"stop_on='dead': no such rule is on.*Did you mean 'dead_relu'"):
            w.stop_on = ["dead"]
        assert w.rules == before and w.stop_on == ("nan_inf",)


def test_a_rule_that_stays_as_it_was_forgets_nothing_and_one_that_changed_begins_anew() -> None:
    def looks(rules: Rules, steps: range) -> list[tuple[str, int]]:
        seen = [Delivery(Sample(step, "a", "output", array=np.zeros(4))) for step in steps]
        found = [alert for one in seen for alert in rules.judge(one, statistics_of(one.sample.array))]
        return [(alert.rule, alert.since) for alert in found + rules.idle()]

    before = resolve_rules({"all_zero": {"patience": 4}})
    same, other = (
        before | {"unchanged": {**before["unchanged"], "patience": 3}},
        resolve_rules({"all_zero": {"patience": 3}}),
    )
    for changed, told in ((same, [("all_zero", 0)]), (other, [("all_zero", 3)])):
        rules = Rules(before)
        assert looks(rules, range(3)) == []
        rules.change(changed)
        assert looks(rules, range(3, 6)) + looks(rules, range(6, 7)) == told


@pytest.mark.timing
def test_seconds_between_looks_are_those_of_the_clock(tmp_path: Path) -> None:
    model, end = nn.Linear(2, 2), time.monotonic() + 20
    settings = {"what": "output", "every": Every(secs=0.25), "to": tmp_path}
    watched: list[tuple[float, float]] = []  # when each watched pass began and ended
    with tl.watch(model, tell=lambda text: None, transport=RING, **settings) as w:  # type: ignore[arg-type]
        while len(watched) < 4 and time.monotonic() < end:
            began_secs = time.monotonic()
            model(torch.ones(1, 2))
            if w.is_watching:
                watched.append((began_secs, time.monotonic()))
            time.sleep(0.005)
    assert len(open_watch(tmp_path)["Linear", "output"]) == 4 and w.step > 8  # most steps were not looked at
    assert min(ended - began for (began, _), (_, ended) in pairwise(watched)) >= 0.25
