"""Notify of a session's alerts, its crash and its end, as its options say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.samples import Alert as AlertRecord
from torcheer.training.loop.events import Alert, CheckpointSaved, Events, Stopped
from torcheer.wire.notify.notifier import Notifier
from torcheer.wire.notify.notify_targets import Target, parse_notify

if TYPE_CHECKING:
    from torcheer.training.session import Session


def notify_of_events(session: Session, events: Events) -> Events:
    """Yield the same events, and the alerts that a target could not be reached."""
    targets = parse_notify(session.options.notify)
    return _notify(session, events, targets) if targets else events


def _notify(session: Session, events: Events, targets: tuple[Target, ...]) -> Events:
    problems: list[str] = []
    notifier, stopped = Notifier((), title="", to=None, tell=problems.append), ""
    try:
        for event in events:
            # Not before training begins: `torcheer init` leaves after its checkpoint.
            if not notifier.is_open and type(event) is not CheckpointSaved:
                notifier = Notifier(targets, title=_title(session), to=session.directory, tell=problems.append)
            if type(event) is Alert:
                notifier.alert(event.record or _note(event.message, session.place.step))
            elif type(event) is Stopped:
                stopped = f"It stopped: {event.reason}."
            yield event
            while problems:
                yield Alert(problems.pop(0))
    except BaseException as error:
        notifier.close(_where(session), None if isinstance(error, GeneratorExit) else error)
        raise
    notifier.close(f"{stopped} {_where(session)}".strip())
    for problem in problems:
        yield Alert(problem)


def _note(message: str, step: int) -> AlertRecord:
    return AlertRecord("", "", "", step, step, message, "", "note")


def _title(session: Session) -> str:
    return session.directory.resolve().name if session.directory is not None else ", ".join(session.models)


def _where(session: Session) -> str:
    place, rows = session.place, [row for rows in session.rows for row in rows]
    last = ", ".join(f"{name} {value:.4g}" for name, value in rows[-1].items() if name != "epoch") if rows else ""
    return f"Step {place.step}, epoch {place.epoch}" + (f": {last}" if last else "")
