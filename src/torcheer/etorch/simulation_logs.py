"""A simulation's logs: tables by name, sent to its host, if any, as they grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from torcheer.control.parameter_form import CHANGES
from torcheer.errors import BadArgument
from torcheer.host.host import Host
from torcheer.runlog.table import Table

KINDS = {  # name -> title, x axis, legend column
    "train_epoch": ("Train epochs", "Epoch", "Run"), "test_trial": ("Test trials", "Trial", ""),
    "test_epoch": ("Test epochs", "Epoch", "Run"), "run": ("Runs", "Run", ""), CHANGES[0]: (CHANGES[1], "Epoch", "Run"),
}  # fmt: skip


class Logs(dict[str, Table]):
    """The tables train_epoch, test_trial, test_epoch, run, changes, and patterns if given."""

    def __init__(self, patterns: Table | None = None) -> None:
        super().__init__({log: Table(name=log, title=title, x=x, legend=by) for log, (title, x, by) in KINDS.items()})
        self.host: Host | None = None
        if patterns is not None:
            patterns.title = patterns.title if patterns.title != patterns.name else "Patterns"
            patterns.name = "patterns"
            self["patterns"] = patterns

    def show(self, host: Host) -> None:
        """Send all tables, and later rows, to a host."""
        self.host = host
        for name, table in self.items():
            if table.columns:
                host.table(table.head())
            for row in table:
                host.row(name, row)

    def add(self, name: str, row: Mapping[str, Any]) -> None:
        """Add a row; new names become columns, as later trials may return more than the first."""
        table = self[name]
        columns = table.columns
        for column in row:
            if columns and column not in table:
                table.add_column(column, [_missing_cell(row[column])] * len(table))
        table.append(row)
        if self.host is not None:
            if table.columns != columns:
                self.host.table(table.head())
            self.host.row(name, row)

    def wipe(self, *names: str) -> None:
        """Delete the rows of these logs."""
        for name in names:
            self[name].clear()
            if self.host is not None:
                self.host.clear(name)


def _missing_cell(value: Any) -> Any:
    """The cell of rows before a new column's first value."""
    return "" if isinstance(value, str) else np.full(np.shape(value), np.nan)


def row_of(result: Any, verb: str) -> dict[str, Any]:
    """Convert a task's result to a row: None to an empty one, one-element tensors to numbers."""
    if result is not None and not isinstance(result, Mapping):
        raise BadArgument(f'{verb} returned a {type(result).__name__}; return numbers by name, such as {{"Loss": 0.5}}')
    return {
        name: value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value
        for name, value in (result or {}).items()
    }


def means(rows: Sequence[Mapping[str, Any]], without: tuple[str, ...] = ()) -> dict[str, float]:
    """The mean of each numeric column of some rows; text and tensors are skipped."""
    names = dict.fromkeys(name for row in rows for name, value in row.items() if isinstance(value, Real))
    numbers = {name: [row[name] for row in rows if isinstance(row.get(name), Real)] for name in names}
    return {name: float(np.mean(values)) for name, values in numbers.items() if name not in without}
