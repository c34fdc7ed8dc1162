"""Where in a training run an exception came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from torcheer.history.error_notes import NO_HISTORY, describe_arguments, explain, frames_of
from torcheer.training.loop.graph_forward import Measured, Runner
from torcheer.training.loop.optimizer_step import Update

if TYPE_CHECKING:
    from torcheer.training.loop.pipeline_runner import Lane

_UPDATES = frozenset((Update.backward.__code__, Update.flush.__code__))


def explain_step(error: Exception, lane: Lane, given: Any, **where: int) -> None:
    """Annotate what went wrong in a step: which stage, epoch, step, pipeline, node and batch."""
    place = ", ".join(f"{name} {number}" for name, number in where.items())
    what = f", with {describe_arguments(given, {})}" if given is not None else ""
    root = nn.Module()  # so that layers of several models have one name each: "encoder.conv1"
    root._modules.update({name: model for runner in lane.runners.values() for name, model in runner.models.items()})
    doing = _doing(error, given is not None)
    explain(error, root, training=f"{place}, pipeline {lane.name!r}{doing}{what}", history=NO_HISTORY)


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
