"""A real browser that is killed while it looks, then the server: training goes on, with the same numbers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import FLAGS, _awake, chromium_path
from children import run_python
from studio_programs import Panel, project, started
from waiting import wait_until

LOOP = """
import os, sys, time
import torch
import torcheer as tl
from torch import nn

torch.manual_seed(3)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
data = torch.rand(64, 8, 1, 8, 8)
steps = int(sys.argv[2])

def train(log):
    with open(sys.argv[1], "w", buffering=1) as file:
        for step in range(steps):
            optimizer.zero_grad()
            loss = model(data[step % 64]).square().mean()
            loss.backward()
            optimizer.step()
            log(loss)
            file.write(loss.item().hex() + "\\n")
            if os.path.exists("enough"):
                break

if "plain" in sys.argv:
    train(lambda loss: None)
else:
    with tl.live(model, optimizer=optimizer, browser=False) as view:
        print(view.viewer.pid, flush=True)
        train(lambda loss: (view.log(loss=loss), time.sleep(0.01)))
"""


class Killable:
    """A browser of one's own, to be killed."""

    def __init__(self, chromium: Any) -> None:
        self._browser = chromium.launch(executable_path=chromium_path(), args=FLAGS)
        self._session = self._browser.new_browser_cdp_session()

    def page(self, url: str) -> Any:
        """A connected page."""
        page = self._browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(url)
        page.wait_for_selector(".connection.open")
        return page

    def processes(self, kind: str) -> list[int]:
        """The numbers of its processes of a kind: "browser", "renderer"."""
        found = self._session.send("SystemInfo.getProcessInfo")["processInfo"]
        return [one["id"] for one in found if one["type"] == kind]

    def kill(self, kind: str, page: Any) -> None:
        """Without a goodbye; returns when its page is known to be gone."""
        gone: list[Any] = []
        page.on("crash", lambda one: gone.append(one))
        self._browser.on("disconnected", lambda one: gone.append(one))
        for number in self.processes(kind):
            os.kill(number, signal.SIGKILL)
        wait_until(lambda: gone or _heard(page), "the page to be gone")

    def close(self) -> None:
        """What is left of it."""
        self._browser.close()


@pytest.fixture
def killable(browser: tuple[Any, Any]) -> Iterator[Killable]:
    loop, chromium = browser
    with _awake(loop):
        made = Killable(chromium.browser_type)
        yield made
        made.close()


def _heard(page: Any) -> None:
    """Let Playwright hear what happened."""
    try:
        page.wait_for_timeout(20)
    except Exception:  # it is gone, as it should be
        return


@pytest.mark.slow
def test_a_loop_whose_page_browser_and_server_are_killed_learns_the_same_numbers(
    killable: Killable, tmp_path: Path
) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    losses = tmp_path / "live"

    def count() -> int:
        return len(losses.read_text().splitlines())

    def goes_on() -> bool:
        before = count()
        return bool(wait_until(lambda: count() > before + 20, "more steps"))

    with started("loop.py", losses, 10**9, cwd=tmp_path) as (url, process):
        server = int(process.line())
        for kind in ("renderer", "browser"):
            panel = Panel(killable.page(url))
            panel.until_moment(panel.until_moment())
            killable.kill(kind, panel.page)
            assert goes_on() and process.poll() is None
        os.kill(server, signal.SIGKILL)
        assert goes_on() and process.poll() is None
        (tmp_path / "enough").touch()
        assert process.wait(60) == 0
    (tmp_path / "enough").unlink()
    run_python("loop.py", "plain losses", count(), "plain", cwd=tmp_path, env={"OMP_NUM_THREADS": "1"})
    assert (tmp_path / "plain losses").read_text() == losses.read_text()


@pytest.mark.slow  # in CI a config outlives a page that is closed: test_studio_end_to_end.py
def test_a_config_whose_page_is_killed_trains_to_the_same_end(killable: Killable, tmp_path: Path) -> None:
    project(tmp_path)
    command = ["-m", "torcheer", "train", "training.yaml", "train.epochs=3"]
    with started(*command, "session_dir=live", "--studio", "--no-browser", "--paused", cwd=tmp_path) as (url, process):
        panel = Panel(killable.page(url))
        panel.until_status("Paused")
        panel.press("Train")
        panel.until_moment()
        killable.kill("renderer", panel.page)
        assert process.wait(120) == 0
    run_python(*command, "session_dir=plain", "--no-control", cwd=tmp_path, env={"OMP_NUM_THREADS": "1"})
    seen, alone = ((tmp_path / run / "metrics" / "0.csv").read_text() for run in ("live", "plain"))
    assert seen == alone and len(alone.splitlines()) == 4
