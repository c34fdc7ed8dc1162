"""What happens in a session, as `session.run()` tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple


class StageBegan(NamedTuple):
    """A stage begins, or goes on."""

    stage: int


class StepDone(NamedTuple):
    """One batch of one pipeline is done."""

    step: int  # updates so far
    epoch: int  # from 1, across stages
    round: int  # batches of each pipeline so far in this epoch, this one included
    pipeline: str
    loss: Any  # a tensor that nobody has waited for


class EpochDone(NamedTuple):
    """An epoch is trained and evaluated; its row is in the CSV."""

    epoch: int
    values: dict[str, float]  # column -> value
    secs: float


class CheckpointSaved(NamedTuple):
    """Everything up to here survives whatever comes."""

    step: int
    path: Path


class StageDone(NamedTuple):
    """A stage's stop condition holds."""

    stage: int


class Alert(NamedTuple):
    """Something a person should know."""

    message: str


class Paused(NamedTuple):
    """Somebody who looks on has it wait here."""

    step: int


class Continued(NamedTuple):
    """It goes on."""

    secs: float  # that it has waited
    reason: str = ""  # where nobody asked for it


class Stopped(NamedTuple):
    """The run ends before its last stage: asked to, or out of time. It goes on from here."""

    reason: str


Event = StageBegan | StepDone | EpochDone | CheckpointSaved | StageDone | Alert | Paused | Continued | Stopped
