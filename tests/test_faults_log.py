"""The log of a session whose watch has a stopped child; full disks: test_faults_system.py; kills: kill_matrix.py."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from children import children_of
from training_cases import Nursery, results
from waiting import wait_until

from torcheer.studio import logs

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


def _children_that_run(trainer: int) -> list[int]:
    """Those that run their program: one that is stopped before it holds up the trainer, which waits for its start."""
    children = children_of(trainer)
    return [child for child in children if b"torcheer.monitor.child" in Path(f"/proc/{child}/cmdline").read_bytes()]


@pytest.mark.faults
def test_a_stopped_child_holds_up_neither_training_nor_its_log(nursery: Nursery, tmp_path: Path, whole: Path) -> None:
    trainer = nursery.start("plain", tmp_path, **CASE)
    wait_until(lambda: _children_that_run(trainer), "the watch's child")
    (child, *_) = _children_that_run(trainer)
    os.kill(child, signal.SIGSTOP)
    assert nursery.wait() == 0
    assert results(tmp_path) == results(whole)
    assert all(logs(tmp_path)[name] == logs(whole)[name] for name in TABLES)
