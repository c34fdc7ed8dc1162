"""The log of a session with a watch and a host: processes killed at any time, a full disk, a stopped child."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from archive_checks import disk
from children import children_of
from training_cases import Nursery, results
from waiting import wait_until

from torcheer.archive import Archive
from torcheer.errors import TorcheerError
from torcheer.inspector import open_watch
from torcheer.runlog.log_reader import RunLog
from torcheer.runlog.run_tables import logs

KILLS = int(os.environ.get("TORCHEER_LOG_KILLS", "200"))
WATCH = {"every": 1, "models": ["body"], "what": "output", "rules": "none", "transport": {"drain_secs": 5.0}}
TABLES = ("train_epoch", "train_step", "test_epoch")
CASE: dict[str, Any] = {"is_hosted": True, "watch": WATCH}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def whole(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbs."""
    path = tmp_path_factory.mktemp("whole") / "run"
    nursery.finish("plain", path, **CASE)
    return path


def committed(run: Path) -> set[tuple[str, int, str]]:
    """Every row that the trainer has committed, whether it still holds or not."""
    path = run / "log" / "train"
    if not (path / "archive.json").is_file():
        return set()
    return {
        (table, step, repr(columns))
        for frame in Archive(path).frames
        for table, columns in frame["about"].get("rows", {}).items()
        for step in columns["step"]
    }


def kill(nursery: Nursery, run: Path, draw: random.Random, secs: float) -> int:
    """Start a run; kill it, its watch's child, or both in any order; how many were killed."""
    trainer, kills = nursery.start("plain", run, **CASE), 0
    time.sleep(draw.uniform(0.0, secs))
    for name in draw.choice([["trainer"], ["child", "trainer"], ["trainer", "child"], ["child"]]):
        with suppress(ProcessLookupError, FileNotFoundError):
            children = children_of(trainer)
            before = committed(run)
            for pid in [trainer] if name == "trainer" else children:
                os.kill(pid, signal.SIGKILL)
                kills += 1
            assert before <= committed(run), "what was committed is there after a kill"
        time.sleep(draw.choice([0.0, 0.05, 0.3]))
    nursery.wait()
    return kills


def hold(run: Path, whole: Path) -> None:
    """A run that went on to its end has what an undisturbed one has, each row once."""
    assert results(run) == results(whole)
    ours, theirs = logs(run), logs(whole)
    for name in TABLES:
        assert ours[name] == theirs[name], name
    assert RunLog(run).problems == []
    seen, expected = open_watch(run), open_watch(whole)
    for key in seen:
        if key[1] == "metric":
            continue
        steps, means = seen[key].steps.tolist(), seen[key].mean.tolist()
        assert len(steps) == len(set(steps)), f"{key} twice: {steps}"
        known = dict(zip(expected[key].steps.tolist(), expected[key].mean.tolist()))
        assert dict(zip(steps, means)).items() <= known.items()


def killed_often(nursery: Nursery, folder: Path, whole: Path, count: int, seed: int = 0) -> int:
    """Kill runs until there were `count` kills, and hold each to the undisturbed one; how many kills there were."""
    draw, kills, number = random.Random(seed), 0, 0
    secs = (whole / "log" / "train" / "000000.seal").stat().st_mtime - (whole / "run.json").stat().st_mtime
    while kills < count:
        number += 1
        for _ in range(draw.randrange(1, 6)):
            kills += kill(nursery, folder / str(number), draw, secs)
        nursery.finish("plain", folder / str(number), **CASE)
        hold(folder / str(number), whole)
        assert number < 5 * count
    print(f"{kills} kills over {secs:.1f} s in {number} runs: nothing lost, nothing twice")
    return kills


@pytest.mark.faults  # in `make test` test_runlog_log.py kills writers
def test_a_few_kills_leave_the_log_of_an_undisturbed_run(nursery: Nursery, tmp_path: Path, whole: Path) -> None:
    assert killed_often(nursery, tmp_path, whole, 2) >= 2


@pytest.mark.faults
def test_two_hundred_kills_leave_the_log_of_an_undisturbed_run(nursery: Nursery, tmp_path: Path, whole: Path) -> None:
    assert killed_often(nursery, tmp_path, whole, KILLS, seed=1) >= KILLS


@pytest.mark.faults
def test_a_stopped_child_holds_up_neither_training_nor_its_log(nursery: Nursery, tmp_path: Path, whole: Path) -> None:
    trainer = nursery.start("plain", tmp_path, **CASE)
    wait_until(lambda: children_of(trainer), "the watch's child")
    (child, *_) = children_of(trainer)
    os.kill(child, signal.SIGSTOP)
    assert nursery.wait() == 0
    assert results(tmp_path) == results(whole)
    assert all(logs(tmp_path)[name] == logs(whole)[name] for name in TABLES)


@pytest.mark.faults
def test_a_full_disk_ends_a_run_that_goes_on_once_there_is_space(nursery: Nursery, tmp_path: Path, whole: Path) -> None:
    with disk(tmp_path / "disk", "160k") as folder:
        run = folder / "run"
        nursery.start("plain", run, **CASE)
        assert nursery.wait() == 1
        with suppress(TorcheerError):  # a watch's log may be cut
            RunLog(run).tables()
        subprocess.run(["mount", "-o", "remount,size=8m", folder], check=True)
        nursery.finish("plain", run, **CASE)
        assert results(run) == results(whole)
        assert all(logs(run)[name] == logs(whole)[name] for name in TABLES)
