"""Logs with a budget: chunks, thinning of old looks, and readers that do not notice."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import Child
from rank_logs import RankLog
from seams import FollowedLog, LogBudget, MediaIntake, chunks_of, next_archive
from waiting import wait_until

import torcheer as tl
from torcheer.archive import Archive
from torcheer.errors import BadArgument
from torcheer.inspector import open_watch
from torcheer.records import Sample
from torcheer.samples import Alert

BUDGET = 280_000
LAYERS = 5


def values(step: int, bad: bool = False) -> dict[tuple[str, str], np.ndarray[Any, Any]]:
    """What a look at some layers gives."""
    numbers = np.random.default_rng(step)
    arrays = {(f"layer{n}", "output"): numbers.standard_normal(64).astype(np.float32) for n in range(LAYERS)}
    if bad:
        arrays["layer3", "output"][5] = np.nan
    return arrays


def log_run(run: Path, looks: int, **options: Any) -> RankLog:
    """A log with a budget: step 40 has an alert since 38, step 70 NaN, step 101 a kept array."""
    log = RankLog(run, 0, 1, log_bytes=BUDGET, keep=["kept/*"], **options)
    for step in range(looks):
        arrays = values(step, bad=step == 70)
        if step == 101:
            arrays["kept", "output"] = np.arange(6.0)
        log.look(step, arrays, loss=1.0 / (step + 1))
        if step == 40:
            log.writer.alert(Alert("dead_relu", "layer1", "output", 40, 38, "dead", "raise it"))
    return log


def test_a_log_stays_within_its_budget_and_loses_nothing_that_matters(tmp_path: Path) -> None:
    looks = 400
    log = log_run(tmp_path, looks)
    log.close()
    chunks = chunks_of(tmp_path / "log" / "watch")
    assert sum(chunk.bytes for chunk in chunks) <= BUDGET
    watched = open_watch(tmp_path)
    steps = watched["layer1", "output"].steps
    assert {0, 38, 40, 70, 101, looks - 1} <= set(steps.tolist())
    assert watched["loss"].steps.tolist() == list(range(looks))
    assert [alert.step for alert in watched.alerts] == [40] and watched.problems == []
    assert watched["kept", "output"].values[101].tolist() == list(range(6))
    gaps = np.diff(steps)
    assert gaps[-5:].tolist() == [1] * 5 and gaps[: len(gaps) // 2].mean() > 2 * gaps[len(gaps) // 2 :].mean()
    for step in (38, 70, looks - 1):  # what is there is what was written
        place = steps.tolist().index(step)
        expected = values(step, bad=step == 70)["layer1", "output"]
        series = watched["layer1", "output"]
        assert series.maximum[place] == expected.max() and series.histogram[place].sum() == 64
    assert all(Archive(chunk.path).verify() >= 0 for chunk in chunks)
    assert tl.load(tmp_path)["loss"].steps.tolist() == list(range(looks))


def test_a_follower_sees_every_number_once_while_the_log_is_thinned_under_it(tmp_path: Path) -> None:
    log = RankLog(tmp_path, 0, 1, log_bytes=BUDGET, keep=["kept/*"])
    followed, steps = FollowedLog(tmp_path), 300
    for step in range(steps):
        log.look(step, values(step), loss=float(step))
        if step == 20:
            _, ((name, kind, item, array, record),) = MediaIntake(print).split({"note": tl.Text("for good")}, step)
            log.writer.sample(Sample(step, name, kind, item, array), record)
        if step % 7 == 0:
            followed.refresh()
    log.close()
    followed.refresh()
    assert followed.problems == []
    assert list(followed.tables["metric"].columns["loss"]) == [float(step) for step in range(steps)]
    seen = list(followed.tables["layer1 output"].columns["Step"])
    assert seen == sorted(set(seen)) and seen[-1] == steps - 1
    assert [sample.text for sample in followed.samples] == ["for good"]
    late = FollowedLog(tmp_path)
    late.refresh()
    assert set(late.tables["layer1 output"].columns["Step"]) <= set(seen)
    assert [sample.text for sample in late.samples] == ["for good"]


def test_a_reader_that_was_opened_before_a_chunk_was_thinned_still_has_its_numbers(tmp_path: Path) -> None:
    log = log_run(tmp_path, 120)
    watched = open_watch(tmp_path)
    before = watched["layer1", "output"].steps.tolist()
    for step in range(120, 300):
        log.look(step, values(step))
    log.close()
    assert watched["kept", "output"].values[101].tolist() == list(range(6))
    assert watched["layer1", "output"].histogram.sum(1).tolist() == [64] * len(before)


KILLED = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_runlog_budget import log_run, values
log = log_run(Path("run"), 150)
print("150", flush=True)
step = 150
while True:
    log.look(step, values(step), loss=1.0 / (step + 1))
    step += 1
    print(step, flush=True)
"""


@pytest.mark.faults
@pytest.mark.parametrize("looks", range(10))
def test_a_kill_while_the_log_is_thinned_loses_no_look_that_was_committed_last(looks: int, tmp_path: Path) -> None:
    code = KILLED.format(tests=str(Path(__file__).parent))
    with Child("-c", code, cwd=tmp_path) as child:
        step = int(child.line())
        while step < 160 + 17 * looks:
            step = int(child.line())
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    watched = open_watch(tmp_path / "run")
    assert watched.problems == [] and watched["loss"].steps.tolist()[:step] == list(range(step))
    log = RankLog(tmp_path / "run", 0, 1, log_bytes=BUDGET, keep=["kept/*"])
    log.look(10_000, values(10_000), loss=0.5)
    log.close()
    path = tmp_path / "run" / "log" / "watch"
    LogBudget(path, BUDGET, print).keep()  # as with the next chunk: what a kill left in part is removed
    folders = {folder.name for folder in path.parent.iterdir() if not folder.name.startswith(".part")}
    unfinished = folders - {chunk.path.name for chunk in chunks_of(path)}
    assert unfinished <= {next_archive(path).name}, "a chunk that was just begun is begun again"
    assert open_watch(tmp_path / "run")["loss"].steps[-1] == 10_000


def test_a_budget_that_cannot_be_kept_is_said_once(tmp_path: Path) -> None:
    told: list[str] = []
    log = RankLog(tmp_path, 0, 1, log_bytes=BUDGET, keep=["*/*"], tell=told.append)
    for step in range(18):
        log.look(step, {("big", "output"): np.random.default_rng(step).standard_normal(2000)})
    wait_until(lambda: told, "the thread has tried")
    log.close()
    assert len(told) == 1 and "log_bytes=280,000 cannot be kept" in told[0] and "arrays of keep=" in told[0]
    assert not any(thread.name == "torcheer log budget" for thread in threading.enumerate())


@pytest.mark.parametrize("wrong", ["1 GB", True, 5000, float("nan"), -1])
def test_a_wrong_budget_is_refused_before_anything_starts(wrong: Any) -> None:
    import torch

    with pytest.raises(BadArgument, match="a number of bytes from 100,000 on"):
        tl.watch(torch.nn.Linear(2, 2), log_bytes=wrong)
