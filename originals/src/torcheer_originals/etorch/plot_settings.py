"""`eplot`: a plot's title, axes and columns, which the page's plot of the same table takes over."""

from __future__ import annotations

import math
from dataclasses import dataclass
from dataclasses import replace as changed
from types import SimpleNamespace
from typing import Any

from torcheer.runlog.table_records import TableHead
from torcheer_originals.etorch.met_differences import meet
from torcheer_originals.etorch.tables.etables import Table

On, Off = True, False
FixMin, FloatMin = True, False
FixMax, FloatMax = True, False
XY, Bar = "XY", "Bar"
_TAKEN = {"Title", "XAxisCol", "LegendCol", "Type"}


@dataclass
class ColumnSettings:
    """Whether a column is plotted at first, and the range of its axis."""

    On: bool
    FixMin: bool
    Min: float
    FixMax: bool
    Max: float

    @property
    def fixed(self) -> tuple[float, float] | None:
        """The range; an end that is not fixed is infinite, which a plot takes for automatic."""
        ends = float(self.Min) if self.FixMin else -math.inf, float(self.Max) if self.FixMax else math.inf
        return ends if self.FixMin or self.FixMax else None


class Plot2D:
    """The plot of a table; `GoUpdate` after the table has changed."""

    def __init__(self) -> None:
        self.Params = SimpleNamespace(Title="", XAxisCol="", LegendCol="", Type=XY)
        self.Table: Table | None = None
        self.columns: dict[str, ColumnSettings] = {}
        self.window: Any = None

    def SetTable(self, table: Table) -> None:
        """Plot a table."""
        self.Table = table

    def SetTableView(self, view: Any) -> None:
        """Plot the table of a view, with all its rows."""
        self.Table = view.Table
        if view.Idxs != list(range(len(view.Table))):
            meet("plot rows")

    def SetColParams(
        self, name: str, on: bool, fix_minimum: bool, minimum: float, fix_maximum: bool, maximum: float
    ) -> ColumnSettings:
        """Say whether a column is plotted, and its range; an end that is not fixed is automatic."""
        self.columns[name] = ColumnSettings(bool(on), fix_minimum, minimum, fix_maximum, maximum)
        return self.columns[name]

    def ColParams(self, name: str) -> ColumnSettings | None:
        """The settings of a column, or nil."""
        return self.columns.get(name)

    def GoUpdate(self) -> None:
        """Show what has changed; at most a few times a second."""
        if self.window is not None:
            self.window.tables_changed()

    Update = UpdatePlot = GoUpdatePlot = GoUpdate

    def head(self, head: TableHead) -> TableHead:
        """A table's head with this plot's title, axes and columns."""
        columns = tuple(
            changed(column, plotted=column.type in ("int", "float") and settings.On, fixed=settings.fixed)
            if (settings := self.columns.get(column.name)) is not None
            else changed(column, plotted=False)
            for column in head.columns
        )
        for column in columns:
            settings = self.columns.get(column.name)
            if settings is not None and settings.On and not column.plotted:
                meet("plot columns")
        if vars(self.Params).keys() - _TAKEN or self.Params.Type != XY:
            meet("plot settings")
        names = {column.name for column in columns}
        x, legend = (name if name in names else "" for name in (self.Params.XAxisCol, self.Params.LegendCol))
        return changed(head, title=self.Params.Title or head.title, x=x, legend=legend, columns=columns)
