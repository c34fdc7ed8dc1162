"""Which module calls of a pass become layers, and which of them feeds which. Knows no torch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

MOST_LAYERS: Final = 60
_MOST_CALLS: Final = 4  # of one module that are layers of their own; a loop of more is its first call
_MOST_NODES: Final = 100_000
_SILENT: Final = ("Dropout", "Identity", "Flatten", "Unflatten")  # how the types begin that change no number
_ACTIVATIONS: Final = frozenset(
    """
    CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish PReLU RReLU ReLU
    ReLU6 SELU SiLU Sigmoid Softmax Softplus Softshrink Softsign Tanh Tanhshrink Threshold
    BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm LazyBatchNorm1d LazyBatchNorm2d FrozenBatchNorm2d
""".split()
)


@dataclass(slots=True)
class Facts:
    """What is known of a module."""

    type: str
    leaf: bool = True
    weighted: bool = False
    weight: str = ""  # its name
    shape: tuple[int, ...] = ()
    kind: str = ""  # "linear", "conv": weights that can be shown between two layers
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    recurrent: bool = False
    heads: int = 0  # of attention
    keys: int = 0  # how many tokens it attends to; 0: as many as it has
    batch_axis: int = 0  # of what it returns

    @property
    def is_activation(self) -> bool:
        """Whether it only changes the numbers of one layer."""
        return self.type in _ACTIVATIONS

    @property
    def item_dims(self) -> int:
        """How many axes one item of what it returns has; 0 where that cannot be known."""
        return {"linear": 1, "conv": len(self.shape) - 1}.get(self.kind, 0)

    def fits(self, sender: tuple[int, ...], receiver: tuple[int, ...]) -> str:
        """Which kind of weights these are between layers of such shapes; "" where they cannot be shown there."""
        if self.kind == "conv":
            good = len(sender) == len(self.shape) - 1 == len(receiver)
            return self.kind if good and sender[0] == self.shape[1] * self.groups else ""
        if self.kind == "linear" and receiver and receiver[-1] == self.shape[0]:
            good = math.prod(sender) == self.shape[1] or bool(sender and sender[-1] == self.shape[1])
            return self.kind if good else ""
        return ""


@dataclass(slots=True)
class Call:
    """A module that returned a tensor."""

    module: str  # its name; "" of the model itself
    number: int  # 1 for its first call in this pass
    facts: Facts
    shape: tuple[int, ...]  # with the batch
    node: Hashable = None  # what made the tensor, in the graph of the pass
    order: int = 0

    @property
    def depth(self) -> int:
        return self.module.count(".") + 1 if self.module else 0

    @property
    def name(self) -> str:
        name = self.module or self.facts.type
        return name if self.number == 1 else f"{name}:{self.number}"


@dataclass(slots=True)
class Pass:
    """A pass through a model."""

    given: dict[str, tuple[int, ...]] = field(default_factory=dict)  # shapes of the inputs, with the batch
    batch_axis: int = 0  # of the inputs; 1 where sequences come first, as recurrent layers have it; -1: there is none
    calls: list[Call] = field(default_factory=list)  # as they returned
    parents: Callable[[Any], Iterable[Any]] = field(default=lambda node: ())  # of a node of the graph
    sources: dict[Any, str] = field(default_factory=dict)  # nodes that are inputs
    complete: bool = False  # whether the graph knows all; else what it does not know was made by what ran before

    @property
    def batch(self) -> int:
        """How many items there are; 0 where nothing counts them."""
        if self.batch_axis < 0:
            return 0
        return next((shape[self.batch_axis] for shape in self.given.values() if len(shape) > self.batch_axis), 0)

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """The shape of one item of each input."""
        return {name: without(shape, self.batch_axis) for name, shape in self.given.items()}

    def give(self, shape: tuple[int, ...], node: Any) -> None:
        """The model has an input."""
        name = f"Input:{len(self.given) + 1}" if self.given else "Input"
        self.given[name], self.sources[node] = shape, name

    def add(self, module: str, number: int, facts: Facts, shape: tuple[int, ...], node: Any) -> None:
        """A module returned."""
        if facts.batch_axis == 1 and (facts.heads or facts.recurrent) and len(shape) == 3:
            if any(one[:2] == shape[:2] for one in self.given.values()):
                self.batch_axis = 1
        if len(shape) == facts.item_dims and not any(call.facts.weighted for call in self.calls):
            if all(len(one) == len(shape) for one in self.given.values()):
                self.batch_axis = -1  # one item, as it is
        self.calls.append(Call(module, number, facts, shape, node, len(self.calls)))


@dataclass(slots=True)
class Chosen:
    """A layer to be."""

    name: str
    call: Call
    shape: tuple[int, ...]  # of one item
    ends: Call  # the call whose result is its "Act": its own, or that of an activation behind it
    batch_axis: int = 0
    also: tuple[str, ...] = ()  # the modules that were folded into it
    repeats: bool = False  # called so often that only the first call is a layer


@dataclass(slots=True)
class Choice:
    """All of them."""

    layers: list[Chosen] = field(default_factory=list)
    senders: dict[str, list[str]] = field(default_factory=dict)  # of each, the main one first
    notes: list[str] = field(default_factory=list)  # what was left out


def chosen(seen: Pass) -> Choice:
    """The layers of a pass: what computes; activations are a part of the layer before them."""
    choice, repeated = Choice(), {call.module for call in seen.calls if call.number > _MOST_CALLS}
    once = [call for call in seen.calls if call.number == 1 or call.module not in repeated]
    able = [call for call in once if call.module and item_shape(call, seen.batch)[0]]
    leaves = [call for call in able if call.facts.leaf and not call.facts.type.startswith(_SILENT)]
    found = _without_echoes(leaves) or _without_echoes(able) or [call for call in once if call.shape]
    folded = _folds(found, seen)
    layers = [call for call in found if call.order not in folded]
    if len(layers) > MOST_LAYERS:
        layers, note = _fewer(layers, able)
        choice.notes.append(note)
    ends = {target: by for by, target in folded.items()}  # the last one that was folded into a layer
    by_order = {call.order: call for call in seen.calls}
    also: dict[int, list[str]] = defaultdict(list)
    for by, target in folded.items():
        also[target].append(by_order[by].module)
    for call in layers:
        shape, axis = item_shape(call, seen.batch)
        last = by_order[ends[call.order]] if call.order in ends else call
        parts = tuple(dict.fromkeys(also[call.order]))
        choice.layers.append(Chosen(call.name, call, shape or call.shape, last, axis, parts, call.module in repeated))
    _connect(choice, seen, folded)
    if repeated and any(one.repeats for one in choice.layers):
        some = ", ".join(sorted(repeated)[:3])
        choice.notes.append(f"{some}: called more than {_MOST_CALLS} times in a pass; the first call is shown")
    return choice


def item_shape(call: Call, batch: int) -> tuple[tuple[int, ...], int]:
    """The shape of one item of what a call returned, and the axis that counts items (-1: there is none)."""
    shape = call.shape
    axis = call.facts.batch_axis if len(shape) > 2 else 0
    if not shape or 0 in shape:
        return (), 0
    if len(shape) > axis and shape[axis] == batch:
        return without(shape, axis), axis
    if batch in shape[:2]:
        axis = shape.index(batch)
        return without(shape, axis), axis
    if batch > 1 and shape[0] % batch == 0:  # a batch of sequences that were laid end to end
        return (shape[0] // batch, *shape[1:]), 0
    return shape, -1


def without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """A shape without one of its axes (-1: with all of them); at least one number is left."""
    return shape if axis < 0 else (*shape[:axis], *shape[axis + 1 :]) or (1,)


def _without_echoes(calls: list[Call]) -> list[Call]:
    """Leave out what returned the very tensor that another call had returned."""
    nodes, found = set(), []
    for call in calls:
        if call.node is None or call.node not in nodes:
            found.append(call)
            nodes.add(call.node)
    return found


def _folds(calls: list[Call], seen: Pass) -> dict[int, int]:
    """Activations whose only source is a layer of the same shape: order of the call -> order of the layer."""
    folded: dict[int, int] = {}
    owners = {call.node: call for call in calls if call.node is not None}
    previous: Call | None = None
    for call in calls:
        if call.facts.is_activation:
            sources = _sources(call, owners, seen)
            source = sources[0] if len(sources) == 1 else None
            if not sources and not seen.complete:
                source = previous
            if source is not None and not isinstance(source, str) and source.shape == call.shape:
                target = folded.get(source.order, source.order)
                if source.facts.weighted or source.order in folded:
                    folded[call.order] = target
        previous = call
    return folded


def _sources(call: Call, owners: dict[Any, Call], seen: Pass) -> list[Any]:
    """The calls, or names of inputs, that a call's result was made of, without others in between."""
    found: list[Any] = []
    waiting, met = list(seen.parents(call.node)), {call.node}
    while waiting and len(met) < _MOST_NODES:
        node = waiting.pop()
        if node in met:
            continue
        met.add(node)
        if node in owners:
            found.append(owners[node])
        elif node in seen.sources:
            found.append(seen.sources[node])
        else:
            waiting.extend(seen.parents(node))
    return found


