"""The text in a box: an operation's settings that differ from the defaults, in a few words."""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import Any

from torcheer.history import ModelHistory
from torcheer.records import Op
from torcheer.terminal import human_count, human_shape, plural


def number_text(history: ModelHistory, op: Op) -> str:
    """Format the value of an op whose result is one saved number; "" for any other."""
    if prod(op.outputs[0].shape) != 1 or not history.trace.is_saved(op.index, 0):
        return ""
    try:
        return f"{float(history.trace.value(op.index, 0)):.4g}"
    except (TypeError, ValueError, RuntimeError):  # a tensor without data, as on the meta device
        return ""


def body_text(op: Op) -> str:
    """Format the settings that differ from the defaults: "3×3 /2 pad 1"."""
    settings = dict(op.settings)
    writer = _WRITERS.get(op.name.rstrip("_"))
    return writer(op, settings) if writer else _all_settings(op.name, settings)


def parameter_text(count: int, states: Collection[bool | None]) -> str:
    """Format a number of parameters: "18.4k params", and whether they are frozen."""
    return f"{human_count(count)} param{'' if count == 1 else 's'}{frozen_text(states)}"


def frozen_text(states: Collection[bool | None]) -> str:
    """Return " frozen", " partly frozen" or "", by which of the parameters are trainable."""
    if False not in states:
        return ""
    return " partly frozen" if True in states else " frozen"


def argument_names(op: Op) -> dict[tuple[int | str, ...], str]:
    """Return the names of the arguments that are tensors, if their order matters."""
    tensors = [edge.where for edge in op.parents]
    name = op.name.rstrip("_").strip("_")
    if len(set(tensors)) < 2 or name in _COMMUTE:
        return {}
    parameters = _ARGUMENTS.get(name, ())
    names = {}
    for where in tensors:
        first, nested = where[0], where[1:]
        if isinstance(first, int):
            first = parameters[first] if first < len(parameters) else str(first)
        names[where] = ".".join(str(part) for part in (first, *nested) if part != "")
    return names


_COMMUTE = frozenset(
    "add mul eq ne maximum minimum logical_and logical_or bitwise_and bitwise_or and or xor radd rmul iadd imul".split()
)
_ARGUMENTS: dict[str, tuple[str, ...]] = dict.fromkeys(
    "sub div le lt ge gt floor_divide remainder fmod mod truediv floordiv isub idiv atan2".split(), ("input", "other")
) | {
    "scaled_dot_product_attention": ("query", "key", "value", "mask"),
    "pow": ("input", "exponent"),
    "where": ("condition", "input", "other"),
    "matmul": ("left", "right"), "bmm": ("left", "right"), "mm": ("left", "right"),
    "cat": ("",), "stack": ("",), "concat": ("",), "linear": ("input", "weight", "bias"),
    "masked_fill": ("input", "mask", "value"), "gather": ("input", "dim", "index"),
    "embedding": ("index", "weight"), "lstm": ("input", "state"), "gru": ("input", "state"), "getitem": ("input", "at"),
    "cross_entropy_loss": ("input", "target"), "mse_loss": ("input", "target"), "lerp": ("start", "end", "weight"),
    "einsum": ("equation", "0", "1", "2", "3", "4"), "baddbmm": ("input", "left", "right"),
    "addmm": ("input", "left", "right"),
    "grid_sample": ("input", "grid"), "expand_as": ("input", "like"), "copy": ("to", "from"),
    "setitem": ("into", "at", "value"),
}  # fmt: skip


def _conv(op: Op, settings: dict[Any, Any]) -> str:
    weight = next((entry for entry in op.stored if entry.where in ((1,), ("weight",))), None)
    if weight is None or len(weight.shape) < 3:  # packed or computed: the other arguments may mean anything
        return ""
    parts = [human_shape(weight.shape[2:])]
    transposed = "transpose" in op.name
    for place, key, word, default in (
        (3, "stride", "/", 1),
        (4, "padding", "pad ", 0),
        (7 if transposed else 5, "dilation", "dilated ", 1),
        (6, "groups", "groups ", 1),
    ):
        value = _argument(settings, place, key)
        if value is not None and any(each != default for each in _as_tuple(value)):
            parts.append(word + _short_text(value))
    groups = _argument(settings, 6, "groups")
    groups = groups if isinstance(groups, int) else 1
    if transposed:
        into, out = weight.shape[0], weight.shape[1] * groups
        extra = _argument(settings, 5, "output_padding")
        if extra is not None and any(_as_tuple(extra)):
            parts.append("output pad " + _short_text(extra))
    else:
        into, out = weight.shape[1] * groups, weight.shape[0]
    return " ".join([f"{into}→{out}", *parts])


def _linear(op: Op, settings: dict[Any, Any]) -> str:
    weight = next((entry for entry in op.stored if entry.where in ((1,), ("weight",))), None)
    if weight is None or len(weight.shape) != 2:
        return ""
    bias = any(entry.where in ((2,), ("bias",)) for entry in op.stored)
    return f"{weight.shape[1]}→{weight.shape[0]}" + ("" if bias else " no bias")


