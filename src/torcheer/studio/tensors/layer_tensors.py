"""The tensors of a layer, for its inspector: which there are, why others are not, slices and statistics of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from math import prod
from typing import Any, Final

from numpy.typing import NDArray

from torcheer.control.loop_messages import Moment
from torcheer.errors import BadArgument, ValueUnavailable
from torcheer.network.network_records import Layer, weight_name
from torcheer.studio.connections.messages import (
    AskSlice,
    AskStatistics,
    LayerTensors,
    SliceFrame,
    TensorHead,
    TensorStatistics,
)
from torcheer.studio.sources.layer_frames import binary_message
from torcheer.studio.sources.moment_queries import RecordedValue
from torcheer.studio.sources.source import Source
from torcheer.studio.tensors.numpy_code import slice_code
from torcheer.studio.tensors.tensor_slices import Window, cut, dtype_of
from torcheer.studio.tensors.tensor_statistics import describe_numbers
from torcheer.terminal import did_you_mean
from torcheer.vocabulary.variables import ON_PAGE

Array = NDArray[Any]
WEIGHT, WEIGHT_GRADIENT = "Wt", "WtGrad"
_NO_MOMENT: Final = Moment(-1, 0)  # of a run that kept no state
_MOST_PARAMETERS: Final = 64  # of a layer that are listed
_AXES: Final = {"maps": ("channel", "row", "column"), "heads": ("head", "query", "key")}
_KERNELS: Final = {1: ("position",), 2: ("row", "column"), 3: ("depth", "row", "column")}
_WEIGHT_AXES: Final = {  # of a module's or function's weights, by its type
    **dict.fromkeys(
        "Linear NonDynamicallyQuantizableLinear LazyLinear MultiheadAttention LSTM GRU RNN LSTMCell GRUCell RNNCell "
        "linear lstm gru rnn_tanh rnn_relu".split(), ("output", "input"),
    ),
    "Conv1D": ("input", "output"),  # of transformers: a linear layer, transposed
    **dict.fromkeys("Embedding EmbeddingBag embedding embedding_bag".split(), ("entry", "feature")),
    **{f"{name}{n}d": ("output", "input", *_KERNELS[n]) for n in _KERNELS for name in ("Conv", "LazyConv", "conv")},
    **{
        f"{name}{n}d": ("input", "output", *_KERNELS[n])
        for n in _KERNELS for name in ("ConvTranspose", "LazyConvTranspose", "conv_transpose")
    },
}  # fmt: skip


def tensors_of(source: Source, name: str, moment: int) -> LayerTensors:
    """All tensors of a layer at a moment, -1 for the newest; those that are not kept say why."""
    layer, at = _layer(source, name), _moment(source, moment) or _NO_MOMENT
    values = [variable for variable in source.net.variables if variable.of == "unit"] if source.net else []
    heads = [_value_head(source, at.id, layer, variable.name, variable.doc) for variable in values]
    for parameter in parameters_of(source, layer, at.id):
        weight, gradient = (_parameter_head(source, at.id, parameter, name) for name in (WEIGHT, WEIGHT_GRADIENT))
        is_buffer = parameter not in layer.also and not _is_parameter(parameter)
        heads += [weight] if is_buffer and gradient.why else [weight, gradient]
    return LayerTensors(at.id, at.step, tuple(heads))


def parameters_of(source: Source, layer: Layer, moment: int) -> list[str]:
    """The names of a layer's parameters, and of the buffers that are kept."""
    net, kept = source.net, source.store.parameter_names(moment)
    modules = {node.path for node in net.modules} if net is not None else set()
    named = [name for name in layer.also if name in kept or (name not in modules if modules else _is_parameter(name))]
    named += [weight_name(each) for each in (net.projections if net else ())
              if each.kind and each.receiver == layer.name]  # fmt: skip
    own = [layer.name.partition(":")[0], *(name for name in layer.also if name not in named)]
    for name in kept:  # of a checkpoint it may begin with its model's name
        module = name.rpartition(".")[0]
        if module and any(module == each or module.endswith(f".{each}") for each in own):
            named += [name] if not any(name.endswith(f".{other}") for other in named) else []
    return list(dict.fromkeys(named))[:_MOST_PARAMETERS]


