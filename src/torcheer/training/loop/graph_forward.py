"""Run a batch through a graph of models: every node runs once, its outputs join the frame."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence, Sized
from copy import copy
from typing import Any, SupportsFloat

import torch
from torch import Tensor

from torcheer.errors import BadArgument
from torcheer.terminal import human_shape, plural
from torcheer.training.session_parts import Frame, Graph, Measure, Node, Processor
from torcheer.training.simple_session import lookup

Batch = dict[str, Frame]  # port -> frame


def frame_from_batch(batch: Any, names: Sequence[str], where: str) -> Frame:
    """Name the columns of a batch."""
    if type(batch) in (list, tuple) and len(batch) == len(names):  # the commonest case, in every step
        return dict(zip(names, batch))
    if isinstance(batch, Mapping):
        missing = [name for name in names if name not in batch]
        if missing:
            raise BadArgument(f"{where}: a batch has no {missing[0]!r}; it has {', '.join(batch)}")
        return {name: batch[name] for name in names or batch}
    columns = batch if isinstance(batch, (tuple, list)) and len(names) != 1 else (batch,)
    if not names:
        return {f"input_{number}": column for number, column in enumerate(columns, 1)}
    if len(columns) != len(names):
        raise BadArgument(
            f"{where}: a batch has {len(columns)} columns, and {len(names)} are named: {', '.join(names)}"
        )
    return dict(zip(names, columns))


class ProcessorRunner:
    """A processor with its models resolved."""

    def __init__(self, name: str, processor: Processor, models: Mapping[str, Any], device: torch.device) -> None:
        self.name, self.device = name, device
        self._input_adapter, self._output_adapter = processor.input_adapter, processor.output_adapter
        self._nodes = [
            (node, node.alias or node.model, lookup(models, node.model, "models")) for node in processor.nodes
        ]
        self._moves = device.type != "cpu"

    @property
    def models(self) -> dict[str, Any]:
        """Models that are modules, by the names of their nodes."""
        return {name: model for _, name, model in self._nodes if isinstance(model, torch.nn.Module)}

    @property
    def outputs(self) -> list[str]:
        """Columns that the models make."""
        return [column for node, _, _ in self._nodes for column in node.outputs]

    @property
    def needed_columns(self) -> list[str]:
        """Columns of the batch that the models take, or their adapter; none of an adapter that does not say them."""
        if self._input_adapter is not None:
            columns = getattr(self._input_adapter, "columns", {})
            return list(columns.values()) if isinstance(columns, dict) else []
        needed, made = list[str](), set[str]()
        for node, _, _ in self._nodes:
            needed += [column for column in node.inputs if column not in made and column not in needed]
            made.update(node.outputs)
        return needed

    @property
    def steps(self) -> list[Node]:
        """What runs, in order."""
        return [node for node, _, _ in self._nodes]

    def making(self, columns: Sequence[str]) -> ProcessorRunner:
        """Return a copy with only the models that these columns come from; itself where an adapter may need all."""
        if self._input_adapter is not None or self._output_adapter is not None or not set(columns) <= set(self.outputs):
            return self
        wanted, nodes = set(columns), list[tuple[Node, str, Any]]()
        for entry in reversed(self._nodes):
            if wanted & set(entry[0].outputs):
                nodes.insert(0, entry)
                wanted = wanted - set(entry[0].outputs) | set(entry[0].inputs)
        pruned = copy(self)
        pruned._nodes = nodes
        return pruned

    def __call__(self, frame: Frame, *, infer: bool = False) -> Frame:
        """Return the frame with the outputs of all models added."""
        adapted = self._input_adapter(frame) if self._input_adapter is not None else None
        outputs: Frame = {}
        for node, name, model in self._nodes:
            columns = frame if adapted is None else adapted.get(name)
            if columns is None:  # an adapter may omit a model that takes only outputs of earlier ones
                if not all(key in outputs for key in node.inputs):
                    raise self._missing_input(node, name, adapted or {}, outputs)
                columns = {}
            arguments = []
            for key in node.inputs:
                if key in outputs:
                    arguments.append(outputs[key])
                elif key in columns:
                    arguments.append(move_to_device(columns[key], self.device) if self._moves else columns[key])
                else:
                    names = ", ".join([*columns, *outputs])
                    raise BadArgument(f"{self.name}: {node.model} takes {key!r}, and there is only {names}")
            output = model(*arguments) if not infer else infer_with(model, arguments)
            if len(node.outputs) == 1 and isinstance(output, Tensor):  # the commonest case, in every step
                outputs[node.outputs[0]] = output
            else:
                outputs.update(name_outputs(output, node.outputs, name, ignores_rest=node.ignores_rest))
        result = {**frame, **outputs}
        return result if self._output_adapter is None else self._output_adapter(result)

    def _missing_input(self, node: Node, name: str, adapted: Mapping[str, Any], outputs: Frame) -> BadArgument:
        missing = ", ".join(repr(key) for key in node.inputs if key not in outputs)
        return BadArgument(
            f"{self.name}: the input adapter gives nothing for {name!r}, which takes {missing}; it gives "
            f"{', '.join(adapted) or 'nothing at all'}, and the models before it made {', '.join(outputs) or 'nothing'}"
        )


def infer_with(model: Any, arguments: Sequence[Any]) -> Any:
    """Call a model's `run_inference` where it has one, with as many of the inputs as it takes: it needs no targets."""
    function = getattr(model, "run_inference", None)
    if function is None:
        return model(*arguments)
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return function(*arguments)
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return function(*arguments[: len(positional)])