def _fewer(layers: list[Call], able: list[Call]) -> tuple[list[Call], str]:
    """At most `MOST_LAYERS`, and a sentence that says so."""
    count = len(layers)
    weighted = [call for call in layers if call.facts.weighted]
    if 0 < len(weighted) <= MOST_LAYERS:
        return weighted, f"{len(weighted)} of {count} layers are shown: those that have weights"
    for depth in range(max(call.depth for call in able), 0, -1):
        some = [call for call in able if call.depth == depth or (call.depth < depth and call.facts.leaf)]
        some = _without_echoes([call for call in some if not call.facts.type.startswith(_SILENT)])
        if 1 < len(some) <= MOST_LAYERS:
            return some, f"{count} layers are too many to be shown; instead the {len(some)} modules at depth {depth}"
    every = -(-count // MOST_LAYERS)
    some = [*layers[:-1:every], layers[-1]][-MOST_LAYERS:]
    return some, f"{len(some)} of {count} layers are shown: every {every}th"


def _connect(choice: Choice, seen: Pass, folded: dict[int, int]) -> None:
    """Find what each layer is made of."""
    layers = {one.call.order: one for one in choice.layers}
    owners: dict[Any, Call] = {}
    firsts = {one.call.module: one.call.order for one in choice.layers if one.repeats}
    for call in seen.calls:
        target = firsts.get(call.module, folded.get(call.order, call.order))
        if call.node is not None and target in layers:
            owners.setdefault(call.node, layers[target].call)
    first = next(iter(seen.inputs), "")
    before = first
    for one in sorted(choice.layers, key=lambda one: one.call.order):
        sources = _sources(one.call, owners, seen)
        orders = {folded.get(call.order, call.order) for call in sources if not isinstance(call, str)}
        names = [layers[order].name for order in sorted(orders, reverse=True) if order in layers]
        names += [name for name in sources if isinstance(name, str) and name not in names]
        names = [name for name in dict.fromkeys(names) if name != one.name]
        if not names and before and not seen.complete:
            names = [before]
        choice.senders[one.name] = names
        before = one.name
