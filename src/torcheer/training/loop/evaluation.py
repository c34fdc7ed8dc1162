"""Run pipelines in evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any

import torch
from torch import nn

from torcheer.terminal import ProgressCallback, ignore_progress
from torcheer.training.loop.optimizer_step import WeightAverage
from torcheer.training.loop.pipeline_runner import PipelineRunner
from torcheer.training.loop.step_errors import explain_step
from torcheer.training.parallel.batch_shares import Share, StandInBatches
from torcheer.training.parallel.sharded_tensors import forget_gathered
from torcheer.training.session_parts import DebugPipeline


@contextmanager
def evaluating(models: Mapping[str, nn.Module], averages: Mapping[str, WeightAverage]) -> Iterator[None]:
    """Run the body in evaluation mode, without gradients and with averaged weights; restore both afterwards."""
    modes = {module: module.training for model in models.values() for module in model.modules()}
    for model in models.values():
        model.eval()
    for average in averages.values():
        average.swap()
    if averages:
        forget_gathered(modes)
    try:
        with torch.no_grad():
            yield
    finally:
        for average in averages.values():
            average.swap()
        if averages:
            forget_gathered(modes)
        for module, mode in modes.items():
            module.training = mode


def evaluate_pipeline(
    runner: PipelineRunner,
    batches: int | None,
    precision: AbstractContextManager[Any],
    on_progress: ProgressCallback = ignore_progress,
    share: Share | None = None,
) -> None:
    """Run a pipeline over all its data, or over the first `batches` batches; its meters have the values then.

    share: what this rank takes of each batch.
    """
    runner.reset()
    for number, batch in enumerate(islice(runner.batches(None, share=share), batches), 1):
        try:
            with precision:
                frames, samples = runner.forward(batch)
                samples = 0 if type(batch) is StandInBatches else samples
                if runner.losses:
                    runner.loss(frames, samples)
            if runner.metrics:
                runner.measure(frames, samples)
        except Exception as error:
            explain_step(error, runner, batch, **{"evaluation, batch": number})
            raise
        on_progress(1)


def run_debug_pipeline(
    pipeline: DebugPipeline, runner: PipelineRunner, precision: AbstractContextManager[Any], *, is_shown: bool = True
) -> None:
    """Send the outputs of a few batches to the pipeline's output device; without `is_shown`, compute them only."""
    for batch in islice(runner.batches(None), pipeline.iterations):
        with precision:
            frames, _ = runner.forward(batch, infer=True)
        if not is_shown:
            continue
        last = frames[runner.graph.processors[-1]]
        values = {key: last[key] for key in pipeline.keys}
        if pipeline.postprocessor is not None:
            values = pipeline.postprocessor(values)
        pipeline.output_device(values)