def _is_parameter(name: str) -> bool:
    """Guess by its name, where the network does not tell its modules."""
    return "weight" in name.rpartition(".")[2] or "bias" in name.rpartition(".")[2]


def answer_slice(source: Source, ask: AskSlice) -> Callable[[], bytes]:
    """A function, for any thread, that cuts the slice and encodes it; raises where there is no such tensor."""
    moment, head, array = _find(source, ask)
    windows = [Window(axis, *place) for axis, *place in zip((ask.tiles, ask.rows, ask.columns), ask.firsts, ask.counts)]
    opening = source.store.opening(moment, ask.parameter or ask.layer, ask.variable)

    def encode() -> bytes:
        block = cut(array, windows, ask.index, ask.most_cells)
        frame = SliceFrame(
            ask.question, block.cells.nbytes, moment, head.type, block.cells.dtype.name,
            block.cells.shape, _three(block.windows, "first"), _three(block.windows, "count"),
            (block.down, block.across), slice_code(opening, block.windows, ask.index, head.type), opening.note,
        )  # fmt: skip
        return binary_message(asdict(frame), block.cells)

    return encode


def answer_statistics(source: Source, ask: AskStatistics) -> Callable[[], TensorStatistics]:
    """A function, for any thread, that summarises a tensor; raises where there is none."""
    _, head, array = _find(source, ask)
    return lambda: describe_numbers(array, _unit_axis(head))


def _find(source: Source, ask: AskSlice | AskStatistics) -> tuple[int, TensorHead, Array]:
    layer, at = _layer(source, ask.layer), _moment(source, ask.moment)
    if at is None:
        raise ValueUnavailable(f"there is no state of {ask.layer[:200]!r} yet")
    if ask.parameter and ask.parameter not in (names := parameters_of(source, layer, at.id)):
        near = did_you_mean(ask.parameter, names)
        raise BadArgument(f"{layer.name} has no parameter {ask.parameter[:200]!r}; it has {len(names)}.{near}")
    head = (
        _parameter_head(source, at.id, ask.parameter, ask.variable)
        if ask.parameter
        else _value_head(source, at.id, layer, ask.variable)
    )
    value = _parameter(source, at.id, ask.parameter, ask.variable) if ask.parameter else source.store.value(
        at.id, layer.name, ask.variable)  # fmt: skip
    if value is None:
        raise ValueUnavailable(f"{ask.variable} of {ask.parameter or layer.name} is not there: {head.why}")
    return at.id, head, value.array


def _layer(source: Source, name: str) -> Layer:
    layer = source.layer(name)
    if layer is None:
        layers = [placed.layer.name for placed in source.net.layers] if source.net else []
        raise BadArgument(f"no layer named {name[:200]!r} among {len(layers)}.{did_you_mean(name, layers)}")
    return layer


def _moment(source: Source, moment: int) -> Moment | None:
    moments = source.moments
    if moment < 0:
        return moments[-1] if moments else None
    return next((stored for stored in moments if stored.id == moment), None)


def _three(windows: tuple[Window, ...], name: str) -> tuple[int, int, int]:
    tiles, rows, columns = (int(getattr(window, name)) for window in windows)
    return tiles, rows, columns


# -- heads -------------------------------------------------------------------------------------------------------------


def _value_head(source: Source, moment: int, layer: Layer, variable: str, doc: str = "") -> TensorHead:
    head = TensorHead(variable, "", doc)
    value = source.store.value(moment, layer.name, variable)
    if value is None:
        return replace(head, why=_why(source, moment, layer.name, variable))
    array = value.array
    has_batch = array.ndim == len(layer.shape) + 1 or (array.ndim > 0 and array.shape != tuple(layer.shape))
    axes = _value_axes(layer, array.ndim - has_batch)
    head = _described(head, array, ("batch", *axes) if has_batch else axes, has_batch)
    return replace(head, first=max(value.first, 0) if has_batch else -1, items=source.state.batch if has_batch else 0)


