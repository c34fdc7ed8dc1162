"""A session under control: paused, stepped and tested from outside, it ends with the same numbers to the last bit."""

from __future__ import annotations

import errno
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from control_cases import Looker, Running
from seams import (
    Continued,
    EpochDone,
    LogSource,
    Paused,
    StepDone,
    Stopped,
    archive_run,
    batch_order,
    loop_control,
    run_result,
    training_loop,
)
from training_cases import Noisy, noisy_collate, results, run, session
from waiting import wait_until

from torcheer.errors import CannotWrite


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What each case gives when nobody looks on."""
    made: dict[str, dict[str, bytes]] = {}

    def of(case: str) -> dict[str, bytes]:
        if case not in made:
            folder = tmp_path_factory.mktemp(case)
            run(case, folder)
            made[case] = results(folder)
        return made[case]

    return of


@pytest.mark.parametrize("case", ["plain", "workers", "accumulation", "stages", "pipelines"])
def test_a_run_that_was_paused_stepped_and_tested_ends_with_the_same_bits(
    case: str, tmp_path: Path, one_thread: None, plain_run: Any
) -> None:
    running = Running(session(case, tmp_path))
    looker = running.looker
    looker.paused(0)
    looker.act("test_all")
    looker.act("step_trial")
    here = looker.paused(Batch=3 if case == "accumulation" else 1)
    looker.act("test_item", item=3)
    looker.act("test_all")
    looker.act("step_n", count=2)
    there = looker.paused(Batch=here["Batch"] * 3)
    assert there["Epoch"] == 1
    looker.act("step_epoch")
    looker.paused(Epoch=1, Batch=0)
    looker.act("test_all")
    looker.act("train")
    looker.until(lambda: looker.said_bye)
    running.join()
    assert results(tmp_path) == plain_run(case)


def test_a_session_says_where_it_is_and_what_may_be_asked_of_it(tmp_path: Path, one_thread: None) -> None:
    running = Running(session("plain", tmp_path))
    looker = running.looker
    looker.paused(0)
    assert looker.state["counters"] == {"Run": 1, "Epoch": 0, "Batch": 0, "Step": 0}
    assert set(looker.state["can"]) == {
        "train", "stop", "step_trial", "step_n", "step_epoch", "test_all", "test_trial", "test_item",
    }  # fmt: skip
    assert (looker.state["items"], looker.state["batch"]) == (10, 4)
    looker.act("step_epoch")
    looker.paused(Epoch=1)
    assert looker.state["counters"] == {"Run": 1, "Epoch": 1, "Batch": 0, "Step": 11}
    looker.act("train")
    running.join()
    looker.until(lambda: looker.said_bye)
    assert "paused" in looker.states and looker.states[-1] == "done"
    assert looker.state["message"] == "all is trained"


def test_stop_pauses_a_run_at_a_step_boundary_and_train_goes_on(tmp_path: Path, one_thread: None) -> None:
    slow = session("accumulation", tmp_path)
    slow.round_callbacks.append(lambda place: time.sleep(0.02))
    running = Running(slow)
    looker = running.looker
    looker.paused(0)
    looker.act("train")
    looker.until(lambda: looker.state["status"] == "running" and looker.state["counters"]["Step"] > 0)
    looker.act("stop")
    looker.status("paused")
    assert not slow.has_pending_gradients()
    step = slow.place.step
    looker.act("test_item", item=0)  # it is still there when this is done
    looker.until(lambda: looker.rows("test_trial") == 1)
    looker.status("paused")
    assert slow.place.step == step
    looker.act("train")
    events = running.join()
    assert Paused(step) in events
    assert slow.place.stage == 1


def test_a_run_without_a_viewer_is_not_held_up(tmp_path: Path, one_thread: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(loop_control, "ALONE_SECS", 0.3)
    running = Running(session("plain", tmp_path))
    running.looker.paused(0)
    wait_until(lambda: not running.control.buttons.is_waiting_for_viewer)
    running.looker.close()
    (waited,) = [event for event in running.join() if type(event) is Continued]
    assert waited.secs >= 0.3
    assert waited.reason == "nobody has looked on for 0.3 s"


def test_a_viewer_that_comes_late_finds_every_row(tmp_path: Path, one_thread: None) -> None:
    running = Running(session("plain", tmp_path))
    looker = running.looker
    looker.paused(0)
    looker.act("test_all")
    looker.act("step_epoch")
    looker.paused(Epoch=1)
    looker.act("step_epoch")
    looker.paused(Epoch=2)
    looker.close()
    wait_until(lambda: not running.control.host.viewer)
    late = Looker(tmp_path / "control.sock")
    late.until(lambda: late.rows("train_epoch") == 2 and late.rows("test_epoch") == 3 and late.rows("test_trial"))
    header = (tmp_path / "metrics" / "0.csv").read_text().splitlines()[0].split(",")
    assert [name.lower() for name in late.tables["train_epoch"]] == header
    assert late.tables["train_epoch"]["Epoch"] == [1, 2]
    assert late.tables["test_trial"]["Batch"] == [1, 2, 3]
    assert late.tables["test_trial"]["Name"] == ["check"] * 3
    late.act("train")
    late.until(lambda: late.rows("run") == 1)
    running.join()
    late.until(lambda: late.said_bye)
    assert late.tables["run"]["Epochs"] == [4]
    assert late.tables["run"]["Steps"] == [44]


def test_the_rows_of_steps_hold_their_losses(tmp_path: Path, one_thread: None) -> None:
    running = Running(session("pipelines", tmp_path))
    looker = running.looker
    looker.paused(0)
    for number in range(1, 4):
        looker.act("step_trial")
        looker.paused(Batch=number)
    looker.until(lambda: looker.rows("train_step") >= 1)
    looker.act("train")
    events = running.join()
    done = {event.step: event for event in events[:20] if type(event) is StepDone}
    rows = looker.tables["train_step"]  # each pipeline has a step of its own
    assert {2, 4, 6} <= set(rows["Step"]), "every second is logged, as the config says, besides those of a page"
    for row, step in enumerate(rows["Step"][:6]):
        event = done[step]
        cells = [rows[name][row] for name in ("Epoch", "Batch", f"{event.pipeline} loss")]
        assert cells == [event.epoch, event.round, float(event.loss)]


@pytest.mark.timing
def test_a_limit_of_time_does_not_count_what_was_paused(
    tmp_path: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = [0.0]
    monkeypatch.setattr(training_loop, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0]))
    running = Running(session("plain", tmp_path, limit_secs=1000.0))
    looker = running.looker
    looker.paused(0)
    looker.act("step_n", count=3)
    looker.paused(3)
    wait_until(lambda: Paused(3) in running.events)
    passed[0] = 5000.0  # as if it had been paused for that long
    running.control._began_waiting -= 5000.0
    looker.act("train")
    events = running.join()
    assert not [event for event in events if type(event) is Stopped]
    assert max(event.secs for event in events if type(event) is EpochDone) < 1000.0


def test_what_cannot_be_done_is_said_and_nothing_happens(tmp_path: Path, one_thread: None) -> None:
    running = Running(session("plain", tmp_path))
    looker = running.looker
    looker.paused(0)
    looker.act("init")
    looker.until(lambda: len(looker.alerts) == 1)
    assert looker.alerts[0]["text"].startswith("'init' cannot be done here; there is train, stop")
    looker.act("test_item", item=10)
    looker.until(lambda: len(looker.alerts) == 2)
    assert looker.alerts[1]["text"] == "there is no item 10 of 'check' to test: there are items 0 to 9"
    assert looker.state["status"] == "paused"
    looker.act("train")
    running.join()


def test_a_path_that_is_too_long_for_a_socket_is_looked_at_all_the_same(tmp_path: Path, one_thread: None) -> None:
    running = Running(session("plain", tmp_path / ("long" * 30) / "run"))
    assert running.looker.paused(0)["Run"] == 1
    running.looker.act("train")
    running.join()


def test_a_long_test_ends_when_somebody_says_stop(tmp_path: Path, one_thread: None) -> None:
    slow = session("plain", tmp_path)
    feed = slow.feeds["validation"]
    feed.loader = replace(feed.loader, dataset=Slow())
    feed._order = batch_order._BatchOrder(feed.loader, 0, feed.left_out)
    running = Running(slow)
    looker = running.looker
    looker.paused(0)
    looker.act("test_all")
    looker.until(lambda: looker.rows("test_trial"))
    looker.act("stop")
    looker.status("paused")
    assert looker.rows("test_trial") < 25
    looker.close()
    running.session.stop_reason = "that is enough"
    running.join()


class Slow(Noisy):
    """A hundred samples, a tenth of a second each."""

    def __init__(self) -> None:
        super().__init__(100, 3)

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.1)
        return super().__getitem__(index)


def test_a_test_that_fails_ends_the_test_alone(tmp_path: Path, one_thread: None) -> None:
    broken = session("plain", tmp_path)
    running = Running(broken)
    looker = running.looker
    looker.paused(0)
    looker.act("test_item", item=2)
    looker.until(lambda: looker.rows("test_trial") == 1)
    collate, loader = noisy_collate, broken.feeds["validation"].loader
    broken.feeds["validation"].loader = replace(loader, collate=lambda samples: 1 / 0)
    looker.act("test_item", item=2)
    looker.until(lambda: looker.alerts)
    assert looker.alerts[0]["text"] == "the test failed: ZeroDivisionError: division by zero"
    broken.feeds["validation"].loader = replace(loader, collate=collate)
    looker.act("train")
    running.join()


def test_a_run_that_is_being_put_away_when_all_ends_is_still_there(
    tmp_path: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("plain", tmp_path)
    before = results(tmp_path)
    rename = Path.rename

    def until_checkpoints(path: Path, target: Any) -> Path:
        if path.name == "checkpoints":
            raise OSError(errno.EIO, "as if the machine had stopped")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", until_checkpoints)
    with pytest.raises(CannotWrite):
        archive_run(tmp_path, run_result(session("plain", tmp_path), 1.0))
    monkeypatch.undo()
    assert not (tmp_path / "metrics").exists()
    run("plain", tmp_path)
    assert results(tmp_path) == before and not (tmp_path / "earlier" / "1").exists()
    assert archive_run(tmp_path, run_result(session("plain", tmp_path), 1.0)).name == "1"


def test_what_the_watch_finds_is_told(tmp_path: Path, one_thread: None) -> None:
    ill = session("plain", tmp_path, watch={"every": 1, "models": ["body"]})
    with torch.no_grad():
        next(ill.models["body"].parameters()).fill_(float("nan"))
    running = Running(ill)
    looker = running.looker
    looker.paused(0)
    looker.act("train")
    looker.until(lambda: any(alert.rule == "nan_inf" for alert in looker.logged_alerts))
    running.join()
    names = {name for layer in looker.network["layers"] for name in (layer["name"], *layer["also"])}
    alert = next(one for one in LogSource(tmp_path).alerts if one.rule == "nan_inf")
    assert alert.severity == "error" and alert.layer.startswith("body.") and alert.layer in names
    assert [one for one in looker.alerts if one["rule"] != "studio"] == [], "what is in the log is not sent besides"
