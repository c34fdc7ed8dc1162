"""Describes a model as a `Network`: its layers, and the data flow between them.

One pass through the model is observed, by hooks (`PassObserver`) or by a capture. The modules' outputs become layers
(`network.layer_choice`), the data flow between them becomes projections.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from torcheer.capture.forward_pass import log_forward_pass
from torcheer.history import ModelHistory
from torcheer.models import modules_of, plain_name, unwrapped
from torcheer.network.layer_choice import (
    ChosenLayer,
    LayerSelection,
    ModuleFacts,
    ObservedCall,
    ObservedPass,
    choose_layers,
)
from torcheer.network.network_records import Layer, Network, Projection, Variable

WEIGHTS = ".weights"  # suffix of the layer that shows a module's attention weights
VARIABLES = (
    Variable("Act", doc="what the layer returned, after its activation"),
    Variable("Net", doc="the same before its activation, where that is a module of its own"),
    Variable("Grad", doc="the gradient of the loss with respect to what the layer returned"),
    Variable("Wt", of="weight", doc="weights"),
)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)


def describe(model: nn.Module, inputs: Any = None) -> Network:
    """Describe the layers of a model and the weights between them.

    With `inputs` the model is run once, in evaluation mode and without side effects, and the real data flow is shown.
    Without, the layers are the modules with weights, one after the other; a first pass tells more.
    """
    if inputs is None:
        return network_of(model, _guess_pass(model))[0]
    return network_of(model, run_once(model, inputs))[0]


def run_once(model: nn.Module, inputs: Any, keywords: Any = None) -> ObservedPass:
    """Capture an extra pass, in evaluation mode, that leaves no trace in the model."""
    with _preserved(model):
        history = log_forward_pass(unwrapped(model), inputs, input_kwargs=keywords, layers_to_save="none")
    return pass_of(history, model)


def network_of(model: nn.Module, observed: ObservedPass) -> tuple[Network, LayerSelection]:
    """The network of an observed pass, and the module calls that its layers' values come from."""
    selection, modules = choose_layers(observed), modules_of(model)
    layers = [Layer(name, shape, "Input", _view(shape)) for name, shape in observed.inputs.items()]
    for layer in selection.layers:
        facts, name = layer.call.facts, layer.name
        kind = facts.type
        layers.append(Layer(name, layer.shape, kind, _view(layer.shape, kind), also=_parts(layer, modules)))
        if facts.heads and len(layer.shape) == 2:
            shape = (facts.heads, layer.shape[0], facts.keys or layer.shape[0])
            layers.append(Layer(name + WEIGHTS, shape, "Attention", "heads", relation="right", other=name))
    units = {layer.name: math.prod(layer.shape) for layer in layers}
    projections = [
        projection for layer in selection.layers for projection in _projections(layer, selection, layers, units)
    ]
    return Network(type(unwrapped(model)).__name__, tuple(layers), tuple(projections), VARIABLES), selection


def _parts(layer: ChosenLayer, modules: dict[str, nn.Module]) -> tuple[str, ...]:
    """The modules folded into a layer, and the parameters of all of its modules."""
    names = [name for name in (layer.call.module, *layer.also) if name in modules]
    return (*layer.also, *(f"{name}.{key}" for name in names for key in modules[name]._parameters))


def _view(shape: tuple[int, ...], kind: str = "") -> str:
    match len(shape):
        case 1:
            return "units"
        case 2:
            return "plane"
        case 3:
            return "heads" if kind == "Attention" else "maps"
        case _:
            return "auto"


