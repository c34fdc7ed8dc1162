"""Where in a training run an exception came from."""

from __future__ import annotations

from typing import Any

from torcheer.history.failures import arguments, explain, frames_of
from torcheer.training.forward import Measured, Runner
from torcheer.training.updates import Update

_UPDATES = frozenset((Update.backward.__code__, Update.flush.__code__))


def explain_step(error: Exception, lane: str, given: Any, **where: int) -> None:
    """Annotate what went wrong in a step: which stage, epoch, step, pipeline, node and batch."""
    place = ", ".join(f"{name} {number}" for name, number in where.items())
    what = f", with {arguments(given, {})}" if given is not None else ""
    explain(error, training=lambda: f"{place}, pipeline {lane!r}{_doing(error, given is not None)}{what}")


def _doing(error: Exception, has_batch: bool) -> str:
    """What the step was doing: a node, a loss, the way back, or getting a batch."""
    for frame, _ in reversed(list(frames_of(error))):
        if frame.f_code is Runner.__call__.__code__ and "name" in frame.f_locals:
            return f", node {frame.f_locals['name']!r}"
        if frame.f_code is Measured.__call__.__code__:
            return f", measure {frame.f_locals['self'].name!r}"
        if frame.f_code in _UPDATES:
            return ", backward and update"
    return "" if has_batch else ", getting the next batch"
