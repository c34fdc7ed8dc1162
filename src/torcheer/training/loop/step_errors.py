"""Annotate an exception with where in a training run it was raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from torcheer.history.error_notes import NO_HISTORY, describe_arguments, explain, frames_of
from torcheer.training.loop.graph_forward import BoundMeasure, ProcessorRunner
from torcheer.training.loop.optimizer_step import Update

if TYPE_CHECKING:
    from torcheer.training.loop.pipeline_runner import PipelineRunner

_UPDATES = frozenset((Update.backward.__code__, Update.flush.__code__))


def explain_step(error: Exception, runner: PipelineRunner, data: Any, **where: int) -> None:
    """Annotate an error of a step with stage, epoch, step, pipeline, node and batch."""
    place = ", ".join(f"{name} {number}" for name, number in where.items())
    arguments = f", with {describe_arguments(data, {})}" if data is not None else ""
    root = nn.Module()  # one name for each layer of several models: "encoder.conv1"
    root._modules.update(
        {name: model for processor in runner.processors.values() for name, model in processor.models.items()}
    )
    activity = _describe_activity(error, data is not None)
    explain(error, root, training=f"{place}, pipeline {runner.name!r}{activity}{arguments}", history=NO_HISTORY)


def _describe_activity(error: Exception, has_batch: bool) -> str:
    """Describe what the step was doing.

    Running a node, a loss or the backward pass, or loading a batch.
    """
    for frame, _ in reversed(list(frames_of(error))):
        if frame.f_code is ProcessorRunner.__call__.__code__ and "name" in frame.f_locals:
            return f", node {frame.f_locals['name']!r}"
        if frame.f_code is BoundMeasure.__call__.__code__:
            return f", measure {frame.f_locals['self'].name!r}"
        if frame.f_code in _UPDATES:
            return ", backward and update"
    return "" if has_batch else ", getting the next batch"
