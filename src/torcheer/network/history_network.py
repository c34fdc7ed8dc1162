"""Makes the network of a recorded pass: the one way from operations to layers and what flows between them.

Layers are inputs, calls of leaf modules that compute, operations outside of these that have parameters, and what
modules return that hold several layers, where none of these has it. An activation module is part of the layer before
it. Other operations are no layers: what flows goes through them. The operations come from a capture, or from hooks
(`host.follow.pass_observer`) where none can be made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field, replace
from math import prod
from typing import Final

from torcheer.history.derived_facts import HistoryFacts
from torcheer.network.batch_axis import NO_BATCH, Batch, batch_of, item_shape
from torcheer.network.heads.recorded_heads import SHARES, SUFFIX, heads_of, layer_of
from torcheer.network.module_tree import is_silent, tree_of
from torcheer.network.network_records import Layer, ModuleNode, Network, Projection, Variable
from torcheer.network.pass_fold import fold_pass
from torcheer.network.pass_graph import SAME_VALUES, PassGraph, apart_from, given_name
from torcheer.network.placement import levels_of
from torcheer.network.unit_grids import is_picture
from torcheer.records import ModuleCall, Op, RunInfo, Stored, garbage_collection_off
from torcheer.vocabulary.variables import VARIABLES

MOST_LAYERS: Final = 2_000  # without what modules return that hold others
MOST_CALLS: Final = 4  # of one module that become separate layers; of a longer loop only the first call does
_VARIABLES: Final = tuple(Variable(row.page_name, row.of, row.doc) for row in VARIABLES if row.in_network)
NO_ACTIVATION: Final = "no activation follows it: what comes out of it is its Act"  # why a layer has no Net
_CONVOLUTIONS: Final = ("conv1d", "conv2d", "conv3d")
_HEADS: Final = ("scaled_dot_product_attention", "softmax", "bmm", "matmul")
_ACTIVATIONS: Final = frozenset(
    """
    CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish PReLU RReLU ReLU
    ReLU6 SELU SiLU Sigmoid Softmax Softplus Softshrink Softsign Tanh Tanhshrink Threshold
    BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm LazyBatchNorm1d LazyBatchNorm2d FrozenBatchNorm2d
""".split()
)


@dataclass(slots=True)
class LayerSource:
    """Where a layer's values come from."""

    name: str
    net: Op  # what the layer computed
    call: ModuleCall | None  # the module call that returned it; None for an operation outside of leaf modules
    act: Op  # what came out of the last activation folded into it, else `net`
    act_call: ModuleCall | None
    ops: list[Op] = field(default_factory=list)  # that ran in it
    folded: list[ModuleCall] = field(default_factory=list)  # activations
    folded_ops: list[Op] = field(default_factory=list)
    loops: bool = False  # called so often that only the first call is a layer
    holds: bool = False  # what a module returned that holds other layers

    @property
    def depth(self) -> int:
        return self.call.address.count(".") + 1 if self.call is not None else len(self.net.modules) + 1

    @property
    def weights(self) -> list[tuple[Op, Stored]]:
        """The operations with a matrix or kernel, and that parameter."""
        pairs = ((op, stored) for op in self.ops for stored in op.stored if stored.kind == "parameter")
        return [(op, stored) for op, stored in pairs if len(stored.shape) > 1]


@dataclass(slots=True)
class PassDescription:
    """The network of a recorded pass, and the operations behind its layers."""

    network: Network
    inputs: dict[str, Op] = field(default_factory=dict)
    sources: dict[str, LayerSource] = field(default_factory=dict)
    heads: dict[str, Op] = field(default_factory=dict)  # layer of attention weights -> the operation
    fed: set[int] = field(default_factory=set)  # operations that depend on an input
    batch: Batch = NO_BATCH

    def batch_axis(self, op: Op) -> int:
        """The batch axis of an operation's result; -1: none."""
        return item_shape(op.outputs[0].shape, self.batch, op.index in self.fed)[1]

    def layer_of(self) -> dict[int, str]:
        """The layer that each operation belongs to; not of operations between layers."""
        owners = {op.index: name for name, op in self.inputs.items()}
        for inner in (True, False):  # an operation in a layer is this layer's, also where a module returns it
            for name, source in self.sources.items():
                if source.holds is not inner:
                    for op in (source.net, source.act, *source.ops, *source.folded_ops):
                        owners.setdefault(op.index, name)
        return owners


