"""Reads the log of a run, of all its writers: tables by step and time, alerts, the network; follows it as it grows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from torcheer.errors import TorcheerError
from torcheer.runlog.log_frames import COUNTS, METRICS, STATISTICS
from torcheer.runlog.media.logged_samples import LoggedSamples
from torcheer.runlog.table_records import Column, TableHead, TableRows
from torcheer.runlog.writer_log import Row, WatchedValues, WriterLog
from torcheer.samples import BINS, Alert, Key

_SHOWN: Final = ("mean", "minimum", "maximum")  # plotted at first
_NUMBERS: Final = (*STATISTICS[1:], "zeros", "nans", "infs")
_MOST_NUMBERS: Final = 2_000_000  # of all tables of statistics; beyond that every 2nd, 4th, … look is shown
_MOST_BINS: Final = 500_000  # of all histograms
_TITLES: Final = {"train_epoch": "Train epochs", "test_trial": "Test trials", "test_epoch": "Test epochs",
                  "run": "Runs", "train_step": "Train steps", METRICS: "Metrics",
                  "changes": "Changes of parameters"}  # fmt: skip


class _Place(NamedTuple):
    """Where a writer's log lies."""

    path: Path  # its archive
    old: Path | None  # the folder of a watch of version 0.1 that it continues
    model: str  # of several watched models, the one whose log it is

    @property
    def identity(self) -> tuple[Any, ...]:
        """Differs once other files have taken the place of these."""
        files = (self.path / "archive.json", *([self.old / "samples" / "archive.json"] if self.old else []))
        stats = [file.stat() for file in files if file.is_file()]
        return tuple((status.st_ino, status.st_mtime_ns) for status in stats)


