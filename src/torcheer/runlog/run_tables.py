"""The tables of a run, on disk or hosted in this process: epochs, steps, tests, earlier runs, changed parameters."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from torcheer.errors import BadArgument
from torcheer.runlog.kept_rows import cell_of, rows_in
from torcheer.runlog.log_reader import RunLog, column_for, writers_in
from torcheer.runlog.table import Table
from torcheer.runlog.table_records import Column, TableHead, TableRows
from torcheer.terminal import plural

_MOST_ROWS: Final = 100_000  # of a table; longer ones are subsampled


@runtime_checkable
class HostedTables(Protocol):
    """A run hosted in this process that has tables: a `Host`."""

    def tables(self) -> Mapping[str, tuple[TableHead, Mapping[str, list[Any]]]]:
        """Each table's head and columns."""


def logs(run: str | os.PathLike[str] | HostedTables) -> dict[str, Table]:
    """The tables of a run, running or finished: train_epoch, test_epoch, test_trial, run, …

    `logs("run")["train_epoch"].to_pandas()`. For a host, such as `control.host`: the tables of its pages.
    """
    if isinstance(run, HostedTables):
        return {name: _as_table(head, columns) for name, (head, columns) in run.tables().items()}
    if not Path(run).is_dir():
        raise BadArgument(f"logs: there is no run at {os.fspath(run)}")
    return {name: _as_table(table.head, table.columns) for name, table in tables_of(Path(run)).items()}


def _as_table(head: TableHead, columns: Mapping[str, list[Any]]) -> Table:
    described = {column.name: column for column in head.columns}
    arrays = {name: _column_array(described.get(name, Column(name)), cells) for name, cells in columns.items()}
    return Table(arrays, name=head.name, title=head.title, x=head.x, legend=head.legend)


def _column_array(column: Column, cells: list[Any]) -> Any:
    """A column of numbers, text or tensors; missing cells become NaN, or empty text."""
    if column.type == "text":
        return np.array(["" if cell is None else str(cell) for cell in cells], object)
    if column.type == "tensor":
        missing = np.full(column.shape, np.nan)
        return np.array([missing if cell is None else np.array(cell, float) for cell in cells]).reshape(
            -1, *column.shape
        )
    if column.type == "int" and all(type(cell) is int for cell in cells):
        return np.array(cells, np.int64)
    return np.array([np.nan if cell is None else cell for cell in cells], np.float64)


def tables_of(run: Path, log: RunLog | None = None) -> dict[str, TableRows]:
    """The tables of a run: those of its log; epochs, steps and changed parameters of metrics/; tests; earlier runs."""
    tables = (log or RunLog(run)).tables() | _epochs(run)
    steps = _read(run / "metrics" / "steps.csv")
    if steps:
        tables["train_step"] = _table("train_step", "Train steps", "Step", _by_pipeline(steps))
    for name, title, x in (("test_trial", "Test trials", "Trial"), ("test_epoch", "Test epochs", "Step")):
        if tests := rows_in(run / "tests" / f"{name}.jsonl"):
            tables[name] = _table(name, title, x, tests)
    if runs := _runs(run):
        tables["run"] = _table("run", "Runs", "Run", runs)
    changes = _read(run / "metrics" / "changes.csv")
    if changes:
        tables["changes"] = _table("changes", "Changes of parameters", "Step", _renamed(changes))
    return tables


def _epochs(run: Path) -> dict[str, TableRows]:
    files = [path for path in (run / "metrics").glob("*.csv") if path.stem.isdecimal()]
    rows = [row for path in sorted(files, key=lambda path: int(path.stem)) for row in _read(path)]
    return {"train_epoch": _table("train_epoch", "Train epochs", "Epoch", _renamed(rows))} if rows else {}


def _runs(run: Path) -> list[dict[str, Any]]:
    """The results of the archived runs and of the last one, as `training.control` writes them."""
    rows = rows_in(run / "tests" / "run.jsonl")
    for path in (run / "earlier").glob("*/result.json"):
        try:
            result = json.loads(path.read_bytes())
            row = {key.capitalize(): cell_of(value) for key, value in result.items() if key != "values"}
            rows.append(row | {str(key): cell_of(value) for key, value in dict(result["values"]).items()})
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):  # edited by hand
            continue
    return sorted((row for row in rows if isinstance(row.get("Run"), int)), key=lambda row: row["Run"])


def stamp_of(run: Path) -> tuple[Any, ...]:
    """A fingerprint that changes whenever one of the files does."""
    stats = []
    files = [
        path for pattern in ("metrics/*.csv", "tests/*.jsonl", "earlier/*/result.json") for path in run.glob(pattern)
    ]
    for place in writers_in(run):
        files += [*place.path.glob("*.index"), *(place.old.rglob("*.index") if place.old else ())]
    for path in sorted(files):
        try:
            status = path.stat()
        except OSError:
            continue
        stats.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(stats)


def summary_at(run: Path) -> str:
    """The summary line of a run on disk, without opening it."""
    return summary_of(_epochs(run) or tables_of(run))


def summary_of(tables: dict[str, TableRows]) -> str:
    """Summarize a run in a line: "12 epochs · val loss 0.31"."""
    table = tables.get("train_epoch")
    if table is None or not table.count:
        last = [rows.columns["Step"][-1] for rows in tables.values() if rows.count and "Step" in rows.columns]
        steps = [step for step in last if isinstance(step, int)]
        return f"{max(steps)} steps" if steps else "no results yet"
    epochs = plural(table.count, "epoch")
    for name in ("val loss", "loss", *table.columns):
        last = table.columns.get(name, [None])[-1]
        if name not in ("Epoch", "Step") and isinstance(last, int | float):
            return f"{epochs} · {name} {last:.4g}"
    return epochs


def _read(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a CSV; an incomplete or damaged line is skipped."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    lines = text[: text.rfind("\n") + 1].splitlines()
    try:
        rows = list(csv.reader(lines))
    except csv.Error:
        return []
    names = rows[0] if rows else []
    rows = [row for row in rows[1:] if len(row) == len(names)]
    rows = rows[:: -(-len(rows) // _MOST_ROWS)] if rows else []
    return [{name: _cell(cell) for name, cell in zip(names, row)} for row in rows]


def _cell(text: str) -> Any:
    """Parse a cell: an integer, a float, or text; None if empty."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text or None


def _renamed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {"epoch": "Epoch", "step": "Step"}
    return [{names.get(name, name): cell for name, cell in row.items()} for row in rows]


def _by_pipeline(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pivot to a row per step with a loss column per pipeline, as in a live run."""
    pipelines = list(dict.fromkeys(str(row.get("pipeline")) for row in rows))
    by_step: dict[Any, dict[str, Any]] = {}
    for row in rows:
        step, pipeline = row.get("step"), str(row.get("pipeline"))
        step_row = by_step.setdefault(step, {"Step": step, "Epoch": row.get("epoch")})
        step_row["loss" if len(pipelines) == 1 else f"{pipeline} loss"] = row.get("loss")
    return list(by_step.values())


def _table(name: str, title: str, x: str, rows: list[dict[str, Any]]) -> TableRows:
    names = dict.fromkeys(column for row in rows for column in row)
    columns = {column: [row.get(column) for row in rows] for column in names}
    heads = tuple(column_for(column, cells) for column, cells in columns.items())
    return TableRows(TableHead(name, title, x, columns=heads), columns, len(rows))