def _projections(
    layer: ChosenLayer, selection: LayerSelection, layers: list[Layer], units: dict[str, int]
) -> Iterator[Projection]:
    facts, weighted = layer.call.facts, False
    senders = [name for name in selection.senders.get(layer.name, ()) if name in units]
    shapes = {drawn.name: drawn.shape for drawn in layers}
    for position, sender in enumerate(senders):
        kind = "" if weighted else facts.fits(shapes[sender], layer.shape)
        type_ = "forward" if position == 0 else "skip"
        if kind:
            weighted = True
            yield Projection(
                facts.weight, sender, layer.name, kind, facts.shape, facts.stride, facts.padding, facts.dilation,
                facts.groups, type_,
            )  # fmt: skip
        else:
            yield Projection(f"{sender} → {layer.name}", sender, layer.name, "", type=type_)
    if facts.recurrent or layer.repeats:
        yield Projection(f"{layer.name} ↺", layer.name, layer.name, "", type="recurrent")


# -- facts about modules ---------------------------------------------------------------------------------------------


def facts_of(name: str, module: nn.Module) -> ModuleFacts:
    """The facts about a module that its picture needs."""
    module = unwrapped(module)
    facts = ModuleFacts(type(module).__name__, leaf=not any(True for _ in module.children()))
    weight = getattr(module, "weight", None)
    if isinstance(weight, torch.Tensor) and not isinstance(weight, nn.parameter.UninitializedParameter):
        facts.weight, facts.shape = f"{name}.weight" if name else "weight", tuple(weight.shape)
    if isinstance(module, _CONVOLUTIONS):
        sides = len(module.kernel_size)
        facts.kind, facts.groups = "conv", module.groups
        facts.stride, facts.dilation = tuple(module.stride), tuple(module.dilation)
        facts.padding = _padding(module, sides)
    elif isinstance(module, nn.Linear):
        facts.kind = "linear"
    facts.recurrent = isinstance(module, _RECURRENT)
    facts.weighted = bool(facts.kind) or facts.recurrent or isinstance(module, nn.MultiheadAttention | nn.Embedding)
    facts.weighted = facts.weighted or (len(facts.shape) > 1)
    if isinstance(module, nn.MultiheadAttention):
        facts.heads, facts.leaf, facts.weighted = module.num_heads, True, True
    facts.batch_axis = 1 if getattr(module, "batch_first", True) is False else 0
    return facts


def _padding(module: Any, sides: int) -> tuple[int, ...]:
    if module.padding == "valid":
        return (0,) * sides
    if module.padding == "same":
        return tuple(d * (k - 1) // 2 for d, k in zip(module.dilation, module.kernel_size))
    return tuple(module.padding)


def _guess_pass(model: nn.Module) -> ObservedPass:
    """A pass guessed before any ran: the modules with weights in order, shapes from these."""
    observed = ObservedPass()
    for name, module in modules_of(model).items():
        facts = facts_of(name, module)
        if facts.kind and facts.leaf:
            observed.calls.append(ObservedCall(name, 1, facts, (1, facts.shape[0]), order=len(observed.calls)))
            if not observed.input_shapes:
                observed.add_input((1, facts.shape[1] * facts.groups), ("input", 1))
    return observed


# -- a pass, from a capture ------------------------------------------------------------------------------------------


def pass_of(history: ModelHistory, model: nn.Module | None = None) -> ObservedPass:
    """Convert a capture to an observed pass, call by call."""
    modules = modules_of(model) if model is not None else {}
    parents: dict[int, list[int]] = {}
    observed = ObservedPass(parents=lambda node: parents.get(node, []), complete=True)
    for op in history:
        record = op.record
        parents[record.index] = [edge.parent for edge in record.parents]
        if record.kind == "input" and record.outputs:
            observed.add_input(tuple(record.outputs[0].shape), record.index)
        for call in reversed(record.output_of):  # the innermost first, as they returned
            name = plain_name(call.address)
            facts = facts_of(name, modules[name]) if name in modules else ModuleFacts(call.type)
            if record.outputs and call.address:
                observed.add_call(name, call.call, facts, tuple(record.outputs[0].shape), record.index)
    return observed


@contextmanager
def _preserved(model: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode; restore modes, buffers and random state afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.is_cuda})
    try:
        with torch.random.fork_rng(devices), torch.no_grad():
            model.eval()
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, before in buffers:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)
