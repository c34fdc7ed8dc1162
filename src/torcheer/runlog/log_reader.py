"""Reads the log of a run, of all its writers: tables by step and time, alerts, the network."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from torcheer.archive.format.archive_folder import read_about
from torcheer.disk import loose_json
from torcheer.errors import NotAnArchive, TorcheerError
from torcheer.ranks import split_rank
from torcheer.runlog.log_frames import decode_columns
from torcheer.runlog.log_openings import Row
from torcheer.runlog.media.logged_samples import LoggedSamples
from torcheer.runlog.ranks.rank_board import RankBoard, merge_alerts
from torcheer.runlog.table_records import Column, TableHead, TableRows
from torcheer.runlog.training_tables import HEADS, WITHOUT_STEPS, Tables, shown_tables
from torcheer.runlog.volume.log_chunks import archives_of, is_chunk
from torcheer.runlog.writer_log import WriterLog
from torcheer.samples import Alert

LONG_BYTES: Final = 4 << 20  # of a log's indexes: reading all of them takes seconds
TRAIN: Final = "train"  # the trainer's name as a writer


_LogTables = tuple[str, Tables, dict[str, dict[str, Any]]]  # the owner of a log, its rows and heads


class Place(NamedTuple):
    """Where a writer's log lies."""

    path: Path  # its archive
    model: str  # of several watched models, the one whose log it is
    rank: int = 0  # of several processes, the one that wrote it

    @property
    def owner(self) -> str:
        """Before the names of its columns, where there are several models or ranks; else ""."""
        return " ".join(filter(None, (self.model, f"rank {self.rank}" if self.rank else "")))

    @property
    def archives(self) -> list[Path]:
        """The folders of its own archives, oldest first; several where it has a budget."""
        return archives_of(self.path)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Differs once other files have taken the place of these."""
        status = (self.path / "archive.json").stat()
        return status.st_ino, status.st_mtime_ns

    def open(self) -> WriterLog:
        """Open it for reading."""
        return WriterLog(self.path)


class RunLog:
    """What the writers of a run have logged so far. Opening it reads nothing; what is asked for is read then."""

    def __init__(self, run: Path) -> None:
        refuse_earlier(run)
        self.path, self._places = run, list(writers_in(run))
        self.logs = [(place, place.open()) for place in self._places]

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
            (place.rank, replace(alert, layer=".".join(filter(None, (place.model, alert.layer)))))
            for place, log in self.logs
            for alert in log.alerts
        ]
        return sorted([*merge_alerts(alerts), *self._rank_alerts()], key=lambda alert: alert.step)

    def _rank_alerts(self) -> Iterator[Alert]:
        """Yield what the logs of several ranks say together."""
        boards: dict[str, RankBoard] = {}
        if any(place.rank for place, _ in self.logs):
            for place, log in self.logs:
                log.compare_on(boards.setdefault(split_rank(place.path.name)[0], RankBoard()), place.rank)
        for board in boards.values():
            yield from board.alerts()

    @property
    def samples(self) -> LoggedSamples:
        """What people logged beside numbers, by step."""
        samples = (sample for _, log in self.logs for sample in log.samples)
        return LoggedSamples(sorted(samples, key=lambda sample: sample.step))

    def tables(self) -> dict[str, TableRows]:
        """The tables of rows."""
        return self._merged([(place.owner, log.tables, log.heads) for place, log in self.logs])

    def tail(self, count: int) -> dict[str, TableRows]:
        """The last rows of the tables that were written to lately: milliseconds, however long the log is."""
        try:
            tails: list[_LogTables] = [(place.owner, log.tail(count), {}) for place, log in self.logs]
        except TorcheerError:  # damaged near its end
            return self.tables()
        return self._merged(tails)

    @property
    def may_have_samples(self) -> bool:
        """False if nobody logged a sample: a search for the word in what was written, without reading that."""
        return any(log.mentions(b'"samples":[') for _, log in self.logs)

    def _merged(self, logs: Iterable[_LogTables]) -> dict[str, TableRows]:
        rows, heads = Tables(), dict(WITHOUT_STEPS)
        for owner, tables, announced in logs:
            heads |= announced
            for name, more in shown_tables(tables, tested_columns(announced)).items():
                if owner:
                    more = [
                        row._replace(cells={f"{owner} {cell}": row.cells[cell] for cell in row.cells}) for row in more
                    ]
                rows[name] = sorted([*rows[name], *more], key=lambda row: row[:2]) if name in rows else more
        return {name: _table(name, heads.get(name, {}), table) for name, table in rows.items() if table}

    @property
    def has_training(self) -> bool:
        """Whether training has a log here."""
        return any(place.path.name == TRAIN for place in self._places)


def writers_in(run: Path) -> Iterator[Place]:
    """Yield where the logs of a run lie."""
    for file in sorted(run.glob("log/*/archive.json")):
        path = file.parent
        if not is_chunk(path):
            name, rank = split_rank(path.name)
            yield Place(path, name.removeprefix("watch-") if name.startswith("watch-") else "", rank)


def refuse_earlier(folder: Path) -> None:
    """Raise for what torcheer 0.1 left: a run or a watch without a log."""
    if version := _earlier_version(folder):
        raise NotAnArchive(f"{folder} is of torcheer {version}, whose logs later versions do not read")


def _earlier_version(folder: Path) -> str:
    if (folder / "log").exists():
        return ""
    run = loose_json(folder / "run.json") if (folder / "run.json").is_file() else {}
    version = str(run.get("versions", {}).get("torcheer", "")) if isinstance(run, dict) else ""
    has_watch = (folder / "samples/archive.json").is_file() and read_about(folder / "samples").get("kind") == "watch"
    return version if version.startswith("0.1.") else "0.1" * has_watch


def is_long(run: Path) -> bool:
    """Whether a run's log is so long that its last rows should be shown before all of it is read."""
    return sum(file.stat().st_size for file in run.glob("log/*/*.index")) > LONG_BYTES


