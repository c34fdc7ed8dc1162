"""`tl.watch` when its child dies, its disk is full, its script is killed or forgets to close it."""

from __future__ import annotations

import os
import resource
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from children import Child, has_ended, run_python
from inspector_spine import balanced
from leftovers import nothing_added, traces
from models import small
from torch import nn
from video_checks import decoded
from waiting import wait_until
from watch_checks import hooks_of, train

import torcheer as tl
from torcheer.errors import TorcheerWarning
from torcheer.inspector import Transport, Watch, open_watch

RING = Transport(bytes=8 << 20, drain_secs=60.0)


def child_of(w: Watch) -> int:
    assert w._link is not None
    return w._link.process.pid


def kill(w: Watch) -> None:
    assert w._link is not None
    os.kill(w._link.process.pid, signal.SIGKILL)
    w._link.process.join(10)


# -- a child that dies


def test_the_death_of_the_child_is_told_where_one_asked_for_it_and_is_a_problem() -> None:
    told: list[str] = []
    model = small()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tl.watch(model, every=1, tell=told.append, transport=RING) as w:
            for _ in range(4):
                kill(w)
                train(model, 1)
                w.log(loss=1.0)
    (again,) = [text for text in told if "was ended by SIGKILL and was started again" in text]
    (never,) = [text for text in told if "is not started again (after 3 restarts)" in text]
    assert again in w.problems and never in w.problems
    assert w.account.restarts == 3 and balanced(w.account) and "dropped: " in told[-1]


def test_a_child_that_is_started_again_works_where_the_first_one_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note(layer: str, variable: str, step: int, array: Any) -> None:
        with open("notes", "a") as file:
            print(layer, step, file=file)

    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    model, told = nn.Linear(2, 2), list[str]()
    settings: dict[str, Any] = {
        "what": "output",
        "every": 1,
        "to": "run",
        "callback": note,
        "video": {"size": (64, 48)},
    }
    with tl.watch(model, tell=told.append, transport=RING, **settings) as w:
        model(torch.ones(1, 2))
        assert wait_until(lambda: w.account.handled == w.account.offered)
        monkeypatch.chdir(tmp_path / "there")
        kill(w)
        model(torch.ones(1, 2))
        model(torch.ones(1, 2))
    assert w.account.restarts == 1
    assert os.listdir(tmp_path / "there") == [] and sorted(os.listdir(tmp_path / "here")) == ["notes", "run"]
    steps = [line.split()[1] for line in (tmp_path / "here" / "notes").read_text().splitlines() if "Linear" in line]
    assert steps[0] == "0" and steps[-1] == "2"
    assert open_watch(tmp_path / "here" / "run")["Linear", "output"].steps.tolist()[-1] == 2
    assert (tmp_path / "here" / "run" / "videos" / "Linear_output_2.mp4").exists()


# -- a full disk


@pytest.fixture(autouse=True)
def no_half_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what a child imports when it may write little more, half a .pyc would be left."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


