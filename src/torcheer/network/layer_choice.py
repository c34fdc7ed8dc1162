"""Chooses the module calls of a pass that become layers, and connects them.

Does not import torch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

MOST_LAYERS: Final = 60
_MOST_CALLS: Final = 4  # of one module that become separate layers; of a longer loop only the first call does
_MOST_NODES: Final = 100_000
_SILENT: Final = ("Dropout", "Identity", "Flatten", "Unflatten")  # prefixes of types that leave values unchanged
_ACTIVATIONS: Final = frozenset(
    """
    CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish PReLU RReLU ReLU
    ReLU6 SELU SiLU Sigmoid Softmax Softplus Softshrink Softsign Tanh Tanhshrink Threshold
    BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm LazyBatchNorm1d LazyBatchNorm2d FrozenBatchNorm2d
""".split()
)


@dataclass(slots=True)
class ModuleFacts:
    """ModuleFacts about a module: its type, weights, and attention heads."""

    type: str
    leaf: bool = True
    weighted: bool = False
    weight: str = ""  # the parameter's name
    shape: tuple[int, ...] = ()
    kind: str = ""  # "linear", "conv": weights that can be shown between two layers
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    recurrent: bool = False
    heads: int = 0  # of an attention module
    keys: int = 0  # how many tokens it attends to; 0: as many as it has
    batch_axis: int = 0  # of its output

    @property
    def is_activation(self) -> bool:
        """True for activations and batch norms, which belong to the layer before them."""
        return self.type in _ACTIVATIONS

    @property
    def item_dims(self) -> int:
        """The number of axes of one output item; 0 if unknown."""
        return {"linear": 1, "conv": len(self.shape) - 1}.get(self.kind, 0)

    def fits(self, sender: tuple[int, ...], receiver: tuple[int, ...]) -> str:
        """The kind of the weights between layers of these shapes; "" where they cannot be shown."""
        if self.kind == "conv":
            good = len(sender) == len(self.shape) - 1 == len(receiver)
            return self.kind if good and sender[0] == self.shape[1] * self.groups else ""
        if self.kind == "linear" and receiver and receiver[-1] == self.shape[0]:
            good = math.prod(sender) == self.shape[1] or bool(sender and sender[-1] == self.shape[1])
            return self.kind if good else ""
        return ""


@dataclass(slots=True)
class ObservedCall:
    """A module call that returned a tensor."""

    module: str  # its name; "" for the model itself
    number: int  # 1 for its first call in this pass
    facts: ModuleFacts
    shape: tuple[int, ...]  # with the batch
    node: Hashable = None  # the node of the pass's graph that produced the tensor
    order: int = 0

    @property
    def depth(self) -> int:
        return self.module.count(".") + 1 if self.module else 0

    @property
    def name(self) -> str:
        name = self.module or self.facts.type
        return name if self.number == 1 else f"{name}:{self.number}"


@dataclass(slots=True)
class ObservedPass:
    """A pass through a model: its inputs, module calls, and the graph between them."""

    input_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # with the batch
    batch_axis: int = 0  # of the inputs; 1 for sequence-first (recurrent layers' default); -1: no batch axis
    calls: list[ObservedCall] = field(default_factory=list)  # in order of return
    parents: Callable[[Any], Iterable[Any]] = field(default=lambda node: ())  # of a node of the graph
    sources: dict[Any, str] = field(default_factory=dict)  # nodes that are inputs
    complete: bool = False  # the graph has every edge; otherwise a missing one is guessed from the order

    @property
    def batch(self) -> int:
        """The batch size; 0 without a batch axis."""
        if self.batch_axis < 0:
            return 0
        return next((shape[self.batch_axis] for shape in self.input_shapes.values() if len(shape) > self.batch_axis), 0)

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """The shape of one item of each input."""
        return {name: without_axis(shape, self.batch_axis) for name, shape in self.input_shapes.items()}

    def add_input(self, shape: tuple[int, ...], node: Any) -> None:
        """Add an input of the model."""
        name = f"Input:{len(self.input_shapes) + 1}" if self.input_shapes else "Input"
        self.input_shapes[name], self.sources[node] = shape, name

    def add_call(self, module: str, number: int, facts: ModuleFacts, shape: tuple[int, ...], node: Any) -> None:
        """Add a module call that returned; may correct the batch axis."""
        if facts.batch_axis == 1 and (facts.heads or facts.recurrent) and len(shape) == 3:
            if any(other[:2] == shape[:2] for other in self.input_shapes.values()):
                self.batch_axis = 1
        if len(shape) == facts.item_dims and not any(call.facts.weighted for call in self.calls):
            if all(len(other) == len(shape) for other in self.input_shapes.values()):
                self.batch_axis = -1  # a single item without a batch axis
        self.calls.append(ObservedCall(module, number, facts, shape, node, len(self.calls)))


@dataclass(slots=True)
class ChosenLayer:
    """A module call that becomes a layer."""

    name: str
    call: ObservedCall
    shape: tuple[int, ...]  # of one item
    ends: ObservedCall  # the call whose result is its "Act": its own, or a following activation's
    batch_axis: int = 0
    also: tuple[str, ...] = ()  # modules folded into it
    repeats: bool = False  # called so often that only the first call is a layer


@dataclass(slots=True)
class LayerSelection:
    """The layers of a pass and their connections."""

    layers: list[ChosenLayer] = field(default_factory=list)
    senders: dict[str, list[str]] = field(default_factory=dict)  # of each layer, the main sender first
    notes: list[str] = field(default_factory=list)  # what was left out


def choose_layers(observed: ObservedPass) -> LayerSelection:
    """Choose the layers of a pass: calls that compute.

    Activations are folded into the layer before them.
    """
    selection, repeated = LayerSelection(), {call.module for call in observed.calls if call.number > _MOST_CALLS}
    unrepeated = [call for call in observed.calls if call.number == 1 or call.module not in repeated]
    shaped = [call for call in unrepeated if call.module and item_shape(call, observed.batch)[0]]
    leaves = [call for call in shaped if call.facts.leaf and not call.facts.type.startswith(_SILENT)]
    candidates = _without_echoes(leaves) or _without_echoes(shaped) or [call for call in unrepeated if call.shape]
    folded = _folds(candidates, observed)
    layers = [call for call in candidates if call.order not in folded]
    if len(layers) > MOST_LAYERS:
        layers, note = _reduce(layers, shaped)
        selection.notes.append(note)
    ends = {target: by for by, target in folded.items()}  # layer -> the last call folded into it
    by_order = {call.order: call for call in observed.calls}
    also: dict[int, list[str]] = defaultdict(list)
    for by, target in folded.items():
        also[target].append(by_order[by].module)
    for call in layers:
        shape, axis = item_shape(call, observed.batch)
        last = by_order[ends[call.order]] if call.order in ends else call
        parts = tuple(dict.fromkeys(also[call.order]))
        selection.layers.append(
            ChosenLayer(call.name, call, shape or call.shape, last, axis, parts, call.module in repeated)
        )
    _connect(selection, observed, folded)
    if repeated and any(layer.repeats for layer in selection.layers):
        examples = ", ".join(sorted(repeated)[:3])
        selection.notes.append(f"{examples}: called more than {_MOST_CALLS} times in a pass; the first call is shown")
    return selection


def item_shape(call: ObservedCall, batch: int) -> tuple[tuple[int, ...], int]:
    """The shape of one item of a call's output, and its batch axis (-1: none)."""
    shape = call.shape
    axis = call.facts.batch_axis if len(shape) > 2 else 0
    if not shape or 0 in shape:
        return (), 0
    if len(shape) > axis and shape[axis] == batch:
        return without_axis(shape, axis), axis
    if batch in shape[:2]:
        axis = shape.index(batch)
        return without_axis(shape, axis), axis
    if batch > 1 and shape[0] % batch == 0:  # a batch of concatenated sequences
        return (shape[0] // batch, *shape[1:]), 0
    return shape, -1


def without_axis(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """A shape without one axis (-1: unchanged); never empty."""
    return shape if axis < 0 else (*shape[:axis], *shape[axis + 1 :]) or (1,)


def _without_echoes(calls: list[ObservedCall]) -> list[ObservedCall]:
    """Drop calls that returned the same tensor as an earlier call."""
    nodes, distinct = set(), []
    for call in calls:
        if call.node is None or call.node not in nodes:
            distinct.append(call)
            nodes.add(call.node)
    return distinct


def _folds(calls: list[ObservedCall], observed: ObservedPass) -> dict[int, int]:
    """Activations to fold into the layer before them: order of the call -> order of the layer.

    An activation is folded if its only source is a layer of the same shape.
    """
    folded: dict[int, int] = {}
    owners = {call.node: call for call in calls if call.node is not None}
    previous: ObservedCall | None = None
    for call in calls:
        if call.facts.is_activation:
            sources = _sources(call, owners, observed)
            source = sources[0] if len(sources) == 1 else None
            if not sources and not observed.complete:
                source = previous
            if source is not None and not isinstance(source, str) and source.shape == call.shape:
                target = folded.get(source.order, source.order)
                if source.facts.weighted or source.order in folded:
                    folded[call.order] = target
        previous = call
    return folded


def _sources(call: ObservedCall, owners: dict[Any, ObservedCall], observed: ObservedPass) -> list[Any]:
    """The nearest calls, or names of inputs, that a call's result was computed from."""
    sources: list[Any] = []
    waiting, visited = list(observed.parents(call.node)), {call.node}
    while waiting and len(visited) < _MOST_NODES:
        node = waiting.pop()
        if node in visited:
            continue
        visited.add(node)
        if node in owners:
            sources.append(owners[node])
        elif node in observed.sources:
            sources.append(observed.sources[node])
        else:
            waiting.extend(observed.parents(node))
    return sources


def _reduce(layers: list[ObservedCall], shaped: list[ObservedCall]) -> tuple[list[ObservedCall], str]:
    """Reduce to at most `MOST_LAYERS` layers; with a sentence about the reduction."""
    count = len(layers)
    weighted = [call for call in layers if call.facts.weighted]
    if 0 < len(weighted) <= MOST_LAYERS:
        return weighted, f"{len(weighted)} of {count} layers are shown: those that have weights"
    for depth in range(max(call.depth for call in shaped), 0, -1):
        reduced = [call for call in shaped if call.depth == depth or (call.depth < depth and call.facts.leaf)]
        reduced = _without_echoes([call for call in reduced if not call.facts.type.startswith(_SILENT)])
        if 1 < len(reduced) <= MOST_LAYERS:
            return (
                reduced,
                f"{count} layers are too many to be shown; instead the {len(reduced)} modules at depth {depth}",
            )
    every = -(-count // MOST_LAYERS)
    reduced = [*layers[:-1:every], layers[-1]][-MOST_LAYERS:]
    return reduced, f"{len(reduced)} of {count} layers are shown: every {every}th"


def _connect(selection: LayerSelection, observed: ObservedPass, folded: dict[int, int]) -> None:
    """Set the senders of each layer."""
    layers = {layer.call.order: layer for layer in selection.layers}
    owners: dict[Any, ObservedCall] = {}
    firsts = {layer.call.module: layer.call.order for layer in selection.layers if layer.repeats}
    for call in observed.calls:
        target = firsts.get(call.module, folded.get(call.order, call.order))
        if call.node is not None and target in layers:
            owners.setdefault(call.node, layers[target].call)
    first = next(iter(observed.inputs), "")
    before = first
    for layer in sorted(selection.layers, key=lambda layer: layer.call.order):
        sources = _sources(layer.call, owners, observed)
        orders = {folded.get(call.order, call.order) for call in sources if not isinstance(call, str)}
        names = [layers[order].name for order in sorted(orders, reverse=True) if order in layers]
        names += [name for name in sources if isinstance(name, str) and name not in names]
        names = [name for name in dict.fromkeys(names) if name != layer.name]
        if not names and before and not observed.complete:
            names = [before]
        selection.senders[layer.name] = names
        before = layer.name
