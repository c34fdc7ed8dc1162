"""The logs of a simulation: tables by name, which its host, if there is one, shows as they grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from torcheer.errors import BadArgument
from torcheer.host.host import Host
from torcheer.runlog.table import Table

KINDS = {  # name -> title, x axis, what makes a line each
    "train_epoch": ("Train epochs", "Epoch", "Run"), "test_trial": ("Test trials", "Trial", ""),
    "test_epoch": ("Test epochs", "Epoch", "Run"), "run": ("Runs", "Run", ""),
}  # fmt: skip


class Logs(dict[str, Table]):
    """train_epoch, test_trial, test_epoch, run, and patterns where there are some."""

    def __init__(self, patterns: Table | None = None) -> None:
        super().__init__({log: Table(name=log, title=title, x=x, legend=by) for log, (title, x, by) in KINDS.items()})
        self.host: Host | None = None
        if patterns is not None:
            patterns.title = patterns.title if patterns.title != patterns.name else "Patterns"
            patterns.name = "patterns"
            self["patterns"] = patterns

    def show(self, host: Host) -> None:
        """Show all of them there, and what comes."""
        self.host = host
        for name, table in self.items():
            if table.columns:
                host.table(table.head())
            for row in table:
                host.row(name, row)

    def add(self, name: str, row: Mapping[str, Any]) -> None:
        """A row more; what is new in it becomes a column, as trials may say more than the first one did."""
        table = self[name]
        known = table.columns
        for column in row:
            if known and column not in table:
                table.add_column(column, [_nothing(row[column])] * len(table))
        table.append(row)
        if self.host is not None:
            if table.columns != known:
                self.host.table(table.head())
            self.host.row(name, row)

    def wipe(self, *names: str) -> None:
        """Take away the rows of these logs."""
        for name in names:
            self[name].clear()
            if self.host is not None:
                self.host.clear(name)


def _nothing(value: Any) -> Any:
    """What stands in a column before its first value came."""
    return "" if isinstance(value, str) else np.full(np.shape(value), np.nan)


def row_of(said: Any, verb: str) -> dict[str, Any]:
    """What a task returned as a row: nothing is an empty one, and a number may be a tensor of one."""
    if said is not None and not isinstance(said, Mapping):
        raise BadArgument(f'{verb} returned a {type(said).__name__}; return numbers by name, such as {{"Loss": 0.5}}')
    return {
        name: value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value
        for name, value in (said or {}).items()
    }


def means(rows: Sequence[Mapping[str, Any]], without: tuple[str, ...] = ()) -> dict[str, float]:
    """The mean of each number of some rows; text and tensors have none."""
    names = dict.fromkeys(name for row in rows for name, value in row.items() if isinstance(value, Real))
    numbers = {name: [row[name] for row in rows if isinstance(row.get(name), Real)] for name in names}
    return {name: float(np.mean(found)) for name, found in numbers.items() if name not in without}
