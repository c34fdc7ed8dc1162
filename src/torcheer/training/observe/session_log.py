"""What code inside a session logs, `session.log(…)`: numbers as rows, images, sound, text, … as samples.

It is a writer of its own in the run's log: it never waits for the disk, and an error of it ends no training.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from torcheer.host.live_numbers import MetricRows
from torcheer.ranks import rank_of
from torcheer.records import Sample
from torcheer.runlog.log_writer import LogWriter, log_folder
from torcheer.runlog.media.media_intake import MediaIntake
from torcheer.runlog.table_records import TableHead
from torcheer.terminal import warn
from torcheer.training.loop.events import Alert, Event, StepDone

if TYPE_CHECKING:
    from torcheer.training.session import Session

WRITER: Final = "logged"  # of the log, and the name of its table
_HEAD: Final = TableHead(WRITER, "Logged", x="Step")


class _Running(threading.local):
    """The session that trains in this thread at the moment."""

    log: SessionLog | None = None


_RUNNING: Final = _Running()


def log(**entries: Any) -> None:
    """Log to the session that runs this code, as `session.log` does: for metrics, hooks and processors of a config."""
    if _RUNNING.log is None:
        text = "torcheer.training.log: no session runs this code, and nothing is logged"
        warn(text)
    else:
        _RUNNING.log.add(entries)


class SessionLog:
    """Takes what is logged while a session runs; problems become alerts of the session."""

    def __init__(self, session: Session) -> None:
        self._session, self._process = session, os.getpid()
        self._writer: LogWriter | None = None
        self._is_accepting, self._step = False, -1  # the step up to which earlier runs hold
        self._begun_at = 0  # steps done when the one under way began
        self._problems, self._reported = deque[str](), set[str]()  # to be said; all there were
        self._media, self._queue = MediaIntake(self._report), MetricRows(self)

    def add(self, entries: Mapping[str, Any]) -> None:
        """Log numbers and samples at the session's step; never raises, never waits for a GPU."""
        if self._process != os.getpid() or rank_of()[0]:
            return
        place = self._session.place
        step = self._begun_at + 1 if self._session.is_mid_round else place.step  # inside a step, also after its update
        numbers, samples = self._media.split(entries, step)
        if self.closed:
            why = "Session(to='folder') keeps it" if self._session.directory is None else "the session is not running"
            self._report(f"what session.log was given is kept nowhere: {why}")
            return
        if numbers:
            self._queue.add(WRITER, {"Epoch": place.epoch, "Step": step, **numbers})
        for media in samples:
            self._queue.add_sample(media, step)

    # -- while the session runs --------------------------------------------------------------------------------------

    def begin(self, *, is_new: bool) -> None:
        """Accept what is logged from now on; of what an earlier run logged, the part up to this step holds."""
        if self._session.directory is not None:
            self._step = -1 if is_new else self._session.place.step
            self._is_accepting = True
            if (log_folder(self._session.directory, WRITER) / "archive.json").is_file():
                self._open()

    def close(self) -> None:
        """Write what is on its way, and close the log."""
        self._queue.flush(wait=True)
        self._is_accepting = False
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def next_event(self, events: Iterator[Event]) -> Event | None:
        """Return the next event, or an alert of a problem first; `log` reaches this session meanwhile."""
        if self._problems:
            return Alert(self._problems.popleft())
        before, _RUNNING.log = _RUNNING.log, self
        self._begun_at = self._session.place.step
        try:
            event = next(events, None)
        finally:
            _RUNNING.log = before
        if type(event) is StepDone and self._session.checkpoints is not None:
            self._session.checkpoints.note_step(self._session.place.step)
        if self._queue.waiting:
            self._queue.flush()
        if event is None and self._problems:
            return Alert(self._problems.popleft())
        return event

    # -- what `MetricRows` hands over --------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """True while nothing is kept."""
        return not self._is_accepting

    def row(self, table: str, cells: Mapping[str, Any]) -> None:
        """Write a row."""
        try:
            self._open().row(table, cells, int(cells["Step"]))
        except Exception as error:
            self._report(f"a row of session.log cannot be kept: {type(error).__name__}: {error}")

    def sample(self, sample: Sample, record: Mapping[str, Any], when: float) -> None:
        """Write a sample."""
        try:
            self._open().sample(sample, record, when)
        except Exception as error:
            self._report(f"{sample.variable} {sample.layer!r} cannot be kept: {type(error).__name__}: {error}")

    def _open(self) -> LogWriter:
        if self._writer is None:
            assert self._session.directory is not None
            self._writer = LogWriter(self._session.directory, WRITER, tell=self._report, goes_on="Training goes on.")
            self._writer.cut(step=self._step)
            self._writer.head(_HEAD)
            self._writer.commit_in_background()
        return self._writer

    def _report(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._problems.append(text)
