"""The tables of a session for its viewers: epochs, steps, tests and runs, all of them in its log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from torcheer.control.parameter_form import CHANGES
from torcheer.errors import TorcheerError
from torcheer.host.host import Host
from torcheer.runlog.table_records import Column, TableHead
from torcheer.training.observe.training_log import TrainingLog

if TYPE_CHECKING:
    from torcheer.runlog.log_writer import LogWriter
    from torcheer.training.loop.events import EpochDone, StepDone
    from torcheer.training.session import Session

ROW_SECS = 0.2  # at least, between two rows of train_step: a loss is read five times a second at most
ROWS = 2000  # then rows become rarer, so that a run of days has some ten thousand


class SessionTables:
    """Says what the tables of a session have, and logs what the session itself does not.

    A session without a directory has its log in the host's folder.
    """

    def __init__(self, host: Host, session: Session) -> None:
        self._host = host
        self._pending: tuple[StepDone, ...] = ()  # steps whose losses are not read yet
        self.begin(session)

    def begin(self, session: Session) -> None:
        """Start the tables of a new or resumed session."""
        self._session, self._began, self._next_secs = session, time.monotonic(), 0.0
        self._pending = ()
        self._log = self._open_log(session)
        tested_columns = columns_of(session, lambda stage: stage.validation)
        all_columns = columns_of(session, lambda stage: (*stage.training, *stage.validation))
        trained = list(dict.fromkeys(name for stage in session.stages for name in stage.training))
        losses = [loss_of(name, trained) for name in trained]
        batches = tested_columns or all_columns
        self._log.announce([
            _head("train_epoch", "Train epochs", "Epoch", ("Epoch",), all_columns),
            _head("train_step", "Train steps", "Step", ("Step", "Epoch", "Batch"), losses),
            _head("test_epoch", "Test epochs", "Step", ("Step", "Epoch", "Batch"), tested_columns),
            _head("test_trial", "Test batches", "Batch", ("Batch", "Epoch", "Step"), batches, ("Name",)),
            _head(*CHANGES, "Step", ("Step", "Epoch"), (), ("name", "before", "after")),
            RUNS,
        ])  # fmt: skip

    def _open_log(self, session: Session) -> TrainingLog:
        if session.run_log is not None:
            return session.run_log
        assert self._host.path is not None
        log = TrainingLog(self._host.path.parent)
        tested = {str(number): session.columns_of(stage.validation) for number, stage in enumerate(session.stages)}
        log.heads = {"train_epoch": {"tested": tested}}
        log.begin(asdict(session.place), session.rows)
        return log

    @property
    def _is_own(self) -> bool:
        return self._session.run_log is None

    def add_epoch(self, event: EpochDone) -> None:
        """Add the rows of epochs, unless the session does it."""
        if self._is_own:
            self._log.add_epochs(self._session.rows, self._session.place.step)

    @contextmanager
    def test(self, *, is_new: bool) -> Iterator[LogWriter]:
        """Yield the log for the batches of a test; a new one replaces those of the last."""
        with self._log.writing() as log:
            if is_new:
                log.clear("test_trial")
            yield log

    def add_test(self, row: Mapping[str, Any]) -> None:
        """Add a row for a complete test."""
        self._log.add("test_epoch", row, row["Step"])

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
            self._log.show_steps(waiting)

    def end_run(self, result: Mapping[str, Any]) -> None:
        """Add the row of this run."""
        with suppress(OSError, TorcheerError):  # a full disk; training reports it where it matters
            self._log.add("run", _run_row(result), result["steps"])

    def close(self) -> None:
        """Close the log, unless it is the session's."""
        if self._is_own:
            self._log.close()


def columns_of(session: Session, pipelines: Any) -> list[str]:
    """Return the columns of the pipelines of all stages, in the order of the CSV file."""
    names = [name for stage in session.stages for name in pipelines(stage)]
    return list(dict.fromkeys(session.columns_of(names)))


def loss_of(pipeline: str, trained: list[str]) -> str:
    """Return the column name of a pipeline's step loss."""
    return "loss" if len(trained) == 1 else f"{pipeline} loss"


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
