"""Saying how far it is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

EVERY_SECS = 10.0  # between two lines where nobody watches


class Progress:
    """How many samples are done, and when the rest will be."""

    def __init__(self, title: str, total: int | None, *, quiet: bool) -> None:
        self.total, self.done, self._title = total, 0, title
        self._there = 0  # done before this run: counting them in would make the rest look quick
        self._start = self._said = time.monotonic()
        self._bar: Any = None
        self._quiet = quiet
        if not quiet and sys.stderr.isatty():
            self._bar = _bar(title, total)

    def add(self, samples: int, *, were_there: bool = False) -> None:
        """Some samples more are done."""
        self.done += samples
        self._there += samples * were_there
        if self._bar is not None:
            self._bar.update(0, completed=self.done)
        elif not self._quiet and time.monotonic() - self._said >= EVERY_SECS:
            self._said = time.monotonic()
            print(f"{self._title}: {self.text()}", file=sys.stderr, flush=True)

    def text(self) -> str:
        """One line: how many, how fast, how long still."""
        rate = (self.done - self._there) / max(time.monotonic() - self._start, 1e-9)
        if self.total is None:
            return f"{self.done:,} samples, {rate:,.0f} a second"
        left = (self.total - self.done) / rate if rate else 0.0
        return f"{self.done:,} of {self.total:,} samples, {rate:,.0f} a second, {spoken(left)} left"

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def spoken(secs: float) -> str:
    """A time as a person says it."""
    if secs < 100:
        return f"{secs:.0f} s" if secs >= 10 else f"{secs:.1f} s"
    minutes, hours = secs / 60, secs / 3600
    return f"{minutes:.0f} min" if minutes < 100 else f"{hours:.1f} h"


def _bar(title: str, total: int | None) -> Any:
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        return None
    columns = (
        progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn(),
        progress.TextColumn("samples"), progress.TimeElapsedColumn(), progress.TextColumn("·"),
        progress.TimeRemainingColumn(), progress.TextColumn("left"),
    )  # fmt: skip
    bar = progress.Progress(*columns, console=Console(stderr=True))
    bar.add_task(title, total=total)
    bar.start()
    return bar