@garbage_collection_off()
def describe_pass(ops: list[Op], title: str = "") -> PassDescription:
    """Describe the network of a recorded pass."""
    batch, graph = batch_of(ops), PassGraph(ops)
    inputs = _named_inputs(graph)
    sources, notes = _choose(graph)
    layers = [_input_layer(name, op, batch) for name, op in inputs.items()]
    layers += [_layer(source, batch, source.net.index in graph.fed) for source in sources]
    result = PassDescription(
        Network(title), inputs, {source.name: source for source in sources}, fed=graph.fed, batch=batch
    )
    projections = _projections(result, layers, graph)
    _add_heads(result, layers, graph)
    outputs = _outputs(sources, graph)
    nodes = tree_of(fold_pass(HistoryFacts(ops, RunInfo(title))))
    if len(nodes) > MOST_LAYERS:
        nodes = _holding_layers(nodes, sources)
    modules = tuple(replace(node, output=outputs.get(node.path, "")) for node in nodes)
    result.network = Network(title, tuple(layers), tuple(projections), _VARIABLES, modules, tuple(dict.fromkeys(notes)))
    return result


def _holding_layers(nodes: tuple[ModuleNode, ...], sources: list[LayerSource]) -> tuple[ModuleNode, ...]:
    """The modules that are layers or hold some: what lies deeper in a large model is not shown."""
    parents, held = {node.path: node.parent for node in nodes}, {""}
    for source in sources:
        for call in (*source.folded, source.call or next(reversed(source.net.modules), None)):
            path = call.address if call is not None else ""
            while path not in held:
                held.add(path)
                path = parents.get(path, "")
    return tuple(node for node in nodes if node.path in held)


# -- which layers ----------------------------------------------------------------------------------------------------


def _named_inputs(graph: PassGraph) -> dict[str, Op]:
    """The inputs that something reads; all where nothing reads any."""
    inputs = [op for op in graph.ops if op.kind == "input" and _is_shown(op)]
    inputs = [op for op in inputs if graph.readers[op.index]] or inputs
    names: dict[str, Op] = {}
    modules = {call.address for call in graph.returned}
    for op in inputs:
        name = given_name(op) if op.given_at and len(inputs) > 1 else "Input"
        names[_unique(apart_from(modules, name), names)] = op
    return names


def _is_shown(op: Op) -> bool:
    """True if an operation's result has numbers that can be drawn."""
    value = op.outputs[0] if op.outputs else None
    return value is not None and bool(value.shape) and value.bytes > 0 and "complex" not in value.dtype


def _works(op: Op) -> bool:
    """True if an operation computes new values."""
    return op.kind == "op" and not op.view and op.name not in SAME_VALUES


def _choose(graph: PassGraph) -> tuple[list[LayerSource], list[str]]:
    """The layers of a pass, without its inputs, and sentences about what is not shown."""
    candidates = _module_layers(graph, graph.leaves) | _parameter_layers(graph)
    candidates = candidates or {op.index: _own(op) for op in graph.ops if _is_shown(op) and _works(op) and op.parents}
    layers, notes = _without_loops([candidates[index] for index in sorted(candidates)])
    stay = sum(layer.call is None or layer.call.type not in _ACTIVATIONS for layer in layers)
    layers = _fold(layers, graph) if stay <= MOST_LAYERS else layers  # of too many, those that are shown are folded
    if len(layers) > MOST_LAYERS:
        layers, note = _reduce(layers, graph)
        notes.append(note)
    layers = sorted([*layers, *_module_outputs(layers, graph)], key=lambda layer: layer.net.index)
    _set_names(layers)
    return layers, notes


