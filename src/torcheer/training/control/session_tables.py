"""The tables of a session that is looked at: epochs, steps, tests and runs, kept by its host."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.host.host import Host
from torcheer.runlog.kept_rows import line_of, rows_in
from torcheer.runlog.table_records import Column, TableHead
from torcheer.training.checkpoints.run_directory import replace_file, telling

if TYPE_CHECKING:
    from torcheer.training.loop.events import EpochDone, StepDone
    from torcheer.training.session import Session

ROW_SECS = 0.2  # at least, between two rows of train_step: a loss is waited for five times a second at most
ROWS = 2000  # after which they come less often, so that a run of days has some ten thousand
OF_A_RUN = ("train_epoch", "train_step", "test_trial", "test_epoch")


class Tables:
    """What is written down while a session trains; whoever looks on later finds all of it."""

    def __init__(self, host: Host, session: Session) -> None:
        self._host = host
        self._trials: list[Mapping[str, Any]] = []  # that were tested last
        self._waiting: tuple[StepDone, ...] = ()  # steps whose losses nobody has looked at yet
        self.begin(session)

    def begin(self, session: Session) -> None:
        """A session begins, or goes on: its epochs so far are there."""
        self._session, self._began, self._next_secs = session, time.monotonic(), 0.0
        self._waiting = ()
        tested = columns_of(session, lambda stage: stage.validation)
        every = columns_of(session, lambda stage: (*stage.training, *stage.validation))
        trained = list(dict.fromkeys(name for stage in session.stages for name in stage.training))
        for head in (
            _head("train_epoch", "Train epochs", "Epoch", ("Epoch",), every),
            _head("train_step", "Train steps", "Step", ("Step", "Epoch"), [loss_of(name, trained) for name in trained]),
            _head("test_epoch", "Test epochs", "Step", ("Step", "Epoch", "Trial"), tested),
            _head("test_trial", "Test trials", "Trial", ("Trial", "Epoch", "Step"), tested or every, ("Name",)),
        ):
            self._host.table(head)
        self._host.table(RUNS)
        for rows in session.rows:
            for row in rows:
                self._host.row("train_epoch", {"Epoch": row["epoch"], **_values(row)})
        with suppress(OSError):  # a full disk; training will say so where it matters
            self._trials = self._tested_before("test_trial")
            self._tested_before("test_epoch")
            if (ended := self._file("run")) is not None:
                ended.unlink(missing_ok=True)  # it goes on

    def clear(self) -> None:
        """Another run begins; those that were before it stay in the table of runs."""
        for name in OF_A_RUN:
            self._host.clear(name)

    def epoch(self, event: EpochDone) -> None:
        """A row for an epoch, and for its evaluation."""
        session, place = self._session, self._session.place
        self._host.row("train_epoch", {"Epoch": event.epoch, **event.values})
        stage = session.stages[min(place.stage, len(session.stages) - 1)]
        tested = {
            column: event.values[column] for column in _shown(session, stage.validation) if column in event.values
        }
        if tested:
            with suppress(OSError):  # as above
                self.test({"Step": place.step, "Epoch": event.epoch, "Trial": place.round, **tested})

    def begin_test(self) -> None:
        """The trials of the last test go."""
        self._trials = []
        self._host.clear("test_trial")

    def trial(self, row: Mapping[str, Any]) -> None:
        """A row for what was tested."""
        self._trials.append(row)
        self._host.row("test_trial", row)

    def end_test(self) -> None:
        """Its trials are kept in a file, too."""
        if (path := self._file("test_trial")) is not None:
            replace_file(path, b"".join(map(line_of, self._trials)))

    def test(self, row: Mapping[str, Any]) -> None:
        """A row for a test of everything, and in a file, in one go."""
        self._host.row("test_epoch", row)
        if (path := self._file("test_epoch")) is not None:
            with telling(path):
                path.parent.mkdir(exist_ok=True)
                with open(path, "ab", buffering=0) as file:
                    file.write(line_of(row))

    def _file(self, table: str) -> Path | None:
        directory = self._session.directory
        return None if directory is None else directory / "tests" / f"{table}.jsonl"

    def _tested_before(self, table: str) -> list[Mapping[str, Any]]:
        """What the session was tested for until here; what came later comes again."""
        path = self._file(table)
        if path is None or not path.is_file():
            return []
        rows: list[Mapping[str, Any]] = [row for row in rows_in(path) if self._was_before(table, row)]
        kept = b"".join(map(line_of, rows))
        if kept != path.read_bytes():
            replace_file(path, kept)
        for row in rows:
            self._host.row(table, row)
        return rows

    def _was_before(self, table: str, row: Mapping[str, Any]) -> bool:
        """Whether a test will not come again: a checkpoint of an epoch's last step is older than the epoch's row."""
        place = self._session.place
        if row.get("Step", 0) != place.step:
            return bool(row.get("Step", 0) < place.step)
        is_of_an_epoch = table == "test_epoch" and not row.get("Trial")
        return not is_of_an_epoch or bool(row.get("Epoch", 0) <= place.epoch)

    def steps_are_due(self, now: float) -> bool:
        """Whether it is time for a row of steps."""
        return now >= self._next_secs

    def steps(self, told: Iterable[StepDone], now: float) -> None:
        """A row of the steps before these, whose losses are long computed; these wait."""
        self.settle()
        self._waiting = tuple(told)
        self._next_secs = now + max(ROW_SECS, (now - self._began) / ROWS)

    def settle(self) -> None:
        """Write down the steps that wait."""
        waiting, self._waiting = self._waiting, ()
        if waiting:
            trained = list(dict.fromkeys(name for stage in self._session.stages for name in stage.training))
            losses = {loss_of(one.pipeline, trained): float(one.loss) for one in waiting}
            self._host.row("train_step", {"Step": waiting[-1].step, "Epoch": waiting[-1].epoch, **losses})

    def run(self, result: Mapping[str, Any]) -> None:
        """A row for a run that has ended."""
        self._host.row("run", _run_row(result))

    def end_run(self, result: Mapping[str, Any]) -> None:
        """The same for this one, and in a file."""
        self.run(result)
        if (path := self._file("run")) is not None:
            with suppress(OSError):  # as above
                replace_file(path, line_of(_run_row(result)))


def columns_of(session: Session, pipelines: Any) -> list[str]:
    """The columns of the pipelines of all stages, in the order of the CSV file."""
    names = [name for stage in session.stages for name in pipelines(stage)]
    return sorted(set(_shown(session, names)))


def _shown(session: Session, pipelines: Iterable[str]) -> list[str]:
    return [term.shown for name in pipelines for term, _ in session.lanes[name].meters()]


def loss_of(pipeline: str, trained: list[str]) -> str:
    """What the loss of a pipeline's step is called."""
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
    counted = tuple(Column(one, "int", plotted=False) for one in counts)
    named = tuple(Column(one, "text", plotted=False) for one in texts)
    return TableHead(name, title, x, columns=(*counted, *named, *(Column(one) for one in values)))


RUNS = _head("run", "Runs", "Run", ("Run", "Seed", "Epochs", "Steps"), ("Seconds",))
