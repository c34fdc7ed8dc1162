"""What viewers leave behind: no folder and no descriptor, whoever is ended, and however."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from children import Child, has_ended
from fast_cases import fast_first
from leftovers import open_files
from seams import LOCK, TemporaryFolder
from studio_socket import Page
from torch import nn
from waiting import wait_until

import torcheer as tl
from torcheer.studio import NetView, State, Table, Viewer

pytest.importorskip("uvicorn")
SHOWS = """
import time, torch
import torcheer as tl
viewer = tl.show(torch.nn.Linear(40, 30), torch.ones(1, 40), browser=False, block=False)
print(viewer.pid, flush=True)
while True:
    time.sleep(0.1)
"""
LIVES = """
import time, torch
import torcheer as tl
view = tl.live(torch.nn.Linear(40, 30), browser=False)
print(view.viewer.pid, flush=True)
while True:
    time.sleep(0.1)
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where temporary things go, here and in the processes that are started."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


@contextmanager
def program(text: str) -> Iterator[tuple[Child, int]]:
    """A Python program that prints an address and its viewer's number."""
    with Child("-c", text) as process:
        assert process.line().startswith("http://")
        yield process, int(process.line())


def left(folder: Path) -> list[Path]:
    """Folders of ours that are still there."""
    return sorted(folder.glob("torcheer-*"))


# -- folders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", fast_first([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
def test_nothing_is_left_of_a_show_whose_process_is_ended_by_a_signal(folder: Path, number: int) -> None:
    with program(SHOWS) as (process, viewer):
        assert left(folder)
        process.send_signal(number)
        process.wait(60)
        wait_until(lambda: has_ended(viewer), "the viewer to end")
        assert left(folder) == []


@pytest.mark.parametrize("number", fast_first([signal.SIGTERM, signal.SIGHUP, signal.SIGINT]))
def test_a_viewer_that_is_ended_by_a_signal_takes_its_folder_along(folder: Path, number: int) -> None:
    with program(SHOWS) as (process, viewer):
        os.kill(viewer, number)
        wait_until(lambda: has_ended(viewer), "the viewer to end")
        assert left(folder) == [] and process.poll() is None


def test_what_a_killed_viewer_left_goes_with_the_process_that_started_it(folder: Path) -> None:
    ends = SHOWS.replace("while True:", "while viewer.alive:")
    with program(ends) as (process, viewer):
        os.kill(viewer, signal.SIGKILL)
        assert process.wait(60) == 0
    assert left(folder) == []


def test_a_start_clears_what_dead_viewers_left_and_nothing_else(folder: Path) -> None:
    with program(SHOWS) as (process, viewer):
        os.kill(viewer, signal.SIGSTOP)  # it must not notice
        process.kill()
        process.wait()
        os.kill(viewer, signal.SIGKILL)
        wait_until(lambda: has_ended(viewer), "the viewer to be gone")
    (dead,) = left(folder)
    strangers = [folder / "torcheer-show-mine", folder / "torcheer-run"]
    for stranger in strangers:
        stranger.mkdir()
        (stranger / "LOCK").touch()
    with program(SHOWS) as (_, _), tl.show(Table({"a": [1]}), browser=False, block=False) as viewer_here:
        assert dead not in left(folder)
        assert viewer_here.alive and len(left(folder)) == 4  # two that are shown, and the strangers
    assert all((stranger / "LOCK").exists() for stranger in strangers)


@pytest.mark.parametrize("number", fast_first([signal.SIGKILL, signal.SIGTERM]))
def test_the_socket_of_a_killed_loop_is_cleared_by_the_next(folder: Path, number: int) -> None:
    with program(LIVES) as (process, viewer):
        process.send_signal(number)
        process.wait()
        wait_until(lambda: has_ended(viewer), "the viewer to end")
    with tl.live(nn.Linear(2, 2), open_server=False) as view:
        assert view.path is not None and [view.path.parent] == left(folder)
    assert left(folder) == []


