"""The CSV files of a session, made from its log: metrics of epochs, one file for each stage, and of steps.

They give back what a damaged log has lost (`csv_tables`).

A reader may open them at any time: complete lines are appended, any other change replaces the file atomically.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from torcheer.disk import append, write_file
from torcheer.runlog.log_frames import EPOCHS, STEPS
from torcheer.runlog.log_rows import Row
from torcheer.runlog.log_rows import Rows as LoggedRows
from torcheer.runlog.table_cells import cell_of
from torcheer.runlog.training_tables import Tables

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


def csv_tables(directory: Path) -> Tables:
    """The rows of a session's files, by the names that they have in its log: epochs, steps, changed parameters."""
    folder, tables = directory / "metrics", dict[str, list[Row]]()
    stages = [path for path in folder.glob("*.csv") if path.stem.isdecimal()]
    for path in sorted(stages, key=lambda path: int(path.stem)):
        tables[f"{EPOCHS}{int(path.stem)}"] = [Row(0, 0.0, row) for row in _read(path)]
    for row in _counted(folder / "steps.csv"):
        step, pipeline = row.pop("step"), row.pop("pipeline", None)
        tables.setdefault(f"{STEPS}{pipeline}", []).append(Row(step, 0.0, row))
    for row in _counted(folder / "changes.csv"):
        step, epoch = row.pop("step"), row.pop("epoch")
        tables.setdefault("changes", []).append(Row(step, 0.0, {"Epoch": epoch, **row}))
    return {name: LoggedRows.of(rows) for name, rows in tables.items()}


def _counted(path: Path) -> list[dict[str, Any]]:
    return [row for row in _read(path) if type(row.get("step")) is int and type(row.get("epoch")) is int]


def _read(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a file; an incomplete or damaged line is skipped."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        rows = list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))
    except (OSError, csv.Error):
        return []
    names = rows[0] if rows else []
    return [{name: _parsed(cell) for name, cell in zip(names, row)} for row in rows[1:] if len(row) == len(names)]


def _parsed(text: str) -> Any:
    """A cell as an integer, a float, or text; None if empty."""
    for kind in (int, float):
        with suppress(ValueError):
            return cell_of(kind(text))
    return text or None


def _cells(rows: Rows, columns: Sequence[str]) -> list[list[Any]]:
    return [[row.get(column, "") for column in columns] for row in rows]


def _lines(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)  # its own line ends, \r\n, as the seed has them
    return text.getvalue().encode()
