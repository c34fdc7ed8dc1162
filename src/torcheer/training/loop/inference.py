"""Inputs from a command line through a trained pipeline: converted, preprocessed, batched, run, shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import default_collate

from torcheer.errors import BadArgument
from torcheer.training.datasets import preprocessors_of
from torcheer.training.loop.graph_forward import moved, run_graph
from torcheer.training.spec.session_parts import Frame

if TYPE_CHECKING:
    from torcheer.training.loop.pipeline_runner import Lane
    from torcheer.training.session import Session
    from torcheer.training.spec import Inference

CPU = torch.device("cpu")


def infer(session: Session, inference: Inference, inputs: Sequence[str]) -> None:
    """Run every input through the inference pipeline, and hand the results to its output device.

    A pipeline with several ports takes as many inputs for each sample, one after the other.
    """
    lane = session.lanes[inference.pipeline]
    samples = _samples(lane, inputs)
    for start in range(0, len(samples), inference.batch_size):
        results = predict(session, lane, inference, samples[start : start + inference.batch_size])
        inference.output_device(results if inference.post_processor is None else inference.post_processor(results))


def _samples(lane: Lane, inputs: Sequence[str]) -> list[Sequence[str]]:
    """The inputs of each sample."""
    ports = [port for _, port, _ in lane.inputs]
    if not inputs or len(inputs) % len(ports):
        asked = f"{len(ports)} inputs for each sample: {', '.join(ports)}" if len(ports) > 1 else "at least one input"
        raise BadArgument(f"pipeline {lane.name!r} takes {asked}; {len(inputs)} were given")
    return [inputs[start : start + len(ports)] for start in range(0, len(inputs), len(ports))]


def predict(session: Session, lane: Lane, inference: Inference, samples: Sequence[Sequence[str]]) -> Frame:
    """The results of one batch, on the CPU."""
    frames = {
        port: frame(feed.loader, one, inference.converters.get(port), [sample[number] for sample in samples])
        for number, (feed, port, one) in enumerate(lane.inputs)
    }
    given = list(chain(*frames.values()))
    try:
        with session.evaluation_mode(), session.precision():
            made = run_graph(lane.graph, lane.runners, frames, infer=True)
    except KeyError as error:
        raise BadArgument(
            f"{lane.name!r} asks for {error}, and inference gives it only {', '.join(given)}. Give its batch processor "
            "another input_adapter in the inference config"
        ) from error
    found: Frame = {}
    for name in lane.graph.processors:
        found.update(made[name])
    missing = [key for key in inference.results if key not in found]
    if missing:
        raise BadArgument(f"results: there is no {', '.join(missing)}; there is {', '.join(found)}")
    return {key: moved(found[key], CPU) for key in inference.results}


def frame(loader: Any, one: Any, converter: Any, inputs: Sequence[str]) -> Frame:
    """The columns that a loader would have made of these inputs; those that only training has are left out."""
    steps = preprocessors_of(loader.dataset)
    items = [_prepared(_converted(text, converter), steps) for text in inputs]
    try:
        columns = (loader.collate or default_collate)(items)
    except Exception as error:  # the user's own collator, which may ask for labels
        said = f"{type(error).__name__}: {error}".rstrip(": ")
        raise BadArgument(
            f"the collator of {one.loader!r} cannot make a batch of what inference gives it: {said}"
        ) from error
    if isinstance(columns, Mapping):
        return dict(columns)
    columns = columns if isinstance(columns, tuple | list) else (columns,)
    names = one.names or tuple(f"input_{number}" for number in range(1, len(columns) + 1))
    return dict(zip(names, columns))


def _converted(text: str, converter: Any) -> Any:
    if converter is None:
        return text
    try:
        return converter(text)
    except Exception as error:  # the user's own: a file that is not there, a text that is no number
        said = f"{type(error).__name__}: {error}".rstrip(": ")
        raise BadArgument(f"input {text!r} cannot be converted: {said}") from error


def _prepared(item: Any, steps: Sequence[Any]) -> Any:
    """An item as the dataset would have it: through the preprocessors of its places.

    Only a tuple has several places: a list may be one value, such as the words of a sentence.
    """
    if isinstance(item, Mapping):
        return item
    values = item if isinstance(item, tuple) else (item,)
    return (*(step(value) for step, value in zip(steps, values)), *values[len(steps) :])
