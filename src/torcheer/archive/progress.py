"""Saying how far long work is: nothing for two seconds, then a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torcheer.history.sizes import human_bytes

PATIENCE_SECS = 2.0
EVERY_SECS = 10.0  # between two lines where there is no bar

Told = Callable[[int], object]  # hears of bytes as they are done


def tell_nobody(count: int) -> None:
    """For whoever does not ask how far it is."""


@contextmanager
def progress(title: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """A function to be told of bytes as they are done."""
    shown = _Shown(title, total_bytes)
    try:
        yield shown.add
    finally:
        if shown.bar is not None:
            shown.bar.stop()


class _Shown:
    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.done = title, total, 0
        self.bar: Any = None
        self._next = time.monotonic() + PATIENCE_SECS

    def add(self, count: int) -> None:
        self.done += count
        if self.bar is not None:
            self.bar.update(0, completed=self.done)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY_SECS
            self.bar = _bar(self.title, self.total) if sys.stderr.isatty() else None
            if self.bar is None:
                line = f"{self.title}: {human_bytes(self.done)} of {human_bytes(self.total)}"
                print(line, file=sys.stderr, flush=True)


def _bar(title: str, total: int) -> Any:
    try:
        from rich import progress as bars
        from rich.console import Console
    except ImportError:
        return None
    columns = bars.TextColumn("{task.description}"), bars.BarColumn(), bars.DownloadColumn(), bars.TimeRemainingColumn()
    bar = bars.Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(title, total=total)
    bar.start()
    return bar
