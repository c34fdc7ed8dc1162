"""How long a viewer stays: with the process that started it, on a terminal after it; and no orphan for ever."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from children import has_ended
from seams import start
from studio_programs import project
from studio_runs import fake
from studio_socket import Page
from terminals import Terminal
from waiting import wait_until

from torcheer.errors import CannotWrite

pytest.importorskip("uvicorn")
STARTS = """
import os, sys, time
from torcheer.wire.open_viewer import start
viewer = start(sys.argv[1], browser=False, outlives=True)
print("viewer:", viewer.pid, "of", os.getpid(), flush=True)
"""
WAITS = STARTS + "time.sleep(600)"
PARENTS_PARENT = """
import subprocess, sys
subprocess.run([sys.executable, *sys.argv[1:]])
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that has trained for two epochs and ended."""
    return fake(tmp_path / "first", epochs=2)


@contextmanager
def viewer_of(terminal: Terminal) -> Iterator[tuple[str, int, int]]:
    """The address that a program printed, its viewer and the program itself; the viewer ends with the block."""
    url = terminal.until(r"(http://\S+)")
    viewer, program = (int(terminal.until(pattern)) for pattern in (r"viewer: (\d+)", r"of (\d+)"))
    try:
        yield url, viewer, program
    finally:
        with suppress(ProcessLookupError):
            os.kill(viewer, signal.SIGKILL)


def gone(viewer: int) -> None:
    wait_until(lambda: has_ended(viewer), "the viewer to end")


def test_on_a_terminal_it_stays_when_its_process_has_ended_and_its_page_loads_again(run: Path) -> None:
    with Terminal("-c", STARTS, run) as terminal, viewer_of(terminal) as (url, viewer, _):
        assert terminal.ends() == 0
        assert f"the page stays at {url}" in terminal.text
        for _ in range(2):
            with Page(url) as page:
                assert page.until("rows")["columns"]["loss"] == [0.5, 0.25]
        assert not has_ended(viewer)


def test_on_a_terminal_it_stays_when_its_process_was_killed(run: Path) -> None:
    with Terminal("-c", WAITS, run) as terminal, viewer_of(terminal) as (url, viewer, program):
        os.kill(program, signal.SIGKILL)
        terminal.ends()
        with Page(url) as page:
            assert page.hello["command"] == f"torcheer studio {run}"
        assert not has_ended(viewer)


def test_it_ends_with_its_terminal(run: Path) -> None:
    with Terminal("-c", STARTS, run) as terminal, viewer_of(terminal) as (url, viewer, _):
        terminal.ends()
        with Page(url):  # a page that is open does not keep it
            terminal.close()
            gone(viewer)


@pytest.mark.parametrize("environment", [{"CI": "true"}, {"TORCHEER_PAGE_SECS": "0"}], ids=["in CI", "if told so"])
def test_it_ends_with_its_process(run: Path, environment: dict[str, str]) -> None:
    with Terminal("-c", STARTS, run, env=environment) as terminal, viewer_of(terminal) as (_, viewer, _):
        terminal.ends()
        gone(viewer)
        assert "the page stays" not in terminal.text


@pytest.mark.slow
def test_alone_it_ends_after_its_time_and_not_while_a_page_is_open(run: Path) -> None:
    short = {"TORCHEER_PAGE_SECS": "1.5"}
    with Terminal("-c", WAITS, run, env=short) as terminal, viewer_of(terminal) as (url, viewer, program):
        with Page(url) as page:
            os.kill(program, signal.SIGKILL)
            terminal.ends()
            page.quiet(3.0)
            assert not has_ended(viewer)
        gone(viewer)


def test_it_stays_with_its_process_whatever_becomes_of_those_that_started_that(run: Path) -> None:
    starts = ("-c", PARENTS_PARENT, "-c", WAITS, run)
    with Terminal(*starts) as terminal, viewer_of(terminal) as (url, viewer, program):
        grandparent = int(Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(grandparent, signal.SIGKILL)
        terminal.ends()
        with Page(url):
            assert not has_ended(viewer) and not has_ended(program)
        terminal.close()
        gone(program)
        gone(viewer)


def test_a_page_closes_the_studio_and_the_process_goes_on(run: Path) -> None:
    with Terminal("-c", WAITS, run) as terminal, viewer_of(terminal) as (url, viewer, program):
        with Page(url) as page:
            page.say("close_studio")
            assert page.until("ended")["heading"] == "The viewer was closed"
        gone(viewer)
        assert not has_ended(program)


def test_it_gives_way_to_the_next_that_wants_its_port_but_not_while_its_process_runs(run: Path) -> None:
    with Terminal("-c", WAITS, run) as terminal, viewer_of(terminal) as (url, viewer, program):
        port = urlsplit(url).port or 0
        with pytest.raises(CannotWrite, match="cannot be listened on"):
            start(run, port=port, browser=False, quiet=True)
        os.kill(program, signal.SIGKILL)
        terminal.ends()
        with Page(url) as page:
            wait_until(lambda: list(Path(tempfile.gettempdir()).glob(f"torcheer-page-{port}-*")), "it to be alone")
            with start(run, port=port, browser=False, quiet=True) as next_viewer:
                assert page.until("ended")["heading"] == "The viewer was closed"
                gone(viewer)
                assert urlsplit(next_viewer.url).port == port
        assert not list(Path(tempfile.gettempdir()).glob(f"torcheer-page-{port}-*"))


LOOP = """
import os, sys, time, torch
import torcheer as tl
model = torch.nn.Linear(6, 4)
to = sys.argv[1] if len(sys.argv) > 1 else None
with tl.live(model, browser=False, to=to) as view:
    print("viewer:", view.viewer.pid, "of", os.getpid(), flush=True)
    step = 0
    while True:
        model(torch.rand(3, 6)).sum().backward()
        view.log(loss=1.0, text=f"step {step}")
        step += 1
        time.sleep(0.02)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kept", [False, True], ids=["in a temporary folder", "in a run's folder"])
