"""A run that another program logs, as a source: its tables and samples, read again when its files change."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from torcheer.control.config_form import parameters_of
from torcheer.control.control_records import State
from torcheer.errors import TorcheerError
from torcheer.runlog.run_tables import summary_of
from torcheer.studio.runs.foreign_run import ForeignRun, read_foreign
from torcheer.studio.runs.run_facts import stamp_at
from torcheer.studio.sources.source import Changes, Source
from torcheer.studio.sources.timeline import Timeline

_SCAN_SECS: Final = 1.0
_FIRST_SECS: Final = 0.5  # for a log to be read before its page is shown
_MOST_PROBLEMS: Final = 3


class ForeignSource(Source):
    """TensorBoard's event files, or Lightning's CSV; nothing is ever written there."""

    kind = "run"

    def __init__(self, path: Path, kind: str) -> None:
        """`kind`: "events" or "lightning"."""
        super().__init__(path.resolve().name, None, Timeline())
        self._path, self._kind = path, kind
        self._stamp, self._next_scan, self._restarts = -1, 0.0, 0
        self._reading: threading.Thread | None = None
        self._read: ForeignRun | Exception | None = None  # by the thread, and not taken yet
        self.state = State("idle", message="its log is being read")
        self._scan()
        if self._reading is not None:
            self._reading.join(_FIRST_SECS)
        self._take_read()

    def poll(self) -> Changes:
        """The changes on disk since the last call."""
        self._take_read()
        if self._reading is None and time.monotonic() >= self._next_scan:
            self._scan()
        return super().poll()

    def _scan(self) -> None:
        """Look whether files have changed; have a thread read them."""
        stamp = stamp_at(str(self._path))
        self._next_scan = time.monotonic() + _SCAN_SECS
        if stamp is not None and stamp[0] != self._stamp:
            self._stamp = stamp[0]
            self._reading = threading.Thread(target=self._read_log, name="torcheer-foreign-log", daemon=True)
            self._reading.start()

    def _read_log(self) -> None:
        began = time.monotonic()
        try:
            self._read = read_foreign(self._path, self._kind)
        except (TorcheerError, OSError, ValueError) as error:
            self._read = error
        now = time.monotonic()
        self._next_scan = now + max(_SCAN_SECS, 20 * (now - began))  # at most 5% of the time

    def _take_read(self) -> None:
        """Show what the thread has read."""
        if self._reading is None or self._read is None:
            return
        read, self._read, self._reading = self._read, None, None
        if isinstance(read, ForeignRun):
            self._take(read)
        else:
            self._problem(read)
            if not self.tables:
                self._set_state(State("idle", message=f"unreadable: {read}"))

    def _take(self, run: ForeignRun) -> None:
        for name, table in run.tables.items():
            before = self.tables.get(name)
            is_longer = before is not None and _begins_with(table.columns, before.columns, before.count)
            self._restarts += not is_longer
            table.restarts = before.restarts if before is not None and is_longer else self._restarts
        self.tables = dict(run.tables)
        self._changes.tables |= run.tables.keys()
        self._changes.samples |= self.samples.update(run.samples)
        self.parameters = tuple(
            parameter for name, value in run.config.items() for parameter in parameters_of(name, value, "settings")
        )
        self._changes.parameters = True
        for problem in run.problems[:_MOST_PROBLEMS]:
            self._problem(problem)
        steps = [table.columns["Step"][-1] for table in run.tables.values() if table.count and "Step" in table.columns]
        counters = {"Step": max(steps)} if steps else {}
        self._set_state(State("done", counters, message=summary_of(self.tables)))


def _begins_with(columns: Mapping[str, Any], before: Mapping[str, Any], count: int) -> bool:
    """Whether all rows that there were are still there."""
    return columns.keys() == before.keys() and all(
        columns[name][:count] == list(before[name][:count]) for name in columns
    )
