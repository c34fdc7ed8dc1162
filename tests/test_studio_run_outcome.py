"""What the page says when a run or its connection ends: what is true, and where that cannot be known, so."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from children import Child, has_ended
from playwright.sync_api import expect
from studio_pages import Pages, opened, running  # noqa: F401
from studio_programs import GONE, Panel, project, started
from studio_stage import Stage
from terminals import Terminal
from waiting import wait_until

pytestmark = pytest.mark.browser
LOOP = """
import os, sys, time
import torch
import torcheer as tl
from torch import nn

model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))

def train():
    while not os.path.exists("enough"):
        model(torch.rand(3, 6)).sum().backward()
        time.sleep(0.01)
    if os.path.exists("crash"):
        raise ValueError("the loss is a banana")

if "bare" in sys.argv:
    view = tl.live(model, browser=False)
    print(view.viewer.pid, flush=True)
    train()
else:
    with tl.live(model, browser=False) as view:
        print(view.viewer.pid, flush=True)
        train()
    if "stays" in sys.argv:
        print("ended", flush=True)
        time.sleep(600)
"""
UNKNOWN = "Connection to the viewer lost. Whether training goes on cannot be seen from here."
Ending = Callable[[Child, int, Path], None]


def _enough(process: Child, viewer: int, folder: Path) -> None:
    (folder / "enough").touch()
    process.wait(60)


def _crash(process: Child, viewer: int, folder: Path) -> None:
    (folder / "crash").touch()
    _enough(process, viewer, folder)


def _signal(number: int, to_viewer: bool = False) -> Ending:
    def send(process: Child, viewer: int, folder: Path) -> None:
        os.kill(viewer if to_viewer else process.pid, number)

    return send


@pytest.mark.parametrize(
    ("way", "end", "says", "status", "chip"),
    [
        pytest.param(
            "block",
            _enough,
            r"^Training has ended at step [\d,]+\. The viewer was closed\. What you see",
            "Done",
            "Ended",
            marks=pytest.mark.slow,
        ),
        (
            "bare",
            _enough,
            r"^Training has ended at step [\d,]+\. The viewer was closed\. What you see",
            "Done",
            "Ended",
        ),
        pytest.param(
            "block",
            _crash,
            r"^Training has failed at step [\d,]+: ValueError: the loss is a banana\. The",
            "Failed",
            "Failed",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "bare",
            _crash,
            r"^Training has failed at step [\d,]+: ValueError: the loss is a banana\. The",
            "Failed",
            "Failed",
            marks=pytest.mark.slow,
        ),
        ("block", _signal(signal.SIGKILL), r"^Training was killed, or has crashed after step [\d,]+\.", "Lost", "Gone"),
        pytest.param(
            "block",
            _signal(signal.SIGTERM, True),
            r"^The viewer was closed\. Training goes on\.",
            "last seen",
            "Last seen",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "block",
            _signal(signal.SIGKILL, True),
            f"^{re.escape(UNKNOWN)}",
            "last seen",
            "Last seen",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["ended", "ended alone", "raised", "raised alone", "killed", "viewer closed", "viewer killed"],
)
def test_the_page_says_what_became_of_training(
    open_page: Pages, tmp_path: Path, way: str, end: Ending, says: str, status: str, chip: str
) -> None:
    open_page.forgiven += GONE
    (tmp_path / "loop.py").write_text(LOOP)
    with started("loop.py", way, cwd=tmp_path) as (url, process):
        viewer = int(process.line())
        page = open_page(url)
        Panel(page).until_moment()
        assert chip_of(page) == "Live"
        end(process, viewer, tmp_path)
        page.wait_for_selector(".banner")
        text = said(page)
        assert re.search(says, text), text
        assert ("Training goes on" in text) == ("Training goes on" in says)
        assert status in page.inner_text("footer.status") and chip_of(page) == chip
        _enough(process, viewer, tmp_path)


def chip_of(page: Any) -> str:
    """The word beside the title; only "Live" is green, and so is the button that follows the newest moment."""
    word = str(page.inner_text(".title .chip"))
    assert page.locator(".chip.live").count() == (word == "Live")
    assert page.inner_text(".network-time button.live").strip() == ("Live" if word == "Live" else "Newest")
    return word


def said(page: Any) -> str:
    """The banner's words."""
    return " ".join(page.inner_text(".banner p").split())


