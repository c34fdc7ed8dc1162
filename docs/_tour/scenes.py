"""What the tour shows: a training run and its page. `python_scenes.py` has the rest."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

from recorder import Recorder

VALUES = "() => window.__studio && window.__studio.seen().moment >= 0"
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\?token=[\w-]+")


class Scenes:
    """The recorder, and what all chapters need."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.shell, self.page = recorder, recorder.shell, recorder.page

    def open(self, tab: str = "network") -> None:
        """Open the address that the terminal has shown last; return when the page is filled."""
        tour, page = self.recorder, self.page
        page.goto(f"{self.addresses()[-1]}#{tab}")
        tour.wait("() => document.querySelector('.connection.open')")
        if tab == "network":
            tour.wait(VALUES)
        tour.settle()

    def addresses(self) -> list[str]:
        self.shell.read()
        return _ADDRESS.findall(self.shell.screen.text())

    def tab(self, name: str) -> Any:
        return self.page.get_by_role("tab", name=name)

    def label(self, pattern: str) -> Any:
        """A module's name in the 3D view, or its frame's."""
        return self.page.locator(".network-label b", has_text=re.compile(pattern))


class TrainingScenes(Scenes):
    """`torcheer demo` in the terminal, its page in the browser."""

    def begin(self) -> None:
        """Have the demo train and its page open, if it does not."""
        tour, shell = self.recorder, self.shell
        if tour.program:
            return
        shell.type("torcheer demo\n")
        shell.until(r"epoch 4 of")
        tour.program = shell.child()
        self.open()
        self.page.keyboard.press("p")  # no parameters

    def train(self) -> None:
        tour, shell = self.recorder, self.shell
        tour.show_terminal(700)
        tour.enter("torcheer demo", pace=1)
        shell.until(_ADDRESS.pattern)
        tour.program = shell.child()
        tour.follow_terminal(5.0)
        self.open()
        self.page.keyboard.press("p")
        tour.settle(0.5)

    def look(self) -> None:
        tour = self.recorder
        self.begin()
        tour.frames(2.2)
        tour.move((760, 560), 0.8)
        tour.drag((620, 535), 1.8)
        tour.frames(0.6)
        tour.drag((770, 565), 1.8)
        tour.frames(1.0)

    def fold(self) -> None:
        self.begin()
        for name in ("strokes", "edges", "strokes"):
            self.recorder.click(self.label(f"^{name}$"), after=1.6)

    def inspect(self) -> None:
        tour, page = self.recorder, self.page
        self.begin()
        tour.click(page.get_by_placeholder("Find a layer"), after=0.3)
        tour.write("edges.0", 0.1)
        page.keyboard.press("Enter")
        tour.frames(1.6)
        maps = page.locator(".tensor-picture canvas")
        tour.move(tour.centre(maps), 0.6)
        for _ in range(5):  # down to the statistics
            page.mouse.wheel(0, 56)
            tour.frames(0.1)
        tour.frames(0.6)
        box = maps.first.bounding_box()
        for x, y in ((0.2, 0.35), (0.62, 0.4), (0.45, 0.85)):
            tour.move((box["x"] + box["width"] * x, box["y"] + box["height"] * y), 0.6)
            tour.frames(0.8)

    def rewind(self) -> None:
        tour, page = self.recorder, self.page
        self.begin()
        for _ in range(3):
            page.keyboard.press("Escape")
        tour.settle()
        box = page.locator(".network-time input[type=range]").bounding_box()
        y = box["y"] + box["height"] / 2
        tour.move((box["x"] + box["width"] - 8, y), 0.7)
        tour.drag((box["x"] + 8, y), 2.2)
        tour.frames(0.6)
        tour.drag((box["x"] + box["width"] * 0.6, y), 1.6)
        tour.frames(0.5)
        tour.click(page.locator(".network-time").get_by_role("button", name=re.compile("Live|Newest")), after=1.0)

    def plot(self) -> None:
        self.begin()
        tour = self.recorder
        tour.click(self.tab("Plots"), after=1.0)
        tour.move((560, 560), 0.6)
        tour.move((1080, 600), 1.8)  # along the curves: their values are above them
        tour.frames(0.8)

    def graph(self) -> None:
        self.begin()
        tour = self.recorder
        tour.click(self.tab("Graph"), after=1.4)
        tour.click(self.page.get_by_text("digit").last, after=2.0)

    def kill(self) -> None:
        tour, shell = self.recorder, self.shell
        self.begin()
        tour.follow_terminal(0.8)
        process, tour.program = tour.program, 0
        os.kill(process, signal.SIGKILL)
        shell.until(r"Killed\n\$ $")
        tour.show_terminal(1500)
        tour.enter("torcheer train torcheer-demo/run --studio", pace=2)
        count = len(self.addresses())
        while len(self.addresses()) == count:
            shell.read(0.1)
        tour.program = shell.child()
        tour.follow_terminal(3.0)
        self.stop()

    def stop(self) -> None:
        """End what is trained; a chapter that needs a run begins another."""
        process, self.recorder.program = self.recorder.program, 0
        os.kill(process, signal.SIGKILL)
        self.shell.until(r"Killed\n\$ $")
        self.shell.screen.clear()

    def break_it(self) -> None:
        tour, page = self.recorder, self.page
        self.begin()
        if not page.locator("#parameters").count():
            page.keyboard.press("p")
            tour.settle(0.5)
        tour.click(page.get_by_label("lr", exact=True), after=0.3)
        page.keyboard.press("ControlOrMeta+a")
        tour.write("0.5")
        page.keyboard.press("Enter")
        tour.frames(2.0)

    def alert(self) -> None:
        tour, page = self.recorder, self.page
        tour.frames(1.0)
        tour.click(page.get_by_role("button", name=re.compile("alert", re.IGNORECASE)), after=2.6)
        tour.click(page.locator(".alert-list .link"), after=0.8)
        page.keyboard.press("Escape")  # closes the list
        tour.frames(2.2)
