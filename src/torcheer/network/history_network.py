"""Derives a network from a recorded pass: layers from modules' outputs, projections between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Final

from torcheer.network.network_records import Layer, Projection
from torcheer.network.placement import levels_of
from torcheer.network.recorded_heads import SUFFIX, heads_of, layer_of
from torcheer.records import ModuleCall, Op

_MANY_LAYERS: Final = 200  # above this, only outputs of modules are layers
_MOST_LAYERS: Final = 400
_CONVOLUTIONS: Final = ("conv1d", "conv2d", "conv3d")
_ITEM_AXES: Final = {"linear": 1, "conv1d": 2, "conv2d": 3, "conv3d": 4}  # axes of one item of their output
_SAME_VALUES: Final = ("dropout", "alpha_dropout", "dropout2d", "contiguous", "clone", "detach", "to", "identity")
_HEADS: Final = ("scaled_dot_product_attention", "softmax", "bmm", "matmul")


@dataclass(slots=True)
class PassDescription:
    """The layers and projections of a recorded pass, with the operations behind them."""

    layers: list[Layer] = field(default_factory=list)
    projections: list[Projection] = field(default_factory=list)
    producers: dict[str, Op] = field(default_factory=dict)  # layer -> the operation that computed it
    heads: dict[str, Op] = field(default_factory=dict)  # layer of attention weights -> the operation
    batch: int = 0


def describe_pass(ops: list[Op]) -> PassDescription:
    """Describe the layers and projections of a recorded pass."""
    batch, by_index = _batch(ops), {op.index: op for op in ops}
    producers = _layers(ops)
    names = {op.index: name for name, op in producers.items()}
    projections: dict[str, Projection] = {}
    for name, op in producers.items():
        inner = _weighted(op, by_index, names)
        for sender, direct in _senders(inner, by_index, names).items():
            projection = _projection(inner, sender, name) if direct else _arrow(sender, name)
            unique_name = _unique(projection.name, projections)  # a weight may be used several times
            projections[unique_name] = replace(projection, name=unique_name)
    layers = [_layer(name, op, batch) for name, op in producers.items()]
    typed = _with_types(list(producers), list(projections.values()))
    result = PassDescription(layers, typed, producers, batch=max(batch, 0))
    _add_heads(result, ops, by_index)
    return result


def _add_heads(result: PassDescription, ops: list[Op], by_index: dict[int, Op]) -> None:
    """Add a layer of attention weights beside each attention."""
    for op in ops:
        shape = heads_of(op, result.batch, by_index)
        if shape is None or not op.modules or len(result.layers) >= _MOST_LAYERS:
            continue
        module = op.modules[-1].address
        output = next((name for name, producer in result.producers.items() if producer is op), "")
        if output and op.name == "softmax":
            continue  # its output already is the weights
        name = _unique(f"{module}{SUFFIX}", {*result.producers, *result.heads})
        result.layers.append(layer_of(name, shape, module if module in result.producers else output))
        result.heads[name] = op


def _batch(ops: list[Op]) -> int:
    """The batch size: the first input's first length, else the most common one.

    -1: no batch axis.
    """
    if _is_one_item(ops):
        return -1
    for op in ops:
        if op.kind == "input" and op.outputs and len(op.outputs[0].shape) > 1:
            return op.outputs[0].shape[0]
    lengths = Counter(op.outputs[0].shape[0] for op in ops if op.outputs and len(op.outputs[0].shape) > 0)
    return lengths.most_common(1)[0][0] if lengths else -1


def _is_one_item(ops: list[Op]) -> bool:
    """True if the model's input is a single item without a batch axis."""
    first = next((op for op in ops if op.name in _ITEM_AXES and op.outputs), None)
    inputs = [op.outputs[0] for op in ops if op.kind == "input" and op.outputs]
    return first is not None and {len(value.shape) for value in (first.outputs[0], *inputs)} == {_ITEM_AXES[first.name]}


def _layers(ops: list[Op]) -> dict[str, Op]:
    """The operations shown as layers, by name.

    These are inputs, outputs of leaf modules, and operations outside of leaf modules.
    """
    leaves, working = _leaves(ops), {op.modules[-1].address for op in ops if op.modules and _works(op)}
    layers: dict[str, Op] = {}
    unused = _unused(ops)
    for op in ops:
        name = "" if op.index in unused else _name(op, leaves, working)
        if name and op.outputs and op.outputs[0].bytes and "complex" not in op.outputs[0].dtype:
            layers[_unique(name, layers)] = op
    if len(layers) > _MANY_LAYERS:
        layers = {name: op for name, op in layers.items() if op.kind == "input" or _returning_module(op, leaves)}
    if len(layers) > _MOST_LAYERS:
        layers = {name: op for name, op in layers.items() if op.kind == "input" or op.stored}
    return dict(list(layers.items())[:_MOST_LAYERS])


def _unused(ops: list[Op]) -> set[int]:
    """Secondary outputs of modules that nothing read: mostly attention's averaged weights."""
    read = {edge.parent for op in ops for edge in op.parents}
    returned: dict[ModuleCall, list[int]] = {}
    for op in ops:
        for call in op.output_of[-1:]:
            returned.setdefault(call, []).append(op.index)
    groups = [group for group in returned.values() if not read.isdisjoint(group)]
    return {index for group in groups for index in group if index not in read}


