"""The CSV files of a session, made from its log: metrics of epochs, one file for each stage, and of steps.

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
    """`metrics/<stage>.csv`: the epoch, then the columns pipeline by pipeline, floats in full precision."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[int, tuple[list[str], int]] = {}  # stage -> columns and number of rows in its file

    def write(self, stages: Sequence[Rows]) -> None:
        """Write these rows to the files: append new ones, or replace a file whose columns changed."""
        for stage, rows in enumerate(stages):
            written_columns, count = self._written.pop(stage, ([], 0))  # popped: unknown if writing fails
            is_longer = 0 < count <= len(rows)
            columns = columns_of([dict.fromkeys(written_columns), *rows[count:]] if is_longer else rows)
            path = self._folder / f"{stage}.csv"
            if rows and (written_columns != columns or count > len(rows)):
                write_file(path, _lines([columns, *_cells(rows, columns)]))
            elif rows[count:]:
                append(path, _lines(_cells(rows[count:], columns)), sync=False)
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
    """`metrics/steps.csv`: the losses of steps."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, rows: Sequence[Sequence[Any]]) -> None:
        """Append rows: step, epoch, pipeline, loss."""
        header = [] if self._path.exists() else [STEP_COLUMNS]
        append(self._path, _lines([*header, *rows]), sync=False)

    def rewrite(self, rows: Sequence[Sequence[Any]]) -> None:
        """Replace the file by exactly these rows."""
        replace_csv(self._path, STEP_COLUMNS, rows)


def replace_csv(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Make a file hold exactly these rows; without any there is no file."""
    content = _lines([columns, *rows])
    if not rows:
        path.unlink(missing_ok=True)
    elif not path.is_file() or path.read_bytes() != content:
        write_file(path, content)


def columns_of(rows: Rows) -> list[str]:
    """The columns of some rows: the epoch, then the others in their order."""
    return list(dict.fromkeys(["epoch", *(column for row in rows for column in row)]))


def _cells(rows: Rows, columns: Sequence[str]) -> list[list[Any]]:
    return [[row.get(column, "") for column in columns] for row in rows]


def _lines(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)  # its own line ends, \r\n, as the seed has them
    return text.getvalue().encode()
