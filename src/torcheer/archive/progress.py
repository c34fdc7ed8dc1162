"""Progress of long work.

Nothing for two seconds, then a bar on a terminal, occasional lines elsewhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torcheer.terminal import human_bytes

PATIENCE_SECS = 2.0
EVERY_SECS = 10.0  # between two lines where there is no bar

ProgressCallback = Callable[[int], object]  # hears of bytes, or whatever is counted, as they are done


def ignore_progress(count: int) -> None:
    """For whoever does not ask how far it is."""


@contextmanager
def progress(title: str, total: int, unit: str = "bytes") -> Iterator[Callable[[int], None]]:
    """A function to be told of bytes, or of other units, as they are done."""
    shown = _Shown(title, total, unit)
    try:
        yield shown.add
    finally:
        if shown.bar is not None:
            shown.bar.stop()


class _Shown:
    def __init__(self, title: str, total: int, unit: str) -> None:
        self.title, self.total, self.done, self._unit = title, total, 0, unit
        self.bar: Any = None
        self._next = time.monotonic() + PATIENCE_SECS

    def add(self, count: int) -> None:
        self.done += count
        if self.bar is not None:
            self.bar.update(0, completed=self.done)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY_SECS
            self.bar = _bar(self.title, self.total, self._unit) if sys.stderr.isatty() else None
            if self.bar is None:
                print(f"{self.title}: {self._text()}", file=sys.stderr, flush=True)

    def _text(self) -> str:
        if self._unit == "bytes":
            return f"{human_bytes(self.done)} of {human_bytes(self.total)}"
        return f"{self.done:,} of {self.total:,} {self._unit}" if self.total else f"{self.done:,} {self._unit}"


def _bar(title: str, total: int, unit: str) -> Any:
    try:
        from rich import progress as bars
        from rich.console import Console
    except ImportError:
        return None
    counted = [bars.DownloadColumn()] if unit == "bytes" else [bars.MofNCompleteColumn(), bars.TextColumn(unit)]
    columns = bars.TextColumn("{task.description}"), bars.BarColumn(), *counted, bars.TimeRemainingColumn()
    bar = bars.Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(title, total=total or None)
    bar.start()
    return bar
