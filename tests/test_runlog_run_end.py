"""How a run ended, as its folder tells it afterwards: in words of the studio's page, and in the list of runs."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import training_cases
from children import run_python
from folder_runs import logged
from seams import LogWriter, RunEnd, lock_folder, open_source, outcome_of, read_end, read_facts
from torch import nn

import torcheer as tl

KILLED = """
import os, signal, sys
from torcheer.runlog.log_writer import LogWriter
log = LogWriter(sys.argv[1], "live", tell=None)
log.row("metric", {"loss": 1.0}, 70)
log.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""


def loop(run: Path, error: BaseException | None = None) -> Path:
    """A loop of three steps under `tl.live`, without a page."""
    model = nn.Linear(2, 1)
    with tl.live(model, to=run, open_server=False) as live:
        for _ in range(3):
            live.log(loss=model(torch.ones(1, 2)).sum())
        if error is not None:
            raise error
    return run


def test_a_loop_says_whether_it_ended_or_failed(tmp_path: Path) -> None:
    assert read_end(loop(tmp_path / "ended")) == RunEnd("done")
    with pytest.raises(ValueError, match="banana"):
        loop(tmp_path / "failed", ValueError("the loss is a banana"))
    assert read_end(tmp_path / "failed") == RunEnd("failed", "ValueError: the loss is a banana")
    with pytest.raises(KeyboardInterrupt):
        loop(tmp_path / "stopped", KeyboardInterrupt())
    assert read_end(tmp_path / "stopped") == RunEnd("done", "stopped by Ctrl-C")


def test_a_killed_process_leaves_a_run_that_says_so_from_which_step_and_where_it_lies(tmp_path: Path) -> None:
    run = logged(tmp_path / "a run")
    assert outcome_of(open_source(run)).heading == "" and read_facts(run, "run").outcome == ""
    run_python("-c", KILLED, str(run), status=-signal.SIGKILL)
    source = open_source(run)
    outcome = outcome_of(source)
    assert source.state.status == "lost" and read_facts(run, "run").outcome == "lost"
    assert outcome.heading == "Training was killed, or has crashed after step 70"
    assert outcome.command == f"torcheer studio '{run}'"
    lock = lock_folder(run / "log" / "live")
    try:
        assert open_source(run).state.status == "running"
    finally:
        lock.close()


def test_training_says_whether_it_ended_failed_or_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    session = training_cases.session("plain", run)
    for _ in itertools.islice(session.run(), 4):
        pass
    session.stop_reason = ""
    assert read_end(run).status == "done"
    session = training_cases.session("plain", run)
    monkeypatch.setattr(session, "finish_epoch", _raise)
    with pytest.raises(RuntimeError, match="out of pears"):
        list(session.run())
    assert read_end(run) == RunEnd("failed", "RuntimeError: out of pears")
    session = training_cases.session("plain", run)
    session.stop_reason = "SIGTERM was received"
    list(session.run())
    assert read_end(run) == RunEnd("done", "SIGTERM was received")
    with session.checkpoints.log.writing():
        pass  # a test on a page that stayed
    assert read_end(run) == RunEnd("done", "SIGTERM was received")


def _raise(*_: Any) -> None:
    raise RuntimeError("out of pears")


def test_a_watch_whose_program_was_killed_says_so(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    with tl.watch(model, to=tmp_path / "run", every=1, tell=lambda text: None):
        model(torch.ones(1, 2))
    assert read_end(tmp_path / "run") == RunEnd("done")
    log = LogWriter(tmp_path / "run", "watch", tell=None)
    log.row("metric", {"loss": 1.0}, 5)
    log.close()  # as the child does that outlives it; the account is the program's
    assert read_end(tmp_path / "run") == RunEnd("lost")


def test_what_is_damaged_or_no_run_is_not_said_to_be_killed(tmp_path: Path) -> None:
    assert read_end(tmp_path) == RunEnd()
    run = logged(tmp_path / "run")
    (index,) = (run / "log" / "live").glob("*.index")
    index.write_bytes(index.read_bytes()[: os.path.getsize(index) // 2] + b"x" * 400)
    assert read_end(run) == RunEnd()
