"""Progress lines of a session.

The seed's lines, redrawn in place on a terminal, plain lines elsewhere.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from torcheer.terminal import can_redraw, folded, is_notebook, is_terminal, line_width, notice
from torcheer.terminal.streams import encodable
from torcheer.training.loop.events import (
    Alert,
    Continued,
    EpochDone,
    Event,
    Paused,
    Resumed,
    StageBegan,
    StageDone,
    StepDone,
    Stopped,
)

if TYPE_CHECKING:
    from torcheer.training.session import Session

BAR = 20  # characters
REDRAW_SECS = 0.1  # at least, between two redraws
SHARE = 20  # reading the values may take 1/20 of the time at most: some metrics are slow to compute
LINE_SECS, LINE_STEPS = 10.0, 50  # between two lines where the output is no terminal


class ProgressView(AbstractContextManager["ProgressView"], Protocol):
    """A display of events."""

    def __call__(self, event: Event) -> None: ...

    def say(self, text: str) -> None:
        """Print a permanent line."""
        ...


def show(session: Session, events: Iterable[Event], view: ProgressView) -> Stopped | None:
    """Show every event; return the Stopped event of a run that did not complete.

    Output that can no longer be written does not end training. A closed pipe (`torcheer train … | head`) requests a
    stop at the next step boundary, with everything saved.
    """

    def on_error(error: OSError) -> None:
        silence()
        if isinstance(error, BrokenPipeError):
            session.stop_reason = session.stop_reason or "nobody reads what it prints"

    stopped = [event for event in show_events(events, view, on_error) if type(event) is Stopped]
    return stopped[-1] if stopped else None


def show_events(events: Iterable[Event], view: ProgressView, on_error: Callable[[OSError], object]) -> Iterator[Event]:
    """Show each event, then yield it; `on_error` is called where the output cannot be written."""
    is_stopped = False
    with view:
        for event in events:
            is_stopped = is_stopped or type(event) is Stopped
            try:
                view(event)
            except OSError as error:
                on_error(error)
            yield event
        if not is_stopped:
            view.say("Training is completed")


def show_with_summary(session: Session, events: Iterable[Event]) -> Iterator[Event]:
    """Print a summary, then yield the events while the seed's lines show them.

    For sessions in Python.

    Not the live view: it takes over the screen, and code that leaves a run early would not restore it.
    """
    view = ProgressLines(session, redraws=is_terminal(sys.stdout) or is_notebook())
    with suppress(OSError):
        view.say(str(session.summary()))
    yield from show_events(events, view, lambda error: view.end())


def say_resumed(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the same events; what a session goes on from, and with which changes, is logged where no view shows it."""
    for event in events:
        if type(event) is Resumed:
            notice("training", str(event))
        yield event


def silence() -> None:
    """Redirect stdout to /dev/null."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def make_view(session: Session, *, plain: bool = False) -> ProgressView:
    """Make the live view where there is a terminal for it, else the seed's lines."""
    if not plain and can_redraw(sys.stdout):
        from torcheer.training.observe.live_terminal import LiveTerminal

        with suppress(ImportError):  # rich is not installed
            return LiveTerminal(session)
    return ProgressLines(session)


class ProgressLines:
    """View with the seed's progress lines."""

    def __init__(self, session: Session, out: TextIO | None = None, *, redraws: bool | None = None) -> None:
        self._session, self._out = session, out if out is not None else sys.stdout
        self._redraws = self._out.isatty() if redraws is None else redraws
        self._next_secs = time.monotonic() + (0 if self._redraws else LINE_SECS)
        self._next_step = 0 if self._redraws else session.place.step + LINE_STEPS
        self._drawn = 0  # characters of the line being redrawn

    def __call__(self, event: Event) -> None:
        if type(event) is StepDone:
            if time.monotonic() >= self._next_secs and event.step >= self._next_step:
                self._draw(event)
        elif text := event_text(event):
            self.say(text)

    def end(self) -> None:
        """Stop printing: the output is gone."""
        self._out = io.StringIO()

    def say(self, text: str) -> None:
        """Print a permanent line, or several, in place of the one being redrawn."""
        first, *others = folded(encodable(text), self._out).split("\n")
        start = "\r" if self._drawn else ""
        print(f"{start}{first.ljust(self._drawn)}", *others, sep="\n", file=self._out, flush=True)
        self._drawn = 0

    def _draw(self, event: StepDone) -> None:
        began = time.thread_time()  # not the time that other processes took
        text = progress_text(event, running_values(self._session), rounds_of(self._session))
        if self._redraws:
            text = text[: max(line_width() - 1, 1)]  # a line that wraps cannot be redrawn
            self._out.write(f"\r{text.ljust(self._drawn)}")
            self._out.flush()
            self._drawn = len(text)
        else:
            self.say(text)
        least = REDRAW_SECS if self._redraws else LINE_SECS
        self._next_secs = time.monotonic() + max(least, SHARE * (time.thread_time() - began))
        self._next_step = event.step + (0 if self._redraws else LINE_STEPS)

    def __enter__(self) -> ProgressLines:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:  # the next output begins a new line
            self._drawn = 0
            with suppress(OSError):  # the terminal was closed
                self._out.write("\n")
                self._out.flush()


def event_text(event: Event) -> str:
    """Return the permanent line of an event; "" where it has none."""
    if isinstance(event, StageBegan):
        return f"Training stage {event.stage} in progress"
    if isinstance(event, EpochDone):
        return f"Epoch {event.epoch:5} {values_text(event.values)}{rates_text(event.rates)}"
    if isinstance(event, StageDone):
        return f"Training stage {event.stage} is completed{f' by {event.reason}' if event.reason else ''}"
    if isinstance(event, Paused):
        return f"Paused after step {event.step:,} by the studio; Ctrl-C saves and ends"
    if isinstance(event, Continued):
        return f"Going on{f': {event.reason}' if event.reason else ''}"
    if isinstance(event, Resumed):
        return str(event)
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


def rates_text(rates: Mapping[str, tuple[float, float]]) -> str:
    """ " lr 0.1 → 0.01"; of several optimizers with their names."""
    named = [(f"{name} " * (len(rates) > 1), *pair) for name, pair in rates.items()]
    return f" lr {', '.join(f'{name}{before:.4g} → {after:.4g}' for name, before, after in named)}" if named else ""


def running_values(session: Session) -> dict[str, float]:
    """Return the current values of the training pipelines, by name.

    Reading them waits for the device.
    """
    values: dict[str, Any] = {}
    for name in session.stages[session.place.stage].training:
        values.update(session.runners[name].values())
    return values


def rounds_of(session: Session) -> int | None:
    """Return the rounds of an epoch, those of its longest pipeline; None where one is a stream."""
    try:
        return max(len(session.runners[name]) for name in session.stages[session.place.stage].training)
    except TypeError:
        return None
