"""Pipelines in evaluation mode."""

from __future__ import annotations

from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

from torcheer.archive.progress import Told, tell_nobody
from torcheer.training.loop.pipeline_runner import Lane
from torcheer.training.loop.step_errors import explain_step
from torcheer.training.spec.session_parts import DebugPipeline


def evaluate_lane(
    lane: Lane, batches: int | None, precision: AbstractContextManager[Any], told: Told = tell_nobody
) -> dict[str, float]:
    """A pipeline's columns over its whole data, or over some batches of it."""
    lane.reset()
    for number, batch in enumerate(islice(lane.batches(0), batches), 1):
        try:
            with precision:
                frames, samples = lane.forward(batch)
                if lane.losses:
                    lane.loss(frames, samples)
            lane.measure(frames, samples)
        except Exception as error:
            explain_step(error, lane, batch, **{"evaluation, batch": number})
            raise
        told(1)
    return lane.values()


def look(pipeline: DebugPipeline, lane: Lane, precision: AbstractContextManager[Any]) -> None:
    """Show a few outputs."""
    for batch in islice(lane.batches(0), pipeline.iterations):
        with precision:
            frames, _ = lane.forward(batch, infer=True)
        last = frames[lane.graph.processors[-1]]
        values = {key: last[key] for key in pipeline.keys}
        if pipeline.postprocessor is not None:
            values = pipeline.postprocessor(values)
        pipeline.output_device(values)
