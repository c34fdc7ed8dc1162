"""A loop that hangs sends nothing: the child says so by its own clock, once, and is quiet when steps come again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inspector_runs import sent
from seams import Plan, Silence, WatchAnalysis, has_watch, resolve_rules
from waiting import wait_until

import torcheer as tl
from torcheer.inspector import Transport, open_watch


def test_silence_is_told_once_and_learned_from() -> None:
    silence, now = Silence(60.0), 100.0
    for step in range(8):
        silence.end(step, now, now)
        silence.end(step, now + 0.1, now + 0.1)
        now += 1.0
    last = now - 0.9
    assert silence.alert(last + 59) is None
    found = silence.alert(last + 61)
    assert found is not None and (found.rule, found.step, found.variable) == ("stalled_loader", 7, "run")
    assert found.what == "nothing has come for 61 s, where 0.9 s are usual between two looks"
    assert silence.alert(last + 70) is None  # told
    for step in range(8, 12):
        silence.end(step, last + 80 + step, last + 80 + step)
    assert silence.alert(last + 91 + 90) is None  # an evaluation may take that long again
    assert silence.alert(last + 91 + 180) is not None


def test_of_a_slow_training_nothing_is_told_too_soon() -> None:
    silence = Silence(60.0)
    for step in range(10):
        silence.end(step, 30.0 * step, 30.0 * step)
    assert silence.alert(270.0 + 599) is None and silence.alert(270.0 + 601) is not None


def test_one_that_has_hardly_begun_is_left_alone() -> None:
    silence = Silence(60.0)
    silence.end(0, 1.0, 1.0)
    assert silence.alert(10_000.0) is None


def test_who_asks_for_no_rules_is_told_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    said: list[Any] = []
    analysis = WatchAnalysis(Plan(rules=resolve_rules({"stalled_loader": False})), said.append)
    for step in range(8):
        analysis.take(sent(step, "a", "output", np.ones(3)))
    analysis.tick()
    assert analysis._silence is None and said == [] and capfd.readouterr().err == ""


def test_a_loop_that_hangs_is_told_of_while_it_does(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    rules = {"stalled_loader": {"silent_secs": 1.5}}
    with tl.watch(model, every=1, to=tmp_path, rules=rules, transport=Transport(bytes=4 << 20)) as w:
        for _ in range(12):
            model(torch.rand(1, 2)).sum().backward()
            time.sleep(0.01)  # the pace
        assert wait_until(lambda: has_watch(tmp_path) and open_watch(tmp_path).alerts)  # and here it hangs
        model(torch.rand(1, 2))
    (alert,) = open_watch(tmp_path).alerts
    assert (alert.rule, alert.step) == ("stalled_loader", 11) and [one.rule for one in w.alerts] == ["stalled_loader"]
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "stalled_loader" in line]  # not again later
    assert line.startswith("torcheer: stalled_loader at step 11: run: nothing has come for")


def test_values_that_wait_for_the_child_tell_it_the_pace_all_the_same() -> None:
    silence = Silence(1.0)
    for step in range(10):
        silence.end(step, 500.0, 30.0 * step)  # all at once
    assert silence.alert(500.0 + 599) is None and silence.alert(500.0 + 601) is not None
