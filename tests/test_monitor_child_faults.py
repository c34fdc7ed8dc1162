"""What goes wrong around the link: killed, stopped, slow, crashing and orphaned children."""

from __future__ import annotations

import ctypes
import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import Child, has_ended
from inspector_spine import PATH, QUIET, SCRIPTS, Diary, balanced, offer, watched
from seams import _ORPHAN_SECS, Link, packed
from waiting import wait_until

from torcheer.inspector import open_watch
from torcheer.samples import Account


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


def kill(link: Link, how: signal.Signals = signal.SIGKILL) -> None:
    os.kill(link.process.pid, how)
    wait_until(lambda: not link.process.is_alive())


# -- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_child_that_is_killed_is_started_again_with_one_warning_and_its_losses_are_counted(
    diary: Diary, how: signal.Signals
) -> None:
    diary.wait_secs = 0.01
    link = watched(diary)
    for step in range(20):
        offer(link, np.ones(3), step)
    first = link.process.pid
    wait_until(lambda: len(diary.lines()) > 3)
    kill(link, how)
    with pytest.warns(
        RuntimeWarning, match=f"the watching process was ended by {how.name} and was started again"
    ) as told:
        said = link.heard()
        assert [(one["kind"], one["how"]) for one in said] == [("died", f"was ended by {how.name}")]
        assert link.process.is_alive() and link.process.pid != first
        for step in range(20, 40):
            offer(link, np.ones(3), step)
        account = link.stop(20.0)
        link.heard()
    assert len(told) == 1
    assert balanced(account) and account.restarts == 1 and account.lost <= 1 and account.handled >= 39
    steps = [int(line.split()[1]) for line in diary.lines()[:-1]]
    assert steps == sorted(set(steps)) and len(steps) >= account.handled


def test_a_value_that_kills_the_child_is_not_read_again(diary: Diary) -> None:
    def value(layer: str, variable: str, step: int, array: Any) -> None:
        if step == 3:
            ctypes.string_at(0)  # a segmentation fault
        diary.value(layer, variable, step, array)

    link = Link(QUIET, callbacks=packed(value, diary.close, as_torch=False))
    for step in range(6):
        offer(link, np.ones(1), step)
    with pytest.warns(RuntimeWarning, match="was ended by SIGSEGV and was started again; 1 of its values are lost"):
        account = link.stop(20.0)  # nobody looked before: what waits behind it is still handled
    assert account == Account(6, 5, {}, lost=1, restarts=1)
    assert [int(line.split()[1]) for line in diary.lines()[:-1]] == [0, 1, 2, 4, 5] and "closed" in diary.lines()[-1]


def test_after_so_many_restarts_everything_is_dropped_and_that_is_said_once(diary: Diary) -> None:
    link = watched(diary, restarts=2)
    with pytest.warns(RuntimeWarning) as told:
        for _ in range(3):
            offer(link, np.ones(1))
            kill(link)
            link.heard()
        assert [offer(link, np.ones(1), layer="late") for _ in range(5)] == [False] * 5
        link.heard()
        account = link.stop(60.0)
    texts = [str(one.message) for one in told]
    assert len(texts) == 2 and "and is not started again (after 2 restarts)" in texts[1]
    assert account.restarts == 2 and account.dropped == {("late", "output"): 5} and balanced(account)
    assert account.offered == 8 and not link.process.is_alive()


def test_where_warnings_are_errors_the_death_of_the_child_is_still_no_error(
    diary: Diary, capsys: pytest.CaptureFixture[str]
) -> None:
    link = watched(diary, restarts=0)
    kill(link)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        link.heard()
        link.stop(60.0)
    assert "torcheer: the watching process was ended by SIGKILL and is not started again" in capsys.readouterr().err


def test_blocking_does_not_wait_for_the_dead(diary: Diary) -> None:
    link = watched(diary, policy="block", block_ms=60_000.0, ring_bytes=1 << 16, restarts=0)
    kill(link)
    begun = time.monotonic()
    assert not any(offer(link, np.ones(1000)) for _ in range(50))
    assert time.monotonic() - begun < 30
    with pytest.warns(RuntimeWarning):
        assert balanced(link.stop(60.0))


