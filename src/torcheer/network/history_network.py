"""A network from the graph of a recorded pass: layers are what modules returned, projections what leads to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Final

from torcheer.network.network_records import Layer, Projection
from torcheer.network.placement import levels_of
from torcheer.network.recorded_heads import SUFFIX, heads_of, layer_of
from torcheer.records import ModuleCall, Op

_MANY_LAYERS: Final = 200  # of more, only what modules returned
_MOST_LAYERS: Final = 400
_CONVOLUTIONS: Final = ("conv1d", "conv2d", "conv3d")
_ITEM_AXES: Final = {"linear": 1, "conv1d": 2, "conv2d": 3, "conv3d": 4}  # of what they make of one item
_SAME_VALUES: Final = ("dropout", "alpha_dropout", "dropout2d", "contiguous", "clone", "detach", "to", "identity")
_HEADS: Final = ("scaled_dot_product_attention", "softmax", "bmm", "matmul")


@dataclass(slots=True)
class Described:
    """A pass as a picture knows it."""

    layers: list[Layer] = field(default_factory=list)
    projections: list[Projection] = field(default_factory=list)
    made: dict[str, Op] = field(default_factory=dict)  # a layer -> the operation that made it
    heads: dict[str, Op] = field(default_factory=dict)  # a layer that shows where heads looked -> the operation
    batch: int = 0


def described(ops: list[Op]) -> Described:
    """Layers and projections of a recorded pass."""
    batch, by_index = _batch(ops), {op.index: op for op in ops}
    made = _layers(ops)
    names = {op.index: name for name, op in made.items()}
    found: dict[str, Projection] = {}
    for name, op in made.items():
        inner = _weighted(op, by_index, names)
        for sender, direct in _senders(inner, by_index, names).items():
            one = _projection(inner, sender, name) if direct else _arrow(sender, name)
            one = replace(one, name=_unique(one.name, found))  # weights that are used several times
            found[one.name] = one
    layers = [_layer(name, op, batch) for name, op in made.items()]
    result = Described(layers, _typed(list(made), list(found.values())), made, batch=max(batch, 0))
    _add_heads(result, ops, by_index)
    return result


def _add_heads(result: Described, ops: list[Op], by_index: dict[int, Op]) -> None:
    """A layer beside each attention that shows where its heads looked."""
    for op in ops:
        shape = heads_of(op, result.batch, by_index)
        if shape is None or not op.modules or len(result.layers) >= _MOST_LAYERS:
            continue
        module = op.modules[-1].address
        own = next((name for name, one in result.made.items() if one is op), "")
        if own and op.name == "softmax":
            continue  # it is shown as it is
        name = _unique(f"{module}{SUFFIX}", {*result.made, *result.heads})
        result.layers.append(layer_of(name, shape, module if module in result.made else own))
        result.heads[name] = op


def _batch(ops: list[Op]) -> int:
    """How many items a batch has: what the first input begins with; without one, what most values do; -1: no batch."""
    if _is_one_item(ops):
        return -1
    for op in ops:
        if op.kind == "input" and op.outputs and len(op.outputs[0].shape) > 1:
            return op.outputs[0].shape[0]
    lengths = Counter(op.outputs[0].shape[0] for op in ops if op.outputs and len(op.outputs[0].shape) > 0)
    return lengths.most_common(1)[0][0] if lengths else -1


def _is_one_item(ops: list[Op]) -> bool:
    """Whether the model was given one item as it is."""
    first = next((op for op in ops if op.name in _ITEM_AXES and op.outputs), None)
    given = [op.outputs[0] for op in ops if op.kind == "input" and op.outputs]
    return first is not None and {len(one.shape) for one in (first.outputs[0], *given)} == {_ITEM_AXES[first.name]}


def _layers(ops: list[Op]) -> dict[str, Op]:
    """The operations that are shown, by name: inputs, what modules returned, and what ran outside of small ones."""
    leaves, working = _leaves(ops), {op.modules[-1].address for op in ops if op.modules and _works(op)}
    found: dict[str, Op] = {}
    unused = _unused(ops)
    for op in ops:
        name = "" if op.index in unused else _name(op, leaves, working)
        if name and op.outputs and op.outputs[0].bytes and "complex" not in op.outputs[0].dtype:
            found[_unique(name, found)] = op
    if len(found) > _MANY_LAYERS:
        found = {name: op for name, op in found.items() if op.kind == "input" or _returned(op, leaves)}
    if len(found) > _MOST_LAYERS:
        found = {name: op for name, op in found.items() if op.kind == "input" or op.stored}
    return dict(list(found.items())[:_MOST_LAYERS])


def _unused(ops: list[Op]) -> set[int]:
    """What a module returned besides something else, and nobody read: the mean of attention's weights, mostly."""
    read = {edge.parent for op in ops for edge in op.parents}
    returned: dict[ModuleCall, list[int]] = {}
    for op in ops:
        for call in op.output_of[-1:]:
            returned.setdefault(call, []).append(op.index)
    groups = [group for group in returned.values() if not read.isdisjoint(group)]
    return {index for group in groups for index in group if index not in read}