def fill_up(folder: Path, most_bytes: int, **settings: Any) -> Watch:
    """A watch whose child may write no larger file; it writes until that is told."""
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU())
    settings |= {"every": 1, "rules": ["nan_inf"], "tell": lambda text: None, "on_alert": lambda alert: None}
    with tl.watch(model, to=folder, transport=RING, **settings) as w:
        model(torch.rand(8, 32))
        assert wait_until(lambda: (folder / "log" / "watch").is_dir())
        resource.prlimit(child_of(w), resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
        assert wait_until(
            lambda: model(torch.rand(8, 32)).mean().backward() or (w.alerts and not settings.get("stop_on"))
        )
        w.log(loss=float("nan"))
    return w


def test_a_full_disk_is_an_alert_the_log_ends_and_rules_go_on(tmp_path: Path) -> None:
    w = fill_up(tmp_path, 300_000, keep="*")
    full, late = w.alerts
    assert (full.rule, full.layer, full.variable, full.severity) == ("disk_full", "", "log", "warning")
    assert f"log: File too large in {tmp_path}: it ends here. Try: make room, or watch to another" in str(full)
    assert late.rule == "nan_inf" and balanced(w.account) and w.account.lost == 0
    found = open_watch(tmp_path)
    assert 0 < found.steps[-1] < w.step and [alert.rule for alert in found.alerts] == ["disk_full"]
    assert found.account == w.account and len(w.problems) == 1 and "File too large" in w.problems[0]


def test_a_full_disk_ends_the_run_where_that_was_asked_for(tmp_path: Path) -> None:
    w = fill_up(tmp_path, 300_000, keep="*", stop_on="disk_full")
    assert w.should_stop and [alert.rule for alert in w.alerts] == ["disk_full"]


def test_a_video_that_finds_no_room_is_an_alert_and_the_log_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("av")
    w = fill_up(tmp_path, 60_000, video={"keys": "1/output", "size": (320, 240)}, what="output")
    full = next(alert for alert in w.alerts if alert.variable.startswith("video"))
    assert full.rule == "disk_full" and "video of 1/output: File too large" in str(full)
    (video,) = (tmp_path / "videos").iterdir()
    assert len(decoded(video)) > 0 and all(frame.size for frame in decoded(video))


# -- a script that is killed, or forgets


KILLED = """
    import itertools, sys, time, torch, torcheer as tl
    model = torch.nn.Linear(4, 4)
    w = tl.watch(model, every=1, to=sys.argv[1], what="output", video={"size": (160, 120)})
    for step in itertools.count():
        model(torch.full((4, 4), float(step)))
        if step > 30 and w.account.handled > 20:
            print(w._link.process.pid, w.account.handled, flush=True)
        time.sleep(0.005)
"""


def test_a_script_that_is_killed_leaves_a_video_that_can_be_watched_to_its_end(tmp_path: Path) -> None:
    pytest.importorskip("av")
    before = set(os.listdir("/dev/shm"))
    with Child("-c", KILLED, tmp_path) as process:
        child, handled = map(int, process.line().split())
        process.kill()
        assert wait_until(lambda: has_ended(child))
    frames = decoded(tmp_path / "videos" / "Linear_output_1.mp4")
    found = open_watch(tmp_path)
    looks = len(found["Linear", "output"])
    assert all(frame.size for frame in frames) and len(frames) == looks and 3 * looks >= handled - 3
    assert found.sealed and found.account is None and set(os.listdir("/dev/shm")) == before


FORGOTTEN = """
    import sys, time, torch, torcheer as tl
    def slow(layer, variable, step, array):
        time.sleep(0.05)
    model = torch.nn.Linear(2, 1)
    way = {"bytes": 1 << 16, "drain_secs": 0.5}
    w = tl.watch(model, every=1, to=sys.argv[1], what="output", callback=slow, transport=way)
    model(torch.ones(1, 2))
    while not w.account.handled: time.sleep(0.01)
    for _ in range(999): model(torch.ones(1, 2))
"""


def test_a_script_that_forgets_to_close_says_what_was_dropped_and_keeps_to_its_time(tmp_path: Path) -> None:
    done = run_python("-c", FORGOTTEN, tmp_path)
    assert f"values of 1,000 steps, in {tmp_path}" in done.stderr and " dropped: " in done.stderr
    account = open_watch(tmp_path).account
    assert account is not None and balanced(account) and 0 < account.handled < 100  # 5 s would be enough for 100


@pytest.mark.slow
def test_ten_watches_leave_nothing_behind() -> None:
    model = small()

    def cycle() -> None:
        with tl.watch(model, tell=lambda text: None, transport=Transport(bytes=1 << 20)):
            train(model, 1)

    def left() -> tuple[Any, ...]:
        return *traces(), hooks_of(model)

    cycle()
    before = left()
    for _ in range(10):
        cycle()
    assert nothing_added(left(), before)


def test_a_problem_of_a_watch_points_at_the_line_that_logged_it(tmp_path: Path) -> None:
    with tl.watch(nn.Linear(2, 2), to=tmp_path / "run") as w, pytest.warns(TorcheerWarning, match="'a'") as warned:
        w.log(a=object())
    assert [warning.filename for warning in warned] == [__file__]
