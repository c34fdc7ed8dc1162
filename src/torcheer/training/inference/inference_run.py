"""Inference from the command line: convert, preprocess, batch, run and show inputs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import default_collate

from torcheer.errors import BadArgument, TorcheerError
from torcheer.terminal import folded, tell_item
from torcheer.training.collators import ColumnWiseCollator
from torcheer.training.datasets import Steps, preprocessors_of
from torcheer.training.inference.input_converters import with_converters
from torcheer.training.loop.graph_forward import ProcessorRunner, move_to_device, run_graph
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
    inference = with_converters(runner, inference, _needed_columns(_processors(runner, inference.results)))
    samples = _group_inputs(runner, inputs)
    for start in range(0, len(samples), inference.batch_size):
        results: Any = predict(session, runner, inference, samples[start : start + inference.batch_size])
        results = results if inference.post_processor is None else inference.post_processor(results)
        tell_item("results", results)
        inference.output_device(results)


def answer_lines(session: Session, inference: Inference, lines: Iterable[str]) -> bool:
    """Answer each line as one sample; what cannot be answered is reported, and the next line asked for.

    Return whether all were answered. A pipeline with several ports takes as many words of a line, or texts in quotes.
    """
    count, is_answered = len(session.runners[inference.pipeline].inputs), True
    for line in lines:
        if not line.strip():
            continue
        try:
            infer(session, inference, [line.strip()] if count == 1 else shlex.split(line))
        except (TorcheerError, ValueError) as error:
            print(folded(str(error)), file=sys.stderr)
            is_answered = False
    return is_answered


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
    processors = _processors(runner, inference.results)
    needed = _needed_columns(processors)
    frames = {
        port: make_frame(
            feed.loader, input, inference.converters.get(port), [sample[number] for sample in samples], needed
        )
        for number, (feed, port, input) in enumerate(runner.inputs)
    }
    columns = list(chain(*frames.values()))
    try:
        with session.evaluation_mode(), session.precision():
            outputs = run_graph(runner.graph, processors, frames, infer=True)
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


def _processors(runner: PipelineRunner, results: Sequence[str]) -> Mapping[str, ProcessorRunner]:
    """Return the pipeline's processors; of a single one, only the models that the results come from."""
    if len(runner.graph.processors) != 1:
        return runner.processors
    name = runner.graph.processors[0]
    return {name: runner.processors[name].making(results)}


def _needed_columns(processors: Mapping[str, ProcessorRunner]) -> list[str]:
    """Return the columns that a single processor takes of a sample; none are known of several."""
    return next(iter(processors.values())).needed_columns if len(processors) == 1 else []


def make_frame(loader: Any, input: Any, converter: Any, inputs: Sequence[str], needed: Sequence[str] = ()) -> Frame:
    """Make the columns that a loader would make of these inputs, without training-only ones.

    `needed`: the columns that are asked for, where they are known; inputs stand at their places in a sample.
    """
    converted = [_convert(text, converter) for text in inputs]
    count = len(converted[0]) if isinstance(converted[0], tuple) else 1
    places = places_of(input.names, needed, count)
    steps = [*preprocessors_of(loader.dataset), *[Steps()] * len(input.names)]
    chosen = [steps[place] if place < len(steps) else Steps() for place in places]
    items = [_preprocess(item, chosen) for item in converted]
    try:
        columns, is_whole = _collate(loader, items, places)
    except Exception as error:  # user code
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        raise BadArgument(
            f"the collator of {input.loader!r} cannot make a batch of what inference gives it: {reason}"
        ) from error
    if isinstance(columns, Mapping):
        return dict(columns)
    columns = columns if isinstance(columns, tuple | list) else (columns,)
    names = input.names or tuple(f"input_{number}" for number in range(1, len(columns) + 1))
    if is_whole:  # without what is the first sample's
        kept = set(needed) & set(names) or {names[place] for place in places}
        return {name: column for name, column in zip(names, columns) if name in kept}
    return dict(zip([names[place] for place in places] if len(columns) == count else names, columns))


def places_of(names: Sequence[str], needed: Sequence[str], count: int) -> list[int]:
    """Return where `count` values of an input stand in a sample: at the needed columns, or first."""
    places = sorted(names.index(name) for name in needed if name in names)
    return places if len(places) == count else list(range(count))


def _collate(loader: Any, items: list[Any], places: Sequence[int]) -> tuple[Any, bool]:
    """Make a batch of items; the second value says that the columns are those of whole samples.

    A collator that cannot do without the rest of a sample gets it from the first one of the dataset.
    """
    collate = loader.collate or default_collate
    is_first = list(places) == list(range(len(places)))
    try:
        if isinstance(collate, ColumnWiseCollator) and is_first:
            return collate.first(len(places))(items), False
        if is_first or loader.collate is None:
            return collate(items), False
        return collate(_whole_samples(loader.dataset, items, places)), True
    except Exception:  # user code: the collator may need labels
        samples = _whole_samples(loader.dataset, items, places)
        if not samples:
            raise
        return collate(samples), True


def _whole_samples(dataset: Any, items: Sequence[Any], places: Sequence[int]) -> list[Any]:
    """Return samples of the dataset's form with the values of items in their places; none where it has no such form."""
    sample = dataset[0] if hasattr(dataset, "__getitem__") and len(dataset) else None
    if not isinstance(sample, tuple | list) or len(sample) <= max(places):
        return []
    samples = []
    for item in items:
        values = list(sample)
        for place, value in zip(places, item if isinstance(item, tuple) else (item,)):
            values[place] = value
        samples.append(tuple(values))
    return samples


def _convert(text: str, converter: Any) -> Any:
    if converter is None:
        return text
    try:
        return converter(text)
    except BadArgument as error:
        raise BadArgument(f"input {text!r} cannot be converted: {error}") from error
    except Exception as error:  # user code: a missing file, a text that is not a number
        reason = str(error) if isinstance(error, TorcheerError) else f"{type(error).__name__}: {error}".rstrip(": ")
        kind = converter if hasattr(converter, "__qualname__") else type(converter)
        by = "" if kind is partial else f" by {kind.__module__}.{kind.__qualname__}"  # ours are partial
        raise BadArgument(f"input {text!r} cannot be converted{by}: {reason}") from error


def _preprocess(item: Any, steps: Sequence[Any]) -> Any:
    """Preprocess an item as the dataset would, position by position.

    Only a tuple has several positions: a list may be one value, such as the words of a sentence.
    """
    if isinstance(item, Mapping):
        return item
    values = item if isinstance(item, tuple) else (item,)
    return (*(step(value) for step, value in zip(steps, values)), *values[len(steps) :])
