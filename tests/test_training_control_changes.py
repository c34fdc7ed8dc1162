"""Parameters that are changed by hand in a run that is killed: it makes each change again, at its step, bit for bit."""

from __future__ import annotations

import csv
import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from control_cases import Running
from seams import Alert, ChangeLog, ParameterChange, TrainingLog
from training_cases import Nursery, results, run, session

from torcheer.training.session_parts import Place

Acts = list[tuple[Any, ...]]  # ("step_n", count), ("step_epoch",), ("change", name, value), ("kill",)
LR, MOMENTUM, SGD_LR = "optimizers.adam.lr", "optimizers.sgd.momentum", "optimizers.sgd.lr"
NEVER = 10**6
KILLS: dict[str, tuple[str, int, Acts]] = {  # case, steps between checkpoints, what is asked of it until it is killed
    "right after the change": ("plain", NEVER, [("step_n", 4), ("change", LR, 0.003), ("kill",)]),
    "some steps after changes": (
        "plain",
        5,
        [("step_n", 4), ("change", LR, 0.02), ("step_n", 3), ("change", LR, 0.001), ("step_n", 2), ("kill",)],
    ),
    "a change before the first step": ("plain", NEVER, [("change", LR, 0.05), ("step_n", 2), ("kill",)]),
    "between two epochs": (
        "pipelines",
        NEVER,
        [("step_epoch",), ("change", SGD_LR, 0.004), ("change", MOMENTUM, 0.5), ("step_n", 1), ("kill",)],
    ),
    "where gradients are accumulated": (
        "accumulation",
        NEVER,
        [("step_n", 2), ("change", SGD_LR, 0.2), ("step_n", 1), ("change", LR, 0.0), ("kill",)],
    ),
}


def play(directory: Path, case: str, acts: Acts, checkpoint_steps: int) -> None:
    """Train under control: do what is asked for between two steps, then go on to the end."""
    running = Running(session(case, directory, checkpoint_steps=checkpoint_steps))
    looker = running.looker
    looker.status("paused")
    for act, *about in acts:
        if act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif act == "change":
            looker.change(*about)
            looker.until(lambda about=about: looker.parameters.get(about[0], {}).get("value") == about[1])
        else:
            before = (looker.state["counters"]["Epoch"], looker.state["counters"]["Batch"])
            looker.act(act, count=about[0] if about else 0)
            looker.until(lambda before=before: (counters_of(looker) != before) and looker.state["status"] == "paused")
    looker.act("train")
    running.join()


def counters_of(looker: Any) -> tuple[int, int]:
    return looker.state["counters"]["Epoch"], looker.state["counters"]["Batch"]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


def killed(nursery: Nursery, directory: Path, case: str, checkpoint_steps: int, acts: Acts) -> None:
    """The same in a process of its own, which does not reach its end."""
    nursery.start(case, directory, acts=acts, checkpoint_steps=checkpoint_steps)
    assert nursery.wait() == -signal.SIGKILL


def whole(directory: Path, case: str, checkpoint_steps: int, acts: Acts) -> dict[str, bytes]:
    """What a run gives that is never killed."""
    play(directory, case, [act for act in acts if act != ("kill",)], checkpoint_steps)
    return results(directory)


@pytest.mark.parametrize("kill", KILLS)
def test_a_run_that_is_killed_after_a_change_makes_it_again(
    tmp_path: Path, nursery: Nursery, one_thread: None, kill: str
) -> None:
    case, checkpoint_steps, acts = KILLS[kill]
    killed(nursery, tmp_path / "killed", case, checkpoint_steps, acts)
    run(case, tmp_path / "killed", checkpoint_steps=checkpoint_steps)  # nobody looks on
    assert results(tmp_path / "killed") == whole(tmp_path / "whole", case, checkpoint_steps, acts)


def test_a_run_that_is_killed_again_while_it_catches_up_makes_the_change_again(
    tmp_path: Path, nursery: Nursery, one_thread: None
) -> None:
    acts: Acts = [("step_n", 4), ("change", LR, 0.003), ("step_n", 1), ("kill",)]
    killed(nursery, tmp_path / "killed", "plain", NEVER, acts)
    killed(nursery, tmp_path / "killed", "plain", NEVER, [("step_n", 2), ("kill",)])
    messages = [event.message for event in session("plain", tmp_path / "killed").run() if type(event) is Alert]
    assert messages == [f"{LR} is 0.003 from here on, and was 0.01: as it was changed before this run was interrupted"]
    assert results(tmp_path / "killed") == whole(tmp_path / "whole", "plain", 3, acts)


