"""Worker processes end with the process that started them, however it ends and whatever they are doing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from children import Child, has_ended
from waiting import wait_until

PROGRAMS = Path(__file__).with_name("loader_programs.py")
START_SECS = 300  # several interpreters import torch, perhaps on a busy machine


def workers(folder: Path) -> list[int]:
    return [int(path.name.partition("-")[2]) for path in folder.glob("worker-*")]


def running(numbers: list[int]) -> list[int]:
    return [number for number in numbers if not has_ended(number)]


HOW = [
    ("fork", 14),
    pytest.param("spawn", 1, marks=pytest.mark.slow),
    pytest.param("forkserver", 1, marks=pytest.mark.slow),
    pytest.param("thread", 4, marks=pytest.mark.slow),
    ("extraction", 8),
]


@pytest.mark.parametrize(("how", "least"), HOW)
def test_no_worker_is_left_when_its_trainer_was_killed(how: str, least: int, tmp_path: Path) -> None:
    with Child(PROGRAMS, how, tmp_path) as process:
        wait_until(
            lambda: (tmp_path / "ready").exists() or process.poll() is not None, "its beginning", secs=START_SECS
        )
        wait_until(
            lambda: len(workers(tmp_path)) >= least, "its workers", secs=START_SECS, seen=lambda: workers(tmp_path)
        )
        found = workers(tmp_path)
        assert process.poll() is None and running(found) == found
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_until(lambda: not running(found), "the end of its workers", seen=lambda: running(found))