def _leaves(ops: list[Op]) -> set[str]:
    """Modules inside which no other module was called."""
    inner = {op.modules[-1].address for op in ops if op.modules}
    outer = {call.address for op in ops for call in op.modules[:-1]}
    return inner - outer


def _works(op: Op) -> bool:
    """True if an operation computes new values."""
    return op.kind == "op" and not op.view and op.name not in _SAME_VALUES


def _name(op: Op, leaves: set[str], working: set[str]) -> str:
    if op.kind == "input":
        return "Input"
    if op.kind != "op":
        return ""
    module = _returning_module(op, leaves)
    if module:  # may be a view of what it computed; not a module that computes nothing
        return module if module in working else ""
    inside = op.modules and op.modules[-1].address in leaves
    if inside or not _works(op) or not op.parents:
        return ""
    return ".".join((*(call.address for call in op.modules[-1:]), op.name))


def _returning_module(op: Op, leaves: set[str]) -> str:
    """The leaf module that returned an operation's result."""
    return next((call.address for call in reversed(op.output_of) if call.address in leaves), "")


def _unique(name: str, taken: Container[str]) -> str:
    if name not in taken:
        return name
    number = 2
    while f"{name}:{number}" in taken:
        number += 1
    return f"{name}:{number}"


def _layer(name: str, op: Op, batch: int) -> Layer:
    shape = op.outputs[0].shape
    shape = shape[1:] if len(shape) and shape[0] == batch else shape
    module_type = next((call.type for call in op.output_of if name.partition(":")[0] == call.address), op.name)
    kind = "Input" if op.kind == "input" else module_type
    heads = len(shape) == 3 and op.name in _HEADS
    return Layer(name, shape, kind, "heads" if heads else "maps" if len(shape) > 3 else "auto")


def _weighted(op: Op, by_index: dict[int, Op], names: dict[int, str]) -> Op:
    """The operation, or the one before it in the same module that has weights."""
    earlier = op
    while not earlier.stored and len(earlier.parents) == 1:
        earlier = by_index[earlier.parents[0].parent]
        if earlier.modules[-1:] != op.modules[-1:] or earlier.index in names:
            return op
    return earlier if earlier.stored else op


def _senders(op: Op, by_index: dict[int, Op], names: dict[int, str]) -> dict[str, bool]:
    """The layers that feed an operation, and whether their values arrive there unchanged."""
    senders: dict[str, bool] = {}
    waiting, visited = [(edge.parent, True) for edge in op.parents], set[tuple[int, bool]]()
    while waiting:
        index, direct = waiting.pop()
        if (index, direct) in visited:
            continue
        visited.add((index, direct))
        if index in names:
            senders[names[index]] = senders.get(names[index], False) or direct
        else:
            direct = direct and not _works(by_index[index])
            waiting += [(edge.parent, direct) for edge in by_index[index].parents]
    return senders


def _arrow(sender: str, receiver: str) -> Projection:
    """A projection without weights, or with unknown ones."""
    return Projection(f"{sender} → {receiver}", sender, receiver, "")


def _projection(op: Op, sender: str, receiver: str) -> Projection:
    weight = next((stored for stored in op.stored if stored.kind == "parameter" and stored.where == (1,)), None)
    if weight is None or op.name not in ("linear", *_CONVOLUTIONS):
        return _arrow(sender, receiver)
    if op.name == "linear":
        return Projection(weight.name, sender, receiver, "linear", weight.shape)
    stride, padding, dilation = (_setting(op, place) for place in (3, 4, 5))
    groups = dict(op.settings).get((6,), 1)
    if padding is None:  # "same"
        padding = tuple((length - 1) * by // 2 for length, by in zip(weight.shape[2:], dilation or (1, 1, 1)))
    return Projection(
        weight.name, sender, receiver, "conv", weight.shape, stride or (), padding, dilation or (),
        groups if isinstance(groups, int) else 1,
    )  # fmt: skip


def _setting(op: Op, position: int) -> tuple[int, ...] | None:
    """One or several numbers of a convolution's setting; None for "same"."""
    settings = dict(op.settings)
    names = {3: "stride", 4: "padding", 5: "dilation"}
    for key in (position, names[position]):
        value = settings.get((key,))
        if isinstance(value, int):
            return (value,)
        if value == "same":
            return None
        several = [settings[key, axis] for axis in range(3) if isinstance(settings.get((key, axis)), int)]
        if several:
            return tuple(several)
    return ()


def _with_types(names: list[str], projections: list[Projection]) -> list[Projection]:
    """Set each projection's type: forward, skip, or recurrent."""
    levels = dict(zip(names, levels_of(names, projections)))
    order = {name: number for number, name in enumerate(names)}
    typed = []
    for projection in projections:
        kind = "forward"
        if order[projection.sender] >= order[projection.receiver]:
            kind = "recurrent"
        elif levels[projection.receiver] - levels[projection.sender] > 1:
            kind = "skip"
        typed.append(replace(projection, type=kind))
    return typed
