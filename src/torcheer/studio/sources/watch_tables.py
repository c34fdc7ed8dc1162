"""The tables of a run's watches beside a live host, which does not have them: statistics over time, scalars."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from torcheer.errors import TorcheerError
from torcheer.runlog.log_frames import METRICS
from torcheer.runlog.log_reader import RunLog, writers_in
from torcheer.runlog.table_records import TableRows

_SCAN_SECS: Final = 1.0  # between two scans of the disk
_SHARE: Final = 20  # a scan waits so many times as long as the last one took: at most 5% of the time


class WatchTables:
    """Follows the logs of a run's watches; scanned rarely, as the host's own messages come first."""

    def __init__(self, run: Path) -> None:
        self._run, self._next_scan = run, 0.0
        self._log: RunLog | None = None
        self._stamp: Any = ()

    def changes(self) -> dict[str, TableRows]:
        """The tables that have changed since the last call; mostly empty."""
        began = time.monotonic()
        if began < self._next_scan:
            return {}
        try:
            tables = self._read()
        except (TorcheerError, OSError, ValueError):  # a log that is being removed or replaced
            tables, self._log, self._stamp = {}, None, ()
        now = time.monotonic()
        self._next_scan = now + max(_SCAN_SECS, _SHARE * (now - began))
        return tables

    def _read(self) -> dict[str, TableRows]:
        indexes = [path for place in writers_in(self._run) for path in place.path.glob("*.index")]
        stamp = [(path, path.stat().st_size) for path in indexes if path.parent.name == "watch"]
        if stamp == self._stamp or not stamp:
            return {}
        self._stamp = stamp
        if self._log is None:
            self._log = RunLog(self._run)
        else:
            self._log.refresh()
        metrics = {name: table for name, table in self._log.tables().items() if name == METRICS}
        return self._log.statistics() | metrics


def renew(tables: dict[str, TableRows], name: str, table: TableRows) -> None:
    """Put a table that was read again in its place; rows sent before are void unless it begins with them."""
    before, x = tables.get(name), table.head.x
    if before is not None:
        begins_alike = before.columns.get(x, []) == table.columns.get(x, [])[: before.count]
        begins_alike = begins_alike and before.count <= table.count and before.head == table.head
        table.restarts = before.restarts + (not begins_alike)
    tables[name] = table
