"""Worker processes end with the process that started them, however it ends and whatever they are doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("loader_programs.py")
WAIT_SECS = 60
START_SECS = 300  # several interpreters import torch, perhaps on a busy machine


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Programs of a test; they and their workers end with it."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()
    for number in workers(tmp_path):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def workers(folder: Path) -> list[int]:
    return [int(path.name.partition("-")[2]) for path in folder.glob("worker-*")]


def running(numbers: list[int]) -> list[int]:
    """Those that have not ended; a zombie has."""
    found = []
    for number in numbers:
        with suppress(FileNotFoundError, ProcessLookupError):
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
            found += [number] if state != "Z" else []
    return found


def wait_until(is_so: Callable[[], bool], what: str, secs: float = WAIT_SECS) -> None:
    deadline = time.monotonic() + secs
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


HOW = [
    ("fork", 14),
    ("spawn", 1),
    pytest.param("forkserver", 1, marks=pytest.mark.slow),
    ("thread", 4),
    ("extraction", 8),
]


@pytest.mark.parametrize(("how", "least"), HOW)
def test_no_worker_is_left_when_its_trainer_was_killed(
    how: str, least: int, tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    process = subprocess.Popen([sys.executable, str(PROGRAMS), how, str(tmp_path)])
    started.append(process)
    wait_until(lambda: (tmp_path / "ready").exists() or process.poll() is not None, "it did not begin", START_SECS)
    wait_until(lambda: len(workers(tmp_path)) >= least, f"only {len(workers(tmp_path))} workers began", START_SECS)
    found = workers(tmp_path)
    assert process.poll() is None and running(found) == found
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not running(found), f"workers that are left: {running(found)} of {found}")