def test_a_run_that_goes_on_from_a_checkpoint_before_the_change_makes_it_again(
    tmp_path: Path, nursery: Nursery, one_thread: None
) -> None:
    acts: Acts = [("step_n", 4), ("change", LR, 0.003), ("step_n", 3), ("kill",)]
    killed(nursery, tmp_path / "killed", "plain", 3, acts)
    for checkpoint in (tmp_path / "killed" / "checkpoints").glob("[0-9]*"):
        if int(checkpoint.name) > 3:
            shutil.rmtree(checkpoint)  # as if the disk had lost it
    again = session("plain", tmp_path / "killed", checkpoint_steps=3)
    again.resume()
    assert (again.place.step, again.changes.is_pending) == (3, True)
    for _ in again.run():
        pass
    assert results(tmp_path / "killed") == whole(tmp_path / "whole", "plain", 3, acts)


def test_a_change_by_hand_holds_instead_of_a_later_one_that_was_made_before(
    tmp_path: Path, nursery: Nursery, one_thread: None
) -> None:
    before: Acts = [("step_n", 4), ("change", LR, 0.003), ("change", SGD_LR, 1), ("kill",)]
    killed(nursery, tmp_path / "killed", "plain", NEVER, before)
    play(tmp_path / "killed", "plain", [("step_n", 2), ("change", LR, 0.02)], NEVER)
    with open(tmp_path / "killed" / "metrics" / "changes.csv", newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert rows == [["2", "1", LR, "0.01", "0.02"], ["4", "1", SGD_LR, "0.01", "1.0"]]
    acts: Acts = [("step_n", 2), ("change", LR, 0.02), ("step_n", 2), ("change", SGD_LR, 1)]
    assert results(tmp_path / "killed") == whole(tmp_path / "whole", "plain", NEVER, acts)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_changes_and_kills_at_any_step_leave_no_trace(
    tmp_path: Path, nursery: Nursery, one_thread: None, seed: int
) -> None:
    draw = random.Random(seed)
    case = draw.choice(["plain", "workers", "accumulation", "stages", "pipelines"])
    acts: Acts = []
    for number in range(draw.randrange(1, 4)):  # so few that no run ends before
        acts.append(("step_epoch",) if not number and draw.random() < 0.5 else ("step_n", draw.randrange(1, 4)))
        for name in draw.sample([LR, SGD_LR, MOMENTUM, "optimizers.adam.weight_decay"], draw.randrange(3)):
            acts.append(("change", name, round(10 ** draw.uniform(-4, -1), 6)))
    steps = draw.choice([2, 7, NEVER])
    killed(nursery, tmp_path / "killed", case, steps, [*acts, ("kill",)])
    run(case, tmp_path / "killed", checkpoint_steps=steps)
    assert results(tmp_path / "killed") == whole(tmp_path / "whole", case, steps, acts)


# -- the log -----------------------------------------------------------------------------------------------------------


def logged(directory: Path, *steps: int) -> ChangeLog:
    log = ChangeLog(TrainingLog(directory))
    for step in steps:
        log.add(ParameterChange("lr", 0.1, 0.1 + step), Place(step=step))
    return log


def test_a_checkpoint_that_counts_no_changes_holds_those_up_to_its_step(tmp_path: Path) -> None:
    logged(tmp_path, 2, 5, 5, 9)
    log = ChangeLog(TrainingLog(tmp_path))
    log.resume(None, 5)  # as torcheer 0.1 wrote it
    assert [row[0] for row in log.rows] == [2, 5, 5] and log.is_pending
    log.resume(1, 5)
    assert [row[0] for row in log.rows] == [2]


def test_a_run_from_the_beginning_has_no_changes(tmp_path: Path, one_thread: None) -> None:
    logged(tmp_path / "again", 0, 3)
    run("plain", tmp_path / "again")
    run("plain", tmp_path / "fresh")
    assert results(tmp_path / "again") == results(tmp_path / "fresh")


def test_a_parameter_that_is_gone_is_said_and_training_goes_on(tmp_path: Path, one_thread: None) -> None:
    first = session("plain", tmp_path)
    for event in first.run():
        first.stop_reason = "enough" if first.place.step == 2 else ""
        del event
    first.changes.add(ParameterChange("optimizers.rmsprop.lr", 0.1, 0.2), Place(step=3))
    again = session("plain", tmp_path)
    (message,) = [event.message for event in again.run() if type(event) is Alert]
    assert message == (
        "optimizers.rmsprop.lr was changed to 0.2 before this run was interrupted, and is not now: "
        "'optimizers.rmsprop.lr' cannot be changed while this runs. Did you mean 'optimizers.sgd.lr'?"
    )
    assert again.place.stage == 1
