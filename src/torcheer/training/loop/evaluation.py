"""Run pipelines in evaluation mode, and what a stage has before an epoch: callbacks, pipelines that only go forward.

A run that goes on inside an epoch does not run these again: their files are as they left them, the state of a callback
with `state_dict` and `load_state_dict` is in the checkpoint, and one with a method `resume(session, epoch)` is asked to
make its other changes again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from torcheer.errors import BadArgument
from torcheer.history.error_notes import annotate
from torcheer.terminal import ProgressCallback, ignore_progress
from torcheer.training.loop.optimizer_step import WeightAverage
from torcheer.training.loop.pipeline_runner import PipelineRunner
from torcheer.training.loop.step_errors import explain_step
from torcheer.training.parallel.batch_shares import Share, StandInBatches
from torcheer.training.parallel.heartbeats import CALLBACKS, HEARTBEAT
from torcheer.training.parallel.sharded_tensors import forget_gathered
from torcheer.training.session_parts import DebugPipeline, Stage

if TYPE_CHECKING:
    from torcheer.training.session import Session


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


def batch_limit(steps: float | Mapping[str, float] | None, runner: PipelineRunner) -> int | None:
    """Return how many batches a pipeline is evaluated on; None for all. A float is a share of those there are now."""
    count = steps.get(runner.name) if isinstance(steps, Mapping) else steps
    if not isinstance(count, float):
        return count
    return max(1, round(count * min(len(feed) for feed, _, _ in runner.inputs if not feed.is_stream)))


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
        HEARTBEAT.beat()
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


# -- before an epoch -------------------------------------------------------------------------------------------------


def prepare_epoch(session: Session, stage: Stage) -> None:
    """Run what a stage has before an epoch; of several ranks, all wait for each other after each part."""
    epoch, is_resumed = session.place.epoch + 1, session.place.round > 0
    for part in stage.before_epoch:
        with HEARTBEAT.during(CALLBACKS):
            if not isinstance(part, str):
                _call(session, part, epoch, is_resumed=is_resumed)
            elif not is_resumed:
                _run_pipeline(session, part)
            if session.ranks is not None:
                session.ranks.wait()
    for feed in session.feeds.values():
        feed.end_workers()  # they have copies of the data as it was
    _check_samples(session, stage, is_resumed=is_resumed)
    session.samples_to_resume = {}


def part_name(part: Any) -> str:
    """Return the name of what runs before an epoch: a pipeline's, a function's, or that of an object's class."""
    return part if isinstance(part, str) else str(getattr(part, "__name__", type(part).__name__))


def _call(session: Session, callback: Any, epoch: int, *, is_resumed: bool) -> None:
    function = getattr(callback, "resume", None) if is_resumed else callback
    if function is None:
        return
    try:
        function(session, epoch)
    except Exception as error:  # user code
        annotate(error, training=f"before epoch {epoch}, callback {part_name(callback)}")
        raise


def _run_pipeline(session: Session, name: str) -> None:
    """Run all batches of a pipeline through its graph, in evaluation mode: its adapters do the work."""
    runner, share = session.runners[name], None if session.ranks is None else session.ranks.share
    with session.evaluation_mode():
        for number, batch in enumerate(runner.batches(None, share=share), 1):
            if type(batch) is StandInBatches and not session.is_sharded:
                continue  # another rank has these samples
            try:
                with session.precision():
                    runner.forward(batch)
            except Exception as error:
                explain_step(error, runner, batch, **{"before epoch": session.place.epoch + 1, "batch": number})
                raise


def _check_samples(session: Session, stage: Stage, *, is_resumed: bool) -> None:
    """Raise where there is nothing to train with, or where an epoch that goes on has other data than it began with."""
    for name in stage.training:
        runner = session.runners[name]
        for feed, _, input in runner.inputs if is_resumed else ():
            expected = session.samples_to_resume.get(input.loader, feed.samples)
            if feed.samples != expected:
                raise BadArgument(
                    f"the session stands inside an epoch in which {input.loader!r} has {expected} samples, and now it "
                    f"has {feed.samples}. A callback that changes data in memory has a method resume(session, epoch), "
                    "which makes the change again; files that callbacks write have to stay until the next epoch"
                )
        with suppress(TypeError):  # a stream has no length
            if not len(runner):
                raise BadArgument(
                    f"pipeline {name!r} has no batch for epoch {session.place.epoch + 1}: what runs before the epoch "
                    f"({', '.join(map(part_name, stage.before_epoch))}) left too few samples"
                )