def test_a_copy_that_fails_does_not_reach_the_training(diary: Diary) -> None:
    link = watched(diary)

    def fill(view: memoryview) -> None:
        raise RuntimeError("no such tensor")

    about = {"layer": "a", "variable": "output", "item": -1, "type": "uint8", "shape": (1,), "step": 1}
    with pytest.warns(RuntimeWarning, match="a value could not be sent .*no such tensor") as told:
        assert not link.ring.offer(about, 1, fill) and not link.ring.offer(about, 1, fill)
        assert not link.ring.offer({}, 1, fill)
    assert len(told) == 1 and offer(link, np.ones(1), 2)
    assert link.stop(60.0) == Account(3, 1, {("a", "output"): 2})


def test_a_child_that_cannot_begin_does_not_hold_up_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torcheer.wire.child_process._SCRIPT", "raise SystemExit(3)")
    link = Link(QUIET)
    offer(link, np.ones(1))
    with pytest.warns(RuntimeWarning) as told:
        account = link.stop(60.0)
    assert account == Account(1, 0, {}, lost=1, restarts=3)
    assert [("ended with code 3" in str(one.message)) for one in told] == [True, True]


def test_a_child_that_cannot_be_started_again_is_told_of_and_that_is_all(
    diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = watched(diary)
    kill(link)
    monkeypatch.setattr("torcheer.wire.child_process.sys.executable", "/nowhere/python")
    with pytest.warns(RuntimeWarning, match=r"SIGKILL, and could not be started again \(.*No such file.*\) and is not"):
        link.heard()
    assert not offer(link, np.ones(1)) and link.heard() == []
    assert link.stop(60.0) == Account(1, 0, {("a", "output"): 1}, restarts=1)


# -- a child that does not answer ------------------------------------------------------------------------------------


@pytest.mark.timing
def test_a_stopped_child_does_not_hold_up_the_end(diary: Diary) -> None:
    link = watched(diary)
    offer(link, np.ones(1), 1)
    wait_until(diary.lines)
    os.kill(link.process.pid, signal.SIGSTOP)
    for step in range(2, 10):
        offer(link, np.ones(1), step)
    begun = time.monotonic()
    account = link.stop(1.0)
    assert time.monotonic() - begun < 15 and has_ended(link.process.pid) and link.process.exitcode == -signal.SIGKILL
    assert account == Account(9, 1, {}, lost=8)


@pytest.mark.timing
def test_a_child_with_too_much_to_do_closes_its_files_in_time(diary: Diary) -> None:
    diary.wait_secs = 0.1
    link = watched(diary)
    for step in range(1000):
        offer(link, np.ones(1), step)
    begun = time.monotonic()
    account = link.stop(4.0)  # of which the last second is for closing
    assert time.monotonic() - begun < 30 and link.process.exitcode == 0
    assert balanced(account) and 0 < account.handled < 100 and account.lost == 1000 - account.handled
    assert diary.lines()[-1] == f"closed after {account.handled}"


def test_a_slow_child_makes_the_ring_drop_and_nothing_grow(diary: Diary) -> None:
    def memory(pid: int | str) -> int:
        return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])

    diary.wait_secs = 0.05
    link = watched(diary, ring_bytes=1 << 20)
    wait_until(lambda: offer(link, np.ones(12_000)) and diary.lines())
    before, ours = memory(link.process.pid), memory("self")
    sent = 0
    for step in range(3000):
        sent += offer(link, np.full(12_000, step), step)
    assert memory(link.process.pid) < before + 20_000 and memory("self") < ours + 20_000
    account = link.stop(20.0)
    assert balanced(account) and account.lost == account.damaged == 0
    assert account.handled == len(diary.lines()) - 1 and sum(account.dropped.values()) > 2000


