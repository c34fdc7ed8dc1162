"""The whole way in a real browser: a program that a person would start, its server, its page, every button."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from studio_pages import Pages, opened, until  # noqa: F401
from studio_scene import View

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "src" / "torcheer" / "demo" / "project"


@contextmanager
def started(*command: Any, cwd: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A program whose first line is its address; Ctrl-C ends it."""
    environment = {**os.environ, "TORCHEER_NO_BROWSER": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, *map(str, command)], cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:") and "?token=" in url
        yield url, process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=30)
        finally:
            process.kill()


class Panel:
    """The buttons and the counters of a page."""

    def __init__(self, page: Any) -> None:
        self.page, self.view = page, View(page)

    def press(self, name: str) -> None:
        """Press a button, once it can be."""
        self.page.locator(".control").get_by_role("button", name=name, exact=True).click(timeout=30_000)

    def count(self, name: str) -> int:
        """A counter's number; -1 where it is not there."""
        found = self.page.locator(".counter", has_text=name)
        return int(found.first.inner_text().split()[-1]) if found.count() else -1

    def until_status(self, status: str) -> None:
        """Wait for the run to pause, train or end."""
        until(lambda: status in self.page.locator("footer.status").inner_text(), status, secs=60, page=self.page)

    def until_moment(self, after: int = -1) -> int:
        """Wait for a state later than one to be on the screen."""
        there = "!!window.__studio"
        until(lambda: self.page.evaluate(there) and self.view.moment > after, "a state", secs=60, page=self.page)
        return self.view.moment

    def rows(self, table: str) -> int:
        """How many rows a table has, as the Plots tab says beside its name."""
        return int(self.page.locator(".segments:visible label", has_text=table).first.inner_text().split()[-1])


def test_the_random_associator_under_every_button(open_page: Pages, tmp_path: Path) -> None:
    with started(ROOT / "examples" / "random_associator" / "main.py", "--no-browser", cwd=tmp_path) as (url, _):
        panel = Panel(open_page(url))
        open_page.forgiven += ["ERR_CONNECTION_REFUSED", "WebSocket connection"]  # in the end the program goes first
        for layer in ("Input", "Hidden1", "Hidden2", "Output"):
            panel.page.get_by_text(layer, exact=True).first.wait_for()
        panel.press("Step trial")
        panel.until_status("Paused")
        first = panel.until_moment()
        value = panel.view.point("Hidden1", 3)
        assert "Hidden1" in value
        panel.view.click("Hidden1", 3)
        panel.page.locator("#network-variable").select_option("r.Wt")  # the weights into the unit that was clicked
        panel.view.settle()
        epoch = panel.count("Epoch")
        panel.press("Step epoch")
        until(lambda: panel.count("Trial") == 24, "the end of the epoch", secs=60, page=panel.page)
        panel.until_status("Paused")
        panel.press("Train")
        until(lambda: panel.count("Epoch") > epoch + 3, "some epochs", secs=60, page=panel.page)
        panel.press("Stop")
        panel.until_status("Paused")
        assert panel.until_moment(first) > first
        panel.press("Test all")
        panel.page.get_by_role("tab", name="Plots").click()
        until(lambda: panel.rows("Test trials") >= 25, "25 tests", secs=60, page=panel.page)
        assert panel.rows("Train epochs") > 3 and panel.rows("Patterns") == 25 and panel.rows("Test epochs") >= 1
        run = panel.count("Run")
        panel.press("New seed")
        panel.press("Init")
        until(lambda: panel.count("Epoch") == 0, "a new run", secs=60, page=panel.page)
        assert panel.count("Run") >= run


def test_a_config_is_trained_from_the_page_and_outlives_it(open_page: Pages, tmp_path: Path) -> None:
    for file in PROJECT.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    command = ["-m", "torcheer", "train", "training.yaml", "session_dir=run", "--studio", "--no-browser", "--paused"]
    with started(*command, cwd=tmp_path) as (url, process):
        panel = Panel(open_page(url))
        open_page.forgiven += ["ERR_CONNECTION_REFUSED", "WebSocket connection"]  # in the end the program goes first
        panel.until_status("Paused")
        panel.press("Step trial")
        until(lambda: panel.count("Step") == 1, "a step", secs=60, page=panel.page)
        rate = panel.page.get_by_label("lr", exact=True)
        rate.fill("0.002")
        rate.press("Enter")
        journal = tmp_path / "run" / "metrics" / "changes.csv"
        until(lambda: journal.exists() and "0.002" in journal.read_text(), "the edit", secs=60, page=panel.page)
        panel.press("Step epoch")
        until(lambda: panel.count("Epoch") >= 1 and panel.count("Step") >= 90, "an epoch", secs=90, page=panel.page)
        panel.until_status("Paused")
        panel.until_moment()
        assert "strokes.0" in panel.view.point("strokes.0", 5)
        panel.press("Train")
        panel.until_status("Running")
        panel.page.close()
        done = tmp_path / "run" / "metrics" / "0.csv"
        until(lambda: done.exists() and len(done.read_text().splitlines()) > 3, "training goes on", secs=90)
        assert process.poll() is None


def test_alexnet_shows_feature_maps_at_every_step(open_page: Pages, tmp_path: Path) -> None:
    with started(ROOT / "examples" / "alexnet_netview" / "main.py", "--no-browser", cwd=tmp_path) as (url, _):
        panel = Panel(open_page(url))
        open_page.forgiven += ["ERR_CONNECTION_REFUSED", "WebSocket connection"]  # in the end the program goes first
        before = panel.until_moment()
        blank = panel.view.picture()
        panel.press("Test all")
        panel.until_moment(before)
        assert panel.view.picture() != blank