def test_a_folder_that_is_held_is_never_cleared(folder: Path) -> None:
    held = TemporaryFolder("show")
    other = TemporaryFolder("show")
    assert held.path.exists()
    held.close()  # as a death would
    assert held.path.exists()
    third = TemporaryFolder("show")
    assert left(folder) == sorted([other.path, third.path])
    other.remove()
    third.remove()
    third.remove()
    assert left(folder) == []


def test_a_folder_of_another_user_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = TemporaryFolder("show")
    dead.close()
    uid = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: uid + 1)
    made = TemporaryFolder("show")
    assert dead.path.exists()
    made.remove()


def test_a_link_that_looks_like_a_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / LOCK).touch()
    (folder / "torcheer-show-link").symlink_to(precious)
    trap = folder / "torcheer-show-trap"
    trap.mkdir()
    (trap / LOCK).symlink_to(precious / LOCK)
    TemporaryFolder("show").remove()
    assert (precious / LOCK).exists() and trap.exists()


def test_a_forked_process_removes_nothing(folder: Path) -> None:
    held = TemporaryFolder("show")
    pid = os.fork()
    if pid == 0:
        held.remove()
        os._exit(0)
    os.waitpid(pid, 0)
    assert held.path.exists()
    held.remove()


def test_a_folder_is_locked_from_the_moment_on_that_it_can_be_found(folder: Path) -> None:
    held = TemporaryFolder("show")
    with open(held.path / LOCK) as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    held.remove()


# -- descriptors -------------------------------------------------------------------------------------------------------


MODEL = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))


def _lived() -> object:
    with tl.live(MODEL, browser=False) as view:
        MODEL(torch.ones(1, 3)).sum().backward()
    view.close()
    return view


def _looked_at() -> object:
    with tl.live(MODEL, browser=False) as view, Page(view.url) as page:
        page.say("look", look=1, variable="Act")

        def stepped() -> bool:
            MODEL(torch.ones(1, 3))
            return view.host.values.announced > 0

        wait_until(stepped, "a state to be shown")
    view.close()
    return view


def _shown() -> object:
    viewer = tl.show(MODEL, torch.ones(1, 3), browser=False, block=False)
    viewer.close()
    return viewer


def _tabled() -> object:
    viewer = tl.show(Table({"a": [1]}), browser=False, block=False)
    viewer.close()
    return viewer


def _viewed() -> object:
    state = State()
    state.rec(torch.ones(1, 3), "A.Act")
    view = NetView(state.net).open(browser=False)
    view.update(now=True)
    view.close()
    return view


@pytest.mark.parametrize("start", fast_first([_lived, _shown, _viewed, _looked_at, _tabled], 2))
def test_a_start_and_its_end_leave_no_descriptor(folder: Path, start: Callable[[], object]) -> None:
    kept = [start()]  # whoever keeps the object keeps nothing open with it
    gc.collect()
    before = open_files()
    gc.disable()
    try:
        kept.append(start())
        assert open_files() <= before
    finally:
        gc.enable()


def test_loops_one_after_another_leave_no_descriptor() -> None:
    counts = []
    gc.disable()
    try:
        for _ in range(3):
            with tl.live(MODEL, browser=False) as view:
                MODEL(torch.ones(1, 3))
            counts.append(open_files())  # the page of the last one is still there
        view.close()
    finally:
        gc.enable()
    assert len(set(counts)) == 1


def test_a_viewer_that_died_is_let_go_by_the_next_start(tmp_path: Path) -> None:
    tl.log_forward_pass(MODEL, torch.ones(1, 3)).save(tmp_path / "pass")

    def shown() -> Viewer:
        return tl.show(tmp_path / "pass", browser=False, block=False)

    shown().close()
    before = open_files()
    dead = shown()
    os.kill(dead.pid, signal.SIGKILL)
    wait_until(lambda: not dead.alive, "it to be dead")
    shown().close()
    assert open_files() <= before and repr(dead) == "Viewer(ended)"