def _why(source: Source, moment: int, name: str, variable: str) -> str:
    reason = source.store.why(moment, name, variable)
    return reason or ("it was not recorded at this moment" if moment >= 0 else "no step was recorded yet")


def _value_axes(layer: Layer, count: int) -> tuple[str, ...]:
    if count == 1:
        return ("unit",)
    if layer.view == "weight":
        return _weight_axes(layer.kind, count)
    names = _AXES.get(layer.view, ())
    if layer.view == "picture":
        names = ("channel", "row", "column") if layer.shape[0] == 3 else ("row", "column", "channel")
    if len(names) == count:
        return names
    if count == 2:
        return ("row", "column") if layer.kind in ("", "Input") else ("token", "feature")
    return tuple(f"axis {axis + 1}" for axis in range(count))


def _parameter(source: Source, moment: int, parameter: str, variable: str) -> RecordedValue | None:
    """A parameter's value; that of a projection may be stored under the projection's name."""
    value = source.store.value(moment, parameter, variable)
    if value is not None or source.net is None:
        return value
    uses = (each.name for each in source.net.projections if weight_name(each) == parameter)
    return next((value for use in uses if (value := source.store.value(moment, use, variable)) is not None), None)


def _parameter_head(source: Source, moment: int, parameter: str, variable: str) -> TensorHead:
    doc = ON_PAGE[variable].doc if variable == WEIGHT_GRADIENT else ""
    head = TensorHead(variable, parameter, doc)
    value = _parameter(source, moment, parameter, variable)
    if value is None:
        return replace(head, why=_why(source, moment, parameter, variable))
    shape = value.array.shape
    return _described(head, value.array, _weight_axes(_module_type(source, parameter), len(shape)), False)


def _module_type(source: Source, parameter: str) -> str:
    """The type of the module or function that holds a parameter; "" where that is not known."""
    if source.net is None:
        return ""
    path = parameter.rpartition(".")[0]
    types = [node.kind for node in source.net.modules if node.path == path]
    types += [placed.layer.kind for placed in source.net.layers if parameter in placed.layer.also]
    return next((type for type in types if type in _WEIGHT_AXES), "")


def _weight_axes(type: str, count: int) -> tuple[str, ...]:
    """The names of a weight's axes; their numbers where the type does not say them."""
    if count == 1:
        return ("unit",)
    names = _WEIGHT_AXES.get(type, ())
    return names if len(names) == count else tuple(f"axis {axis + 1}" for axis in range(count))


def _described(head: TensorHead, array: Array, axes: tuple[str, ...], has_batch: bool) -> TensorHead:
    """Add the type and shape, and the axes to begin with: the last two as a plane, the one before as tiles."""
    count, rows, columns = array.ndim, array.ndim - 2, array.ndim - 1
    if count - has_batch < 2:  # of units, the batch stands beside them
        rows = count - 2
    tiles = count - 3 if count - has_batch > 2 else -1
    if not has_batch and count == 4 and prod(array.shape[2:]) <= 144:  # kernels: one plane would be a few cells
        tiles = 0
    return replace(
        head, type=dtype_of(array), shape=tuple(array.shape), axes=axes, tiles=max(tiles, -1), rows=max(rows, -1),
        columns=max(columns, -1),
    )  # fmt: skip


def _unit_axis(head: TensorHead) -> int:
    """The axis that tells units apart: channels, features, or what a weight leads to; -1 without one."""
    if "head" in head.axes or not head.shape:
        return -1
    if head.first < 0:
        return 0 if not head.parameter or len(head.shape) > 1 else -1
    return head.axes.index("channel") if "channel" in head.axes else len(head.shape) - 1
