"""A network, as a picture needs it, from a model: its layers, and what flows from which to which.

A pass through the model is looked at once, by hooks (`Observation`) or by a capture. What the modules returned becomes
layers (`choosing`), what led from one to the other becomes projections.
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
from torcheer.network.layer_choice import Call, Choice, Chosen, Facts, Pass, chosen
from torcheer.network.network_records import Layer, Network, Projection, Variable
from torcheer.tap.module_selection import modules_of, plain_name, unwrapped

WEIGHTS = ".weights"  # of attention: a layer beside that of its module
VARIABLES = (
    Variable("Act", doc="what the layer returned, after its activation"),
    Variable("Net", doc="the same before its activation, where that is a module of its own"),
    Variable("Grad", doc="the gradient of the loss with respect to what the layer returned"),
    Variable("Wt", of="weight", doc="weights"),
)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)


def describe(model: nn.Module, inputs: Any = None) -> Network:
    """The layers of a model and the weights between them.

    With inputs it is run once, in evaluation mode and without leaving a trace in it, and the real flow is shown.
    Without, the layers are those that have weights, one after the other; a first pass tells more.
    """
    if inputs is None:
        return network_of(model, _guessed(model))[0]
    return network_of(model, run_once(model, inputs))[0]


def run_once(model: nn.Module, inputs: Any, keywords: Any = None) -> Pass:
    """A pass of our own, in evaluation mode, that leaves no trace in the model."""
    with _as_it_was(model):
        history = log_forward_pass(unwrapped(model), inputs, input_kwargs=keywords, layers_to_save="none")
    return pass_of(history, model)


def network_of(model: nn.Module, seen: Pass) -> tuple[Network, Choice]:
    """The network that a pass has shown, and where the values of its layers come from."""
    choice, modules = chosen(seen), modules_of(model)
    layers = [Layer(name, shape, "Input", _view(shape)) for name, shape in seen.inputs.items()]
    for one in choice.layers:
        kind = one.call.facts.type
        layers.append(Layer(one.name, one.shape, kind, _view(one.shape, kind), also=_parts(one, modules)))
        if (heads := one.call.facts.heads) and len(one.shape) == 2:
            shape = (heads, one.shape[0], one.call.facts.keys or one.shape[0])
            layers.append(Layer(one.name + WEIGHTS, shape, "Attention", "heads", relation="right", other=one.name))
    units = {layer.name: math.prod(layer.shape) for layer in layers}
    projections = [projection for one in choice.layers for projection in _projections(one, choice, layers, units)]
    return Network(type(unwrapped(model)).__name__, tuple(layers), tuple(projections), VARIABLES), choice


def _parts(one: Chosen, modules: dict[str, nn.Module]) -> tuple[str, ...]:
    """The modules that belong to a layer beside its own, and the parameters of all of them."""
    names = [name for name in (one.call.module, *one.also) if name in modules]
    return (*one.also, *(f"{name}.{key}" for name in names for key in modules[name]._parameters))


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


def _projections(one: Any, choice: Choice, layers: list[Layer], units: dict[str, int]) -> Iterator[Projection]:
    facts, weighted = one.call.facts, False
    senders = [name for name in choice.senders.get(one.name, ()) if name in units]
    shapes = {layer.name: layer.shape for layer in layers}
    for place, sender in enumerate(senders):
        kind = "" if weighted else facts.fits(shapes[sender], one.shape)
        type_ = "forward" if place == 0 else "skip"
        if kind:
            weighted = True
            yield Projection(
                facts.weight, sender, one.name, kind, facts.shape, facts.stride, facts.padding, facts.dilation,
                facts.groups, type_,
            )  # fmt: skip
        else:
            yield Projection(f"{sender} → {one.name}", sender, one.name, "", type=type_)
    if facts.recurrent or one.repeats:
        yield Projection(f"{one.name} ↺", one.name, one.name, "", type="recurrent")


# -- what is known of modules ----------------------------------------------------------------------------------------


def facts_of(name: str, module: nn.Module) -> Facts:
    """What a picture needs to know of a module."""
    module = unwrapped(module)
    facts = Facts(type(module).__name__, leaf=not any(True for _ in module.children()))
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


def _guessed(model: nn.Module) -> Pass:
    """Before anything ran: the modules with weights, in the model's order; shapes as far as weights tell."""
    seen = Pass()
    for name, module in modules_of(model).items():
        facts = facts_of(name, module)
        if facts.kind and facts.leaf:
            seen.calls.append(Call(name, 1, facts, (1, facts.shape[0]), order=len(seen.calls)))
            if not seen.given:
                seen.give((1, facts.shape[1] * facts.groups), ("input", 1))
    return seen


# -- a pass, from a capture ------------------------------------------------------------------------------------------


def pass_of(history: ModelHistory, model: nn.Module | None = None) -> Pass:
    """What a capture saw, call by call."""
    modules = modules_of(model) if model is not None else {}
    parents: dict[int, list[int]] = {}
    seen = Pass(parents=lambda node: parents.get(node, []), complete=True)
    for op in history:
        record = op.record
        parents[record.index] = [edge.parent for edge in record.parents]
        if record.kind == "input" and record.outputs:
            seen.give(tuple(record.outputs[0].shape), record.index)
        for call in reversed(record.output_of):  # the innermost first, as they returned
            name = plain_name(call.address)
            facts = facts_of(name, modules[name]) if name in modules else Facts(call.type)
            if record.outputs and call.address:
                seen.add(name, call.call, facts, tuple(record.outputs[0].shape), record.index)
    return seen


@contextmanager
def _as_it_was(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; modes, buffers and random numbers are put back."""
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