def _module_layers(graph: PassGraph, addresses: Container[str]) -> dict[int, LayerSource]:
    """Calls of these modules that computed what they returned, by their result's index."""
    layers: dict[int, LayerSource] = {}
    for call, returned in graph.returned.items():
        if call.address not in addresses or is_silent(call.type):
            continue
        inside = graph.inside.get(call, [])
        if not any(map(_works, inside)):
            continue
        results = [op for op in returned if call in graph.stacks[op.index] and _is_shown(op)]
        # Not attention's averaged weights, which nothing reads.
        read = [op for op in results if graph.readers[op.index]]
        results = read or [op for op in results if op.index in graph.given_out] or results
        if results and results[0].index not in layers:
            layers[results[0].index] = LayerSource(call.address, results[0], call, results[0], call, inside)
    return layers


def _parameter_layers(graph: PassGraph) -> dict[int, LayerSource]:
    """Operations with parameters of their own, outside of leaf modules."""
    return {
        op.index: _own(op)
        for op in graph.ops
        if any(stored.kind == "parameter" for stored in op.stored)
        and not ((home := graph.home[op.index]) and home.address in graph.leaves)
        and _works(op) and _is_shown(op) and not graph.is_kernel(op)
    }  # fmt: skip


def _own(op: Op) -> LayerSource:
    name = ".".join((*(call.address for call in op.modules[-1:]), op.name))
    return LayerSource(name, op, None, op, None, [op])


def _without_loops(layers: list[LayerSource]) -> tuple[list[LayerSource], list[str]]:
    """Keep the first call only of what is called more than `MOST_CALLS` times."""
    calls: dict[tuple[object, ...], list[LayerSource]] = {}
    for layer in layers:
        own = () if layer.call else tuple(stored.name for stored in layer.net.stored)
        calls.setdefault((layer.name, layer.call is None, *own), []).append(layer)
    loops = [group for group in calls.values() if len(group) > MOST_CALLS]
    dropped = {id(layer) for group in loops for layer in group[1:]}
    for group in loops:
        group[0].loops, group[0].ops = True, [op for layer in group for op in layer.ops]
    kept = [layer for layer in layers if id(layer) not in dropped]
    names = sorted(group[0].name for group in loops)[:3]
    text = f"{', '.join(names)}: called more than {MOST_CALLS} times in a pass; the first call is shown"
    return kept, [text] if loops else []


def _fold(layers: list[LayerSource], graph: PassGraph) -> list[LayerSource]:
    """Make activation modules part of the layer before them: their only source, of the same shape, with weights."""
    owners = {layer.net.index: layer for layer in layers}
    kept: list[LayerSource] = []
    sources = graph.sources(owners)
    for layer in layers:
        before = sources[layer.net.index] if layer.call and layer.call.type in _ACTIVATIONS else set()
        target = owners[min(before)] if len(before) == 1 else layer
        same = target.net.outputs[0].shape == layer.net.outputs[0].shape
        if target is layer or not same or not (target.weights or target.folded):
            kept.append(layer)
            continue
        assert layer.call is not None
        owners[layer.net.index] = target
        target.act, target.act_call = layer.net, layer.call
        target.folded.append(layer.call)
        target.folded_ops += layer.ops
    return kept


