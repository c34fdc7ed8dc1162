"""Records of tables: the heads that are sent before any row, and the rows by column."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    type: str = "float"  # "int", "float", "text", "tensor"
    shape: tuple[int, ...] = ()  # of a tensor cell
    plotted: bool = True  # by default
    fixed: tuple[float, float] | None = None  # the range of its axis; an infinite end or None: automatic
    error: str = ""  # the column that holds its error bars
    edges: tuple[float, ...] = ()  # of histograms: between the bins; the outermost bins are unbounded


@dataclass(frozen=True, slots=True)
class TableHead:
    """A table without its rows: name, title, axes, columns."""

    name: str  # "train_epoch", "test_trial", "test_epoch", "run", "train_step", "patterns"
    title: str  # "Train epochs"
    x: str = ""  # the column along the x axis; "" counts the rows
    legend: str = ""  # the column of which each value is plotted as a separate line
    columns: tuple[Column, ...] = ()
    layer: str = ""  # whose statistics these are; its variable is the rest of the name


@dataclass(slots=True)
class TableRows:
    """A table and its rows, by column; all columns have the same length."""

    head: TableHead
    columns: dict[str, list[Any]] = field(default_factory=dict)
    count: int = 0  # rows
    restarts: int = 0  # how often the rows started again from 0: those sent before are void then
    changes: ClassVar[int] = 0

    def intact_rows(self, since: int) -> int:
        """How many of the first rows are as they were: all, without a restart."""
        return self.count
