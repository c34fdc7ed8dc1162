"""What a session prints while it trains: the seed's lines, redrawn in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from torcheer.training.loop.events import (
    Alert,
    Continued,
    EpochDone,
    Event,
    Paused,
    StageBegan,
    StageDone,
    StepDone,
    Stopped,
)

if TYPE_CHECKING:
    from torcheer.training.session import Session

BAR = 20  # characters
REDRAW_SECS = 0.1  # at least, between two redraws
SHARE = 20  # reading the values may take this part of the time, no more: some metrics are slow to compute
LINE_SECS, LINE_STEPS = 10.0, 50  # between two lines where nobody watches


class View(AbstractContextManager["View"], Protocol):
    """Something that shows events."""

    def __call__(self, event: Event) -> None: ...

    def say(self, text: str) -> None:
        """A line that stays."""
        ...


def show(session: Session, events: Iterable[Event], view: View) -> Stopped | None:
    """Show every event; why the run stopped, where it did not come to its end.

    A screen that cannot be written to any more does not end training. Where nobody reads (`torcheer train … | head`),
    the session is asked to stop where all is saved.
    """

    def broken(error: OSError) -> None:
        silence()
        if isinstance(error, BrokenPipeError):
            session.asked_to_stop = session.asked_to_stop or "nobody reads what it prints"

    stopped = [event for event in shown(events, view, broken) if type(event) is Stopped]
    return stopped[-1] if stopped else None


def shown(events: Iterable[Event], view: View, broken: Callable[[OSError], object]) -> Iterator[Event]:
    """The same events, each of them shown first; `broken` is told where the screen cannot be written to."""
    is_stopped = False
    with view:
        for event in events:
            is_stopped = is_stopped or type(event) is Stopped
            try:
                view(event)
            except OSError as error:
                broken(error)
            yield event
        if not is_stopped:
            view.say("Training is completed")


def showing(session: Session, events: Iterable[Event]) -> Iterator[Event]:
    """The same events, with a summary before them and the seed's lines as they come, for sessions in Python.

    Not the live view: it takes the screen, and code that leaves in the middle of a run would not give it back.
    """
    view = Lines(session, redraws=sys.stdout.isatty() or is_notebook())
    with suppress(OSError):
        view.say(str(session.summary()))
    yield from shown(events, view, lambda error: view.end())


def wants_progress(asked: bool | None) -> bool:
    """Whether somebody sees what is printed, where nobody says so."""
    if asked is not None or sys.stdout is None:
        return bool(asked) and sys.stdout is not None
    return sys.stdout.isatty() or is_notebook()


def is_notebook() -> bool:
    """True in a cell of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def silence() -> None:
    """Have what is printed from now on go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def view_of(session: Session, *, plain: bool = False) -> View:
    """The live view where there is a terminal for it, the seed's line otherwise."""
    if not plain and sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
        from torcheer.training.observe.live_terminal import Live

        with suppress(ImportError):  # rich is not installed
            return Live(session)
    return Lines(session)


class Lines:
    """The seed's lines."""

    def __init__(self, session: Session, out: TextIO | None = None, *, redraws: bool | None = None) -> None:
        self._session, self._out = session, out if out is not None else sys.stdout
        self._redraws = self._out.isatty() if redraws is None else redraws
        self._next_secs = time.monotonic() + (0 if self._redraws else LINE_SECS)
        self._next_step = 0 if self._redraws else session.place.step + LINE_STEPS
        self._drawn = 0  # characters of the line that is being redrawn

    def __call__(self, event: Event) -> None:
        if type(event) is StepDone:
            if time.monotonic() >= self._next_secs and event.step >= self._next_step:
                self._draw(event)
        elif text := told(event):
            self.say(text)

    def end(self) -> None:
        """Print nothing more: there is nowhere to print it."""
        self._out = io.StringIO()

    def say(self, text: str) -> None:
        """A line that stays; it takes the place of the one that was being redrawn."""
        start = "\r" if self._drawn else ""
        print(f"{start}{text.ljust(self._drawn)}" if start else text, file=self._out, flush=True)
        self._drawn = 0

    def _draw(self, event: StepDone) -> None:
        began = time.thread_time()  # not the time that other processes took
        text = progress_text(event, running_values(self._session), rounds_of(self._session))
        if self._redraws:
            text = text[: max(shutil.get_terminal_size().columns - 1, 1)]  # a line that wraps cannot be redrawn
            self._out.write(f"\r{text.ljust(self._drawn)}")
            self._out.flush()
            self._drawn = len(text)
        else:
            self.say(text)
        least = REDRAW_SECS if self._redraws else LINE_SECS
        self._next_secs = time.monotonic() + max(least, SHARE * (time.thread_time() - began))
        self._next_step = event.step + (0 if self._redraws else LINE_STEPS)

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:  # what comes next begins a line of its own
            self._drawn = 0
            with suppress(OSError):  # the terminal was closed
                self._out.write("\n")
                self._out.flush()


def told(event: Event) -> str:
    """The line that an event leaves behind; "" where it leaves none."""
    if isinstance(event, StageBegan):
        return f"Training stage {event.stage} in progress"
    if isinstance(event, EpochDone):
        return f"Epoch {event.epoch:5} {values_text(event.values)}"
    if isinstance(event, StageDone):
        return f"Training stage {event.stage} is completed"
    if isinstance(event, Paused):
        return f"Paused after step {event.step:,} by the studio; Ctrl-C saves and ends"
    if isinstance(event, Continued):
        return f"Going on{f': {event.reason}' if event.reason else ''}"
    return event.message if isinstance(event, Alert) else ""


def progress_text(event: StepDone, values: Mapping[str, float], rounds: int | None) -> str:
    """ "Epoch     1 [acc 0.0938, loss 2.2993] =>................... 1 / 20"."""
    start = f"Epoch {event.epoch:5} {values_text(values)}"
    if rounds is None:  # a stream does not know its length
        return f"{start} {event.round}"
    filled = BAR * event.round // max(rounds, 1)
    return f"{start} {'=' * filled}>{'.' * (BAR - filled)} {event.round} / {rounds}"


def values_text(values: Mapping[str, float]) -> str:
    """ "[acc 0.1312, loss 2.3556]"."""
    return f"[{', '.join(f'{name} {value:.4f}' for name, value in values.items())}]"


def running_values(session: Session) -> dict[str, float]:
    """The values so far of all that trains, by name; reading them waits for the device."""
    found: dict[str, Any] = {}
    for name in session.stages[session.place.stage].training:
        found.update(session.lanes[name].values())
    return dict(sorted(found.items()))


def rounds_of(session: Session) -> int | None:
    """How many rounds an epoch has: as many as its longest pipeline; None where one is a stream."""
    try:
        return max(len(session.lanes[name]) for name in session.stages[session.place.stage].training)
    except TypeError:
        return None