def name_outputs(result: Any, outputs: Sequence[str], model: str, *, ignores_rest: bool = False) -> Frame:
    """Name what a model returned: a tensor, a list, a tuple or a dict.

    It may return fewer values than there are names, as a decoder that has no hidden state to give when it infers;
    `ignores_rest` allows more, too.
    """
    if isinstance(result, Tensor):
        result = (result,)
    elif isinstance(result, Mapping):
        try:
            return {name: result[name] for name in outputs}
        except KeyError as error:
            raise BadArgument(f"{model} returned {', '.join(result)}, and no {error}") from None
    elif not isinstance(result, (tuple, list)):
        result = (result,)
    if len(result) > len(outputs) and not ignores_rest:
        names = ", ".join(outputs)
        raise BadArgument(f"{model} returned {len(result)} values, and only {names} are named: name the others, too")
    return dict(zip(outputs, result))


def run_graph(
    graph: Graph, processors: Mapping[str, ProcessorRunner], batch: Batch, *, infer: bool = False
) -> dict[str, Frame]:
    """Add the frame of every processor to the frames at the ports; return them."""
    frames = batch
    for name in graph.processors:
        sources = graph.edges[name]
        frame = frames[sources[0]] if len(sources) == 1 else join_frames([frames[source] for source in sources])
        frames[name] = processors[name](frame, infer=infer)
    return frames


def join_frames(frames: Sequence[Frame]) -> Frame:
    """Concatenate frames along the batch; columns that are not in all of them are dropped."""
    shared = [key for key in frames[0] if all(key in frame for frame in frames)]
    return {key: _join_columns([frame[key] for frame in frames]) for key in shared}


def _join_columns(columns: list[Any]) -> Any:
    if isinstance(columns[0], Tensor):
        return torch.cat(columns)
    return [item for column in columns for item in column]


def move_to_device(value: Any, device: torch.device) -> Any:
    """Return a value with all its tensors on a device."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {key: move_to_device(part, device) for key, part in value.items()}
    if hasattr(value, "to"):  # a packed sequence, a tokenizer's encoding
        return value.to(device)
    if isinstance(value, (tuple, list)):
        parts = [move_to_device(part, device) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


class BoundMeasure:
    """A loss or metric bound to the columns that it reads."""

    def __init__(self, name: str, measure: Measure, device: torch.device) -> None:
        self.name, self.measure = name, measure
        self.function, self.counts_by = measure.function, measure.items
        self._inputs, self._transform = measure.inputs, measure.transform
        self._device, self._moves = device, device.type != "cpu"
        if isinstance(measure.function, torch.nn.Module):  # weights of classes, states of torchmetrics
            measure.function.to(device)

    def values(self, frame: Frame) -> Any:
        """Return the arguments of the function."""
        try:
            columns: Any = list(map(frame.__getitem__, self._inputs))
        except KeyError as error:
            raise BadArgument(f"{self.name}: there is no {error} in the frame; it has {', '.join(frame)}") from None
        if self._transform is not None:
            columns = self._transform(*columns)
            columns = [columns] if isinstance(columns, Tensor) else columns
        return [move_to_device(value, self._device) for value in columns] if self._moves else columns

    def __call__(self, frame: Frame) -> Any:
        value = self.function(*self.values(frame))
        if not (value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, SupportsFloat)):
            raise BadArgument(f"{self.name} gives {_describe(value)}, and one number is needed: {_to_number(value)}")
        return value

    def items(self, frame: Frame) -> float:
        """Return the number of items in a batch, read from the column `counts_by`."""
        if self.counts_by not in frame:
            raise BadArgument(f"{self.name} counts {self.counts_by!r}; the frame only has {', '.join(frame)}")
        column = frame[self.counts_by]
        numbers = [column.sum()] if isinstance(column, Tensor) else column
        count = float(sum(number if isinstance(number, int | float | Tensor) else 1 for number in numbers))
        if not count >= 0:
            raise BadArgument(f"{self.name} counts {self.counts_by!r}, which add up to {count:g}: lengths, or a mask")
        return count


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {human_shape(value.shape)}"
    return f"{plural(len(value), 'value')} ({type(value).__name__})" if isinstance(value, Sized) else f"{value!r}"


def _to_number(value: Any) -> str:
    """What makes one number of a loss or metric."""
    if isinstance(value, Tensor):
        return "its mean, by reduction='mean' or .mean()"
    return "return the one that counts, and each of the others as a metric of its own"


def count_samples(frame: Frame) -> int:
    """Return the number of samples in a frame: the length of its first column."""
    for column in frame.values():
        if isinstance(column, Tensor):
            return column.size(0) if column.ndim else 1  # `len` of a tensor is written in Python
        if hasattr(column, "__len__"):
            return len(column)
    return 1
