"""Reads the log of a run, of all its writers: tables by step and time, alerts, statistics, the network."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.archive.format.archive_folder import read_about
from torcheer.disk import loose_json
from torcheer.errors import NotAnArchive, TorcheerError
from torcheer.ranks import split_rank
from torcheer.runlog.log_frames import METRICS, ROWS, SYSTEM, decode_cell, decode_columns
from torcheer.runlog.log_rows import Rows, join_rows, last_numbers
from torcheer.runlog.log_stream import Held, LogFrame, LogStream, Place, writers_in
from torcheer.runlog.media.logged_samples import LoggedSample, LoggedSamples, read_samples
from torcheer.runlog.ranks.rank_board import RankBoard, merge_alerts
from torcheer.runlog.ranks.rank_facts import RankFacts
from torcheer.runlog.table_records import Column, TableHead, TableRows
from torcheer.runlog.training_tables import HEADS, WITHOUT_STEPS, Tables, shown_tables
from torcheer.runlog.watched_values import WatchedValues
from torcheer.samples import Account, Alert

Array = NDArray[Any]
LONG_BYTES: Final = 4 << 20  # of a log's indexes: reading all of them takes seconds
TRAIN: Final = "train"  # the trainer's name as a writer
_LEAST_FRAMES, _MOST_FRAMES = 128, 2048  # of a tail
_COUNTS: Final = ("offered", "handled", "lost", "damaged", "restarts")
_ALERT: Final = {field.name: {"str": str, "int": int}.get(str(field.type), dict) for field in fields(Alert)}
_LogTables = tuple[str, Tables, dict[str, dict[str, Any]]]  # the owner of a log, its rows and heads


class WriterLog:
    """Everything in a writer's log, without what a later opening of it has cut off.

    `path` is its archive. Opening it reads nothing; what is asked for is read then.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._stream = path, LogStream(Place.of(path))

    @cached_property
    def _frames(self) -> list[LogFrame]:
        return self._stream.read()

    @property
    def problems(self) -> list[str]:
        """Sentences about what was lost, as far as it was read."""
        assert self._frames is not None
        return self._stream.problems

    @property
    def sealed(self) -> bool:
        """Whether the writer ended cleanly."""
        assert self._frames is not None
        return self._stream.sealed

    def _parts(self, name: str) -> Iterator[tuple[Held, Any]]:
        """Yield a part of each frame that has it, with what holds of it."""
        return ((self._stream.held(frame), frame.about[name]) for frame in self._frames if name in frame.about)

    @cached_property
    def alerts(self) -> list[Alert]:
        """The alerts, in order."""
        return [alert for held, records in self._parts("alerts") for alert in read_alerts(records, held)]

    @cached_property
    def tables(self) -> Tables:
        """The rows of each table, in the order they were written."""
        parts: dict[str, list[Rows]] = {}
        for frame in self._frames:
            for table in frame.about.get("cleared", ()):
                parts.pop(table, None)
            for table in frame.tables:
                if (rows := frame.rows(table)) is not None:
                    parts.setdefault(table, []).append(self._stream.held(frame).rows(table, rows))
        return {table: join_rows(rows) for table, rows in parts.items()}

    def tail(self, count: int) -> Tables:
        """The last rows of the tables that were written to lately, read from the log's end; not all of it is read."""
        parts, cleared, held = dict[str, list[Rows]](), set[str](), Held()
        if not (self.path / "archive.json").is_file():
            return {}
        for number, frame in enumerate(self._stream.backwards()):
            for table in frame.tables:
                if table not in cleared and (rows := frame.rows(table)) is not None:
                    parts.setdefault(table, []).insert(0, held.rows(table, rows))
            cleared.update(frame.about.get("cleared", ()))
            held = held.before(frame.about.get("cut"))
            is_enough = number >= _LEAST_FRAMES and all(sum(map(len, rows)) >= count for rows in parts.values())
            if is_enough or number >= _MOST_FRAMES:
                break
        tables = {table: join_rows(rows) for table, rows in parts.items()}
        return {table: rows.take(np.arange(len(rows))[-count:]) for table, rows in tables.items() if len(rows)}

    def curves(self, names: Collection[str]) -> dict[str, tuple[Array, Array]] | None:
        """The numbers of columns of the metrics, with their steps; None where the log has other tables, too."""
        if any(not {METRICS, SYSTEM}.issuperset(frame.tables) for frame in self._frames):
            return None
        parts = list[Rows]()
        for frame in self._frames:
            if METRICS in frame.about.get("cleared", ()):
                parts = []
            if (rows := frame.rows(METRICS, names)) is not None:
                parts.append(self._stream.held(frame).rows(METRICS, rows))
        curves = {}
        if parts:
            rows = join_rows(parts)
            rows = rows.take(np.argsort(rows.steps, kind="stable"))
            for name, block in rows.cells.items():
                places = np.flatnonzero(block.present())
                curves[name] = rows.steps[places], block.take(places).as_floats()
        return curves

    def last_numbers(self) -> dict[str, dict[str, float]] | None:
        """The last number of each column by table, its step among them; None where it takes the tables to say."""
        last: dict[str, dict[str, float]] = {}
        for frame in reversed(self._frames):
            if frame.number > 1 and (frame.begins_opening or "cleared" in frame.about):
                return None
            for table in frame.tables:
                array = frame.array(ROWS, table, f"rows of {table}")
                if table not in (METRICS, SYSTEM) or array is None or frame.rows(table, ()) is None:
                    return None
                known = last.setdefault(table, {"Step": float(array[0, -1])})
                last[table] = last_numbers(frame.about["rows"][table], array) | known
        return last

    @cached_property
    def samples(self) -> list[LoggedSample]:
        """What people logged beside numbers, in the order it was written."""
        samples = ((frame, sample) for frame in self._frames for sample in read_samples(frame, self._stream.report))
        return [sample for frame, sample in samples if self._stream.held(frame).has(sample.step)]

    @property
    def heads(self) -> dict[str, dict[str, Any]]:
        """The title, axes and further facts of each table that was announced."""
        return {name: head for _, heads in self._parts("heads") for name, head in heads.items()}

    def rank_facts(self, rank: int) -> RankFacts:
        """What its last opening says of the process that wrote it, one of several."""
        records = [record for _, record in self._parts("rank")]
        return RankFacts.parse(records[-1] if records else None, rank)

    def compare_on(self, board: RankBoard, rank: int) -> None:
        """Give the times and the hashes in it to a board."""
        board.note_rank(self.rank_facts(rank))
        for frame in self._frames:
            board.note_frame(rank, frame)

    @property
    def network(self) -> dict[str, Any] | None:
        """The last network, as JSON."""
        return next((network for _, network in reversed([*self._parts("network")])), None)

    @property
    def account(self) -> Account | None:
        """How many values were written and dropped; None while the last writer is at work, or if it was killed."""
        last = [frame for frame in self._frames if frame.opening == self._frames[-1].opening]
        record = next((frame.about["account"] for frame in last if "account" in frame.about), None)
        try:
            dropped = {(entry[0], entry[1]): int(entry[2]) for entry in record["dropped"]} if record else {}
            account = Account(**{**record, "dropped": dropped}) if record else None
            counts = (
                [*(getattr(account, name) for name in _COUNTS), 0 if account.written is None else account.written]
                if account is not None
                else []
            )
            return account if {int}.issuperset(map(type, counts)) else None
        except (TypeError, LookupError, ValueError):
            return None

    @cached_property
    def values(self) -> WatchedValues:
        """The values with their statistics."""
        return WatchedValues((self._stream.held(frame), frame) for frame in self._frames)


