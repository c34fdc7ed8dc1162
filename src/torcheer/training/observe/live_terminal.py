"""Live view of a session on a terminal.

Each pipeline's bar, speed and values, time left, what is saved.

It draws only on events, in the training thread: a separate thread could hold a lock while a worker is forked, and the
worker would wait for it for ever.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from torcheer.terminal import folded, human_secs
from torcheer.training.loop.events import CheckpointSaved, Continued, EpochDone, Event, StageBegan, StepDone
from torcheer.training.observe.progress_lines import SHARE, event_text

if TYPE_CHECKING:
    from torcheer.training.session import Session

REDRAW_SECS = 0.25  # at least, between two redraws
RECENT = 40  # redraws over which speed is measured
LEAST_SECS = 0.5  # over which speed is measured: before that, the last epoch's holds
SLOW_SECS = 1.0  # an epoch that takes longer shows that it is being evaluated
NARROW, TINY = 72, 44  # columns of a terminal that has no room for speed, and none for bars


class LiveTerminal:
    """The live view; `ProgressLines` is used where rich is missing."""

    def __init__(self, session: Session, console: Any = None) -> None:
        import rich.live
        from rich.console import Console

        self._session, self.pace = session, TrainingPace(session)
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
        if text := event_text(event):
            self.say(text)

    def say(self, text: str) -> None:
        """Print a permanent line above the redrawn part."""
        out: Any = self.console.file
        self.console.print(folded(text, out), markup=False, highlight=False, soft_wrap=True)

    def _draw(self) -> None:
        began = time.thread_time()  # not the time that other processes took
        values = {name: self._session.runners[name].values() if done else {} for name, done in self.pace.done.items()}
        self.pace.mark(time.monotonic())
        self._live.update(render(self.pace, values, self.console.width), refresh=True)
        self._next_secs = time.monotonic() + max(REDRAW_SECS, SHARE * (time.thread_time() - began))

    def __enter__(self) -> LiveTerminal:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._live.stop()


class TrainingPace:
    """Progress and speed of a session."""

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
        """Count a batch."""
        if event.epoch != self.epoch:
            self._begin_epoch(event)
        self.step_count, self.done[event.pipeline] = event.step, event.round

    def _begin_epoch(self, event: StepDone) -> None:
        stage = self.session.stages[self.session.place.stage]
        self.epoch, self._epoch_began = event.epoch, time.monotonic()
        self.totals = {name: batch_count(self.session.runners[name]) for name in stage.training}
        self.done = dict.fromkeys(stage.training, event.round - 1)
        self._recent.clear()
        self.mark(self._epoch_began)

    def note(self, event: Event) -> None:
        """Handle any other event."""
        if isinstance(event, CheckpointSaved):
            self.saved = (event.step, time.monotonic())
        elif isinstance(event, EpochDone):
            self.epoch_secs = event.secs
        elif isinstance(event, StageBegan):
            self.epoch_secs, self.rates = 0.0, {}  # other pipelines have another speed
        elif isinstance(event, Continued):
            self._epoch_began += event.secs
            self._recent.clear()  # a pause does not count as slowness

    def mark(self, now: float) -> None:
        """Record the current progress and compute the recent speed."""
        self._recent.append((now, dict(self.done)))
        first_time, before = self._recent[0]
        if now - first_time >= LEAST_SECS:
            self.rates = {name: (done - before[name]) / (now - first_time) for name, done in self.done.items()}

    def is_at_epochs_end(self) -> bool:
        return bool(self.done) and all(self.done[name] == self.totals[name] for name in self.done)

    def is_long_epochs_end(self) -> bool:
        """Return whether a long epoch is trained and only its evaluation remains."""
        return self.is_at_epochs_end() and time.monotonic() - self._epoch_began > SLOW_SECS

    def samples_per_sec(self, pipeline: str) -> float | None:
        rate = self.rates.get(pipeline)
        return None if rate is None else rate * self.session.runners[pipeline].inputs[0][0].loader.batch_size

    def epoch_left_secs(self) -> float | None:
        """Return the remaining time of the slowest pipeline; None where unknown."""
        remaining_secs = []
        for name, total in self.totals.items():
            rate = self.rates.get(name)
            if total is None or (not rate and self.done[name] < total):
                return None
            remaining_secs.append((total - self.done[name]) / rate if rate else 0.0)
        return max(remaining_secs, default=None)

    def epochs(self) -> int | None:
        """Return the number of the stage's last epoch; None where unknown."""
        stage = self.session.place.stage
        stop = self.session.stages[stage].stop
        count = 1 if stop is None else getattr(stop, "num_epochs", None)
        return None if count is None else self.epoch - 1 - len(self.session.rows[stage]) + count

    def stage_left_secs(self) -> float | None:
        last, epoch_left = self.epochs(), self.epoch_left_secs()
        if last is None or epoch_left is None:
            return None
        full_epoch_secs = self.epoch_secs or (time.monotonic() - self._epoch_began + epoch_left)
        return epoch_left + (last - self.epoch) * full_epoch_secs


def batch_count(pipeline: Any) -> int | None:
    """Return the batches in an epoch; None for a stream."""
    try:
        return len(pipeline)
    except TypeError:
        return None


def render(pace: TrainingPace, values: dict[str, dict[str, float]], width: int) -> Any:
    """Render the redrawn part for a terminal of this width."""
    from rich.console import Group

    rows = {name: _cells(pace, name) for name in pace.done}
    widths = [max((len(row[column]) for row in rows.values()), default=0) for column in range(3)]
    widths[0] = min(widths[0], max(width // 3, 8))
    lines: list[Any] = [_line(_position_text(pace), "bold")]
    for name, row in rows.items():
        lines.append(_row(pace, name, row, widths, width))
        if values[name]:
            lines.append(_line(f"  {_values_text(values[name])}"))
    return Group(*lines, _line(_remaining_text(pace), "dim"))


def _cells(pace: TrainingPace, name: str) -> tuple[str, str, str]:
    """Return a pipeline's name, progress and speed."""
    done, total, speed = pace.done[name], pace.totals[name], pace.samples_per_sec(name)
    progress = f"{done:,}" if total is None else f"{done:,} / {total:,}"
    return name, progress, "" if speed is None else f"{speed:,.0f} samples/s"


def _row(pace: TrainingPace, name: str, cells: tuple[str, str, str], widths: list[int], width: int) -> Any:
    """Render one pipeline's row.

    On a narrow terminal without its speed, on a tiny one without the bar.
    """
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


def _position_text(pace: TrainingPace) -> str:
    """ "stage 0 · epoch 3 of 10 · step 1,234 · evaluating"."""
    last = pace.epochs()
    epoch = f"epoch {pace.epoch}" + (f" of {last}" if last is not None else "")
    activity = " · evaluating" if pace.is_at_epochs_end() else ""
    activity += " · stopping" if pace.session.stop_reason else ""
    return f"stage {pace.session.place.stage} · {epoch} · step {pace.step_count:,}{activity}"


def _remaining_text(pace: TrainingPace) -> str:
    """ "epoch 12 s left · stage 4 min 10 s left · saved step 1,200, 13 s ago"."""
    remaining = {"epoch": None if pace.is_at_epochs_end() else pace.epoch_left_secs(), "stage": pace.stage_left_secs()}
    words = [f"{name} {human_secs(round(secs))} left" for name, secs in remaining.items() if secs is not None]
    if pace.saved is not None:
        words.append(f"saved step {pace.saved[0]:,}, {human_secs(round(time.monotonic() - pace.saved[1]))} ago")
    return " · ".join(words)


def _values_text(values: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4f}" for name, value in values.items())
