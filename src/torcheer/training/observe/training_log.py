"""A session's log, `<run>/log/train`: rows of epochs and steps, tests, changes; CSV files are made from it.

Rows are in the log before they are in a file, and on disk before a checkpoint that counts them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from torcheer.errors import ArchiveDamaged, BadArgument, TorcheerError, reason_of
from torcheer.runlog.log_frames import EPOCHS, LOSSES, STEPS
from torcheer.runlog.log_reader import TRAIN, WriterLog
from torcheer.runlog.log_rows import join_rows
from torcheer.runlog.log_stream import Held
from torcheer.runlog.log_writer import LogWriter, begin_anew, log_folder
from torcheer.runlog.table_records import TableHead
from torcheer.runlog.training_tables import HEADS, WITHOUT_STEPS, Tables, stages_of, step_losses
from torcheer.samples import Alert
from torcheer.training.checkpoints.earlier_runs import earlier_results
from torcheer.training.loop.events import StepDone
from torcheer.training.observe.metric_csv import EpochTables, StepTable, csv_tables

_RECENT: Final = 1000  # losses that a run that goes on knows of those before
_PENDING: Final = 256  # steps whose losses are not read yet, at most
_CELLS: Final = (bool, int, float, str, type(None))

Rows = Sequence[Mapping[str, Any]]
Stages = Sequence[Rows]


class TrainingLog:
    """The log of a run directory's sessions; open for writing while the directory is locked."""

    def __init__(self, directory: Path, *, steps_csv: int = 0) -> None:
        self.directory, self._steps_every = directory, steps_csv
        self.problems: list[str] = []  # what was damaged when it was opened
        self.heads: dict[str, dict[str, Any]] = {}  # facts about tables, such as the columns of an evaluation
        self._announced: dict[str, TableHead] = {}
        self._writer: LogWriter | None = None
        self._counts: dict[int, int] = {}  # rows of epochs in the log, by stage
        self._epoch_csv = EpochTables(directory / "metrics")
        self._step_csv = StepTable(directory / "metrics" / "steps.csv")
        self._pending: list[StepDone] = []
        self._unwritten: list[Sequence[Any]] = []  # rows of steps that are in the log, not yet in the file
        self._losses: list[StepDone] = []  # looked at, not read yet
        self._last_step = self._last_loss = 0

    @property
    def _path(self) -> Path:
        return log_folder(self.directory, TRAIN)

    # -- reading -----------------------------------------------------------------------------------------------------

    def tables(self) -> Tables:
        """The rows that the log holds, and what damage has taken of it, from the CSV files."""
        log = WriterLog(self._path)
        return _joined(log.tables, self._lost(log) if log.problems else {})

    def tail(self, count: int) -> Tables:
        """The last rows of the tables that were written to lately; empty if that end of the log is damaged."""
        try:
            return WriterLog(self._path).tail(count)
        except TorcheerError:  # damaged near its end
            return {}

    def last_losses(self, step: int) -> dict[str, list[float]]:
        """The losses of each pipeline that the log has up to a step, oldest first; about the last thousand."""
        tables, losses = _at(self.tail(_RECENT), step, 0), dict[str, dict[int, float]]()
        for number, _, pipeline, loss in (*step_losses(tables), *step_losses(tables, LOSSES)):
            if isinstance(loss, float):
                losses.setdefault(pipeline, {})[number] = loss
        return {pipeline: [known[number] for number in sorted(known)] for pipeline, known in losses.items()}

    def alerts(self) -> list[Alert]:
        """The session's alerts that the log holds."""
        return WriterLog(self._path).alerts if (self._path / "archive.json").is_file() else []

    def rows_at(self, place: Mapping[str, Any], counts: Sequence[int]) -> list[list[dict[str, Any]]]:
        """The rows of epochs of a checkpoint that counts them; from the CSV files where the log has lost them."""
        for tables in (self.tables(), csv_tables(self.directory)):
            stages = stages_of(_at(tables, place["step"], place["epoch"]))
            if [len(stages.get(stage, ())) for stage in range(len(counts))] == list(counts):
                return [stages.get(stage, []) for stage in range(len(counts))]
        raise ArchiveDamaged(f"{self._path} has not the rows of its {place['epoch']} epochs, nor have the CSV files")

    # -- beginning and ending ----------------------------------------------------------------------------------------

    def begin(self, place: Mapping[str, Any], stages: Stages) -> None:
        """Go on from a place with these rows of epochs: what came after it is cut off, here and in the files."""
        log = WriterLog(self._path)
        lost = _at(self._lost(log), place["step"], place["epoch"])
        before = _joined(log.tables, lost)
        held = _at(before, place["step"], place["epoch"])
        if not log.problems and (count := sum(map(len, lost.values()))):
            text = f"the log in {self._path} was cut: of the rows that it lost, {count} come from the CSV files"
            self.problems.append(text)
        writer = self._open()
        writer.cut(step=place["step"], epoch=place["epoch"])
        self._write_heads(writer)
        for name, rows in lost.items():
            for row in rows:
                writer.row(name, row.cells, row.step)
        runs = [dict(result) for result in earlier_results(self.directory)]
        if "run" in before or runs:
            self._replace(writer, "run", [(0, _run_row(result)) for result in runs])
        self._pending, self._unwritten, self._losses = [], [], []
        self._counts = {
            stage: len(rows) if _same(rows, stages[stage : stage + 1]) else -1
            for stage, rows in stages_of(held).items()
        }
        self._log_epochs(writer, stages, place["step"])
        writer.sync()
        steps = step_losses(held)
        self._last_step = steps[-1][0] if steps else 0
        losses = step_losses(held, LOSSES)
        self._last_loss = losses[-1][0] if losses else 0
        self._epoch_csv.rewrite(stages)
        self._step_csv.rewrite(steps)

    def _lost(self, log: WriterLog) -> Tables:
        """The rows that a damaged log has lost and the CSV files still have; those of epochs are in the checkpoint.

        One that was not ended may have been cut where a frame ends, and then seems intact.
        """
        tables = log.tables  # reading them finds what was damaged
        if log.sealed and not log.problems:
            return {}
        files = {name: rows for name, rows in csv_tables(self.directory).items() if not name.startswith(EPOCHS)}
        known: dict[str, Any] = {name: tables[name].steps if name in tables else [] for name in files}
        return {name: rows.take(~np.isin(rows.steps, known[name])) for name, rows in files.items()}

    def begin_anew(self) -> None:
        """Begin a run from its first step: nothing that was written here before holds."""
        begin_anew(self._open())

    def announce(self, heads: Iterable[TableHead]) -> None:
        """Log what tables will have, for pages; at once, or when the log begins."""
        self._announced = {head.name: head for head in heads}
        if self._writer is not None:
            self._write_heads(self._writer)

    def _write_heads(self, writer: LogWriter) -> None:
        usual = {name: TableHead(name, HEADS[name]["title"], HEADS[name]["x"]) for name in WITHOUT_STEPS}
        for name, head in (usual | self._announced).items():
            writer.head(head, **WITHOUT_STEPS.get(name, {}), **self.heads.get(name, {}))

    def _open(self) -> LogWriter:
        if self._writer is not None and not self._writer.in_place:  # somebody has removed or moved it
            with suppress(OSError, TorcheerError):
                self.close()
        if self._writer is None:
            self._writer, self._counts = LogWriter(self.directory, TRAIN, tell=None), {}
            self.problems += filter(None, [self._writer.damage])
            self._writer.cut()
            self._writer.commit_in_background()
        return self._writer

    @contextmanager
    def noting_end(self, reason: Callable[[], str]) -> Iterator[None]:
        """Log how training ends: `reason` is why it was asked to stop, if it was."""
        try:
            yield
        except (GeneratorExit, KeyboardInterrupt) as error:
            self._end("done", reason() or (reason_of(error) if isinstance(error, KeyboardInterrupt) else ""))
            raise
        except BaseException as error:
            self._end("failed", reason_of(error))
            raise
        self._end("done", reason())

    def _end(self, status: str, why: str) -> None:
        with suppress(OSError, TorcheerError):  # a full disk; a checkpoint has reported it
            if self._writer is not None:
                self._writer.end(status, why)

    def close(self) -> None:
        """Write what is pending, and close the log."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    # -- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[LogWriter]:
        """Yield the open log, and commit what was added; opened just for that where no session is running."""
        is_open = self._writer is not None
        writer = self._open()
        try:
            yield writer
            writer.commit()
        finally:
            if not is_open:
                self.close()

    def add_all(self, place: Mapping[str, Any], stages: Stages, *, waits: bool = True) -> None:
        """Have all steps and epochs up to a place in the log, and on disk too where it waits, before a checkpoint."""
        if self._writer is None or not self._writer.in_place:
            self.begin(place, stages)
        self.flush_steps()
        self.add_epochs(stages, place["step"])
        if waits:
            self.sync()

    def sync(self) -> None:
        """Wait until the disk has all that the log has; from any thread."""
        writer = self._writer
        if writer is not None:
            writer.sync()

    def add_epochs(self, stages: Stages, step: int) -> None:
        """Add the rows of epochs that are new, also to their files."""
        with self.writing() as writer:
            self._flush_losses(writer)
            self._log_epochs(writer, stages, step)
        self._epoch_csv.write(stages)

    def _log_epochs(self, writer: LogWriter, stages: Stages, step: int) -> None:
        for stage, rows in enumerate(stages):
            count = self._counts.get(stage, 0)
            if not 0 <= count <= len(rows):  # other rows than these
                writer.clear(f"{EPOCHS}{stage}")
                count = 0
            for number, row in enumerate(rows[count:], count):
                _check(row, f"rows.{stage}.{number}")
                writer.row(f"{EPOCHS}{stage}", row, step, wakes=False)
            self._counts[stage] = len(rows)

    def add_steps(self, steps: Iterable[StepDone]) -> None:
        """Add every n-th step; of several batches with the same step number, the first."""
        for event in steps:
            if event.step != self._last_step and not event.step % self._steps_every:
                self._last_step = event.step
                self._pending.append(event)
                if len(self._pending) + len(self._unwritten) >= _PENDING:
                    self.flush_steps()

    def flush_steps(self) -> None:
        """Read the losses of pending steps; write them to log and file."""
        if self._pending or self._unwritten:
            with self.writing() as writer:
                self._log_pending(writer, math.inf)
            self._step_csv.write(self._unwritten)
            self._unwritten = []

    def _log_pending(self, writer: LogWriter, last: float) -> None:
        """Log the pending steps up to this one."""
        due = [event for event in self._pending if event.step <= last]
        self._pending = [event for event in self._pending if event.step > last]
        for event in due:
            loss = float(event.loss)
            writer.row(f"{STEPS}{event.pipeline}", _step_cells(event, loss), event.step)
            self._unwritten.append((event.step, event.epoch, event.pipeline, loss))

    def show_steps(self, steps: Sequence[StepDone]) -> None:
        """Log the losses of steps that were computed a while ago, for a page; every n-th is there anyway."""
        if self._writer is not None:
            self._log_pending(self._writer, steps[-1].step)
            self._losses += self._looked_at(steps)
            self._flush_losses(self._writer)

    def add_losses(self, steps: Iterable[StepDone]) -> None:
        """Log the losses of steps that a page or a watch looks at; read with the next."""
        if self._writer is not None:
            self._flush_losses(self._writer)
            self._losses = self._looked_at(steps)

    def _looked_at(self, steps: Iterable[StepDone]) -> list[StepDone]:
        """The steps whose losses are not logged yet, nor will be for the CSV file."""
        every = self._steps_every
        return [event for event in steps if event.step > self._last_loss and not (every and event.step % every == 0)]

    def _flush_losses(self, writer: LogWriter) -> None:
        losses, self._losses = self._losses, []
        for event in losses:
            self._last_loss = max(self._last_loss, event.step)
            writer.row(f"{LOSSES}{event.pipeline}", _step_cells(event, float(event.loss)), event.step)

    def add(self, table: str, row: Mapping[str, Any], step: int) -> None:
        """Add a row of a test, a run's result."""
        with self.writing() as writer:
            writer.row(table, row, step)

    def replace(self, table: str, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """Replace all rows of a table by these, each with its step; they are on disk then."""
        with self.writing() as writer:
            self._replace(writer, table, rows)
            writer.sync()

    def _replace(self, writer: LogWriter, table: str, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        writer.clear(table)
        for step, row in rows:
            writer.row(table, row, step)

    def add_network(self, network: Mapping[str, Any]) -> None:
        """Add the network, as JSON."""
        with self.writing() as writer:
            writer.network(network)

    def add_alert(self, alert: Alert) -> Alert:
        """Add an alert of the session; return it with its id."""
        with self.writing() as writer:
            return writer.alert(alert)


def _at(tables: Tables, step: int, epoch: int) -> Tables:
    """The rows that hold for a run that goes on from this step and epoch."""
    return {name: Held(step, epoch).rows(name, rows) for name, rows in tables.items()}


def _joined(tables: Tables, more: Tables) -> Tables:
    """Rows of both, by step."""
    joined = dict(tables)
    for name, rows in more.items():
        if len(rows):
            both = join_rows([tables[name], rows]) if name in tables else rows
            joined[name] = both.take(np.argsort(both.steps, kind="stable"))
    return joined


def _step_cells(event: StepDone, loss: float) -> dict[str, Any]:
    """The cells of a step; epoch and batch say which samples it had."""
    return {"epoch": event.epoch, "batch": event.round, "loss": loss}


def _run_row(result: Mapping[str, Any]) -> dict[str, Any]:
    values = result.get("values", {})
    row = {key.capitalize(): value for key, value in result.items() if key != "values"}
    return row | (values if isinstance(values, dict) else {})


def _same(logged: Rows, stage: Stages) -> bool:
    """Whether logged rows are the first of a stage; NaN equals NaN."""
    rows = stage[0][: len(logged)] if stage else ()
    return len(rows) == len(logged) and all(
        repr(sorted(old.items())) == repr(sorted(row.items())) for old, row in zip(logged, rows)
    )


def _check(row: Mapping[str, Any], where: str) -> None:
    for column, cell in row.items():
        if not isinstance(cell, _CELLS):
            kind = type(cell)
            raise BadArgument(f"{where}.{column} is a {kind.__module__}.{kind.__qualname__}, and a row holds numbers")
