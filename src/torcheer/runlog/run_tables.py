"""The tables of a run, on disk or hosted in this process: epochs, steps, tests, earlier runs, changed parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from torcheer.errors import BadArgument
from torcheer.runlog.log_reader import RunLog
from torcheer.runlog.table import Table
from torcheer.runlog.table_records import Column, TableHead
from torcheer.runlog.tables.long_table import ShownTable
from torcheer.terminal import NamedItems, plural

_NAMELESS: Final = "(no name)"  # a column's


@runtime_checkable
class HostedTables(Protocol):
    """A run hosted in this process that has tables: a `Host`."""

    def tables(self) -> Mapping[str, tuple[TableHead, Mapping[str, list[Any]]]]:
        """Each table's head and columns."""


def logs(run: str | os.PathLike[str] | HostedTables) -> dict[str, Table]:
    """The tables of a run, running or finished: train_epoch, test_epoch, test_trial, run, …

    `logs("run")["train_epoch"].to_pandas()`. For a host, such as `control.host`: the tables of its pages.

    - `run`: a run directory, or something that has tables.
    """
    if isinstance(run, HostedTables):
        return NamedItems("table", {name: _as_table(*table) for name, table in run.tables().items()})
    if not Path(run).is_dir():
        raise BadArgument(f"logs: there is no run at {os.fspath(run)}")
    tables = RunLog(Path(run)).tables().items()
    return NamedItems("table", {name: _as_table(table.head, table.columns) for name, table in tables})


def _as_table(head: TableHead, columns: Mapping[str, list[Any]]) -> Table:
    described = {column.name: column for column in head.columns}
    arrays = {
        name or _NAMELESS: _column_array(described.get(name, Column(name)), cells) for name, cells in columns.items()
    }
    return Table(arrays, name=head.name, title=head.title, x=head.x, legend=head.legend)


def _column_array(column: Column, cells: list[Any]) -> Any:
    """A column of numbers, text or tensors; missing cells become NaN, or empty text."""
    try:
        return _texts(cells) if column.type == "text" else _numbers(column, cells)
    except (TypeError, ValueError, OverflowError):  # of several kinds, or of other shapes than was announced
        return _texts(cells)


def _texts(cells: list[Any]) -> Any:
    return np.array(["" if cell is None else str(cell) for cell in cells], object)


def _numbers(column: Column, cells: list[Any]) -> Any:
    if column.type == "tensor":
        missing = np.full(column.shape, np.nan)
        return np.array([missing if cell is None else np.array(cell, float) for cell in cells]).reshape(
            -1, *column.shape
        )
    if column.type == "int" and all(type(cell) is int for cell in cells):
        return np.array(cells, np.int64)
    return np.array([np.nan if cell is None else cell for cell in cells], np.float64)


def stamp_of(run: Path) -> tuple[Any, ...]:
    """A fingerprint that changes whenever one of the files does."""
    stats = []
    for path in sorted(run.glob("log/*/*.index")):
        try:
            status = path.stat()
        except OSError:
            continue
        stats.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(stats)


def summary_at(run: Path) -> str:
    """The summary line of a run on disk, without opening it."""
    log = RunLog(run)
    if not log.has_training:
        return summary_of(log.tables())
    tables = log.tail(1)
    if (epochs := tables.get("train_epoch")) is not None:
        epochs.count = epochs.columns["Epoch"][-1]  # training counts them from 1
    return summary_of(tables)


def summary_of(tables: Mapping[str, ShownTable]) -> str:
    """Summarize a run in a line: "12 epochs · val loss 0.31"."""
    table = tables.get("train_epoch")
    if table is None or not table.count:
        last = [rows.columns["Step"][-1] for rows in tables.values() if rows.count and "Step" in rows.columns]
        steps = [step for step in last if isinstance(step, int)]
        return plural(max(steps), "step") if steps else "no results yet"
    epochs = plural(table.count, "epoch")
    for name in ("val loss", "loss", *table.columns):
        value = table.columns[name][-1] if name in table.columns else None
        if name not in ("Epoch", "Step") and isinstance(value, int | float):
            return f"{epochs} · {name} {value:.4g}"
    return epochs
