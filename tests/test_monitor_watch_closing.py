"""What a watch says at its end is what is on the disk, whatever came between."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from inspector_spine import balanced
from seams import count_values
from torch import nn
from waiting import wait_until

import torcheer as tl
from torcheer.archive import Archive
from torcheer.errors import TorcheerError
from torcheer.inspector import Transport, Watch, open_watch

RING = Transport(bytes=8 << 20, drain_secs=60.0)


def on_disk(folder: Path) -> int:
    """How many values a log really holds."""
    try:
        return sum(count_values(frame["about"]) for frame in Archive(folder / "log" / "watch").frames)
    except TorcheerError:
        return 0


class Run:
    """A watched loop whose words and warnings are kept."""

    def __init__(self, to: Path, **settings: Any) -> None:
        self.said: list[str] = []
        self.model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        settings = {"every": 1, "rules": ["nan_inf"], "on_alert": lambda alert: None, **settings}
        self.w = tl.watch(self.model, to=to, tell=self.said.append, **{"transport": RING, **settings})

    def go(self, steps: int = 20) -> None:
        for _ in range(steps):
            self.model(torch.rand(4, 8)).mean().backward()

    def settled(self) -> bool:
        """Wait until the child has dealt with all that was sent."""
        return wait_until(lambda: self.w.account.handled + self.w.account.lost >= self.w.account.offered)

    @property
    def child(self) -> int:
        assert self.w._link is not None
        return self.w._link.process.pid

    def check(self, to: Path) -> Watch:
        """Close; the closing line, the account and `problems` agree with the disk."""
        self.w.close()
        account, there = self.w.account, on_disk(to)
        assert balanced(account) and account.written == there
        last = self.said[-1]
        if there == account.handled:
            assert last.startswith(f"torcheer: {there:,} values of ") and f", in {to}" in last
        elif there:
            assert last.startswith(f"torcheer: {there:,} of {account.handled:,} values of ") and f", in {to}" in last
        else:
            assert last.startswith(f"torcheer: none of {account.handled:,} values of ") and f" is in {to}" in last
        missing = f"{account.handled - there:,} of {account.handled:,} values are not in {to}: "
        assert any(missing in problem for problem in self.w.problems) == (there < account.handled)
        if (to / "log" / "watch").is_dir():
            found = open_watch(to)
            assert found.account == account
            assert (f"{account.handled - there:,} not written" in str(found)) == (there < account.handled)
        return self.w


def test_a_watch_that_could_write_says_as_much_as_there_is(tmp_path: Path) -> None:
    run = Run(tmp_path / "w")
    run.go()
    w = run.check(tmp_path / "w")
    assert w.account.written == w.account.handled > 0 and w.problems == []


def test_a_second_watch_in_the_same_folder_counts_its_own(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.go()
    first.w.close()
    second = Run(tmp_path)
    second.go(5)
    second.w.close()
    assert second.w.account.written == second.w.account.handled == on_disk(tmp_path) - first.w.account.handled


def test_a_full_disk_is_in_the_closing_line_and_among_the_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # or half a .pyc is left of what the child imports
    run = Run(tmp_path)
    run.go()
    assert wait_until(lambda: on_disk(tmp_path) > 0)
    resource.prlimit(run.child, resource.RLIMIT_FSIZE, (40_000, 40_000))
    assert wait_until(lambda: run.go() or run.w.alerts)
    run.go()
    w = run.check(tmp_path)
    assert 0 < on_disk(tmp_path) < w.account.handled
    assert "File too large" in run.said[-1] and "File too large" in w.problems[-1]


@pytest.mark.parametrize("place", ["/proc/torcheer", "file/inside"])
def test_a_folder_that_cannot_be_written_holds_none(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    to = tmp_path / place
    run = Run(to)
    run.go()
    run.check(to)
    assert on_disk(to) == 0 and not to.exists()


def test_a_folder_that_is_removed_while_it_is_written_holds_none(tmp_path: Path) -> None:
    run = Run(tmp_path / "w")
    run.go()
    assert wait_until(lambda: on_disk(tmp_path / "w") > 0)
    shutil.rmtree(tmp_path / "w")
    run.go()
    assert wait_until(lambda: run.go(1) or run.w.alerts or run.w.problems)  # it is said while the run goes on
    assert "is gone" in run.w.problems[0]
    run.check(tmp_path / "w")


def test_a_folder_that_is_moved_while_it_is_written_holds_none(tmp_path: Path) -> None:
    run = Run(tmp_path / "w")
    run.go()
    assert wait_until(lambda: on_disk(tmp_path / "w") > 0)
    os.rename(tmp_path / "w", tmp_path / "elsewhere")
    run.go()
    run.check(tmp_path / "w")


def test_a_folder_that_is_removed_after_the_last_value_holds_none(tmp_path: Path) -> None:
    run = Run(tmp_path / "w")
    run.go()
    assert run.settled() and wait_until(lambda: on_disk(tmp_path / "w") == run.w.account.handled)
    shutil.rmtree(tmp_path / "w")
    run.check(tmp_path / "w")


def test_a_child_that_is_killed_takes_along_what_it_had_not_written(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for _ in range(3):
        run.go()
        os.kill(run.child, signal.SIGKILL)
        assert wait_until(lambda: run.go(1) or not run.w.alerts)  # which notices it
    run.w.close()
    assert run.w.account.restarts > 0 and run.w.account.written == on_disk(tmp_path)
    run.check(tmp_path)


def test_a_child_that_is_killed_when_its_folder_has_gone_has_written_what_is_there(tmp_path: Path) -> None:
    run = Run(tmp_path / "w")
    run.go()
    assert wait_until(lambda: on_disk(tmp_path / "w") > 0)
    shutil.rmtree(tmp_path / "w")
    os.kill(run.child, signal.SIGKILL)
    assert wait_until(lambda: run.go(1) or run.w.account.restarts)
    run.go()
    w = run.check(tmp_path / "w")
    assert 0 < on_disk(tmp_path / "w") < w.account.handled


def test_a_child_that_does_not_answer_has_written_what_is_there(tmp_path: Path) -> None:
    run = Run(tmp_path, transport=Transport(bytes=8 << 20, drain_secs=2.0))
    run.go()
    assert wait_until(lambda: on_disk(tmp_path) > 0)
    os.kill(run.child, signal.SIGSTOP)
    run.go()
    w = run.check(tmp_path)
    assert w.account.lost > 0


def test_where_nothing_is_told_it_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    model = nn.Linear(2, 2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with tl.watch(model, every=1, to=tmp_path / "file", rules=None, transport=RING) as w:
            model(torch.ones(1, 2))
    texts = [str(one.message) for one in told]
    assert any(f"are not in {tmp_path / 'file'}: Not a directory" in text for text in texts)
    assert [text.removeprefix("torcheer.watch: ") for text in texts] == w.problems