def read_alerts(records: list[Any], held: Held) -> Iterator[Alert]:
    """Yield the alerts of a frame that still hold."""
    for record in decode_cell(records):
        try:
            alert = Alert(**{name: record[name] for name in _ALERT.keys() & record.keys()})
            is_whole = all(type(getattr(alert, name)) is kind for name, kind in _ALERT.items())
            if is_whole and held.has(alert.step):
                yield alert
        except (TypeError, AttributeError):  # half of a record
            continue


class RunLog:
    """What the writers of a run have logged so far. Opening it reads nothing; what is asked for is read then."""

    def __init__(self, run: Path) -> None:
        refuse_earlier(run)
        self.path = run
        self.logs = [(place, WriterLog(place.path)) for place in writers_in(run)]

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
        return _merged([(place.owner, log.tables, log.heads) for place, log in self.logs])

    def tail(self, count: int) -> dict[str, TableRows]:
        """The last rows of the tables that were written to lately: milliseconds, however long the log is."""
        try:
            tails: list[_LogTables] = [(place.owner, log.tail(count), {}) for place, log in self.logs]
        except TorcheerError:  # damaged near its end
            return self.tables()
        return _merged(tails)

    def curves(self, names: Collection[str]) -> dict[str, tuple[Array, Array]] | None:
        """Steps and numbers of columns of its metrics, without reading others; None where it takes the tables."""
        curves: dict[str, tuple[Array, Array]] = {}
        for place, log in self.logs:
            own = None if place.owner else log.curves(names)
            if own is None or own.keys() & curves.keys():
                return None
            curves |= own
        return curves

    def last_numbers(self) -> dict[str, dict[str, float]] | None:
        """The last number of each column by table of a run with metrics alone; None if it has more."""
        last: dict[str, dict[str, float]] = {}
        for place, log in self.logs:
            own = None if place.owner else log.last_numbers()
            if own is None or own.keys() & last.keys() or log.problems:
                return None
            last |= own
        return last

    @property
    def has_training(self) -> bool:
        """Whether training has a log here."""
        return any(place.path.name == TRAIN for place, _ in self.logs)