def test_what_a_killed_loop_showed_can_be_seen_again(tmp_path: Path, kept: bool) -> None:
    (tmp_path / "tmp").mkdir()
    to = [tmp_path / "run"] if kept else []
    environment = {"TMPDIR": str(tmp_path / "tmp"), "OMP_NUM_THREADS": "1"}
    with Terminal("-c", LOOP, *to, env=environment) as terminal, viewer_of(terminal) as (url, viewer, program):
        with Page(url) as page:
            page.say("look", look=1, variable="Act")
            page.until("moments")
            page.until("samples_came")
            os.kill(program, signal.SIGKILL)
            outcome = page.until("outcome_came", lambda message: message["heading"])
        assert outcome["heading"].startswith("Training was killed, or has crashed after step ")
        assert outcome["command"] == (f"torcheer studio {tmp_path / 'run'}" if kept else "")
        terminal.ends()
        with Page(url) as again:  # as after a reload
            assert again.hello["heading"] == outcome["heading"] and again.hello["moments"]
            assert again.hello["state"]["status"] == "lost"
            heads = again.hello["samples"]
            assert again.ask("ask_sample", 5, id=heads[0]["id"])["text"] == "step 0"
            assert again.state(look=1, variable="Act")[0]  # a picture of each layer
        os.kill(viewer, signal.SIGTERM)
        gone(viewer)
        assert list((tmp_path / "tmp").glob("torcheer-*")) == []


@pytest.mark.slow
def test_training_that_is_stopped_by_ctrl_c_leaves_its_page(tmp_path: Path) -> None:
    project(tmp_path)
    command = ("train", "training.yaml", "session_dir=run", "train.epochs=1000", "--studio", "--plain")
    with Terminal("-m", "torcheer", *command, cwd=tmp_path, env={"OMP_NUM_THREADS": "1"}) as terminal:
        url = terminal.until(r"(http://\S+)")
        with Page(url) as page:
            page.until("state_came", lambda message: message["state"]["counters"].get("Step", 0) > 0)
            terminal.press_ctrl_c()
            outcome = page.until("outcome_came", lambda message: message["heading"])
        terminal.ends()
        assert f"the page stays at {url}" in terminal.text
        assert outcome["heading"].startswith("Training has ended at step ")
        with Page(url) as again:
            assert again.hello["command"] == f"torcheer studio {tmp_path / 'run'}"
            again.say("close_studio")
            again.until("ended")
