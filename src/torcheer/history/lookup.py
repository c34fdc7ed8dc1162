"""Lookup: resolve the key of `history[key]` and of `history.find` to operations."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from operator import index as as_index
from typing import TYPE_CHECKING, Any

from torcheer.errors import AmbiguousLayer, UnknownLayer
from torcheer.history.op_views import LayerView, OpList, OpView
from torcheer.terminal import plural

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory

WILD = frozenset("*?[")


def lookup(history: ModelHistory, key: Any) -> OpView | LayerView | OpList:
    """Return the operation, layer or list that `history[key]` selects."""
    if isinstance(key, slice):
        if any(not isinstance(end, int | None) for end in (key.start, key.stop, key.step)):
            raise UnknownLayer(
                f"a slice takes positions, not {key.start!r}:{key.stop!r}; history['relu_1'].index is one."
            )
        return history.pick(range(*key.indices(len(history))))
    if isinstance(key, str):
        return _by_name(history, key)
    try:
        position = as_index(key)
    except TypeError:
        raise UnknownLayer(
            f"a history is asked by label, module path, position or slice, not by {key!r} of type "
            f"{type(key).__name__}. history.find takes patterns and functions."
        ) from None
    count = len(history)
    if not -count <= position < count:
        raise UnknownLayer(f"no operation at position {position}: there are {count}, from {-count} to {count - 1}.")
    return history.pick([position % count])[0]


def find(history: ModelHistory, what: str | int | slice | Callable[[OpView], object]) -> list[int]:
    """Return the positions of operations that match a pattern, a predicate or a key."""
    if callable(what):
        return [op.record.index for op in history if what(op)]
    if isinstance(what, str) and not WILD.isdisjoint(what):
        return [index for index in range(len(history)) if _matches(history, index, what)]
    match = lookup(history, what)
    return [op.record.index for op in ([match] if isinstance(match, OpView) else match)]


def find_or_raise(history: ModelHistory, what: str | int | slice | Callable[[OpView], object]) -> list[int]:
    """Return the positions as `find` does; raise UnknownLayer if nothing matches."""
    indices = find(history, what)
    if not indices:
        hint = "history.layer_labels and history.modules name what is there."
        raise UnknownLayer(f"nothing among {plural(len(history), 'operation')} matches {what!r}. {hint}")
    return indices


def _matches(history: ModelHistory, index: int, pattern: str) -> bool:
    layers = history.facts.layers
    layer = layers.all[layers.of[index]]
    names = {layer.label, layer.short, layers.label(index), f"{layer.short}:{layers.passes[index]}"}
    for call in history.facts.ops[index].output_of:
        names |= {call.address, f"{call.address}:{call.call}"}
    return any(fnmatchcase(name, pattern) for name in names)


def _by_name(history: ModelHistory, key: str) -> OpView | LayerView:
    name, colon, number = key.rpartition(":")
    if not colon or not number.isdecimal():
        name, number = key, ""
    layer, outputs = history.facts.layer_keys.get(name), history.facts.module_outputs.get(name)
    if layer is None and outputs is None:
        raise unknown_layer_error(history, key)
    matches = [
        *([_of_layer(history, name, layer, number)] if layer is not None else []),
        *([_of_module(history, name, outputs, number)] if outputs is not None else []),
    ]
    if len(matches) == 2 and matches[0] != matches[1]:
        raise AmbiguousLayer(
            f"{key!r} is both the layer {matches[0].label!r} and the output {matches[1].label!r} of the module "
            f"{name!r}. Ask for one of those."
        )
    return matches[0]


def _of_layer(history: ModelHistory, name: str, layer: int, number: str) -> OpView | LayerView:
    ops = history.facts.layers.all[layer].ops
    if number and not 1 <= int(number) <= len(ops):
        raise UnknownLayer(
            f"no pass {number} of {name!r}: it ran {plural(len(ops), 'time')}, '{name}:1' … '{name}:{len(ops)}'."
        )
    if number or len(ops) == 1:
        return history.pick([ops[int(number or 1) - 1]])[0]
    return LayerView(history, name, history.pick(ops))


def _of_module(history: ModelHistory, name: str, calls: dict[int, list[int]], number: str) -> OpView | LayerView:
    if number and int(number) not in calls:
        examples = ", ".join(f"'{name}:{call}'" for call in list(calls)[:5])
        raise UnknownLayer(f"no call {number} of the module {name!r} returned a tensor; {examples} did.")
    wanted = [int(number)] if number else list(calls)
    for call in wanted:
        if len(calls[call]) > 1:
            labels = ", ".join(map(repr, history.pick(calls[call]).labels))
            raise AmbiguousLayer(f"the module {name!r} returned several tensors: {labels}. Ask for one of those.")
    ops = history.pick(calls[call][0] for call in wanted)
    return ops[0] if len(ops) == 1 else LayerView(history, name, ops, wanted)


class NamedItems(dict[str, Any]):
    """A dict by name whose lookup error suggests the nearest names."""

    def __init__(self, kind: str, items: dict[str, Any]) -> None:
        super().__init__(items)
        self._kind = kind

    def __missing__(self, name: str) -> Any:
        near = get_close_matches(str(name), list(self), n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise UnknownLayer(f"no {self._kind} named {name!r} among {len(self)}.{hint}")


def unknown_layer_error(history: ModelHistory, key: str) -> UnknownLayer:
    """Return the error for a name that is neither a layer nor a module output."""
    facts = history.facts
    if key in facts.module_types:
        inside = len(facts.module_ops.get(key, ()))
        return UnknownLayer(
            f"the module {key!r} returned no tensor of its own here ({plural(inside, 'operation')} ran inside it). "
            f"history.modules[{key!r}] shows it."
        )
    if not WILD.isdisjoint(key):
        return UnknownLayer(f"{key!r} is a pattern: history.find({key!r}) gives every operation that matches.")
    names = [*facts.layer_keys, *facts.module_types]
    if len(names) > 5000:  # comparing with all of them would take seconds
        names = [name for name in names if name[:3] == key[:3]][:5000]
    near = get_close_matches(key, names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else " history.layer_labels names them all."
    counts = f"{plural(len(facts.layers.all), 'layer')} and {plural(len(facts.module_types), 'module')}"
    return UnknownLayer(f"no layer or module named {key!r} among {counts}.{hint}")