def test_a_child_that_talks_without_being_heard_goes_on(tmp_path: Path) -> None:
    def value(layer: str, variable: str, step: int, array: Any) -> None:
        raise ValueError("x" * 2000)

    link = Link(QUIET, callbacks=packed(value, as_torch=False))
    for step in range(500):
        offer(link, np.ones(1), step, layer=str(step))
    wait_until(lambda: link.account.handled == 500)
    link.stop(60.0)
    assert len([said for said in link.heard() if said["kind"] == "quarantined"]) == 500


def test_what_is_damaged_in_the_ring_is_left_out_and_counted(diary: Diary) -> None:
    link = watched(diary)
    offer(link, np.ones(1), 0)
    wait_until(diary.lines)
    os.kill(link.process.pid, signal.SIGSTOP)
    for step in range(1, 11):
        offer(link, np.full(100, step), step)
    where = link.ring.memory.get(16)
    assert where is not None
    link.ring.memory.data[where + 16] ^= 255  # the length of the next record
    link.ring.memory.data[where + 3000] ^= 1  # and something in a later one
    os.kill(link.process.pid, signal.SIGCONT)
    account = link.stop(20.0)
    assert account == Account(11, 9, {}, damaged=2)
    assert all(float(line.split()[2]) == 100 * int(line.split()[1]) for line in diary.lines()[1:-1])


# -- a parent that dies ----------------------------------------------------------------------------------------------


SOON_SECS = 8.0  # 0.7 where nothing else runs; the last resort comes after 11


@contextmanager
def killed_parent(diary: Diary, *arguments: object) -> Iterator[tuple[int, float]]:
    """The child of a parent that was killed, and when that was."""
    with Child(SCRIPTS / "killed_parent.py", diary.path, *arguments, env=PATH) as process:
        child = int(process.line())
        assert not has_ended(child)
        process.kill()
        process.wait()
        yield child, time.monotonic()


@pytest.mark.timing
@pytest.mark.parametrize("more", ["", "fork"])
def test_when_the_parent_is_killed_the_child_finishes_and_goes(diary: Diary, more: str) -> None:
    before = set(os.listdir("/dev/shm"))
    with killed_parent(diary, 0.002, 40, more) as (child, begun):
        wait_until(lambda: has_ended(child))
        assert time.monotonic() - begun < SOON_SECS
    assert diary.lines()[-1] == "closed after 40" and len(diary.lines()) == 41
    assert set(os.listdir("/dev/shm")) == before


@pytest.mark.timing
def test_when_the_parent_is_killed_all_that_was_sent_is_in_the_log(tmp_path: Path) -> None:
    with killed_parent(Diary(tmp_path / "diary"), 0, 30, f"to={tmp_path / 'watch'}") as (child, begun):
        wait_until(lambda: has_ended(child))
        assert time.monotonic() - begun < SOON_SECS
    assert open_watch(tmp_path / "watch")["a", "output"].mean.tolist() == list(range(30))


@pytest.mark.timing
def test_an_orphan_with_too_much_to_do_leaves_the_rest(diary: Diary) -> None:
    with killed_parent(diary, 0.05, 1000) as (child, begun):
        wait_until(lambda: has_ended(child))
        assert time.monotonic() - begun < SOON_SECS
    assert diary.lines()[-1] == f"closed after {len(diary.lines()) - 1}" and len(diary.lines()) < 100


@pytest.mark.faults
def test_an_orphan_whose_callback_hangs_is_gone_in_the_end(diary: Diary) -> None:
    with killed_parent(diary, 0, 3, "hang") as (child, _):
        time.sleep(2)
        assert not has_ended(child)
        wait_until(lambda: has_ended(child), secs=_ORPHAN_SECS + 60)


def test_a_terminated_child_finishes_and_another_takes_its_place(diary: Diary) -> None:
    link = watched(diary)
    offer(link, np.ones(1), 1)
    wait_until(diary.lines)
    kill(link, signal.SIGTERM)
    assert diary.lines()[-1] == "closed after 1" and link.process.exitcode == 0
    with pytest.warns(RuntimeWarning, match="was ended by SIGTERM and was started again; 0 of its values"):
        link.heard()
    offer(link, np.ones(1), 2)
    assert link.stop(60.0) == Account(2, 2, restarts=1)
