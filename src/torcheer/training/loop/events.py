"""Events that `session.run()` yields."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from torcheer.samples import Alert as AlertRecord
from torcheer.terminal import human_secs, plural, short_repr


class Resumed(NamedTuple):
    """A session goes on from a checkpoint."""

    step: int  # of the checkpoint
    age_secs: float | None  # of the checkpoint; None for one that was fetched
    repeated: int | None  # steps that were trained after it, and run again; None where that is not known
    changes: Mapping[str, tuple[Any, Any]]  # setting -> its value in the checkpoint, and now
    is_complete: bool = False  # whether nothing is left to train

    def __str__(self) -> str:
        age = "" if self.age_secs is None else f", {human_secs(round(self.age_secs))} old"
        place = f"checkpoint {self.step} (step {self.step:,}{age})"
        again = ""
        if self.repeated:
            again = f": {plural(self.repeated, 'step')} {'runs' if self.repeated == 1 else 'run'} again"
        text = f"resumed from {place}{again}"
        if self.is_complete:
            text = f"nothing is left to train: {place} is the end of this run"
        if not self.changes:
            return text
        changed = [f"{name} {_shown(before)} → {_shown(now)}" for name, (before, now) in self.changes.items()]
        return f"{text}\nchanged since then: {', '.join(changed)}"


def _shown(value: Any) -> str:
    return f"{value:g}" if type(value) is float else "none" if value is None else short_repr(value)


class StageBegan(NamedTuple):
    """A stage begins or resumes."""

    stage: int


class StepDone(NamedTuple):
    """One batch of one pipeline is done."""

    step: int  # updates so far
    epoch: int  # from 1, across stages
    round: int  # batches of each pipeline so far in this epoch, this one included
    pipeline: str
    loss: Any  # a tensor, not yet synchronized with the device


class EpochDone(NamedTuple):
    """An epoch is trained and evaluated; its row is in the CSV."""

    epoch: int
    values: dict[str, float]  # column -> value
    secs: float
    # optimizer -> learning rate before and after the epoch, where a scheduler has changed it
    rates: Mapping[str, tuple[float, float]] = MappingProxyType({})


class CheckpointSaved(NamedTuple):
    """A checkpoint is on disk: everything up to here survives a crash."""

    step: int
    path: Path


class StageDone(NamedTuple):
    """A stage's stop condition holds."""

    stage: int
    reason: str = ""  # which condition, and why it holds; empty where the stage had a number of epochs


class Alert(NamedTuple):
    """A message for the user."""

    message: str
    record: AlertRecord | None = None  # of the rule that found it
    is_logged: bool = False  # whether the run's log has it: as an alert of a watch, a change of a parameter


class Paused(NamedTuple):
    """A studio has paused the run."""

    step: int


class Continued(NamedTuple):
    """A paused run continues."""

    secs: float  # duration of the pause
    reason: str = ""  # set where it was not requested


class Stopped(NamedTuple):
    """The run ends before its last stage, on request or out of time.

    It can be resumed from here.
    """

    reason: str


Event = Resumed | StageBegan | StepDone | EpochDone | CheckpointSaved | StageDone | Alert | Paused | Continued | Stopped
Events = Generator[Event, None, None]
