"""What a launcher says of ranks from their heartbeats: here small processes that do as they are told, without torch."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import Child
from seams import HangWatch, hang_watch, make_heartbeats, standing_of
from waiting import WAIT_SECS, wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
PATIENCE_SECS = 0.5
RANK = """
import re, sys, time
from pathlib import Path
from torcheer.training.parallel.heartbeats import *

HEARTBEAT.join(Path(sys.argv[1]), int(sys.argv[2]), 0)
HEARTBEAT.begin(30)
HEARTBEAT.enter(DATA, 31)
for line in sys.stdin:
    exec(line)
"""
BACKWARD = "HEARTBEAT.enter(BACKWARD)"
IN_C = "re.match('(a|aa)+$', 'a' * 60 + 'b')"
COMPILES = "exec(compile('HEARTBEAT.enter(FORWARD); time.sleep(600)', '/torch/_dynamo/convert_frame.py', 'exec'))"


class Job:
    """Two ranks, and a watch that wants to hear of them after half a second."""

    def __init__(self, folder: Path) -> None:
        self.memory, self.said = make_heartbeats(folder, 2), list[str]()
        self.watch = HangWatch(folder, range(2), self.said.append)
        self.ranks = [Child("-c", RANK, folder, rank, stdin=subprocess.PIPE) for rank in range(2)]

    def tell(self, rank: int, line: str) -> None:
        """Have a rank run a line, and wait until it has said where it is."""
        before, stdin = standing_of(self.memory, rank).beat, self.ranks[rank].stdin
        assert stdin is not None
        stdin.write(f"{line}\n")
        stdin.flush()
        wait_until(lambda: standing_of(self.memory, rank).beat != before)

    def hears(self) -> str:
        """What the watch says next."""
        wait_until(lambda: self.said, poll=self.watch.look)
        return self.said.pop(0)

    def hears_nothing(self, times: int = 4, end_secs: float | None = None) -> bool:
        """Whether the watch neither says anything nor wants the job to be ended, for so many times its patience."""
        end = time.monotonic() + times * PATIENCE_SECS
        while time.monotonic() < end:
            if self.watch.look(end_secs) or self.said:
                return False
            time.sleep(0.01)
        return True


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setattr(hang_watch, "PATIENCE_SECS", PATIENCE_SECS)
    monkeypatch.setattr(hang_watch, "ANSWER_SECS", WAIT_SECS)  # on a busy machine, too
    job = Job(tmp_path)
    with job.ranks[0], job.ranks[1]:
        wait_until(lambda: all(standing_of(job.memory, rank).step == 31 for rank in range(2)))
        yield job


def test_a_rank_that_stands_is_named_once_with_its_stack_and_when_it_goes_on(job: Job) -> None:
    job.tell(0, BACKWARD)
    first, *stack = job.hears().splitlines()
    assert first.startswith("rank 1 has stood at step 32 in data for ")
    assert first.endswith(": it waits at <string>:9 in <module>; rank 0 waits for it")
    assert stack == ["    <string>:9 in <module>"]
    assert job.hears_nothing(), "once for each hang"
    job.tell(1, BACKWARD)
    assert job.hears().startswith("rank 1 continues, after ")
    assert job.hears().startswith("rank 0 has stood at step 32 in backward for "), "and the next hang is another one"


def test_a_stopped_rank_is_named_although_another_one_is_at_long_work(job: Job) -> None:
    job.tell(0, "HEARTBEAT.enter(EVALUATION)")
    job.ranks[1].send_signal(signal.SIGSTOP)
    text = job.hears()
    pid = job.ranks[1].pid
    assert text.startswith("rank 1 has stood at step 32 in data for ")
    assert text.endswith(f": its process was stopped by a signal (kill -CONT {pid} continues it); rank 0 waits for it")
    job.ranks[1].send_signal(signal.SIGCONT)
    job.tell(1, BACKWARD)
    assert job.hears().startswith("rank 1 continues, after ")


def test_a_rank_that_does_not_answer_gives_its_last_phase(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang_watch, "ANSWER_SECS", 5.0)  # the other one has so long to answer
    job.tell(0, BACKWARD)
    job.tell(1, f"HEARTBEAT.enter(METRICS); {IN_C}")
    text = job.hears()
    assert text.startswith("rank 1 has stood at step 32 in metrics for ") and "it does not answer" in text


@pytest.mark.parametrize(
    "work",
    [
        "HEARTBEAT.enter(EVALUATION)",
        "HEARTBEAT.enter(CHECKPOINT)",
        "HEARTBEAT.enter(CALLBACKS)",
        "HEARTBEAT.enter(PAUSE)",
        "HEARTBEAT.begin(31); HEARTBEAT.enter(FORWARD)",
    ],
)
def test_a_rank_at_long_work_is_not_called_hung_and_neither_is_one_that_waits_for_it(job: Job, work: str) -> None:
    job.tell(0, work)
    job.tell(1, "HEARTBEAT.enter(BETWEEN, 31)")
    assert job.hears_nothing(end_secs=PATIENCE_SECS)
    job.tell(0, "HEARTBEAT.enter(FORWARD, 32)")
    assert "has stood" in job.hears()


def test_a_rank_that_compiles_is_not_called_hung(job: Job) -> None:
    job.tell(0, COMPILES)
    job.tell(1, BACKWARD)
    assert job.hears_nothing(end_secs=PATIENCE_SECS)


def test_what_has_taken_a_tenth_of_the_time_before_is_no_hang(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang_watch, "PATIENCE_SECS", 3.0)
    assert job.hears_nothing(times=2), "a second"
    job.tell(0, "HEARTBEAT.enter(DATA, 32)")
    assert job.hears_nothing(times=8), "four of them: both may take ten by now"


def test_a_job_that_may_be_ended_is_ended_after_its_own_time(job: Job) -> None:
    ended = wait_until(lambda: job.watch.look(2 * PATIENCE_SECS))
    assert ended.startswith("rank 0 has stood at step 32 in data for ") and job.said
    assert job.watch.step == 31 and job.watch.attempt == 0
    assert job.watch.pids == [rank.pid for rank in job.ranks]


def test_a_rank_that_has_ended_is_no_hang(job: Job) -> None:
    os.kill(job.ranks[1].pid, signal.SIGKILL)
    assert job.hears_nothing(end_secs=PATIENCE_SECS)
