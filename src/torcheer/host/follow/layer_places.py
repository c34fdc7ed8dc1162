"""Which module call delivers which layer's values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from torcheer.host.follow.model_pass import ModelPass
from torcheer.network.heads.recorded_heads import SUFFIX
from torcheer.network.history_network import LayerSource, PassDescription
from torcheer.network.module_tree import ATTENTION
from torcheer.records import ModuleCall, Op


class Place(NamedTuple):
    """The layer and variable that a module call's output belongs to."""

    layer: str
    variable: str
    shape: tuple[int, ...]  # of one item
    batch_axis: int  # -1: no batch axis
    position: int  # among the tensors that the call returns; of an input, among the model's arguments


@dataclass(slots=True)
class LayerPlaces:
    """The places of a network's values, as hooks can read them."""

    by_call: dict[tuple[str, int], list[Place]] = field(default_factory=lambda: defaultdict(list))
    inputs: list[Place] = field(default_factory=list)
    heads: set[str] = field(default_factory=set)  # layers whose attention weights can be computed
    unreachable: frozenset[str] = frozenset()  # layers whose values no hook can read
    unselected: frozenset[str] = frozenset()  # layers that were not asked for


def places_of(
    description: PassDescription, model_pass: ModelPass, modules: Collection[str], selected: Collection[str] | None
) -> LayerPlaces:
    """Map the calls of these modules to the layers that they deliver values for.

    The model itself is the first of them, and "".
    """
    places, sources = LayerPlaces(), description.sources
    shapes = {layer.name: layer.shape for layer in description.network.layers}
    if selected is not None:
        model = next(iter(modules))
        places.unselected = frozenset(
            source.name for source in sources.values() if _modules_of(source, model).isdisjoint(selected)
        )
    inputs = [op.index for op in model_pass.ops if op.kind == "input"]
    for name, op in description.inputs.items():
        position = inputs.index(op.index)
        places.inputs.append(Place(name, "Act", shapes[name], description.batch_axis(op), position))
    for source in sources.values():
        for variable, op, call in _values_of(source) if source.name not in places.unselected else ():
            address, number, position = _where(op, call, model_pass)
            if address in modules and position >= 0:
                axis = description.batch_axis(op)
                place = Place(source.name, variable, shapes[source.name], axis, position)
                places.by_call[address, number].append(place)
    there = {place.layer for some in places.by_call.values() for place in some if place.variable == "Act"}
    attentions = {name for name in there if (call := sources[name].call) is not None and call.type == ATTENTION}
    places.heads = {name for name in attentions if name + SUFFIX in description.heads}
    reached = there | {name + SUFFIX for name in places.heads}
    places.unreachable = frozenset({*sources, *description.heads} - reached)
    return places


def _modules_of(source: LayerSource, model: str) -> set[str]:
    """The names by which a layer can be selected; an operation outside of modules by that of the model."""
    calls = (source.call, source.act_call, *(source.net.modules[-1:] if source.call is None else ()))
    return {call.address for call in calls if call is not None} or {model}


def _values_of(source: LayerSource) -> list[tuple[str, Op, ModuleCall | None]]:
    """A layer's variables, and the operations and module calls that they come from."""
    act = ("Act", source.act, source.act_call)
    return [act] if source.act is source.net else [act, ("Net", source.net, source.call)]


def _where(op: Op, call: ModuleCall | None, model_pass: ModelPass) -> tuple[str, int, int]:
    """The module call whose hook sees an operation's result, and the result's position in what it returns.

    Without a call, the model itself may return it; position -1: nothing does.
    """
    address, number = (call.address, call.call) if call is not None else ("", 1)
    returned = model_pass.outputs.get((address, number), {})
    return address, number, returned.get(op.index, -1 if call is None else 0)