def _recurrent(op: Op, settings: dict[Any, Any]) -> str:
    weights = [entry for entry in op.stored if len(entry.shape) == 2]
    if len(weights) < 2:
        return ""
    at = (
        4 if type(_argument(settings, 4, "num_layers")) is int else 5
    )  # a packed sequence has one more argument before it
    layers, both = _argument(settings, at, "num_layers"), _argument(settings, at + 3, "bidirectional")
    words = [f"{weights[0].shape[1]}→{weights[1].shape[1]}"]
    if type(layers) is int:
        words.append(plural(layers, "layer"))
    return " · ".join([*words, "both ways"] if both is True else words)


def _embedding(op: Op, settings: dict[Any, Any]) -> str:
    return human_shape(op.stored[0].shape) if op.stored else ""


def _norm(op: Op, settings: dict[Any, Any]) -> str:
    weight = next((entry for entry in op.stored if entry.name.endswith("weight")), None)
    if op.name == "group_norm":
        return f"{_argument(settings, 1, 'num_groups')} groups"
    return human_shape(weight.shape) if weight else ""


def _pool(op: Op, settings: dict[Any, Any]) -> str:
    kernel, dims = _argument(settings, 1, "kernel_size"), int(op.name.rstrip("_")[-2])
    if op.name.startswith("adaptive"):
        size = _argument(settings, 1, "output_size")
        return f"to {_per_axis_text(size, dims)}" if size is not None else ""
    if kernel is None:
        return ""
    parts = [_per_axis_text(kernel, dims)]
    for place, key, word, default in ((2, "stride", "/", 1), (3, "padding", "pad ", 0)):
        value = _argument(settings, place, key)
        if value is not None and any(each != default for each in _as_tuple(value)):
            parts.append(word + _short_text(value))
    return " ".join(parts)


def _dropout(op: Op, settings: dict[Any, Any]) -> str:
    probability = _argument(settings, 1, "p")
    is_off = _argument(settings, 2, "training") is False
    return "off" if is_off else f"p {probability:g}" if isinstance(probability, float | int) else ""


def _index(op: Op, settings: dict[Any, Any]) -> str:
    places = {where[1:]: _value_text(value) for where, value in op.settings if where and where[0] == 1}
    places |= {edge.where[1:]: "tensor" for edge in op.parents if edge.where and edge.where[0] == 1}
    return "[" + ", ".join(places[place] for place in sorted(places, key=str)) + "]" if places else ""


def _no_text(op: Op, settings: dict[Any, Any]) -> str:
    return ""


_WRITERS = (
    dict.fromkeys(("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _conv)
    | dict.fromkeys(("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"), _norm)
    | dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"), _pool)
    | dict.fromkeys((f"adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3)), _pool)
    | dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout"), _dropout)
    | dict.fromkeys(("view", "reshape", "expand", "flatten", "view_as", "expand_as"), _no_text)
    | dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent)
    | dict.fromkeys((f"{kind}_loss" for kind in ("cross_entropy", "mse", "l1", "nll", "huber", "smooth_l1")), _no_text)
    | {"scaled_dot_product_attention": _no_text, "linear": _linear, "embedding": _embedding, "__getitem": _index}
)  # fmt: skip


# Positional arguments that are written with their name.
_NAMED = {name: {1: "dim"} for name in "cat concat stack softmax log_softmax sum mean squeeze unsqueeze argmax".split()}
_NAMED |= {"chunk": {2: "dim"}, "split": {2: "dim"}}


def _all_settings(name: str, settings: dict[Any, Any]) -> str:
    """Format all arguments, if they are few and short."""
    words = []
    for where, value in settings.items():
        if value is None or value is False or (isinstance(value, str) and value == "none") or len(where) > 2:
            continue
        word = _value_text(value)
        key = _NAMED.get(name, {}).get(where[0], "") if isinstance(where[0], int) else where[0]
        words.append(f"{key} {word}" if key else word)
    text = ", ".join(words)
    return text if len(text) <= 22 else ""


def _argument(settings: dict[Any, Any], place: int, key: str) -> Any:
    """Return an argument passed by position or name; a list is reassembled."""
    for first in (place, key):
        if (first,) in settings:
            return settings[(first,)]
        parts = [value for where, value in settings.items() if len(where) == 2 and where[0] == first]
        if parts:
            return tuple(parts)
    return None


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _short_text(value: Any) -> str:
    """Format one value per axis; equal ones once: (2, 2) as "2", (3, 5) as "3×5"."""
    values = _as_tuple(value)
    return str(values[0]) if len(set(values)) == 1 else "×".join(map(str, values))


def _per_axis_text(value: Any, dims: int) -> str:
    """Format one value for each of `dims` axes: 3 in two dimensions as "3×3"."""
    values = _as_tuple(value)
    return "×".join(map(str, values * dims if len(values) == 1 else values))


def _value_text(value: Any) -> str:
    if isinstance(value, slice):
        ends = ["" if end is None else str(end) for end in (value.start, value.stop)]
        return ":".join(ends) + (f":{value.step}" if value.step is not None else "")
    if value is Ellipsis:
        return "…"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
