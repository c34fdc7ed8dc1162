"""How much a host without a run's folder keeps in its temporary log, however long it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from torcheer.records import Sample
from torcheer.runlog.log_writer import LogWriter
from torcheer.terminal import human_bytes

_MOST_BYTES: Final = 256 << 20  # of samples; of rows before they become rarer
_FIRST_ROWS: Final = 1000  # of a table, that are always kept
_CHECK_ROWS: Final = 16  # of a table, between two looks at what was written


class ScratchLimits:
    """Which rows and samples are kept: all samples up to a limit; of very many rows every 2nd, 4th, 8th, …"""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report, self._sample_bytes, self._rows = report, 0, dict[str, int]()
        self._every, self._most_bytes = 1, _MOST_BYTES

    def keeps_row(self, table: str, log: LogWriter) -> bool:
        """Count a row; True if it is kept."""
        count = self._rows[table] = self._rows.get(table, 0) + 1
        if not count % _CHECK_ROWS and log.size_bytes - self._sample_bytes > self._most_bytes:
            self._every, self._most_bytes = 2 * self._every, self._most_bytes + _MOST_BYTES // 4
            self._report("so many rows were logged that only some of the next ones are: with to='folder' all are")
        return self._every == 1 or count <= _FIRST_ROWS or count % self._every == 0

    @property
    def has_samples(self) -> bool:
        """True once a sample was kept."""
        return self._sample_bytes > 0

    def keeps_sample(self, sample: Sample) -> bool:
        """Count a sample; True if it is kept."""
        self._sample_bytes += sample.array.nbytes
        if self._sample_bytes <= _MOST_BYTES:
            return True
        limit = human_bytes(_MOST_BYTES)
        self._report(f"{limit} of samples are kept for the page, later ones are not: with to='folder' they are")
        return False
