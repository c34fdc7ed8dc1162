"""`tl.live(notify=…)`: alerts, a crash and the end reach a web server."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from children import Child
from torch import nn
from waiting import wait_until
from webhooks import Webhook

import torcheer as tl


def test_alerts_and_the_end_of_a_live_loop_arrive() -> None:
    model = nn.Linear(4, 2)
    with Webhook() as hook:
        with tl.live(model, open_server=False, title="small", notify=hook.url) as view:
            model(torch.ones(2, 4)).sum().backward()
            view.alert("it is slow")
        assert hook.kinds() == ["alert", "end"]
        assert hook.events[0]["text"] == "torcheer: small: it is slow"
        assert hook.events[1]["text"] == "torcheer: small: ended. Epoch 0, Step 0"


def test_an_exception_in_a_live_loop_is_a_crash() -> None:
    with Webhook() as hook:
        with pytest.raises(ZeroDivisionError), tl.live(nn.Linear(4, 2), open_server=False, notify=hook.url):
            raise ZeroDivisionError("by zero")
        assert hook.kinds() == ["crash"] and "ZeroDivisionError: by zero" in hook.events[0]["text"]


def test_a_killed_live_loop_is_reported() -> None:
    code = """
    import sys, time, torch, torcheer as tl
    with tl.live(torch.nn.Linear(4, 2), open_server=False, notify=sys.argv[1]):
        print("ready", flush=True)
        time.sleep(60)
    """
    with Webhook() as hook, Child("-c", code, hook.url) as child:
        child.line()
        child.kill()
        wait_until(hook.kinds, "a message")
        assert hook.kinds() == ["crash"]


def test_a_notifying_process_that_cannot_be_started_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "")
    with pytest.warns(RuntimeWarning, match="nobody is notified of this run: the process for it cannot be started"):
        view = tl.live(nn.Linear(4, 2), open_server=False, notify="true")
    view.close()


def test_a_log_that_cannot_be_written_is_reported_there_too(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")
    with Webhook() as hook:
        with pytest.warns(RuntimeWarning, match="there is no log"):
            view = tl.live(nn.Linear(4, 2), to=tmp_path, open_server=False, notify=hook.url)
        view.close()
        assert hook.kinds() == ["alert", "end"] and "there is no log in" in hook.events[0]["text"]
