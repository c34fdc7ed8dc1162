"""`tl.watch(notify=…)`: alerts, a hang, a crash and the end reach a web server."""

from __future__ import annotations

import os
import warnings

import pytest
import torch
from children import Child, run_python
from models import mlp
from torch import nn
from waiting import wait_until
from webhooks import Webhook

import torcheer as tl
from torcheer.errors import BadArgument
from torcheer.inspector import Transport

RING = Transport(bytes=8 << 20, drain_secs=60.0)
LOOP = """
    import os, sys, time, torch, torcheer as tl
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    def step(w, value=1.0):
        model(torch.full((2, 4), value)).sum().backward()
        w.log(loss=value)
"""


def test_an_alert_and_the_end_arrive() -> None:
    model = mlp()
    width = next(model.parameters()).shape[1]
    with Webhook() as hook:
        with tl.watch(model, every=1, transport=RING, notify=hook.url, tell=lambda text: None, on_alert=print):
            for _ in range(3):
                model(torch.full((2, width), float("nan"))).sum().backward()
        assert hook.kinds()[-1] == "end" and hook.events[-1]["title"] == "Sequential"
        assert "values of 3 steps" in hook.events[-1]["text"]
        assert any(event["rule"] == "nan_inf" for event in hook.events[:-1])


def test_an_exception_in_the_block_is_a_crash() -> None:
    with Webhook() as hook:
        with pytest.raises(RuntimeError), tl.watch(mlp(), notify=hook.url, transport=RING, tell=lambda text: None):
            raise RuntimeError("out of luck")
        assert hook.kinds() == ["crash"] and "crashed: RuntimeError: out of luck" in hook.events[0]["text"]


def test_a_run_that_a_rule_ends_has_not_crashed() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    with Webhook() as hook:
        settings = {"transport": RING, "tell": lambda text: None, "on_alert": lambda alert: None}
        with tl.watch(
            model, every=1, stop_on="nan_inf", notify={"url": hook.url, "on": ["crash", "end"]}, **settings
        ) as w:
            wait_until(lambda: model(torch.full((2, 4), float("nan"))).sum().backward() and w.should_stop)
        assert w.should_stop and hook.kinds() == ["end"]


def test_a_killed_trainer_is_reported_by_the_survivors() -> None:
    code = f"""{LOOP}
    with tl.watch(model, every=1, notify=sys.argv[1]) as w:
        step(w)
        print("ready", flush=True)
        time.sleep(60)
    """
    with Webhook() as hook, Child("-c", code, hook.url) as child:
        child.line()
        child.kill()
        wait_until(lambda: hook.kinds() == ["crash"])
        assert f"its process {child.pid} is gone without a word" in hook.events[0]["text"]


def test_an_uncaught_exception_of_a_script_without_a_block_is_a_crash() -> None:
    with Webhook() as hook:
        code = f"{LOOP}\n    w = tl.watch(model, every=1, notify=sys.argv[1])\n    step(w)\n    raise KeyError('lost')"
        run_python("-c", code, hook.url, status=1)
        wait_until(lambda: hook.events)
        assert hook.kinds() == ["crash"] and "KeyError: 'lost'" in hook.events[0]["text"]


def test_a_trainer_that_hangs_is_reported_though_it_reads_nothing() -> None:
    code = f"""{LOOP}
    rules = {{"stalled_loader": {{"silent_secs": 0.3}}}}
    with tl.watch(model, every=1, rules=rules, notify=sys.argv[1]) as w:
        for _ in range(20):
            step(w)
            time.sleep(0.01)
        time.sleep(60)
    """
    with Webhook() as hook, Child("-c", code, hook.url):
        wait_until(lambda: hook.kinds() == ["alert"])
        assert hook.events[0]["rule"] == "stalled_loader" and "nothing has come for" in hook.events[0]["text"]


def test_a_webhook_that_hangs_leaves_the_numbers_and_the_loop_alone() -> None:
    torch.manual_seed(0)
    first, second = mlp(), mlp()
    second.load_state_dict(first.state_dict())
    width = next(first.parameters()).shape[1]
    x = torch.rand(5, width)
    results = []
    with Webhook(hangs=True) as hook, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for model, notify in ((first, None), (second, hook.url)):
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            with tl.watch(
                model, every=1, transport=RING, notify=notify, tell=lambda text: None, on_alert=lambda a: None
            ):
                for _ in range(5):
                    loss = model(x).square().mean()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            results.append([parameter.detach().clone() for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*results))


def test_a_wrong_target_is_refused_before_anything_starts() -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(BadArgument, match="either a url or a command is needed"):
        tl.watch(mlp(), notify={})
    assert set(os.listdir("/proc/self/fd")) <= before  # others may close theirs meanwhile
