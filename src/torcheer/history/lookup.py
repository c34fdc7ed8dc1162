"""Lookup: resolve the key of `history[key]` and of `history.find` to operations."""

from __future__ import annotations

from operator import index as as_index
from typing import TYPE_CHECKING, Any

from torcheer.errors import AmbiguousLayer, UnknownLayer
from torcheer.history.op_views import LayerView, OpList, OpView
from torcheer.records import ModuleCall
from torcheer.selection import WILD, Selector, is_module, keys_of, label_name, parse
from torcheer.terminal import did_you_mean, first_names, plural

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory


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


def find(history: ModelHistory, selection: Any) -> list[int]:
    """Return the positions of the operations that a selection matches (`torcheer.selection`)."""
    matches = [_find(history, key) for key in keys_of(selection, "find")]
    return matches[0] if len(matches) == 1 else sorted({index for indices in matches for index in indices})


def _find(history: ModelHistory, key: Any) -> list[int]:
    if is_module(key):
        key = _address(history, key)
    try:
        selector = parse(key, history.facts.structure, "find")
    except UnknownLayer:
        if _is_role(key):
            raise
        indices = _of_function(history, key)  # also where torch, which knows its functions, is not loaded
        if not indices:
            raise unknown_layer_error(history, key) from None
        return indices
    if selector.form in ("all", "none"):
        return list(range(len(history))) if selector.form == "all" else []
    if selector.test is not None:
        return [op.record.index for op in history if selector.test(op)]
    if selector.form == "role":
        return sorted({index for _, index in _role_matches(history, key)})
    if selector.form == "function":
        return _of_function(history, key)
    if selector.form in ("pattern", "class"):
        return [index for index in range(len(history)) if _matches(history, index, selector)]
    match = lookup(history, key)
    return [op.record.index for op in ([match] if isinstance(match, OpView) else match)]


def _of_function(history: ModelHistory, key: str) -> list[int]:
    name = label_name(key)
    return sorted(index for layer in history.facts.layers.all if layer.name == name for index in layer.ops)


def _address(history: ModelHistory, module: Any) -> str:
    """Return the path of a module of the model that ran."""
    address: str = history.trace.module_path(module)
    if not address:
        kind = type(module).__name__
        raise UnknownLayer(f"this {kind} is no part of the model that ran; a history from a file takes module paths")
    return address


def find_or_raise(history: ModelHistory, selection: Any) -> list[int]:
    """Return the positions as `find` does; raise UnknownLayer if nothing matches."""
    indices = find(history, selection)
    if not indices:
        hint = "history.layer_labels and history.modules name what is there."
        raise UnknownLayer(f"nothing among {plural(len(history), 'operation')} matches {selection!r}. {hint}")
    return indices


def _matches(history: ModelHistory, index: int, selector: Selector) -> bool:
    if any(selector.matches_call(*call) for call in history.facts.ops[index].output_of):
        return True
    return selector.form == "pattern" and selector.matches_name(_names(history, index))


def _names(history: ModelHistory, index: int) -> tuple[str, ...]:
    layers = history.facts.layers
    layer = layers.all[layers.of[index]]
    return layer.label, layer.short, layers.label(index), f"{layer.short}:{layers.passes[index]}"


def named_matches(history: ModelHistory, selection: Any) -> list[tuple[str, int]]:
    """Return the name and position of each match: the path of the module where that was meant, a role, or the label."""
    if _is_role(selection) and selection not in history.facts.module_types:
        return _role_matches(history, selection)
    selectors = [
        parse(key, history.facts.structure, "find") for key in keys_of(selection, "find") if not is_module(key)
    ]
    matches = []
    for index in find(history, selection):
        calls = [call for call in history.facts.ops[index].output_of if any(s.matches_call(*call) for s in selectors)]
        matches.append((_call_name(history, calls[0]) if calls else history.facts.layers.label(index), index))
    return matches


def _is_role(key: Any) -> bool:
    from torcheer.roles import is_role

    return is_role(key)


def _role_matches(history: ModelHistory, key: str) -> list[tuple[str, int]]:
    from torcheer.history.transformer.role_views import role_views

    return [(view.role, view.record.index) for _, view in role_views(history, key)]


def _call_name(history: ModelHistory, call: ModuleCall) -> str:
    several = len(history.facts.module_outputs[call.address]) > 1
    return f"{call.address}:{call.call}" if several else call.address


def _by_name(history: ModelHistory, key: str) -> OpView | LayerView | OpList:
    name, colon, number = key.rpartition(":")
    if not colon or not number.isdecimal():
        name, number = key, ""
    layer, outputs = history.facts.layer_keys.get(name), history.facts.module_outputs.get(name)
    if layer is None and outputs is None and _is_role(key):
        from torcheer.history.transformer.role_views import by_role

        return by_role(history, key)
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
    # A compiled wrapper and the module in it have one path and return the same result.
    numbers = {calls[call][0]: call for call in reversed(wanted)}
    wanted = sorted(numbers.values())
    ops = history.pick(calls[call][0] for call in wanted)
    return ops[0] if len(ops) == 1 else LayerView(history, name, ops, wanted)


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
    if key in facts.stored:
        return _stored_error(history, key)
    names = [*facts.layer_keys, *facts.module_types, *facts.stored]
    hint = did_you_mean(key, names) or " history.layer_labels names them all."
    counts = f"{plural(len(facts.layers.all), 'layer')} and {plural(len(facts.module_types), 'module')}"
    return UnknownLayer(f"no layer or module named {key!r} among {counts}.{hint}")


def _stored_error(history: ModelHistory, key: str) -> UnknownLayer:
    """Return the error for the name of a parameter or buffer, which is no layer: where it is, and who reads it."""
    kind = history.facts.stored[key].kind
    readers = history.pick(op.index for op in history.ops if any(stored.name == key for stored in op.stored))
    read = f"read by {first_names(readers.labels)}" if readers else "not read in this run"
    return UnknownLayer(f"{key!r} is a {kind}, no layer: history.{kind}s[{key!r}] has it ({read}).")
