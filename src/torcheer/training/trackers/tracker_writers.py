"""Write metrics to TensorBoard, W&B and MLflow, besides the CSV files, where the options name them.

A writer that fails is reported once and disabled; training goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from torcheer.errors import BadArgument
from torcheer.training.loop.events import Alert, CheckpointSaved, EpochDone, Event, Events, StepDone
from torcheer.training.trackers.tracker_kinds import WRITERS, TrackerWriter, check_writer

if TYPE_CHECKING:
    from torcheer.training.session import Session

MAX_PENDING = 256  # losses not yet read: reading each would make training wait for the device


def check_writers(session: Session) -> None:
    """Raise for an unknown or unavailable writer before anything is trained."""
    for name in session.options.writers:
        check_writer(name, WRITERS)
        if session.directory is None:
            raise BadArgument(f"the writer {name!r} needs a directory to write to: Session(…, to=…)")


def write_metrics(session: Session, events: Events) -> Events:
    """Yield the same events; write their metrics to the session's writers."""
    if not session.options.writers:
        return events
    check_writers(session)
    return _write_metrics(session, events)


def _write_metrics(session: Session, events: Events) -> Events:
    writers: dict[str, TrackerWriter] | None = None
    numbers = _EventValues(session)
    try:
        for event in events:
            yield event
            if writers is None:  # the session is restored now
                writers = {}
                yield from _open(session, writers)
            for values, step in numbers.values_in(event):
                yield from _write(writers, values, step)
    finally:
        for values, step in numbers.flush():
            list(_write(writers or {}, values, step))
        for writer in (writers or {}).values():
            writer.close()


def _open(session: Session, writers: dict[str, TrackerWriter]) -> Iterator[Alert]:
    for name in session.options.writers:
        try:
            writers[name] = WRITERS[name][1](session.directory, session.place.step)
        except Exception as error:  # a third-party package may raise anything
            yield _alert(name, error)


def _write(writers: dict[str, TrackerWriter], values: Mapping[str, float], step: int) -> Iterator[Alert]:
    for name, writer in list(writers.items()):
        try:
            writer.write(values, step)
        except Exception as error:
            del writers[name]
            yield _alert(name, error)


def _alert(name: str, error: Exception) -> Alert:
    reason = f"{type(error).__name__}: {error}".rstrip(": ")
    return Alert(f"{name} is left out from here on, training goes on without it: {reason}")


class _EventValues:
    """Metrics of events: an epoch's columns, and every n-th step's loss, read later in one go."""

    def __init__(self, session: Session) -> None:
        self._session, self._every = session, session.options.steps_csv
        self._pending: list[tuple[int, str, Any]] = []
        self._last = session.place.step

    def values_in(self, event: Event) -> Iterator[tuple[Mapping[str, float], int]]:
        if type(event) is StepDone:
            if self._every and event.step != self._last and event.step % self._every == 0:
                self._last = event.step
                self._pending.append((event.step, f"steps/{event.pipeline} loss", event.loss))
                if len(self._pending) >= MAX_PENDING:
                    yield from self.flush()
        elif isinstance(event, EpochDone | CheckpointSaved):
            yield from self.flush()
            if isinstance(event, EpochDone):
                yield {**event.values, "epoch": event.epoch}, self._session.place.step

    def flush(self) -> Iterator[tuple[Mapping[str, float], int]]:
        """Yield the pending losses, read in one synchronization with the device."""
        if self._pending:
            losses = torch.stack([loss.reshape(()).float() for _, _, loss in self._pending]).tolist()
            values = [({name: loss}, step) for (step, name, _), loss in zip(self._pending, losses)]
            self._pending.clear()
            yield from values
