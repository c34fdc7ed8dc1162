"""Series of many runs as curves of bounded length: of stretches that are too dense, each one's extremes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import TorcheerError
from torcheer.runlog.log_reader import RunLog
from torcheer.runlog.tables.long_table import ShownTable
from torcheer.studio.runs.foreign_run import FOREIGN, read_foreign
from torcheer.studio.runs.run_facts import series_of
from torcheer.studio.runs.run_index import RunIndex
from torcheer.studio.runs.run_table import check_series, indexed_run

_LARGE: Final = 2**63  # of whole numbers
MOST_POINTS: Final = 1000  # of a curve; fewer where many are asked for
_ALL_POINTS: Final = 100_000  # of one answer
_LEAST_POINTS: Final = 100
_KEPT_POINTS: Final = 4_000_000  # of curves that are kept for the next question

Array = NDArray[np.float64]


class Curve(NamedTuple):
    """A series of a run."""

    x_name: str  # "Step", "Epoch"
    x: Array
    y: Array


class RunCurves:
    """Reads curves, and keeps those that were read last."""

    def __init__(self, index: RunIndex) -> None:
        self._index = index
        self._kept: dict[tuple[int, int, str], Curve | None] = {}
        self._points, self._reading = 0, Lock()

    def answer(self, numbers: Sequence[int], series: Sequence[str]) -> dict[str, Any]:
        """{"curves": [{run, series, x_name, x, y, points}], "problems": …}; a run without a series has no curve."""
        check_series(self._index, series)
        most = max(_LEAST_POINTS, min(MOST_POINTS, _ALL_POINTS // max(1, len(numbers) * len(series))))
        curves, problems = list[dict[str, Any]](), list[str]()
        with self._reading:
            for number in numbers:
                try:
                    read = self._curves(number, series)
                except (TorcheerError, OSError, ValueError) as error:
                    problems.append(f"{self._index.name_of(number)}: {str(error)[:200]}")
                    continue
                for name, curve in read.items():
                    x, y = thinned(curve.x, curve.y, most)
                    facts = {"run": number, "series": name, "x_name": curve.x_name, "points": len(curve.x)}
                    curves.append({**facts, "x": x.tolist(), "y": y.tolist()})
        return {"curves": curves, "problems": problems}

    def _curves(self, number: int, series: Sequence[str]) -> dict[str, Curve]:
        run = indexed_run(self._index, number)
        missing = [name for name in series if (number, run.stamp, name) not in self._kept and name in run.series]
        if missing:
            read = read_curves(self._index.path_of(number), run.facts.kind, missing)
            for name in missing:
                self._keep((number, run.stamp, name), read.get(name))
        curves = {name: self._kept.get((number, run.stamp, name)) for name in series}
        return {name: curve for name, curve in curves.items() if curve is not None}

    def _keep(self, key: tuple[int, int, str], curve: Curve | None) -> None:
        self._kept[key] = curve
        self._points += 0 if curve is None else len(curve.x)
        while self._points > _KEPT_POINTS and len(self._kept) > 1:
            oldest = self._kept.pop(next(iter(self._kept)))
            self._points -= 0 if oldest is None else len(oldest.x)


def read_curves(path: Path, kind: str, series: Sequence[str]) -> dict[str, Curve]:
    """Read series of a run: metrics by themselves where the log allows it, else with all of its tables."""
    if kind == "run":
        columns = RunLog(path).curves(series)
        if columns is not None and all(name in columns for name in series):
            return {name: Curve("Step", steps.astype(float), cells) for name, (steps, cells) in columns.items()}
    return curves_of(tables_at(path, kind), series)


def tables_at(path: Path, kind: str) -> Mapping[str, ShownTable]:
    """The tables of a run, whoever wrote it."""
    return read_foreign(path, kind).tables if kind in FOREIGN else RunLog(path).tables()


def curves_of(tables: Mapping[str, ShownTable], series: Sequence[str]) -> dict[str, Curve]:
    """The named series of these tables."""
    curves: dict[str, Curve] = {}
    for name, table, column in series_of(tables):
        if name in series and name not in curves:
            x_name = table.head.x if table.head.x in table.columns else "Step" if "Step" in table.columns else ""
            cells = list(table.columns[column])
            curves[name] = _curve(x_name or "Row", list(table.columns.get(x_name, range(table.count))), cells)
    return curves


def _curve(x_name: str, x: Sequence[Any], cells: Sequence[Any]) -> Curve:
    pairs = [(place, cell) for place, cell in zip(x, cells) if _is_number(place) and _is_number(cell)]
    points = np.array(pairs, np.float64).reshape(-1, 2)
    points = points[np.argsort(points[:, 0], kind="stable")]
    return Curve(x_name, points[:, 0], points[:, 1])


def _is_number(cell: Any) -> bool:
    return type(cell) is float or (type(cell) is int and -_LARGE < cell < _LARGE)


def thinned(x: Array, y: Array, most: int) -> tuple[Array, Array]:
    """At most about so many points: of each stretch the lowest and the highest, so that a spike stays; NaN wins."""
    if len(x) <= most:
        return x, y
    edges = np.linspace(0, len(x), max(1, most // 2) + 1).astype(int)
    kept: list[int] = [0]
    for start, end in pairwise(edges):
        part = y[start:end]
        strange = np.flatnonzero(np.isnan(part))
        low = int(strange[0]) if len(strange) else int(np.argmin(part))
        kept += sorted({start + low, start + int(np.argmax(np.nan_to_num(part, nan=-np.inf)))})
    places = np.unique([*kept, len(x) - 1])
    return x[places], y[places]
