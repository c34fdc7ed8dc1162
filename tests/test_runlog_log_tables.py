"""Tables of a log that is followed: what is said of columns, deleted rows, and when the disk is waited for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import Column, FollowedLog, LogWriter, RunLog, StepDone, TableHead, TrainingLog, begin_run
from waiting import wait_until

from torcheer.errors import CannotWrite

COLUMNS = (
    Column("Run", "int", plotted=False), Column("err", fixed=(0.0, float("inf")), error="std"), Column("std"),
    Column("map", "tensor", (2, 2), plotted=False), Column("bins", "tensor", (3,), edges=(0.5, 1.5)),
)  # fmt: skip
HEAD = TableHead("t", "Its title", x="", legend="Run", columns=COLUMNS)


def writer(run: Path, **options: Any) -> LogWriter:
    return LogWriter(run, "live", **{"tell": pytest.fail, **options})


@pytest.fixture
def fsyncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors that were waited for."""
    calls: list[int] = []
    waits = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append(fd), waits(fd))[1])
    return calls


def test_everything_that_is_said_of_a_table_reaches_who_follows_it_before_its_first_row(tmp_path: Path) -> None:
    log, followed = writer(tmp_path), FollowedLog(tmp_path)
    log.head(HEAD, steps=False)
    log.commit()
    assert followed.refresh() == {"t"} and followed.tables["t"].head == HEAD and followed.tables["t"].count == 0
    log.row("t", {"Run": 0, "err": 0.5, "later": "a"}, 0)
    log.close()
    followed.refresh()
    later = Column("later", "text", plotted=False)
    assert followed.tables["t"].head.columns == (*COLUMNS, later) and followed.tables["t"].head.x == ""
    assert {name: cells[:] for name, cells in followed.tables["t"].columns.items()} == {
        "Run": [0], "err": [0.5], "std": [None], "map": [None], "bins": [None], "later": ["a"],
    }  # fmt: skip
    stored = RunLog(tmp_path).tables()["t"]
    assert stored.head.columns == (*COLUMNS[:2], later) and stored.head.x == "" and stored.head.legend == "Run"


def test_a_new_head_keeps_the_rows(tmp_path: Path) -> None:
    log, followed = writer(tmp_path), FollowedLog(tmp_path)
    log.row("run", {"seed": 1}, 0)
    log.commit()
    followed.refresh()
    log.head(TableHead("run", "Runs", columns=(Column("seed", "int"), Column("score"))), steps=False)
    log.close()
    followed.refresh()
    table = followed.tables["run"]
    assert table.columns["seed"] == [1] and table.columns["score"] == [None] and table.restarts == 0


def test_rows_that_were_deleted_are_gone_and_those_after_them_stay(tmp_path: Path) -> None:
    log, followed = writer(tmp_path), FollowedLog(tmp_path)
    log.clear("nothing")
    for number in range(3):
        log.row("t", {"a": number}, number)
    log.commit()
    followed.refresh()
    log.row("t", {"a": 3}, 3)
    log.clear("t")
    log.row("t", {"a": 4}, 4)
    log.close()
    followed.refresh()
    assert followed.tables["t"].columns["a"] == RunLog(tmp_path).tables()["t"].columns["a"] == [4]


def test_a_commit_is_seen_by_others_and_does_not_wait_for_the_disk(tmp_path: Path, fsyncs: list[int]) -> None:
    log = writer(tmp_path)
    fsyncs.clear()
    log.row("t", {"a": 1}, 0)
    log.commit()
    assert RunLog(tmp_path).tables()["t"].columns["a"] == [1] and not fsyncs
    log.sync()
    assert len(fsyncs) == 2  # its data, its index
    log.close()


def test_a_temporary_log_never_waits_for_the_disk(tmp_path: Path, fsyncs: list[int]) -> None:
    log = writer(tmp_path, is_temporary=True)
    log.row("t", {"a": 1}, 0)
    log.sync()
    log.close()
    assert not fsyncs and RunLog(tmp_path).tables()["t"].columns["a"] == [1]


def test_steps_and_epochs_wait_for_the_disk_only_with_a_checkpoint(tmp_path: Path, fsyncs: list[int]) -> None:
    place, log = {"stage": 0, "epoch": 0, "round": 0, "step": 0, "ended": []}, TrainingLog(tmp_path, steps_csv=1)
    log.begin(place, [[]])
    fsyncs.clear()
    for step in range(1, 600):
        log.add_steps([StepDone(step, 1, step, "train", torch.tensor(0.5))])
    log.flush_steps()
    indexes = {os.stat(file).st_ino for file in tmp_path.glob("log/train/*.index")}
    waited = [os.fstat(fd).st_ino for fd in fsyncs if _is_open(fd)]
    assert not indexes & set(waited)
    fsyncs.clear()
    log.add_all(place | {"step": 599}, [[]])
    assert len(fsyncs) >= 2
    log.close()


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_what_the_disk_refuses_meanwhile_is_raised_where_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = writer(tmp_path, tell=None)
    log.row("t", {"a": 1}, 0)
    log.commit()

    def refuse(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        log._sync()  # as the thread does every few seconds
    with pytest.raises(CannotWrite, match="Input/output error"):
        log.sync()
    log.sync()  # it was said
    log.close()


def test_who_follows_sees_rows_within_a_moment_though_nothing_else_happens(tmp_path: Path) -> None:
    log, followed = writer(tmp_path), FollowedLog(tmp_path)
    log.commit_in_background()
    for number in (1, 2):
        log.row("t", {"a": number}, number)
        wait_until(lambda: followed.refresh() and followed.tables["t"].count == number)  # noqa: B023
    assert followed.tables["t"].columns["a"] == [1, 2]
    log.close()


def test_a_stage_of_epochs_that_is_cleared_is_gone_from_what_a_viewer_follows(tmp_path: Path) -> None:
    begin_run(tmp_path)
    log, followed = LogWriter(tmp_path, "train", tell=pytest.fail), FollowedLog(tmp_path)
    for stage, epoch in ((0, 1), (0, 2), (1, 3)):
        log.row(f"train_epoch/{stage}", {"epoch": epoch, "loss": epoch / 4}, epoch * 10)
    log.commit()
    followed.refresh()
    assert followed.tables["train_epoch"].columns["Epoch"] == [1, 2, 3]
    log.clear("train_epoch/0")
    log.row("train_epoch/0", {"epoch": 1, "loss": 7.0}, 10)
    log.commit()
    for _ in range(2):  # and stays so
        followed.refresh()
        rows = dict(
            zip(followed.tables["train_epoch"].columns["Epoch"], followed.tables["train_epoch"].columns["loss"])
        )
        assert rows == {1: 7.0, 3: 0.75}
    log.row("train_epoch/0", {"epoch": 2, "loss": 6.0}, 20)
    log.close()
    assert followed.refresh() == {"train_epoch"}
    assert sorted(followed.tables["train_epoch"].columns["Epoch"]) == [1, 2, 3]
