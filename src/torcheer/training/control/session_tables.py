"""The tables of a session for its viewers: epochs, steps, tests and runs, in its log and kept by its host."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from torcheer.errors import TorcheerError
from torcheer.host.host import Host
from torcheer.runlog.table_records import Column, TableHead
from torcheer.runlog.training_tables import shown_tables, tables_at

if TYPE_CHECKING:
    from torcheer.runlog.training_tables import Tables
    from torcheer.training.loop.events import EpochDone, StepDone
    from torcheer.training.session import Session

ROW_SECS = 0.2  # at least, between two rows of train_step: a loss is read five times a second at most
ROWS = 2000  # then rows become rarer, so that a run of days has some ten thousand
RUN_TABLES = ("train_epoch", "train_step", "test_trial", "test_epoch", "changes")


class SessionTables:
    """Rows added while a session trains; a viewer that connects later receives all of them."""

    def __init__(self, host: Host, session: Session) -> None:
        self._host = host
        self._trials: list[Mapping[str, Any]] = []  # that are not in the log yet
        self._replaces = False  # whether they take the place of those there
        self._pending: tuple[StepDone, ...] = ()  # steps whose losses are not read yet
        self.begin(session)

    def begin(self, session: Session) -> None:
        """Start the tables of a new or resumed session, with its epochs so far."""
        self._session, self._began, self._next_secs = session, time.monotonic(), 0.0
        self._pending = ()
        tested_columns = columns_of(session, lambda stage: stage.validation)
        all_columns = columns_of(session, lambda stage: (*stage.training, *stage.validation))
        trained = list(dict.fromkeys(name for stage in session.stages for name in stage.training))
        losses = [loss_of(name, trained) for name in trained]
        for head in (
            _head("train_epoch", "Train epochs", "Epoch", ("Epoch",), all_columns),
            _head("train_step", "Train steps", "Step", ("Step", "Epoch", "Batch"), losses),
            _head("test_epoch", "Test epochs", "Step", ("Step", "Epoch", "Trial"), tested_columns),
            _head(
                "test_trial",
                "Test trials",
                "Trial",
                ("Trial", "Epoch", "Step"),
                tested_columns or all_columns,
                ("Name",),
            ),
        ):
            self._host.table(head)
        self._host.table(RUNS)
        for rows in session.rows:
            for row in rows:
                self._host.row("train_epoch", {"Epoch": row["epoch"], **_values(row)})
        for name, tests in self._logged().items() if session.has_begun else ():
            for test in tests:
                self._host.row(name, {"Step": test.step, **test.cells})

    def _logged(self) -> Tables:
        """The tests and step losses of the log up to the current position; later ones come again."""
        log, place = self._session.run_log, self._session.place
        if log is None:
            return {}
        tested = log.heads["train_epoch"]["tested"]
        shown = shown_tables(tables_at(log.tables(), place.step, place.epoch), tested)
        return {name: shown[name] for name in ("train_step", "test_trial", "test_epoch") if name in shown}

    def clear(self) -> None:
        """Clear the tables for another run; earlier runs stay in the table of runs."""
        for name in RUN_TABLES:
            self._host.clear(name)

    def add_epoch(self, event: EpochDone) -> None:
        """Add a row for an epoch, and one for its evaluation."""
        session, place = self._session, self._session.place
        self._host.row("train_epoch", {"Epoch": event.epoch, **event.values})
        stage = session.stages[min(place.stage, len(session.stages) - 1)]
        tested = {
            column: event.values[column] for column in session.columns_of(stage.validation) if column in event.values
        }
        if tested:
            self._host.row("test_epoch", {"Step": place.step, "Epoch": event.epoch, "Trial": place.round, **tested})

    def begin_test(self) -> None:
        """Clear the trials of the last test."""
        self._trials, self._replaces = [], True
        self._host.clear("test_trial")

    def add_trial(self, row: Mapping[str, Any]) -> None:
        """Add a row for a tested batch or item."""
        self._trials.append(row)
        self._host.row("test_trial", row)

    def end_test(self) -> None:
        """Log the trials, too; those of a test of everything in place of the last one's."""
        trials, self._trials = self._trials, []
        if self._session.run_log is not None:
            with self._session.run_log.writing() as log:
                if self._replaces:
                    log.clear("test_trial")
                for row in trials:
                    log.row("test_trial", row, row["Step"])
        self._replaces = False

    def add_test(self, row: Mapping[str, Any]) -> None:
        """Add a row for a complete test, also to the log."""
        self._host.row("test_epoch", row)
        if self._session.run_log is not None:
            self._session.run_log.add("test_epoch", row, row["Step"])

    def steps_are_due(self, now: float) -> bool:
        """Return whether a row of steps is due."""
        return now >= self._next_secs

    def add_steps(self, steps: Iterable[StepDone], now: float) -> None:
        """Add a row of the pending steps, whose losses are long computed; these become pending."""
        self.flush_steps()
        self._pending = tuple(steps)
        self._next_secs = now + max(ROW_SECS, (now - self._began) / ROWS)

    def flush_steps(self) -> None:
        """Add a row of the pending steps."""
        waiting, self._pending = self._pending, ()
        if waiting:
            trained = list(dict.fromkeys(name for stage in self._session.stages for name in stage.training))
            losses = {loss_of(step.pipeline, trained): float(step.loss) for step in waiting}
            last = waiting[-1]
            self._host.row("train_step", {"Step": last.step, "Epoch": last.epoch, "Batch": last.round, **losses})
            if self._session.run_log is not None:
                self._session.run_log.add_losses(waiting)

    def add_run(self, result: Mapping[str, Any]) -> None:
        """Add a row for a run that has ended."""
        self._host.row("run", _run_row(result))

    def end_run(self, result: Mapping[str, Any]) -> None:
        """Add the row of this run, also to the log."""
        self.add_run(result)
        if self._session.run_log is not None:
            with suppress(OSError, TorcheerError):  # a full disk; training reports it where it matters
                self._session.run_log.add("run", _run_row(result), result["steps"])


def columns_of(session: Session, pipelines: Any) -> list[str]:
    """Return the columns of the pipelines of all stages, in the order of the CSV file."""
    names = [name for stage in session.stages for name in pipelines(stage)]
    return sorted(set(session.columns_of(names)))


def loss_of(pipeline: str, trained: list[str]) -> str:
    """Return the column name of a pipeline's step loss."""
    return "loss" if len(trained) == 1 else f"{pipeline} loss"


def _values(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "epoch"}


def _run_row(result: Mapping[str, Any]) -> dict[str, Any]:
    values = result.get("values", {})
    columns = {column.name: result.get(column.name.lower()) for column in RUNS.columns}
    return {**columns, **(values if isinstance(values, dict) else {})}


def _head(
    name: str, title: str, x: str, counts: tuple[str, ...], values: Iterable[str], texts: tuple[str, ...] = ()
) -> TableHead:
    counted = tuple(Column(column, "int", plotted=False) for column in counts)
    named = tuple(Column(column, "text", plotted=False) for column in texts)
    return TableHead(name, title, x, columns=(*counted, *named, *(Column(column) for column in values)))


RUNS = _head("run", "Runs", "Run", ("Run", "Seed", "Epochs", "Steps"), ("Seconds",))
