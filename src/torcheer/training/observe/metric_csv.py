"""The CSV files of a session: metrics of epochs, one file for each stage, and of steps.

A reader may look at any time: lines are added whole, and a file that changes otherwise is replaced by another.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torcheer.training.checkpoints.run_directory import replace_file, telling

Rows = Sequence[Mapping[str, Any]]
STEP_COLUMNS = ("step", "epoch", "pipeline", "loss")


class EpochTables:
    """`metrics/<stage>.csv`: the epoch, then the columns by name, floats in full precision."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[int, tuple[list[str], int]] = {}  # stage -> its columns and number of rows, as in its file

    def write(self, stages: Sequence[Rows]) -> None:
        """Have the files hold these rows: add what is new, or replace a file whose columns changed."""
        for stage, rows in enumerate(stages):
            columns = _columns(rows)
            known, count = self._written.pop(stage, ([], 0))  # unknown again, should writing fail
            path = self._folder / f"{stage}.csv"
            if rows and (known != columns or count > len(rows)):
                replace_file(path, _lines([columns, *_cells(rows, columns)]))
            elif rows[count:]:
                _append(path, _lines(_cells(rows[count:], columns)))
            if rows:
                self._written[stage] = columns, len(rows)

    def rewrite(self, stages: Sequence[Rows]) -> None:
        """Have the files hold these rows and no others, whatever is there: rows after a checkpoint come again."""
        self._written.clear()
        for path in self._folder.glob("*.csv"):
            if path.stem.isdecimal() and not (int(path.stem) < len(stages) and stages[int(path.stem)]):
                path.unlink()
        self.write(stages)


class StepTable:
    """`metrics/steps.csv`: the loss of every n-th step; values are looked at when lines are written."""

    LINES = 256  # that may wait

    def __init__(self, path: Path, every: int) -> None:
        self._path, self._every = path, every
        self._waiting: list[tuple[Any, ...]] = []
        self._last = 0

    def add(self, step: int, epoch: int, pipeline: str, loss: Any) -> None:
        """Take a step in: the first batch after which so many updates were done."""
        if step == self._last or step % self._every:
            return
        self._last = step
        self._waiting.append((step, epoch, pipeline, loss))
        if len(self._waiting) >= self.LINES:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        rows: list[Sequence[Any]] = [(*row[:3], float(row[3])) for row in self._waiting]
        if not rows:
            return
        if not self._path.exists():
            rows.insert(0, STEP_COLUMNS)
        _append(self._path, _lines(rows))
        self._waiting.clear()

    def cut(self, step: int) -> None:
        """Take away what comes after a step, and a line that was being written."""
        self._waiting.clear()
        self._last = 0
        if not self._path.exists():
            return
        found = self._path.read_bytes()
        whole = found.decode(errors="replace").rpartition("\n")[0]
        rows = [row for row in csv.reader(io.StringIO(whole, newline="")) if row[0].isdecimal() and int(row[0]) <= step]
        self._last = int(rows[-1][0]) if rows else 0
        kept = _lines([STEP_COLUMNS, *rows])
        if kept != found:
            replace_file(self._path, kept)


def _columns(rows: Rows) -> list[str]:
    return ["epoch", *sorted({column for row in rows for column in row} - {"epoch"})]


def _cells(rows: Rows, columns: Sequence[str]) -> list[list[Any]]:
    return [[row.get(column, "") for column in columns] for row in rows]


def _lines(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)  # its own line ends, \r\n, as the seed has them
    return text.getvalue().encode()


def _append(path: Path, data: bytes) -> None:
    """Add lines in one go, so that nobody sees half of one; all of them or none."""
    rest = memoryview(data)
    with telling(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with telling(path), open(path, "ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise
