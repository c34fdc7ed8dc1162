"""The tables of a session that is looked at: epochs, steps, tests and runs, kept by its host."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torcheer.host import Host
from torcheer.host.records import Column, TableHead

if TYPE_CHECKING:
    from torcheer.training.events import EpochDone, StepDone
    from torcheer.training.session import Session

ROW_SECS = 0.2  # at least, between two rows of train_step: a loss is waited for five times a second at most
ROWS = 2000  # after which they come less often, so that a run of days has some ten thousand
OF_A_RUN = ("train_epoch", "train_step", "test_trial", "test_epoch")


class Tables:
    """What is written down while a session trains; whoever looks on later finds all of it."""

    def __init__(self, host: Host, session: Session) -> None:
        self._host = host
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
            _head("test_epoch", "Test epochs", "Step", ("Step", "Epoch"), tested),
            _head("test_trial", "Test trials", "Trial", ("Trial", "Epoch", "Step"), tested or every, ("Name",)),
        ):
            self._host.table(head)
        self._host.table(RUNS)
        for rows in session.rows:
            for row in rows:
                self._host.row("train_epoch", {"Epoch": row["epoch"], **_values(row)})

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
            self._host.row("test_epoch", {"Step": place.step, "Epoch": event.epoch, **tested})

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
        values = result.get("values", {})
        columns = {column.name: result.get(column.name.lower()) for column in RUNS.columns}
        self._host.row("run", {**columns, **(values if isinstance(values, dict) else {})})


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


def _head(
    name: str, title: str, x: str, counts: tuple[str, ...], values: Iterable[str], texts: tuple[str, ...] = ()
) -> TableHead:
    counted = tuple(Column(one, "int", plotted=False) for one in counts)
    named = tuple(Column(one, "text", plotted=False) for one in texts)
    return TableHead(name, title, x, columns=(*counted, *named, *(Column(one) for one in values)))


RUNS = _head("run", "Runs", "Run", ("Run", "Seed", "Epochs", "Steps"), ("Seconds",))
