"""Tables as plain frozen data: what is known of one before its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    type: str = "float"  # "int", "float", "text", "tensor"
    shape: tuple[int, ...] = ()  # of a cell of tensors
    plotted: bool = True  # at first
    fixed: tuple[float, float] | None = None  # the range of its axis; None: automatic
    error: str = ""  # the column that holds its error bars


@dataclass(frozen=True, slots=True)
class TableHead:
    """A table as far as it is known before its rows."""

    name: str  # "train_epoch", "test_trial", "test_epoch", "run", "train_step", "patterns"
    title: str  # "Train epochs"
    x: str = ""  # the column along the x axis; "" counts the rows
    legend: str = ""  # the column whose values make a line each
    columns: tuple[Column, ...] = ()


@dataclass(slots=True)
class TableRows:
    """A table and its rows, by column; columns are equally long."""

    head: TableHead
    columns: dict[str, list[Any]] = field(default_factory=dict)
    count: int = 0  # rows
    anew: int = 0  # grows whenever the rows start anew: then those sent before are void
