"""A session that notifies: its alerts, a crash, its end; and what a config may say about it."""

from __future__ import annotations

import json
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import Alert, CheckpointSaved, StepDone, checked
from torch import nn
from torch.utils.data import TensorDataset
from training_loop_cases import classifier
from training_spec_cases import CODE, SMALL
from webhooks import Webhook

from torcheer import cli
from torcheer.config import read
from torcheer.training import Session

pytestmark = pytest.mark.usefixtures("one_thread")


def session(directory: Path | None = None, x: torch.Tensor | None = None, **options: Any) -> Session:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3))
    data = TensorDataset(torch.rand(8, 4) if x is None else x, torch.arange(8) % 3)
    return classifier(model, data, (4,), others={"to": directory}, **options)


def test_the_end_of_a_session_arrives_with_its_last_numbers(tmp_path: Path) -> None:
    with Webhook() as hook:
        list(session(tmp_path / "first", notify=hook.url).run())
        assert hook.kinds() == ["end"]
        assert hook.events[0]["text"].startswith("torcheer: first: ended. Step 4, epoch 2: loss 1.")


def test_an_error_in_a_step_is_a_crash() -> None:
    with Webhook() as hook:
        with pytest.raises(RuntimeError):
            list(session(x=torch.rand(8, 5), notify=hook.url).run())
        assert hook.kinds() == ["crash"] and "RuntimeError: " in hook.events[0]["text"]


def test_alerts_of_a_session_s_watch_arrive_with_their_severity() -> None:
    with Webhook() as hook:
        poisoned = session(x=torch.full((8, 4), torch.nan), watch={"every": 1}, notify=hook.url)
        events = list(poisoned.run())
        assert any(event["event"] == "alert" and event["rule"] == "nan_inf" for event in hook.events)
        assert all(event["severity"] != "note" for event in hook.events[:-1]), "the watch's closing line is a note"
        assert any(isinstance(event, Alert) and event.record is not None for event in events)


def test_leaving_after_the_first_checkpoint_notifies_of_nothing(tmp_path: Path) -> None:
    with Webhook() as hook:
        events = session(tmp_path / "run", notify=hook.url).run()
        assert isinstance(next(events), CheckpointSaved)
        events.close()
        assert not hook.requests


def test_a_loop_that_is_left_early_is_an_end() -> None:
    with Webhook() as hook:
        events = session(notify=hook.url).run()
        next(event for event in events if isinstance(event, StepDone))
        events.close()
        assert hook.kinds() == ["end"]


def test_a_target_that_refuses_becomes_an_alert() -> None:
    with Webhook(404) as hook:
        events = list(session(notify=f"{hook.url}?secret").run())
    (message,) = [event.message for event in events if isinstance(event, Alert)]
    assert "was not told of the end: it answered 404" in message and "secret" not in message


# -- in a config


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toys.py").write_text(CODE)
    return tmp_path


def config(project: Path, notify: Any) -> str:
    path = project / "training.json"
    path.write_text(json.dumps(deepcopy(SMALL) | {"notify": notify, "device": "cpu"}))
    return str(path)


def test_a_config_names_the_variable_that_holds_the_address(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Webhook() as hook:
        monkeypatch.setenv("MY_HOOK", f"{hook.url}/secret-path")
        assert cli.main(["train", config(project, {"url": "$MY_HOOK"}), "--plain", "--no-control"]) == 0
        assert hook.kinds() == ["end"] and hook.requests[0][0] == "/hook/secret-path"
    found = subprocess.run(["grep", "-r", "secret-path", str(project)], capture_output=True, text=True)
    assert found.stdout == ""


@pytest.mark.parametrize(
    ("notify", "words"),
    [
        ({"url": "https://hooks.example/secret"}, "the name of an environment variable that holds the address"),
        ({"command": "rm -rf /"}, "this is a string, and a list is needed here"),
        ({"command": ["rm", "-rf"]}, "a command of a config runs only if you trust it: run with --trust rm"),
        ([{"command": ["rm"]}], "run with --trust rm"),
        ({"url": "$A", "command": ["b"]}, "has one of the keys 'url' or 'command'"),
        ({}, "has one of the keys 'url' or 'command'"),
        ({"url": "$A", "onn": "end"}, "notify has no key 'onn'. Did you mean 'on'?"),
    ],
)
def test_a_config_runs_no_command_and_holds_no_address(project: Path, notify: Any, words: str) -> None:
    problems = checked(read(config(project, notify))).problems
    assert any(words in problem for problem in problems), problems


def test_a_command_of_a_config_runs_where_it_is_trusted(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "hear.sh").write_text("#!/bin/sh\ncat > heard.json\n")
    (project / "hear.sh").chmod(0o755)
    train = ["train", config(project, {"command": ["./hear.sh"]}), "--plain", "--no-control"]
    assert cli.main(train) != 0 and "--trust ./hear.sh" in capsys.readouterr().err
    assert not (project / "heard.json").exists()
    assert cli.main([*train, "--trust", "./hear.sh"]) == 0
    assert json.loads((project / "heard.json").read_text())["event"] == "end"


def test_the_command_line_s_target_is_written_nowhere(project: Path) -> None:
    with Webhook() as hook:
        train = ["train", config(project, None), "--plain", "--no-control", "--notify", f"{hook.url}/secret-path"]
        assert cli.main(train) == 0 and hook.kinds() == ["end"]
    assert subprocess.run(["grep", "-r", "secret-path", str(project)]).returncode == 1
