"""Inference from the command line: convert, preprocess, batch, run and show inputs."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from torcheer.errors import BadArgument, TorcheerError
from torcheer.terminal import human_shape, plural, tell_item
from torcheer.training.collators import ColumnWiseCollator, image_to_tensor
from torcheer.training.datasets import IMAGE_MODES, preprocessors_of
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
    inference = _with_converters(runner, inference)
    samples = _group_inputs(runner, inputs)
    for start in range(0, len(samples), inference.batch_size):
        results: Any = predict(session, runner, inference, samples[start : start + inference.batch_size])
        results = results if inference.post_processor is None else inference.post_processor(results)
        tell_item("results", results)
        inference.output_device(results)


def answer_lines(session: Session, inference: Inference, lines: Iterable[str]) -> None:
    """Answer each line as one sample; what cannot be answered is reported, and the next line asked for.

    A pipeline with several ports takes as many words of a line, or texts in quotes.
    """
    count = len(session.runners[inference.pipeline].inputs)
    for line in lines:
        if not line.strip():
            continue
        try:
            infer(session, inference, [line.strip()] if count == 1 else shlex.split(line))
        except (TorcheerError, ValueError) as error:
            print(error, file=sys.stderr)


def _with_converters(runner: PipelineRunner, inference: Inference) -> Inference:
    """Return the settings with a converter for each port that has none, by the type of a sample's first value."""
    converters = dict(inference.converters)
    for feed, port, _ in runner.inputs:
        if converters.get(port) is None and not preprocessors_of(feed.loader.dataset):
            converters[port] = _converter_like(feed.loader.dataset)
    return replace(inference, converters=converters)


def _converter_like(dataset: Any) -> Any:
    """Return a function from a text to the first value of a sample; None where it is a text, too."""
    sample = dataset[0] if hasattr(dataset, "__getitem__") else None
    value = sample[0] if isinstance(sample, tuple | list) and sample else sample
    if isinstance(value, bool | int | float):
        return type(value)
    if hasattr(value, "getbands"):  # a Pillow image
        return partial(_open_image, like=value)
    if isinstance(value, torch.Tensor | np.ndarray):
        return partial(_read_numbers, like=torch.as_tensor(value))
    return None


def _read_numbers(text: str, like: Tensor) -> Tensor:
    """Read a tensor from numbers, or from a picture where there are that many channels."""
    if like.ndim == 3 and like.shape[0] in IMAGE_MODES and Path(text).suffix:
        picture = _open_image(text).convert(IMAGE_MODES[like.shape[0]]).resize((like.shape[2], like.shape[1]))
        return image_to_tensor(picture).to(like.dtype)
    numbers = [float(word) for word in re.split(r"[\s,;\[\]()]+", text) if word]
    if len(numbers) != like.numel():
        raise BadArgument(
            f"{plural(like.numel(), 'number')} ({human_shape(like.shape)}) are needed, such as 0.1, 0.5; "
            f"{len(numbers)} were given. An input converter (infer: {{input: my_code.read}}) may take anything"
        )
    return torch.tensor(numbers, dtype=like.dtype).reshape(like.shape)


def _open_image(text: str, like: Any = None) -> Any:
    from PIL import Image

    image = Image.open(text)
    return image if like is None else image.convert(like.mode).resize(like.size)


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
    collate = loader.collate or default_collate
    if isinstance(collate, ColumnWiseCollator):
        collate = collate.first(len(items[0]) if isinstance(items[0], tuple) else 1)
    try:
        columns = collate(items)
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
