"""The tables of a session that is killed and goes on: each row once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from children import run_python
from seams import CheckpointSaved, EpochDone, StepDone, run_all
from training_loop_cases import classifier

from torcheer.studio import logs
from torcheer.training import Session
from torcheer.training.control import Control

KILLS = {  # when the first process ends, as steps done and what has happened
    "behind the row of an epoch, its checkpoint being older": lambda event, step: type(event) is EpochDone,
    "behind the checkpoint of the last round": lambda event, step: type(event) is CheckpointSaved and event.step == 6,
    "in the middle of the second epoch": lambda event, step: type(event) is StepDone and step == 9,
}
STEPS = 6  # of an epoch


def session(directory: Path, checkpoint_steps: int) -> Session:
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.rand(24, 5), torch.randint(0, 3, (24,)))
    others = {"to": directory}
    return classifier(torch.nn.Linear(5, 3), data, (4, 6), epochs=3, others=others, checkpoint_steps=checkpoint_steps)


def train(directory: Path, kill: str = "", checkpoint_steps: int = STEPS, tests_at: int = 0) -> None:
    """Train to the end, or until this process is killed; test everything after a step where that is asked for."""
    with Control(directory) as control:
        held = session(directory, checkpoint_steps)
        held.resume()
        control.take(held)
        for event in held.run():
            if tests_at and type(event) is StepDone and held.place.step == tests_at:
                list(held.save())
                run_all(control)
                os.kill(os.getpid(), signal.SIGKILL)
            if kill and KILLS[kill](event, held.place.step):
                os.kill(os.getpid(), signal.SIGKILL)
        control.finish()


def killed(directory: Path, **asked: Any) -> None:
    """The same in a process of its own, which does not reach its end."""
    code = f"import test_training_control_killed as t, pathlib; t.train(pathlib.Path({str(directory)!r}), **{asked!r})"
    run_python("-c", code, cwd=Path(__file__).parent, status=-signal.SIGKILL)


def rows(directory: Path) -> list[tuple[int, int]]:
    return [(row["Step"], row["Epoch"]) for row in logs(directory)["test_epoch"]]


FURTHER_KILLS = [pytest.param(kill, marks=pytest.mark.faults) for kill in list(KILLS)[1:]]


@pytest.mark.parametrize("kill", [*list(KILLS)[:1], *FURTHER_KILLS])
def test_a_killed_run_that_goes_on_has_each_epochs_test_once(tmp_path: Path, one_thread: None, kill: str) -> None:
    killed(tmp_path, kill=kill)
    train(tmp_path)
    assert rows(tmp_path) == [(6, 1), (12, 2), (18, 3)]
    train(tmp_path / "whole")
    assert logs(tmp_path)["test_epoch"] == logs(tmp_path / "whole")["test_epoch"]


@pytest.mark.parametrize("step", [pytest.param(4, marks=pytest.mark.faults), 6])
def test_a_test_asked_for_within_an_epoch_is_kept_and_comes_once(tmp_path: Path, one_thread: None, step: int) -> None:
    killed(tmp_path, tests_at=step, checkpoint_steps=1000)
    assert rows(tmp_path) == [(step, 1)]
    train(tmp_path)
    assert rows(tmp_path) == [(step, 1), (6, 1), (12, 2), (18, 3)]