def _reduce(layers: list[LayerSource], graph: PassGraph) -> tuple[list[LayerSource], str]:
    """Reduce to at most `MOST_LAYERS` layers, by the modules' depth; with a sentence about it."""
    count = len(layers)
    for depth in range(max(layer.depth for layer in layers) - 1, 0, -1):
        addresses = {call.address for call in graph.returned if call.address.count(".") + 1 == depth}
        leaves = {address for address in graph.leaves if address.count(".") < depth}
        shown = _module_layers(graph, addresses | leaves)
        shown |= {layer.net.index: layer for layer in layers if not layer.call and layer.depth <= depth}
        reduced = _fold(_without_loops([shown[index] for index in sorted(shown)])[0], graph)
        if 1 < len(reduced) <= MOST_LAYERS:
            text = f"{count} layers are too many to be shown; instead the {len(reduced)} modules at depth {depth}"
            return reduced, text
    every = -(-count // MOST_LAYERS)
    reduced = [*layers[:-1:every], layers[-1]][-MOST_LAYERS:]
    return reduced, f"{len(reduced)} of {count} layers are shown: every {every}th"


def _module_outputs(layers: list[LayerSource], graph: PassGraph) -> list[LayerSource]:
    """What modules returned that hold several layers, where it is not what one of these computed."""
    owned = {index for layer in layers for index in (layer.net.index, layer.act.index)}
    inside = Counter(call.address for layer in layers for call in dict.fromkeys(layer.net.modules))
    several = {address for address, count in inside.items() if address and count > 1}
    several -= graph.leaves | {layer.name for layer in layers}
    depths = sorted({address.count(".") for address in several}, reverse=True)
    found: dict[int, LayerSource] = {}
    for depth in depths:  # what several modules return is the innermost one's
        found = _module_layers(graph, {address for address in several if address.count(".") == depth}) | found
    for layer in found.values():
        layer.ops, layer.holds = [], True
    kept = [layer for layer in found.values() if graph.computed_by(layer.net, owned) is None]
    return [layer for layer in kept if layer.call is not None and layer.call.call <= MOST_CALLS]


def _outputs(layers: list[LayerSource], graph: PassGraph) -> dict[str, str]:
    """The layer that has what a module returned in its first call, by the module's address."""
    names = {index: layer.name for layer in layers for index in (layer.net.index, layer.act.index)}
    outputs: dict[str, str] = {}
    for call, returned in graph.returned.items():
        index = graph.computed_by(returned[0], names) if call.call == 1 else None
        if index is not None:
            outputs[call.address] = names[index]
    return outputs


def _set_names(layers: list[LayerSource]) -> None:
    """Name each layer by its module and call ("relu:3"), or by its operation ("linear", "block.mul:2")."""
    taken: set[str] = set()
    for layer in layers:
        if layer.call is not None and layer.call.call > 1 and not layer.loops:
            layer.name = f"{layer.name}:{layer.call.call}"
        layer.name = _unique(layer.name, taken)
        taken.add(layer.name)


def _unique(name: str, taken: Container[str]) -> str:
    if name not in taken:
        return name
    number = 2
    while f"{name}:{number}" in taken:
        number += 1
    return f"{name}:{number}"


# -- what a layer is -------------------------------------------------------------------------------------------------


def _input_layer(name: str, op: Op, batch: Batch) -> Layer:
    shape = item_shape(op.outputs[0].shape, batch)[0]
    return Layer(name, shape, "Input", "picture" if is_picture(shape) else _view(shape))


def _layer(source: LayerSource, batch: Batch, is_fed: bool) -> Layer:
    shape = item_shape(source.net.outputs[0].shape, batch, is_fed)[0]
    kind = source.call.type if source.call is not None else source.net.name
    view = "heads" if len(shape) == 3 and source.net.name in _HEADS else _view(shape)
    ops = (*source.ops, *source.folded_ops)
    parameters = [stored.name for op in ops for stored in op.stored if stored.kind == "parameter"]
    parts = dict.fromkeys((*(call.address for call in source.folded), *parameters))
    range = SHARES if view == "heads" and source.act.name == "softmax" else None
    return Layer(source.name, shape, kind, view, also=tuple(parts), holds=source.holds, range=range)


def _view(shape: tuple[int, ...]) -> str:
    return {1: "units", 2: "plane"}.get(len(shape), "maps")


def _add_heads(result: PassDescription, layers: list[Layer], graph: PassGraph) -> None:
    """Add a layer of attention weights beside each attention; of one in a loop, the first."""
    owners = {op.index: source for source in result.sources.values() for op in source.ops}
    calls = {call.address: call.call for op in graph.ops for call in op.modules}
    for op in graph.ops:
        shape = heads_of(op, result.batch.size, graph.by_index) if op.modules else None
        source = owners.get(op.index)
        if shape is None or (source is not None and source.net is op and op.name == "softmax"):
            continue  # its output already is the weights
        module = op.modules[-1].address
        name = f"{module if source is None else source.name}{SUFFIX}"
        if name in result.heads and (source is not None or calls[module] > MOST_CALLS):
            continue
        name = _unique(name, result.heads)
        before = [other.name for other in result.sources.values()
                  if other.net.index < op.index and other.name.startswith(f"{module}.")]  # fmt: skip
        layers.append(layer_of(name, shape, (before or [""])[-1] if source is None else source.name))
        result.heads[name] = op


# -- what flows between layers ---------------------------------------------------------------------------------------


def _projections(result: PassDescription, layers: list[Layer], graph: PassGraph) -> list[Projection]:
    order = {layer.name: number for number, layer in enumerate(layers)}
    shapes = {layer.name: layer.shape for layer in layers}
    owners = _owners(result, graph)
    sources = graph.sources(owners)
    projections: dict[str, Projection] = {}
    for source in result.sources.values():
        senders = {owners[index] for index in sources[source.net.index]} - {source.name}
        weighted = False
        for sender in sorted(senders, key=lambda name: (name not in result.inputs, order[name]), reverse=True):
            projection = _projection(source, sender, shapes) if not weighted else None
            weighted = weighted or projection is not None
            projection = projection or Projection(f"{sender} → {source.name}", sender, source.name, "")
            name = _unique(projection.name, projections)  # a weight may be used several times
            projections[name] = replace(projection, name=name)
        if source.loops or source.net.name in RECURRENT:
            name = f"{source.name} ↺"
            projections[name] = Projection(name, source.name, source.name, "", type="recurrent")
    return _with_types(list(order), list(projections.values()))


RECURRENT: Final = ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")


def _owners(result: PassDescription, graph: PassGraph) -> dict[int, str]:
    """The layer that an operation's result belongs to."""
    owners = {op.index: name for name, op in result.inputs.items()}
    looping = {source.call.address: source.name for source in result.sources.values() if source.loops and source.call}
    for source in result.sources.values():
        calls = [call for call in (source.call, *source.folded) if call is not None]
        results = [source.net, source.act, *(op for call in calls for op in graph.returned[call])]
        results += source.ops if source.loops and source.call is None else []
        for op in results:
            owners.setdefault(op.index, source.name)
    for call, returned in graph.returned.items():
        if call.address in looping:
            for op in returned:
                owners.setdefault(op.index, looping[call.address])
    return owners


def _projection(source: LayerSource, sender: str, shapes: dict[str, tuple[int, ...]]) -> Projection | None:
    """The weights between two layers; None where they are unknown or do not fit."""
    weights = {stored.name: (op, stored) for op, stored in source.weights}
    if len(weights) != 1:
        return None
    ((op, weight),) = weights.values()
    if weight.where != (1,) or op.name not in ("linear", *_CONVOLUTIONS):
        return None
    before, after = shapes[sender], shapes[source.name]
    if op.name == "linear":
        fits = bool(after) and after[-1] == weight.shape[0]
        fits = fits and (prod(before) == weight.shape[1] or before[-1:] == weight.shape[1:])
        return Projection(weight.name, sender, source.name, "linear", weight.shape) if fits else None
    setting = dict(op.settings).get((6,), 1)
    groups = setting if isinstance(setting, int) else 1
    if not len(before) == len(weight.shape) - 1 == len(after) or before[0] != weight.shape[1] * groups:
        return None
    stride, padding, dilation = (_setting(op, place) for place in (3, 4, 5))
    if padding is None:  # "same"
        padding = tuple((length - 1) * by // 2 for length, by in zip(weight.shape[2:], dilation or (1, 1, 1)))
    return Projection(
        weight.name, sender, source.name, "conv", weight.shape, stride or (), padding, dilation or (), groups
    )


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
