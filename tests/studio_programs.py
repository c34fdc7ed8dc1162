"""Programs that a person would start, and the panel of the page that they print the address of; for tests."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from children import Child
from studio_scene import View
from waiting import WAIT_SECS, wait_until

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "src" / "torcheer" / "demo" / "project"
GONE = ["ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "WebSocket connection"]  # a page whose program ended first


@contextmanager
def started(*command: Any, cwd: Path) -> Iterator[tuple[str, Child]]:
    """A program whose first line is its address; Ctrl-C ends it."""
    with Child(*command, cwd=cwd, env={"TORCHEER_NO_BROWSER": "1", "OMP_NUM_THREADS": "1"}) as process:
        try:
            url = process.line()
            assert url.startswith("http://127.0.0.1:") and "?token=" in url, url
            yield url, process
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=WAIT_SECS)


def project(folder: Path, batch: int = 16) -> Path:
    """The demo's project, as one has it in a folder of one's own; by default an epoch has 90 steps."""
    for file in PROJECT.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    config = folder / "training.yaml"
    config.write_text(config.read_text().replace("batch_size: 16,", f"batch_size: {batch},"))
    return folder


class Panel:
    """The buttons and the counters of a page."""

    def __init__(self, page: Any) -> None:
        self.page, self.view = page, View(page)

    def press(self, name: str) -> None:
        """Press a button, once it can be."""
        self.page.locator(".control").get_by_role("button", name=name, exact=True).click(timeout=30_000)

    def fill(self, label: str, value: Any) -> None:
        """Write a number beside a button, or a line of the form."""
        field = self.page.get_by_label(label, exact=True)
        field.fill(str(value))
        field.press("Enter")

    def open(self, tab: str) -> None:
        """Go to a tab."""
        self.page.get_by_role("tab", name=tab).click()

    @property
    def tabs(self) -> list[str]:
        """The tabs there are."""
        return list(self.page.get_by_role("tab").all_inner_texts())

    def counter(self, name: str) -> str:
        """What a counter says; nothing where it is not there."""
        found = self.page.locator(".counter", has_text=name)
        return str(found.first.inner_text()).split()[-1] if found.count() else ""

    def count(self, name: str) -> int:
        """A counter's number; -1 where it is not there."""
        return int(self.counter(name) or -1)

    def until(self, fits: Any, what: str, secs: float = 60) -> Any:
        """Wait for something, while the page goes on."""
        return wait_until(fits, what, secs=secs, page=self.page)

    def until_status(self, status: str) -> None:
        """Wait for the run to pause, train or end."""
        self.until(lambda: status in self.page.locator("footer.status").inner_text(), status)

    def until_moment(self, after: int = -1) -> int:
        """Wait for a state later than one to be on the screen."""
        there = "!!window.__studio"
        self.until(lambda: self.page.evaluate(there) and self.view.moment > after, "a state")
        return self.view.moment

    def reads(self, layer: str, unit: int, pattern: str) -> str:
        """Hold the pointer on a unit, wherever the picture moves it, until its tip says so."""

        def found() -> str:
            x, y = self.view.spot(layer, unit)
            for aside in (1, 0):  # a pointer that stands still notices nothing
                self.page.mouse.move(x + aside, y)
            self.page.wait_for_timeout(100)
            text = "".join(self.page.locator(".network-tip").all_inner_texts())
            return text if layer in text and re.search(pattern, text) else ""

        return str(self.until(found, f"{pattern} at {layer} {unit}"))

    def rows(self, table: str) -> int:
        """How many rows a table has, as the Plots tab says beside its name; none where it is not there."""
        found = self.page.locator(".segments:visible label, select[aria-label=Table]:visible option", has_text=table)
        return int(found.first.text_content().split()[-1].strip("()")) if found.count() else 0