def _merged(logs: Iterable[_LogTables]) -> dict[str, TableRows]:
    """The tables of several logs, as people see them."""
    rows, heads = Tables(), dict(WITHOUT_STEPS)
    for owner, tables, announced in logs:
        heads |= announced
        for name, more in shown_tables(tables, tested_columns(announced)).items():
            if owner:
                more = more.renamed({cell: f"{owner} {cell}" for cell in more.cells})
            rows[name] = join_rows([rows[name], more]).sorted() if name in rows else more
    return {name: _table(name, heads.get(name, {}), table) for name, table in rows.items() if len(table)}


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


def _table(name: str, logged: Mapping[str, Any], rows: Rows) -> TableRows:
    head, count = head_of(name, logged), len(rows)
    columns: dict[str, list[Any]] = {"Step": rows.steps.tolist()} if logged.get("steps", True) else {}
    described = {"Step": column_for("Step", {int})} if columns else {}
    for column, block in rows.cells.items():
        if column not in columns:
            columns[column] = block.tolist(0, count)
            described[column] = column_for(column, block.types(), block.tensor_shape())
    described |= {column.name: column for column in head.columns if column.name in columns}
    head = replace(
        head, x=head.x if head.x in ("", *columns) else "Step", columns=tuple(described[name] for name in columns)
    )
    return TableRows(head, columns, count)


def column_for(name: str, types: Collection[type], shape: tuple[int, ...] = ()) -> Column:
    """Describe a column by the types of its cells; `shape` is that of tensors."""
    if list in types:
        return Column(name, "tensor", shape, plotted=False)
    if str in types:
        return Column(name, "text", plotted=False)
    if name in ("Epoch", "Step", "Batch", "Trial", "Run", "Seed", "Epochs", "Steps") and set(types) == {int}:
        return Column(name, "int", plotted=False)
    return Column(name, "int" if set(types) == {int} else "float", plotted=" rank " not in f" {name}")
