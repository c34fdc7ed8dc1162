"""`agg`, `split` and views of rows: statistics of columns, over all rows or groups of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torcheer_originals.etorch.go_values import Handle
from torcheer_originals.etorch.tables.etables import AddAggName, Table, rows_by_text
from torcheer_originals.etorch.tables.etensors import Array
from torcheer_originals.etorch.tables.random_patterns import generator


class IdxView(metaclass=Handle):
    """A view of some rows of a table, in any order: `Idxs` are their numbers."""

    def __init__(self, rows_of: Table) -> None:
        self.Table = rows_of
        self.Idxs: list[int] = list(range(len(rows_of)))

    def Len(self) -> int:
        """The number of rows."""
        return len(self.Idxs)

    def Filter(self, keeps: Callable[[Table, int], Any]) -> None:
        """Keep the rows for which a function of table and row is true."""
        self.Idxs = [row for row in self.Idxs if keeps(self.Table, row)]

    def Sequential(self) -> None:
        """View all rows in order."""
        self.Idxs = list(range(len(self.Table)))

    def Permuted(self) -> None:
        """View all rows in a random order."""
        self.Idxs = generator().permutation(len(self.Table)).tolist()

    def SortColName(self, column: str, ascending: bool = True) -> None:
        """Order the rows by a column."""
        values = self.Table[column]
        self.Idxs.sort(key=lambda row: values[row], reverse=not ascending)

    def RowsByString(self, column: str, text: str, contains: bool, ignore_case: bool) -> list[int]:
        """The places in this view of rows whose text is this, or contains it."""
        return rows_by_text(self.values(column), text, contains, ignore_case)

    def NewTable(self) -> Table:
        """A table of these rows."""
        made: Table = self.Table[np.array(self.Idxs, np.intp)]
        return made

    def Clone(self) -> IdxView:
        """A copy of the view, on the same table."""
        copy: IdxView = IdxView(self.Table)
        copy.Idxs = list(self.Idxs)
        return copy

    def values(self, column: str) -> Array:
        """The cells of a column, row by row."""
        cells: Array = self.Table[column][np.array(self.Idxs, np.intp)]
        return cells


# -- agg ---------------------------------------------------------------------------------------------------------------


def _ratio(statistic: Callable[..., Any], lost: int) -> Callable[[Array], Any]:
    """Variances need more values than degrees of freedom; with fewer they are 0, as in Go."""
    return lambda values: statistic(values, ddof=lost) if len(values) > lost else 0.0


_STATISTICS: dict[str, Callable[[Array], Any]] = {
    "Count": len, "Sum": np.sum, "Prod": np.prod, "Min": np.min, "Max": np.max, "Mean": np.mean,
    "Var": _ratio(np.var, 1), "Std": _ratio(np.std, 1),
    "Sem": lambda values: _ratio(np.std, 1)(values) / np.sqrt(max(len(values), 1)),
    "VarPop": np.var, "StdPop": np.std, "SemPop": lambda values: np.std(values) / np.sqrt(max(len(values), 1)),
    "Median": np.median, "Q1": lambda values: np.quantile(values, 0.25), "Q3": lambda values: np.quantile(values, 0.75),
    "SumSq": lambda values: np.sum(values * values),
}  # fmt: skip
_OF_NOTHING = {"Count": 0.0, "Sum": 0.0, "Prod": 1.0, "SumSq": 0.0}
_DESCRIPTION = ("Count", "Mean", "Std", "Sem", "Min", "Q1", "Median", "Q3", "Max")
AggCount, AggSum, AggProd, AggMin, AggMax, AggMean, AggVar, AggStd, AggSem = list(_STATISTICS)[:9]
AggVarPop, AggStdPop, AggSemPop, AggMedian, AggQ1, AggQ3, AggSumSq = list(_STATISTICS)[9:]


def Aggregate(view: IdxView, column: str, name: str) -> list[float]:
    """A statistic of a column: a number for each one of its cells; NaNs do not count."""
    cells = view.values(column)
    numbers = cells.reshape(len(cells), int(np.prod(cells.shape[1:]))).astype(np.float64)
    return [_statistic(name, values[~np.isnan(values)]) for values in numbers.T]


def _statistic(name: str, values: Array) -> float:
    return float(_STATISTICS[name](values)) if len(values) else _OF_NOTHING.get(name, 0.0)


def _aggregate(name: str) -> Callable[[IdxView, str], list[float]]:
    def aggregate(view: IdxView, column: str) -> list[float]:
        return Aggregate(view, column, name)

    aggregate.__doc__ = f"{name} of a column, a number for each one of its cells."
    return aggregate


Count, Sum, Prod, Min, Max, Mean, Var, Std, Sem = map(_aggregate, list(_STATISTICS)[:9])
VarPop, StdPop, SemPop, Median, Q1, Q3, SumSq = map(_aggregate, list(_STATISTICS)[9:])


# -- split -------------------------------------------------------------------------------------------------------------


class Splits(metaclass=Handle):
    """Groups of rows: `Splits` are their views, `Values` what they have in common in the columns `Levels`."""

    def __init__(self, views: Sequence[IdxView], levels: Sequence[str] = (), values: Sequence[Any] = ()) -> None:
        self.Splits, self.Levels, self.Values = list(views), list(levels), [list(value) for value in values]
        self.Aggs: list[tuple[str, str]] = []  # column, statistic

    def Len(self) -> int:
        """The number of groups."""
        return len(self.Splits)

    def AggsToTable(self, names_only: bool = AddAggName) -> Table:
        """A table of all statistics asked for, a row for each group; columns are called SSE:Sum, or SSE only."""
        columns: dict[str, Any] = {}
        for position, level in enumerate(self.Levels):
            columns[level] = np.array([str(value[position]) for value in self.Values], object)
        for column, name in self.Aggs:
            rows = [np.array(Aggregate(view, column, name)) for view in self.Splits]
            shape = self.Splits[0].Table[column].shape[1:] if self.Splits else ()
            columns[column if names_only else f"{column}:{name}"] = np.array(rows).reshape(len(rows), *shape)
        made: Table = Table(columns)
        return made


def All(view: IdxView) -> Splits:
    """All rows as one group."""
    made: Splits = Splits([view])
    return made


def GroupBy(view: IdxView, columns: Sequence[str]) -> Splits:
    """A group for each value of these columns."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in view.Idxs:
        groups.setdefault(tuple(view.Table[name][row] for name in columns), []).append(row)
    keys = sorted(groups)
    made: Splits = Splits([_rows(view.Table, groups[key]) for key in keys], columns, keys)
    return made


def Permuted(view: IdxView, fractions: Sequence[float], names: Sequence[str] | None = None) -> Splits:
    """Random groups of these fractions of all rows, as for training and testing."""
    order = [view.Idxs[place] for place in generator().permutation(view.Len())]
    ends = [round(end * len(order)) for end in np.cumsum(fractions)]
    views = [_rows(view.Table, order[start:end]) for start, end in zip([0, *ends], ends)]
    made: Splits = Splits(views, ["permuted"], [[name] for name in names or map(str, range(len(views)))])
    return made


def Agg(groups: Splits, column: str, name: str) -> None:
    """Ask for a statistic of a column, such as `agg.AggMean`."""
    groups.Aggs.append((column, name))


def Desc(groups: Splits, column: str) -> None:
    """Ask for count, mean, deviation, error, and quantiles of a column of numbers."""
    has_tensors = bool(groups.Splits) and groups.Splits[0].Table[column].ndim > 1
    groups.Aggs += [(column, name) for name in _DESCRIPTION if not (has_tensors and name in ("Q1", "Median", "Q3"))]


def _rows(rows_of: Table, rows: list[int]) -> IdxView:
    view: IdxView = IdxView(rows_of)
    view.Idxs = rows
    return view