class RunLog:
    """What the writers of a run have logged so far. Opening it reads nothing but the index of each log."""

    def __init__(self, run: Path) -> None:
        self.path = run
        self._logs: dict[_Place, tuple[tuple[Any, ...], WriterLog]] = {}
        self.refresh()

    def refresh(self) -> bool:
        """Read what was written since the last call; True if there is something new."""
        changed = False
        for place in writers_in(self.path):
            identity, log = self._logs.get(place, ((), None))
            if log is None or identity != place.identity:
                self._logs[place] = place.identity, WriterLog(place.path, old=place.old)
                changed = True
            else:
                try:
                    changed = log.refresh() or changed
                except TorcheerError:  # it is damaged: read what is intact
                    self._logs[place] = identity, WriterLog(place.path, old=place.old)
                    changed = True
        return changed

    @property
    def logs(self) -> list[tuple[str, WriterLog]]:
        """Each writer's log, with the name of its model where there are several."""
        return [(place.model, log) for place, (_, log) in self._logs.items()]

    @property
    def problems(self) -> list[str]:
        """Sentences about what was lost."""
        return [problem for _, log in self.logs for problem in log.problems]

    @property
    def network(self) -> dict[str, Any] | None:
        """The network, as JSON, of the writer that logged one."""
        return next((network for _, log in self.logs if (network := log.network) is not None), None)

    @property
    def alerts(self) -> list[Alert]:
        """All alerts by step; their layers begin with the model's name where there are several."""
        alerts = [
            replace(alert, layer=".".join(filter(None, (model, alert.layer))))
            for model, log in self.logs
            for alert in log.alerts
        ]
        return sorted(alerts, key=lambda alert: alert.step)

    @property
    def samples(self) -> LoggedSamples:
        """What people logged beside numbers, by step."""
        samples = (sample for _, log in self.logs for sample in log.samples)
        return LoggedSamples(sorted(samples, key=lambda sample: sample.step))

    def tables(self) -> dict[str, TableRows]:
        """The tables of rows."""
        rows: dict[str, list[Row]] = {}
        heads: dict[str, dict[str, str]] = {}
        for model, log in self.logs:
            heads |= log.heads
            for name, more in log.tables.items():
                if model:
                    more = [
                        row._replace(cells={f"{model} {cell}": row.cells[cell] for cell in row.cells}) for row in more
                    ]
                rows[name] = sorted([*rows[name], *more], key=lambda row: row[:2]) if name in rows else more
        return {name: _table(name, heads.get(name, {}), table) for name, table in rows.items() if table}

    def statistics(self) -> dict[str, TableRows]:
        """A table for each watched layer and variable: its statistics over time, and its histograms."""
        watched = [(model, log.values) for model, log in self.logs]
        keys = [
            (model, values, key)
            for model, values in watched
            for key, places in values.places.items()
            if not values.is_scalar(places[0])
        ]
        most_rows = max(_MOST_NUMBERS // (len(_NUMBERS) * len(keys) or 1), 100)
        most_bins = max(_MOST_BINS // (BINS * len(keys) or 1), 10)
        tables = (_statistics(model, values, key, most_rows, most_bins) for model, values, key in keys)
        return {table.head.name: table for table in tables}


def writers_in(run: Path) -> Iterator[_Place]:
    """Yield where the logs of a run lie: its own, and those of its watches."""
    watch = run / "watch"
    homes = [(run, ""), (watch, ""), *((home, home.name) for home in sorted(watch.glob("*")))]
    for home, model in homes:
        old = home if (home / "samples" / "archive.json").is_file() else None
        paths = {file.parent for file in home.glob("log/*/archive.json")} | ({home / "log" / "watch"} if old else set())
        for path in sorted(paths):
            yield _Place(path, old if path.name == "watch" else None, model)


def has_log(run: Path) -> bool:
    """Whether a folder has a log of its own."""
    return any(run.glob("log/*/archive.json")) or (run / "samples" / "archive.json").is_file()


def _table(name: str, head: dict[str, str], rows: list[Row]) -> TableRows:
    names = dict.fromkeys(column for row in rows for column in row.cells)
    columns: dict[str, list[Any]] = {"Step": [row.step for row in rows]}
    columns |= {column: [row.cells.get(column) for row in rows] for column in names if column != "Step"}
    title = head.get("title") or _TITLES.get(name) or name.replace("_", " ")
    described = tuple(column_for(column, cells) for column, cells in columns.items())
    return TableRows(
        TableHead(name, title, head.get("x") or "Step", head.get("legend", ""), described), columns, len(rows)
    )


def column_for(name: str, cells: list[Any]) -> Column:
    """Describe a column by its cells."""
    kinds = {type(cell) for cell in cells} - {type(None)}
    if list in kinds:
        return Column(name, "tensor", np.shape(next(cell for cell in cells if type(cell) is list)), plotted=False)
    if str in kinds:
        return Column(name, "text", plotted=False)
    if name in ("Epoch", "Step", "Trial", "Run", "Seed", "Epochs", "Steps") and kinds == {int}:
        return Column(name, "int", plotted=False)
    return Column(name, "int" if kinds == {int} else "float")


def _statistics(model: str, values: WatchedValues, key: Key, most_rows: int, most_bins: int) -> TableRows:
    places = np.array(values.places[key])
    places = places[:: _stride(len(places), most_rows)]
    binned = places[:: _stride(len(places), most_bins)]
    numbers = {name: values.column(name, places).tolist() for name in _NUMBERS}
    histograms = {int(place): values.histogram(place).tolist() for place in binned if values.has_histogram(place)}
    columns: dict[str, list[Any]] = {"Step": values.steps[places].tolist(), **numbers}
    heads = [Column("Step", "int", plotted=False)]
    heads += [Column(name, "int" if name in COUNTS else "float", plotted=name in _SHOWN) for name in numbers]
    if histograms:
        columns["histogram"] = [histograms.get(int(place)) for place in places]
        heads.append(Column("histogram", "tensor", (BINS,), plotted=False))
    layer = ".".join(filter(None, (model, key[0])))
    head = TableHead(f"{layer} {key[1]}", f"{layer} · {key[1]}", "Step", columns=tuple(heads))
    return TableRows(head, columns, len(places))


def _stride(count: int, most: int) -> int:
    """A power of two: what is shown stays where it is while more comes."""
    stride = 1
    while count > most * stride:
        stride *= 2
    return stride
