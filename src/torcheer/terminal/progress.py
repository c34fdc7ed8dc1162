"""Progress of what takes longer than two seconds.

Only the bar here and training's live view use rich, where it is installed: see docs/decisions/0011-rich.md.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from torcheer.terminal.human_units import human_bytes, human_secs
from torcheer.terminal.name_texts import printable
from torcheer.terminal.streams import can_redraw, is_notebook, is_terminal
from torcheer.terminal.text_tables import LEAST_WIDTH

PATIENCE_SECS = 2.0  # work that takes less shows no bar
LINE_SECS = 10.0  # before each line where there is no bar
REDRAW_SECS = 0.1  # between two redraws of a bar

ProgressCallback = Callable[[int], object]  # called with the bytes, or whatever is counted, that were done since


def ignore_progress(count: int) -> None:
    """The progress callback of callers who want none."""


def wants_progress(progress: bool | None, stream: TextIO | None) -> bool:
    """Return whether `progress=` asks for it; None means on a terminal and in a notebook."""
    is_wanted = is_terminal(stream) or is_notebook() if progress is None else progress
    return bool(is_wanted) and stream is not None


class Progress:
    """Show on stderr how far long work is.

    A bar on a terminal, for work of more than two seconds; a line every ten seconds elsewhere, or without rich.

    >>> with Progress("verifying run", 2048) as progress:
    ...     progress.add(1024)
    """

    def __init__(
        self, title: str, total: int | None = None, unit: str = "bytes", *, progress: bool | None = True
    ) -> None:
        """Begin to count.

        total: how much there is; None or 0 where unknown. unit: "bytes", or what is counted, as a plural.
        progress: False shows nothing; None shows it on a terminal and in a notebook only.
        """
        self.title, self.total, self.unit, self.done = printable(title), total or 0, unit, 0
        self._earlier = 0  # done before this run: counting it would make the rest look quick
        self._start = time.monotonic()
        wait_secs = PATIENCE_SECS if can_redraw(sys.stderr) else LINE_SECS
        self._next_secs = self._start + wait_secs if wants_progress(progress, sys.stderr) else math.inf
        self._bar: Any = None

    def skip(self, count: int) -> None:
        """Count what was done before this run."""
        self._earlier += count
        self.done += count

    def add(self, count: int) -> None:
        """Count what was done since the last call, and show it from time to time."""
        self.done += count
        if time.monotonic() >= self._next_secs:
            try:
                self._show()
            except OSError:  # nobody can see it any more; the work goes on
                self._next_secs = math.inf

    def text(self) -> str:
        """Return how much is done, the time that is left, and how fast it goes."""
        rate = (self.done - self._earlier) / max(time.monotonic() - self._start, 1e-9)
        show = human_bytes if self.unit == "bytes" else "{:,.0f}".format
        of = f" of {show(self.total)}" if self.total else ""
        unit = "" if self.unit == "bytes" else f" {self.unit}"
        left = (self.total - self.done) / rate if rate else 0.0
        left_text = f", {human_secs(math.ceil(left))} left" if left > 0 else ""
        speed = f"{human_secs(1 / rate)} each" if 0 < rate < 1 else f"{show(rate)} a second"
        return f"{show(self.done)}{of}{unit}{left_text}, {speed}"

    def _show(self) -> None:
        if self._bar is None and can_redraw(sys.stderr):
            self._bar = _start_bar(self.title, self.total)
        if self._bar is None:
            print(f"{self.title}: {self.text()}", file=sys.stderr, flush=True)
        else:
            self._bar.update(0, completed=self.done, text=self.text(), refresh=True)
        self._next_secs = time.monotonic() + (LINE_SECS if self._bar is None else REDRAW_SECS)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.update(0, completed=self.done, text=self.text())
                self._bar.stop()


def _start_bar(title: str, total: int) -> Any:
    """Start a bar that is drawn by calls alone; None where rich is not installed.

    A drawing thread could hold a lock while a loader's worker is forked, and the worker would wait for it for ever.
    """
    try:
        from rich import progress
        from rich.console import Console
        from rich.table import Column
    except ImportError:
        return None
    console = Console(stderr=True, highlight=False)
    has_room = console.width >= 80
    name = Column(no_wrap=True, overflow="ellipsis", max_width=max(console.width - 76, LEAST_WIDTH))
    bar = progress.Progress(
        progress.TextColumn("{task.description}", markup=False, table_column=name),
        *[progress.BarColumn(bar_width=20)] * has_room,
        progress.TextColumn("{task.fields[text]}", markup=False),
        console=console,
        auto_refresh=False,
    )
    bar.add_task(title, total=total or None, text="")
    bar.start()
    return bar
