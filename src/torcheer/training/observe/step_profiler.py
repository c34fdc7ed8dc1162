"""Where the time of a step goes: `torch.profiler` from the options, its traces in `<run>/profile/`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from torcheer.config import nearest
from torcheer.errors import BadArgument
from torcheer.training.checkpoints.run_directory import telling
from torcheer.training.loop.events import Alert, Event

if TYPE_CHECKING:
    from torcheer.training.session import Session

# Rounds to let pass, to run without keeping, to keep, and how often; torch would repeat for ever, which fills a disk.
SCHEDULE = {"wait": 5, "warmup": 1, "active": 3, "repeat": 1, "skip_first": 0}
SWITCHES = {"record_shapes": False, "profile_memory": False, "with_stack": False}
VIEWERS = "open it in https://ui.perfetto.dev or chrome://tracing"


def profiled(session: Session, events: Iterator[Event]) -> Iterator[Event]:
    """The same events, the rounds that the options ask for profiled on the way."""
    if session.options.profile is None:
        return events
    if session.directory is None:
        raise BadArgument("profile needs a directory to write its traces to: Session(…, directory=…)")
    return _profiled(session, events, Profile(session.options.profile, session.directory / "profile"))


def _profiled(session: Session, events: Iterator[Event], profile: Profile) -> Iterator[Event]:
    begun = False
    try:
        for event in events:
            yield event
            if not begun:  # the session stands where it goes on from
                begun = True
                profile.begin(session)
            yield from profile.news()
    finally:
        profile.end(session)
    yield from profile.news()


class Profile:
    """One profiler over the rounds of a run."""

    def __init__(self, settings: Mapping[str, Any], folder: Path) -> None:
        schedule: dict[str, Any] = dict(SCHEDULE)
        switches: dict[str, Any] = dict(SWITCHES)
        for key, value in settings.items():
            table = schedule if key in schedule else switches
            if key not in table:
                known = (*SCHEDULE, *SWITCHES)
                raise BadArgument(f"profile: there is no {key!r}; there are {', '.join(known)}.{nearest(key, known)}")
            least = 1 if key in ("active", "repeat") else 0
            if table is schedule and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise BadArgument(f"profile: {key}={value!r} is a number of rounds, {least} or more")
            table[key] = value
        self.folder = folder
        self._left = schedule["repeat"]
        self._news: list[str] = []
        self._step = 0  # where the session stands
        self._running = False
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it writes over the screen
        warnings.filterwarnings("ignore", "Warning: Profiler clears events")  # each cycle has a file of its own
        self._torch = torch.profiler.profile(
            schedule=torch.profiler.schedule(**schedule), on_trace_ready=self._keep, **switches
        )

    def begin(self, session: Session) -> None:
        self._running, self._step = True, session.place.step
        self._torch.start()
        session.each_round.append(self._round)

    def _round(self, place: Any) -> None:
        if self._running:
            self._step = place.step
            self._torch.step()

    def _keep(self, found: Any) -> None:
        """Write a trace; one that cannot be written is no reason to stop training."""
        path = self.folder / f"step-{self._step}.json"
        self._left -= 1
        try:
            with telling(path):
                self.folder.mkdir(exist_ok=True)
                found.export_chrome_trace(str(path))
            self._news.append(f"profiled up to step {self._step}: {path}; {VIEWERS}")
        except OSError as error:
            self._left = 0
            self._news.append(f"profiling ends here, training goes on: {error}")

    def news(self) -> Iterator[Alert]:
        """What there is to tell; when all is kept, the profiler is taken away."""
        while self._news:
            yield Alert(self._news.pop(0))
        if self._running and not self._left:
            self._running = False
            self._torch.stop()

    def end(self, session: Session) -> None:
        """Stop; a trace that was being kept is written as far as it is."""
        if self._running:
            self._running = False
            self._torch.stop()
            if self._left and not self._news:
                self._news.append("the run ended before the profiler's rounds; give it fewer: wait, warmup, active")
        if self._round in session.each_round:
            session.each_round.remove(self._round)
