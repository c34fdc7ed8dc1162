"""A live view of a session on a terminal: each pipeline's bar, speed and values, what is left, what is saved.

It draws only when an event comes, in the thread that trains: a thread of its own could hold a lock while a worker is
forked, and the worker would wait for it for ever.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from torcheer.training.loop.events import CheckpointSaved, Continued, EpochDone, Event, StageBegan, StepDone
from torcheer.training.observe.progress_lines import SHARE, told

if TYPE_CHECKING:
    from torcheer.training.session import Session

REDRAW_SECS = 0.25  # at least, between two redraws
RECENT = 40  # redraws that speed is measured over
LEAST_SECS = 0.5  # that speed is measured over: before, that of the last epoch holds
SLOW_SECS = 1.0  # of an epoch: whoever waits for it wants to see that it is being evaluated
NARROW, TINY = 72, 44  # columns of a terminal that has no room for speed, and none for bars


class Live:
    """The view; `Lines` where rich is missing."""

    def __init__(self, session: Session, console: Any = None) -> None:
        import rich.live
        from rich.console import Console

        self._session, self.pace = session, Pace(session)
        self.console = console if console is not None else Console(highlight=False, soft_wrap=True)
        self._live = rich.live.Live(console=self.console, auto_refresh=False, transient=True)
        self._next_secs = 0.0

    def __call__(self, event: Event) -> None:
        if type(event) is StepDone:
            self.pace.step(event)
            if time.monotonic() >= self._next_secs or self.pace.is_long_epochs_end():
                self._draw()
            return
        self.pace.note(event)
        if text := told(event):
            self.say(text)

    def say(self, text: str) -> None:
        """A line that stays, above what is redrawn."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _draw(self) -> None:
        began = time.thread_time()  # not the time that other processes took
        values = {name: self._session.lanes[name].values() if done else {} for name, done in self.pace.done.items()}
        self.pace.mark(time.monotonic())
        self._live.update(picture(self.pace, values, self.console.width), refresh=True)
        self._next_secs = time.monotonic() + max(REDRAW_SECS, SHARE * (time.thread_time() - began))

    def __enter__(self) -> Live:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._live.stop()


class Pace:
    """How far and how fast a session is."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.done: dict[str, int] = {}  # pipeline -> its batches in this epoch
        self.totals: dict[str, int | None] = {}
        self.epoch, self.step_count, self.epoch_secs = 0, session.place.step, 0.0
        self.saved: tuple[int, float] | None = None  # step and when
        self.began = self._epoch_began = time.monotonic()
        self.rates: dict[str, float] = {}  # pipeline -> batches a second
        self._recent: deque[tuple[float, dict[str, int]]] = deque(maxlen=RECENT)

    def step(self, event: StepDone) -> None:
        """A batch is done."""
        if event.epoch != self.epoch:
            self._begin_epoch(event)
        self.step_count, self.done[event.pipeline] = event.step, event.round

    def _begin_epoch(self, event: StepDone) -> None:
        stage = self.session.stages[self.session.place.stage]
        self.epoch, self._epoch_began = event.epoch, time.monotonic()
        self.totals = {name: length(self.session.lanes[name]) for name in stage.training}
        self.done = dict.fromkeys(stage.training, event.round - 1)
        self._recent.clear()
        self.mark(self._epoch_began)

    def note(self, event: Event) -> None:
        """Something else has happened."""
        if isinstance(event, CheckpointSaved):
            self.saved = (event.step, time.monotonic())
        elif isinstance(event, EpochDone):
            self.epoch_secs = event.secs
        elif isinstance(event, StageBegan):
            self.epoch_secs, self.rates = 0.0, {}  # other pipelines, another pace
        elif isinstance(event, Continued):
            self._epoch_began += event.secs
            self._recent.clear()  # it was no slower for having paused

    def mark(self, now: float) -> None:
        """Remember how far it is now, and how fast it was of late."""
        self._recent.append((now, dict(self.done)))
        then, before = self._recent[0]
        if now - then >= LEAST_SECS:
            self.rates = {name: (done - before[name]) / (now - then) for name, done in self.done.items()}

    def is_at_epochs_end(self) -> bool:
        return bool(self.done) and all(self.done[name] == self.totals[name] for name in self.done)

    def is_long_epochs_end(self) -> bool:
        """Whether all of an epoch that took a while is trained, and only its evaluation is still to come."""
        return self.is_at_epochs_end() and time.monotonic() - self._epoch_began > SLOW_SECS

    def samples_per_sec(self, pipeline: str) -> float | None:
        rate = self.rates.get(pipeline)
        return None if rate is None else rate * self.session.lanes[pipeline].inputs[0][0].loader.batch_size

    def epoch_left_secs(self) -> float | None:
        """How long the slowest pipeline still takes; None where nothing is known."""
        left = []
        for name, total in self.totals.items():
            rate = self.rates.get(name)
            if total is None or (not rate and self.done[name] < total):
                return None
            left.append((total - self.done[name]) / rate if rate else 0.0)
        return max(left, default=None)

    def epochs(self) -> int | None:
        """The number of the stage's last epoch, where that is known."""
        stage = self.session.place.stage
        stop = self.session.stages[stage].stop
        count = 1 if stop is None else getattr(stop, "num_epochs", None)
        return None if count is None else self.epoch - 1 - len(self.session.rows[stage]) + count

    def stage_left_secs(self) -> float | None:
        last, left = self.epochs(), self.epoch_left_secs()
        if last is None or left is None:
            return None
        whole = self.epoch_secs or (time.monotonic() - self._epoch_began + left)
        return left + (last - self.epoch) * whole


