"""A thread that writes a row about the machine to a run's log every few seconds, beside the training."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from torcheer.errors import BadArgument
from torcheer.runlog.log_frames import SYSTEM
from torcheer.runlog.log_writer import LogWriter
from torcheer.runlog.machine.machine_readings import MachineReader
from torcheer.runlog.table_records import TableHead

SYSTEM_SECS: Final = 5.0  # between two rows
_TABLE: Final = TableHead(SYSTEM, "System", x="Step")
_END_SECS: Final = 1.0


class SystemRows:
    """Writes rows of the table "system" as the run's writer of that name, until `close`.

    Of several that take rows of one run, as a watch and a live view of it, the first does. `run` None and
    `every_secs` 0 take none. `pid` is the process whose CPU and memory are read, `step_of` and `memory` are called in
    the thread: the step that runs, and further columns.
    """

    def __init__(
        self,
        run: Path | None,
        every_secs: float,
        *,
        step_of: Callable[[], int],
        memory: Callable[[], Mapping[str, float]],
        pid: int | None = None,
    ) -> None:
        self._every_secs, self._step_of, self._memory = every_secs, step_of, memory
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if run is not None and every_secs:
            arguments = (run, MachineReader(os.getpid() if pid is None else pid))
            self._thread = threading.Thread(target=self._run, args=arguments, name="torcheer system", daemon=True)
            self._thread.start()

    def _run(self, run: Path, reader: MachineReader) -> None:
        log: LogWriter | None = None
        while not self._stop.wait(self._every_secs):
            try:
                cells = {**reader.read(), **self._memory()}
                if log is None or (
                    log.why and run.is_dir()
                ):  # not before the first row; again once another writer ended
                    log = LogWriter(run, SYSTEM, tell=_ignore)
                    log.head(_TABLE)
                log.row(_TABLE.name, cells, self._step_of())
                log.commit()
                log.tick()
            except Exception:  # nothing that it reads is worth a run
                continue
        if log is not None:
            log.close()

    def close(self) -> None:
        """End it; does not wait for a GPU that does not answer."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_END_SECS)
            self._thread = None


def check_secs(value: Any) -> float:
    """Validate `system_secs=`: seconds between two rows, 0 for none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise BadArgument(f"system_secs={value!r}: seconds between two rows are needed, such as 5, or 0 for none")
    return float(value)


def _ignore(text: str) -> None:
    """Say nothing: another writer takes the rows, or the disk is full, which the run's own log reports."""
