"""Drives a page and a terminal and takes their pictures, frame by frame.

A page's clock stands still between two frames, and a program that is followed is stopped meanwhile: movements are
smooth and training goes on evenly, however long a picture takes. Waiting is not filmed.
"""

from __future__ import annotations

import io
import os
import signal
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from frames import WIDTH, Film, with_pointer
from PIL import Image
from shell import Shell

PAGE = (1184, 740)  # in CSS pixels
SCALE = WIDTH / PAGE[0]
FRAME_MS = 100
RUN_SECS = 0.03  # of a program in each frame: the demo lasts for the whole tour, and its values change calmly
WAIT_SECS = 120.0
TERMINAL = Path(__file__).with_name("terminal.html")


class Recorder:
    """One browser with two pages: the studio's, and the terminal's."""

    def __init__(self, browser: Any, shell: Shell) -> None:
        self.shell = shell
        # A window for each: of a tab in the background a picture takes three times as long.
        self.page, self.terminal = (_window(browser) for _ in range(2))
        self.page.clock.install()
        self.page.clock.pause_at(datetime.now(UTC) + timedelta(hours=1))
        self.terminal.goto(TERMINAL.as_uri())
        self.film: Film  # of the chapter that is filmed
        self.program = 0  # a process that runs between frames only
        self.pointer: tuple[float, float] | None = None  # on the page, in CSS pixels

    # -- frames ------------------------------------------------------------------------------------------------------

    def frames(self, secs: float, click: bool = False) -> None:
        """Film the page for some seconds."""
        for number in range(max(1, round(secs * 1000 / FRAME_MS))):
            self._pass_time()
            self._add(self.page, (number + 1) / 4 if click and number < 3 else 0.0)

    def still(self, secs: float) -> None:
        """Film a page that does not move."""
        self._add(self.page, 0.0, round(secs * 1000))

    def wait(self, script: str) -> None:
        """Let time pass, unfilmed, until a script on the page returns something true."""
        end = time.monotonic() + WAIT_SECS
        with self._running():
            while not self.page.evaluate(script):
                if time.monotonic() > end:
                    raise TimeoutError(f"waited for {script}; the terminal shows:\n{self.shell.screen.text()}")
                self._pass_time(stop=False)

    def settle(self, secs: float = 1.5) -> None:
        """Let time pass, unfilmed, for what the page is about to draw."""
        for _ in range(round(secs * 1000 / FRAME_MS)):
            self._pass_time()

    def _pass_time(self, stop: bool = True) -> None:
        with Running(self.program if stop else 0):
            time.sleep(RUN_SECS)
        self.shell.read()  # a program whose output nobody reads comes to a halt
        self.page.clock.run_for(FRAME_MS)

    def _running(self) -> Running:
        return Running(self.program)

    def _add(self, page: Any, click: float, milliseconds: int = FRAME_MS) -> None:
        image = Image.open(io.BytesIO(page.screenshot(caret="initial"))).convert("RGB")
        pointer = (
            (self.pointer[0] * SCALE, self.pointer[1] * SCALE, click) if self.pointer and page is self.page else None
        )
        self.film.add(with_pointer(image, pointer), milliseconds)

    # -- the pointer -------------------------------------------------------------------------------------------------

    def move(self, place: tuple[float, float], secs: float = 0.6) -> None:
        """Move the pointer to a place, quick in the middle of its way."""
        start = self.pointer or (PAGE[0] * 0.6, PAGE[1] * 0.6)
        count = max(1, round(secs * 1000 / FRAME_MS))
        for number in range(1, count + 1):
            share = number / count
            share = share * share * (3 - 2 * share)
            self.pointer = tuple(a + (b - a) * share for a, b in zip(start, place))  # type: ignore[assignment]
            self.page.mouse.move(*self.pointer)
            self.frames(FRAME_MS / 1000)

    def click(self, target: Any, secs: float = 0.6, after: float = 0.6) -> None:
        """Move to an element or a place, click, and film what happens."""
        self.move(target if isinstance(target, tuple) else self.centre(target), secs)
        self.page.mouse.down()
        self.page.mouse.up()
        self.frames(after, click=True)

    def drag(self, end: tuple[float, float], secs: float) -> None:
        """Drag from where the pointer is."""
        self.page.mouse.down()
        self.move(end, secs)
        self.page.mouse.up()

    def centre(self, locator: Any) -> tuple[float, float]:
        box = locator.first.bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def write(self, text: str, secs_each: float = 0.1) -> None:
        """Type into the page."""
        for character in text:
            self.page.keyboard.type(character)
            self.frames(secs_each)

    # -- the terminal ------------------------------------------------------------------------------------------------

    def show_terminal(self, milliseconds: int = FRAME_MS) -> None:
        """Film what the terminal shows."""
        self.terminal.evaluate("html => { document.querySelector('pre').innerHTML = html }", self.shell.screen.html())
        self._add(self.terminal, 0.0, milliseconds)

    def enlarge_terminal(self) -> None:
        """Have fewer, larger characters, for lines that someone types."""
        self.terminal.evaluate("() => document.body.classList.add('large')")

    def follow_terminal(self, secs: float) -> None:
        """Film the terminal while its program runs."""
        for _ in range(round(secs * 1000 / FRAME_MS)):
            with self._running():
                time.sleep(FRAME_MS / 1000)
            self.shell.read()
            self.show_terminal()

    def enter(self, line: str, *, pace: int = 3, pause_ms: int = 500) -> None:
        """Type a line into the terminal, some characters in each frame, and press Enter."""
        for start in range(0, len(line), pace):
            self.shell.type(line[start : start + pace])
            self.shell.read(0.05)
            self.show_terminal()
        self.show_terminal(pause_ms)
        self.shell.type("\n")
        self.shell.read(0.1)


def _window(browser: Any) -> Any:
    size = {"width": PAGE[0], "height": PAGE[1]}
    context = browser.new_context(viewport=size, device_scale_factor=SCALE, color_scheme="dark")
    context.set_default_timeout(WAIT_SECS * 1000)
    return context.new_page()


class Running:
    """A process that runs inside the `with` block and stands still outside; none with 0."""

    def __init__(self, process: int) -> None:
        self.process = process

    def __enter__(self) -> None:
        self._send(signal.SIGCONT)

    def __exit__(self, *_: object) -> None:
        self._send(signal.SIGSTOP)

    def _send(self, number: signal.Signals) -> None:
        if self.process:
            with suppress(ProcessLookupError):
                os.kill(self.process, number)