@pytest.mark.slow
def test_a_loop_that_has_ended_is_done_while_its_page_stays(open_page: Pages, tmp_path: Path) -> None:
    open_page.forgiven += GONE
    (tmp_path / "loop.py").write_text(LOOP)
    with started("loop.py", "stays", cwd=tmp_path) as (url, process):
        viewer = int(process.line())
        page = open_page(url)
        panel = Panel(page)
        panel.until_moment()
        (tmp_path / "enough").touch()
        panel.until_status("Done")
        expect(page.locator(".banner.ended")).to_contain_text(
            re.compile(r"Training has ended at step [\d,]+\. It has no")
        )
        assert chip_of(page) == "Ended"
        page.get_by_role("button", name="Hide").click()
        expect(page.locator(".banner")).to_have_count(0)
        os.kill(viewer, signal.SIGKILL)
        page.wait_for_selector(".banner")
        assert said(page).startswith("Connection to the viewer lost. Training had ended before that.")
        process.kill()


@pytest.mark.slow  # of a killed loop and a killed session on a terminal CI knows it
@pytest.mark.parametrize(
    ("number", "says", "chip"),
    [
        (signal.SIGKILL, "Training was killed, or has crashed", "Gone"),
        (signal.SIGTERM, "Training has ended", "Ended"),
    ],
)
def test_a_session_that_is_ended_by_a_signal_says_how(
    open_page: Pages, tmp_path: Path, number: int, says: str, chip: str
) -> None:
    open_page.forgiven += GONE
    project(tmp_path)
    command = ("-m", "torcheer", "train", "training.yaml", "session_dir=run", "train.epochs=1000")
    with started(*command, "--studio", "--no-browser", cwd=tmp_path) as (url, process):
        page = open_page(url)
        Panel(page).until_status("Running")
        process.send_signal(number)
        page.wait_for_selector(".banner")
        assert said(page).startswith(says) and chip_of(page) == chip


STAYS = LOOP.replace("with tl.live(model, browser=False)", "with tl.live(model, browser=False, to='a run')")


def test_a_page_on_a_terminal_outlives_a_killed_run_is_loaded_again_and_closes_the_studio(
    open_page: Pages, tmp_path: Path
) -> None:
    open_page.forgiven += GONE
    with Terminal("-c", STAYS, cwd=tmp_path, env={"OMP_NUM_THREADS": "1"}) as terminal:
        page = open_page(terminal.until(r"(http://\S+)"))
        viewer = int(terminal.until(r"\n(\d+)\n"))
        Panel(page).until_moment()
        (program,) = [int(pid) for pid in Path(f"/proc/{viewer}/stat").read_text().rpartition(")")[2].split()[1:2]]
        os.kill(program, signal.SIGKILL)
        for _ in range(2):
            banner = page.locator(".banner")
            expect(banner).to_contain_text(
                re.compile(r"^Training was killed, or has crashed after step [\d,]+\. It is kept")
            )
            expect(banner.locator("code")).to_have_text(f"torcheer studio '{tmp_path / 'a run'}'")
            banner.get_by_label("Copy: ").click()
            expect(banner.get_by_title("Copied")).to_be_visible()
            assert chip_of(page) == "Gone" and Panel(page).until_moment() >= 0
            page.reload()
            page.wait_for_selector(".connection.open")
        page.get_by_role("button", name="Close the studio").click()
        page.get_by_role("button", name="Press again to close it").click()
        expect(page.locator(".banner")).to_contain_text("The viewer was closed. What you see is as it was.")
        wait_until(lambda: has_ended(viewer), "the viewer to end")


def test_a_hiccup_of_the_network_is_told_as_what_it_is(open_page: Pages) -> None:
    open_page.forgiven += GONE
    with running(Stage()) as (url, _, server):
        page = open_page(url)
        page.evaluate("""() => {
            window.said = [];
            const note = () => window.said.push(document.body.innerText);
            new MutationObserver(note).observe(document.body, {childList: true, subtree: true, characterData: true});
        }""")
        for connection in list(server.server_state.connections):  # the server knows nothing of it
            connection.loop.call_soon_threadsafe(connection.transport.abort)
        wait_until(
            lambda: any("Connection to the viewer lost" in one for one in page.evaluate("window.said")), page=page
        )
        page.wait_for_selector(".connection.open")
        lost = [one for one in page.evaluate("window.said") if "Connection to the viewer lost" in one]
        assert all(UNKNOWN in one and "Running when last seen" in one for one in lost)
        expect(page.locator(".banner")).to_have_count(0)
        assert "last seen" not in page.inner_text("footer.status")
        page.context.close()