def _leaves(ops: list[Op]) -> set[str]:
    """Modules inside of which no other was called."""
    inner = {op.modules[-1].address for op in ops if op.modules}
    outer = {call.address for op in ops for call in op.modules[:-1]}
    return inner - outer


def _works(op: Op) -> bool:
    """Whether it computes something."""
    return op.kind == "op" and not op.view and op.name not in _SAME_VALUES


def _name(op: Op, leaves: set[str], working: set[str]) -> str:
    if op.kind == "input":
        return "Input"
    if op.kind != "op":
        return ""
    returned = _returned(op, leaves)
    if returned:  # also another shape of what was computed inside, but not where there is nothing else
        return returned if returned in working else ""
    inside = op.modules and op.modules[-1].address in leaves
    if inside or not _works(op) or not op.parents:
        return ""
    return ".".join((*(call.address for call in op.modules[-1:]), op.name))


def _returned(op: Op, leaves: set[str]) -> str:
    """The small module that returned it."""
    return next((call.address for call in reversed(op.output_of) if call.address in leaves), "")


def _unique(name: str, found: Container[str]) -> str:
    if name not in found:
        return name
    number = 2
    while f"{name}:{number}" in found:
        number += 1
    return f"{name}:{number}"


def _layer(name: str, op: Op, batch: int) -> Layer:
    shape = op.outputs[0].shape
    shape = shape[1:] if len(shape) and shape[0] == batch else shape
    own = next((call.type for call in op.output_of if name.partition(":")[0] == call.address), op.name)
    kind = "Input" if op.kind == "input" else own
    heads = len(shape) == 3 and op.name in _HEADS
    return Layer(name, shape, kind, "heads" if heads else "maps" if len(shape) > 3 else "auto")


def _weighted(op: Op, by_index: dict[int, Op], names: dict[int, str]) -> Op:
    """The operation itself; or, where its module did more than one thing, the one before it that has weights."""
    earlier = op
    while not earlier.stored and len(earlier.parents) == 1:
        earlier = by_index[earlier.parents[0].parent]
        if earlier.modules[-1:] != op.modules[-1:] or earlier.index in names:
            return op
    return earlier if earlier.stored else op


def _senders(op: Op, by_index: dict[int, Op], names: dict[int, str]) -> dict[str, bool]:
    """The layers that lead into an operation, and whether their values arrive there as they are."""
    found: dict[str, bool] = {}
    waiting, seen = [(edge.parent, True) for edge in op.parents], set[tuple[int, bool]]()
    while waiting:
        index, direct = waiting.pop()
        if (index, direct) in seen:
            continue
        seen.add((index, direct))
        if index in names:
            found[names[index]] = found.get(names[index], False) or direct
        else:
            direct = direct and not _works(by_index[index])
            waiting += [(edge.parent, direct) for edge in by_index[index].parents]
    return found


def _arrow(sender: str, receiver: str) -> Projection:
    """One whose weights are not known, or which has none."""
    return Projection(f"{sender} → {receiver}", sender, receiver, "")


def _projection(op: Op, sender: str, receiver: str) -> Projection:
    weight = next((one for one in op.stored if one.kind == "parameter" and one.where == (1,)), None)
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


def _setting(op: Op, place: int) -> tuple[int, ...] | None:
    """A number or several of a convolution; None for "same"."""
    settings = dict(op.settings)
    names = {3: "stride", 4: "padding", 5: "dilation"}
    for first in (place, names[place]):
        one = settings.get((first,))
        if isinstance(one, int):
            return (one,)
        if one == "same":
            return None
        several = [settings[first, axis] for axis in range(3) if isinstance(settings.get((first, axis)), int)]
        if several:
            return tuple(several)
    return ()


def _typed(names: list[str], projections: list[Projection]) -> list[Projection]:
    """Which of them skip levels, and which go back."""
    levels = dict(zip(names, levels_of(names, projections)))
    order = {name: number for number, name in enumerate(names)}
    found = []
    for one in projections:
        kind = "forward"
        if order[one.sender] >= order[one.receiver]:
            kind = "recurrent"
        elif levels[one.receiver] - levels[one.sender] > 1:
            kind = "skip"
        found.append(replace(one, type=kind))
    return found
