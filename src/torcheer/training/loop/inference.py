"""Inference from the command line: convert, preprocess, batch, run and show inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import default_collate

from torcheer.errors import BadArgument
from torcheer.training.datasets import preprocessors_of
from torcheer.training.loop.graph_forward import move_to_device, run_graph
from torcheer.training.session_parts import Frame

if TYPE_CHECKING:
    from torcheer.training.loop.pipeline_runner import PipelineRunner
    from torcheer.training.session import Session
    from torcheer.training.spec import Inference

CPU = torch.device("cpu")


def infer(session: Session, inference: Inference, inputs: Sequence[str]) -> None:
    """Run every input through the inference pipeline and pass the results to its output device.

    A pipeline with several ports takes that many consecutive inputs for each sample.
    """
    runner = session.runners[inference.pipeline]
    samples = _group_inputs(runner, inputs)
    for start in range(0, len(samples), inference.batch_size):
        results = predict(session, runner, inference, samples[start : start + inference.batch_size])
        inference.output_device(results if inference.post_processor is None else inference.post_processor(results))


def _group_inputs(runner: PipelineRunner, inputs: Sequence[str]) -> list[Sequence[str]]:
    """Group the inputs by sample."""
    ports = [port for _, port, _ in runner.inputs]
    if not inputs or len(inputs) % len(ports):
        requirement = (
            f"{len(ports)} inputs for each sample: {', '.join(ports)}" if len(ports) > 1 else "at least one input"
        )
        raise BadArgument(f"pipeline {runner.name!r} takes {requirement}; {len(inputs)} were given")
    return [inputs[start : start + len(ports)] for start in range(0, len(inputs), len(ports))]


def predict(session: Session, runner: PipelineRunner, inference: Inference, samples: Sequence[Sequence[str]]) -> Frame:
    """Return the results of one batch, on the CPU."""
    frames = {
        port: make_frame(feed.loader, input, inference.converters.get(port), [sample[number] for sample in samples])
        for number, (feed, port, input) in enumerate(runner.inputs)
    }
    columns = list(chain(*frames.values()))
    try:
        with session.evaluation_mode(), session.precision():
            outputs = run_graph(runner.graph, runner.processors, frames, infer=True)
    except KeyError as error:
        raise BadArgument(
            f"{runner.name!r} asks for {error}, and inference gives it only {', '.join(columns)}. Give its batch "
            "processor another input_adapter in the inference config"
        ) from error
    values: Frame = {}
    for name in runner.graph.processors:
        values.update(outputs[name])
    missing = [key for key in inference.results if key not in values]
    if missing:
        raise BadArgument(f"results: there is no {', '.join(missing)}; there is {', '.join(values)}")
    return {key: move_to_device(values[key], CPU) for key in inference.results}


def make_frame(loader: Any, input: Any, converter: Any, inputs: Sequence[str]) -> Frame:
    """Make the columns that a loader would make of these inputs, without training-only ones."""
    steps = preprocessors_of(loader.dataset)
    items = [_preprocess(_convert(text, converter), steps) for text in inputs]
    try:
        columns = (loader.collate or default_collate)(items)
    except Exception as error:  # user code: the collator may need labels
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        raise BadArgument(
            f"the collator of {input.loader!r} cannot make a batch of what inference gives it: {reason}"
        ) from error
    if isinstance(columns, Mapping):
        return dict(columns)
    columns = columns if isinstance(columns, tuple | list) else (columns,)
    names = input.names or tuple(f"input_{number}" for number in range(1, len(columns) + 1))
    return dict(zip(names, columns))


def _convert(text: str, converter: Any) -> Any:
    if converter is None:
        return text
    try:
        return converter(text)
    except Exception as error:  # user code: a missing file, a text that is not a number
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        raise BadArgument(f"input {text!r} cannot be converted: {reason}") from error


def _preprocess(item: Any, steps: Sequence[Any]) -> Any:
    """Preprocess an item as the dataset would, position by position.

    Only a tuple has several positions: a list may be one value, such as the words of a sentence.
    """
    if isinstance(item, Mapping):
        return item
    values = item if isinstance(item, tuple) else (item,)
    return (*(step(value) for step, value in zip(steps, values)), *values[len(steps) :])
