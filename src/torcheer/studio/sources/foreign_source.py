"""A run that another program logs, as a source: its tables and samples, read again when its files change."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from torcheer.control.config_form import parameters_of
from torcheer.control.control_records import State
from torcheer.errors import TorcheerError
from torcheer.runlog.foreign.foreign_run import ForeignRun, read_foreign
from torcheer.runlog.run_tables import summary_of
from torcheer.studio.runs.run_facts import stamp_at
from torcheer.studio.sources.source import Changes, Source
from torcheer.studio.sources.timeline import Timeline

_SCAN_SECS: Final = 1.0
_MOST_PROBLEMS: Final = 3


class ForeignSource(Source):
    """TensorBoard's event files, or Lightning's CSV; nothing is ever written there."""

    kind = "run"

    def __init__(self, path: Path, kind: str) -> None:
        """`kind`: "events" or "lightning"."""
        super().__init__(path.resolve().name, None, Timeline())
        self._path, self._kind = path, kind
        self._stamp, self._next_scan, self._restarts = -1, 0.0, 0
        self._scan()

    def poll(self) -> Changes:
        """The changes on disk since the last call."""
        if time.monotonic() >= self._next_scan:
            self._scan()
        return super().poll()

    def _scan(self) -> None:
        began, stamp = time.monotonic(), stamp_at(str(self._path))
        if stamp is not None and stamp[0] != self._stamp:
            self._stamp = stamp[0]
            try:
                self._take(read_foreign(self._path, self._kind))
            except (TorcheerError, OSError, ValueError) as error:
                self._problem(error)
        now = time.monotonic()
        self._next_scan = now + max(_SCAN_SECS, 20 * (now - began))  # at most 5% of the time

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