def length(lane: Any) -> int | None:
    """Batches in an epoch; None for a stream."""
    try:
        return len(lane)
    except TypeError:
        return None


def picture(pace: Pace, values: dict[str, dict[str, float]], width: int) -> Any:
    """What is redrawn, for a terminal of this width."""
    from rich.console import Group

    rows = {name: _cells(pace, name) for name in pace.done}
    widths = [max((len(row[column]) for row in rows.values()), default=0) for column in range(3)]
    widths[0] = min(widths[0], max(width // 3, 8))
    lines: list[Any] = [_line(_where(pace), "bold")]
    for name, row in rows.items():
        lines.append(_row(pace, name, row, widths, width))
        if values[name]:
            lines.append(_line(f"  {_spoken(values[name])}"))
    return Group(*lines, _line(_ahead(pace), "dim"))


def _cells(pace: Pace, name: str) -> tuple[str, str, str]:
    """A pipeline's name, how far it is, and how fast."""
    done, total, speed = pace.done[name], pace.totals[name], pace.samples_per_sec(name)
    far = f"{done:,}" if total is None else f"{done:,} / {total:,}"
    return name, far, "" if speed is None else f"{speed:,.0f} samples/s"


def _row(pace: Pace, name: str, cells: tuple[str, str, str], widths: list[int], width: int) -> Any:
    """One pipeline's bar between its words; on a narrow terminal without its speed, on a tiny one without the bar."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    bar = ProgressBar(pace.totals[name], pace.done[name], complete_style="cyan", finished_style="green")
    row = Table.grid(padding=(0, 2), expand=True)
    row.add_column(width=widths[0], no_wrap=True, overflow="ellipsis")
    if width >= TINY:
        row.add_column(ratio=1)
    row.add_column(width=widths[1], justify="right", no_wrap=True)
    if width >= NARROW:
        row.add_column(width=widths[2], justify="right", no_wrap=True)
    shown: list[Any] = [cells[0], *[bar] * (width >= TINY), cells[1], *[cells[2]] * (width >= NARROW)]
    row.add_row(*shown)
    return row


def _line(text: str, style: str = "") -> Any:
    from rich.text import Text

    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _where(pace: Pace) -> str:
    """ "stage 0 · epoch 3 of 10 · step 1,234 · evaluating"."""
    last = pace.epochs()
    epoch = f"epoch {pace.epoch}" + (f" of {last}" if last is not None else "")
    doing = " · evaluating" if pace.is_at_epochs_end() else ""
    doing += " · stopping" if pace.session.asked_to_stop else ""
    return f"stage {pace.session.place.stage} · {epoch} · step {pace.step_count:,}{doing}"


def _ahead(pace: Pace) -> str:
    """ "epoch 0:12 left · stage 4:10 left · saved step 1,200, 0:13 ago"."""
    left = {"epoch": None if pace.is_at_epochs_end() else pace.epoch_left_secs(), "stage": pace.stage_left_secs()}
    words = [f"{name} {clock(secs)} left" for name, secs in left.items() if secs is not None]
    if pace.saved is not None:
        words.append(f"saved step {pace.saved[0]:,}, {clock(time.monotonic() - pace.saved[1])} ago")
    return " · ".join(words)


def _spoken(values: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4f}" for name, value in values.items())


def clock(secs: float) -> str:
    """ "0:12", "4:10", "1:02:03"."""
    minutes, seconds = divmod(round(secs), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