def has_log(run: Path) -> bool:
    """Whether a folder has a log of its own, or what was there before logs: reading it says that."""
    return any(run.glob("log/*/archive.json")) or _earlier_version(run) != ""


def tested_columns(heads: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """The columns of an epoch's evaluation, by stage."""
    tested = heads.get("train_epoch", {}).get("tested", {})
    return tested if isinstance(tested, dict) and all(isinstance(names, list) for names in tested.values()) else {}


def head_of(name: str, logged: Mapping[str, Any]) -> TableHead:
    """A table's title, axes and columns, as they were logged or are usual."""
    is_whole = "columns" in logged  # then an empty x is meant: it counts the rows
    head = HEADS.get(name, {}) | {fact: text for fact, text in logged.items() if text != "" or is_whole}
    title, columns = head.get("title") or name.replace("_", " "), decode_columns(logged)
    return TableHead(name, title, head.get("x", "Step"), head.get("legend", ""), columns)


def head_for(name: str, cells: Mapping[str, Any]) -> TableHead:
    """The head of a table that nobody has announced, by its first row."""
    x = next((column for column in ("Epoch", "Step", "Trial", "epoch", "step") if column in cells), "")
    return TableHead(name, HEADS.get(name, {}).get("title") or name.replace("_", " "), x)


def _table(name: str, logged: Mapping[str, Any], rows: list[Row]) -> TableRows:
    head = head_of(name, logged)
    names = dict.fromkeys(column for row in rows for column in row.cells)
    columns: dict[str, list[Any]] = {"Step": [row.step for row in rows]} if logged.get("steps", True) else {}
    columns |= {column: [row.cells.get(column) for row in rows] for column in names if column not in columns}
    announced = {column.name: column for column in head.columns}
    described = tuple(announced.get(column) or _described(column, cells) for column, cells in columns.items())
    head = replace(head, x=head.x if head.x in ("", *columns) else "Step", columns=described)
    return TableRows(head, columns, len(rows))


def _described(name: str, cells: list[Any]) -> Column:
    shape = np.shape(next((cell for cell in cells if type(cell) is list), ()))
    return column_for(name, {type(cell) for cell in cells} - {type(None)}, shape)


def column_for(name: str, types: Collection[type], shape: tuple[int, ...] = ()) -> Column:
    """Describe a column by the types of its cells; `shape` is that of tensors."""
    if list in types:
        return Column(name, "tensor", shape, plotted=False)
    if str in types:
        return Column(name, "text", plotted=False)
    if name in ("Epoch", "Step", "Batch", "Trial", "Run", "Seed", "Epochs", "Steps") and set(types) == {int}:
        return Column(name, "int", plotted=False)
    return Column(name, "int" if set(types) == {int} else "float", plotted=" rank " not in f" {name}")
