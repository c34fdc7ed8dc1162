"""`logs`: the Plots tab's tables, of a run on disk or of one hosted in this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from torcheer.errors import BadArgument
from torcheer.runlog.run_tables import tables_of
from torcheer.runlog.table import Table
from torcheer.runlog.table_records import Column, TableHead


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
        return {name: _table(head, columns) for name, (head, columns) in run.tables().items()}
    if not Path(run).is_dir():
        raise BadArgument(f"logs: there is no run at {os.fspath(run)}")
    return {name: _table(table.head, table.columns) for name, table in tables_of(Path(run)).items()}


def _table(head: TableHead, columns: Mapping[str, list[Any]]) -> Table:
    described = {column.name: column for column in head.columns}
    arrays = {name: _cells(described.get(name, Column(name)), cells) for name, cells in columns.items()}
    return Table(arrays, name=head.name, title=head.title, x=head.x, legend=head.legend)


def _cells(column: Column, cells: list[Any]) -> Any:
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
