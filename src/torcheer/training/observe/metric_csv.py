"""The CSV files of a session: metrics of epochs, one file for each stage, and of steps.

A reader may open them at any time: complete lines are appended, any other change replaces the file atomically.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torcheer.disk import append, write_file

Rows = Sequence[Mapping[str, Any]]
STEP_COLUMNS = ("step", "epoch", "pipeline", "loss")


class EpochTables:
    """`metrics/<stage>.csv`: the epoch, then the columns by name, floats in full precision."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[int, tuple[list[str], int]] = {}  # stage -> columns and number of rows in its file

    def write(self, stages: Sequence[Rows]) -> None:
        """Write these rows to the files: append new ones, or replace a file whose columns changed."""
        for stage, rows in enumerate(stages):
            columns = _columns(rows)
            written_columns, count = self._written.pop(stage, ([], 0))  # popped: unknown if writing fails
            path = self._folder / f"{stage}.csv"
            if rows and (written_columns != columns or count > len(rows)):
                write_file(path, _lines([columns, *_cells(rows, columns)]))
            elif rows[count:]:
                append(path, _lines(_cells(rows[count:], columns)))
            if rows:
                self._written[stage] = columns, len(rows)

    def rewrite(self, stages: Sequence[Rows]) -> None:
        """Replace the files by exactly these rows: rows after a checkpoint are trained again."""
        self._written.clear()
        for path in self._folder.glob("*.csv"):
            if path.stem.isdecimal() and not (int(path.stem) < len(stages) and stages[int(path.stem)]):
                path.unlink()
        self.write(stages)


class StepTable:
    """`metrics/steps.csv`: the loss of every n-th step; losses are read when lines are written."""

    LINES = 256  # pending at most

    def __init__(self, path: Path, every: int) -> None:
        self._path, self._every = path, every
        self._pending: list[tuple[Any, ...]] = []
        self._last = 0

    def add(self, step: int, epoch: int, pipeline: str, loss: Any) -> None:
        """Add a step if it is due; of several batches with the same step number, the first."""
        if step == self._last or step % self._every:
            return
        self._last = step
        self._pending.append((step, epoch, pipeline, loss))
        if len(self._pending) >= self.LINES:
            self.flush()

    def flush(self) -> None:
        """Write the pending rows."""
        rows: list[Sequence[Any]] = [(*row[:3], float(row[3])) for row in self._pending]
        if not rows:
            return
        if not self._path.exists():
            rows.insert(0, STEP_COLUMNS)
        append(self._path, _lines(rows))
        self._pending.clear()

    def cut(self, step: int) -> None:
        """Remove the rows after a step, and a partly written line."""
        self._pending.clear()
        self._last = 0
        if not self._path.exists():
            return
        data = self._path.read_bytes()
        complete_lines = data.decode(errors="replace").rpartition("\n")[0]
        rows = [
            row
            for row in csv.reader(io.StringIO(complete_lines, newline=""))
            if row[0].isdecimal() and int(row[0]) <= step
        ]
        self._last = int(rows[-1][0]) if rows else 0
        remaining = _lines([STEP_COLUMNS, *rows])
        if remaining != data:
            write_file(self._path, remaining)


def _columns(rows: Rows) -> list[str]:
    return ["epoch", *sorted({column for row in rows for column in row} - {"epoch"})]


def _cells(rows: Rows, columns: Sequence[str]) -> list[list[Any]]:
    return [[row.get(column, "") for column in columns] for row in rows]


def _lines(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)  # its own line ends, \r\n, as the seed has them
    return text.getvalue().encode()
