"""Profile training steps with `torch.profiler`, as the options say.

Traces go to `<run>/profile/`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from torcheer.disk import explain_write_errors
from torcheer.errors import BadArgument
from torcheer.terminal import did_you_mean
from torcheer.training.loop.events import Alert, Events

if TYPE_CHECKING:
    from torcheer.training.session import Session

# Rounds to skip, to run unrecorded and to record, and how often; torch's default repeats for ever and fills the disk.
SCHEDULE = {"wait": 5, "warmup": 1, "active": 3, "repeat": 1, "skip_first": 0}
SWITCHES = {"record_shapes": False, "profile_memory": False, "with_stack": False}
VIEWERS = "open it in https://ui.perfetto.dev or chrome://tracing"


def profile_events(session: Session, events: Events) -> Events:
    """Yield the same events; profile the rounds that the options name."""
    if session.options.profile is None:
        return events
    if session.directory is None:
        raise BadArgument("profile needs a directory to write its traces to: Session(…, to=…)")
    return _profile_events(session, events, Profile(session.options.profile, session.directory / "profile"))


def _profile_events(session: Session, events: Events, profile: Profile) -> Events:
    has_begun = False
    try:
        for event in events:
            yield event
            if not has_begun:  # the session is restored now
                has_begun = True
                profile.begin(session)
            yield from profile.alerts()
    finally:
        profile.end(session)
    yield from profile.alerts()


class Profile:
    """One profiler over the rounds of a run."""

    def __init__(self, settings: Mapping[str, Any], folder: Path) -> None:
        schedule: dict[str, Any] = dict(SCHEDULE)
        switches: dict[str, Any] = dict(SWITCHES)
        for key, value in settings.items():
            table = schedule if key in schedule else switches
            if key not in table:
                names = (*SCHEDULE, *SWITCHES)
                raise BadArgument(
                    f"profile: there is no {key!r}; there are {', '.join(names)}.{did_you_mean(key, names)}"
                )
            least = 1 if key in ("active", "repeat") else 0
            if table is schedule and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise BadArgument(f"profile: {key}={value!r} is a number of rounds, {least} or more")
            table[key] = value
        self.folder = folder
        self._remaining = schedule["repeat"]
        self._messages: list[str] = []
        self._step = 0  # of the session
        self._running = False
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its log would write over the screen
        warnings.filterwarnings("ignore", "Warning: Profiler clears events")  # each cycle has its own file
        self._torch = torch.profiler.profile(
            schedule=torch.profiler.schedule(**schedule), on_trace_ready=self._write_trace, **switches
        )

    def begin(self, session: Session) -> None:
        self._running, self._step = True, session.place.step
        self._torch.start()
        session.round_callbacks.append(self._round)

    def _round(self, place: Any) -> None:
        if self._running:
            self._step = place.step
            self._torch.step()

    def _write_trace(self, profiler: Any) -> None:
        """Write a trace; a failure does not stop training."""
        path = self.folder / f"step-{self._step}.json"
        self._remaining -= 1
        try:
            with explain_write_errors(path):
                self.folder.mkdir(exist_ok=True)
                profiler.export_chrome_trace(str(path))
            self._messages.append(f"profiled up to step {self._step}: {path}; {VIEWERS}")
        except OSError as error:
            self._remaining = 0
            self._messages.append(f"profiling ends here, training goes on: {error}")

    def alerts(self) -> Iterator[Alert]:
        """Yield the pending messages; stop the profiler once all traces are written."""
        while self._messages:
            yield Alert(self._messages.pop(0))
        if self._running and not self._remaining:
            self._running = False
            self._torch.stop()

    def end(self, session: Session) -> None:
        """Stop; write an unfinished trace as far as it got."""
        if self._running:
            self._running = False
            self._torch.stop()
            if self._remaining and not self._messages:
                self._messages.append("the run ended before the profiler's rounds; give it fewer: wait, warmup, active")
        if self._round in session.round_callbacks:
            session.round_callbacks.remove(self._round)
