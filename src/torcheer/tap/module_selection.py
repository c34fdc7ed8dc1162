"""Resolve the setting `layers=` (patterns, modules, predicates) to named modules and parameters."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from torcheer.errors import BadArgument, NotAModel

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


@dataclass(frozen=True, slots=True)
class ModuleSelection:
    """The modules and parameters of a model that are watched."""

    modules: dict[str, nn.Module] = field(default_factory=dict)  # by name, in the model's order
    parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    hidden_modules: tuple[str, ...] = ()  # selected modules inside compiled code, where no hook is called
    hidden_parameters: tuple[str, ...] = ()  # parameters of modules inside compiled code

    def count_values(self, what: Collection[str]) -> int:
        """Number of values per watched step, as far as can be predicted."""
        of_modules = len({"output", "grad"} & set(what)) * len(self.modules)
        return of_modules + len({"weight", "weight_grad", "update"} & set(what)) * len(self.parameters)


def choose(model: nn.Module, layers: Any = None) -> ModuleSelection:
    """Select the modules that `layers` names, with their parameters.

    None is every module that computes: all that have no parts, and those that hold parameters themselves. A text is
    a pattern over names ("features.*"), a predicate receives name and module; lists may mix them.
    """
    if not isinstance(model, nn.Module):
        raise NotAModel(f"watch needs an nn.Module, got {type(model).__name__}")
    named = modules_of(model)
    if layers is None:
        modules = {name: module for name, module in named.items() if _computes(module)}
    else:
        matches = {id(module) for selector in _as_iterable(layers) for module in _match(selector, named)}
        modules = {name: module for name, module in named.items() if id(module) in matches}
    if not modules:
        raise BadArgument(f"layers={layers!r} chooses no layer of {type(model).__name__}; layers=None chooses all")
    parameters = _parameters(named, list(named.values())[:1] if layers is None else list(modules.values()))
    compiled = _compiled_ids(model)
    hidden = tuple(name for name, module in modules.items() if id(module) in compiled)
    hooked = {name: module for name, module in modules.items() if id(module) not in compiled}
    if layers is None and id(unwrapped(model)) in compiled and id(model) not in compiled:
        hooked = {next(iter(named)): model, **hooked}  # the output of the whole model is accessible
    inside = {id(p) for module in model.modules() if id(module) in compiled for p in module.parameters(recurse=False)}
    return ModuleSelection(hooked, parameters, hidden, tuple(name for name, p in parameters.items() if id(p) in inside))


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """Map names to modules, each once; the model itself under its class name, without wrappers."""
    inner = unwrapped(model)
    parts: dict[str, nn.Module] = {}
    for name, module in inner.named_modules():
        if module is not inner:
            parts.setdefault(plain_name(name), module)  # of a compiled submodule and the module it wraps, the former
    class_name = type(inner).__name__
    return {f"({class_name})" if class_name in parts else class_name: model, **parts}


def _compiled_ids(model: nn.Module) -> set[int]:
    """The ids of the modules that are called from compiled code only."""
    compiled: set[int] = set()
    for module in model.modules():
        if isinstance(wrapped := getattr(module, "_orig_mod", None), nn.Module):
            compiled |= {id(part) for part in wrapped.modules()}
        elif getattr(module, "_compiled_call_impl", None) is not None:
            compiled |= {id(part) for part in module.modules()}
        elif isinstance(module, torch.jit.ScriptModule):
            compiled |= {id(part) for part in module.modules()}
    return compiled


def describe_hidden(selection: ModuleSelection, what: Collection[str]) -> str:
    """Message about what compiled code hides of the selected layers, and what is still watched; "" for nothing."""
    variables = set(what)
    if not selection.hidden_modules or not {"output", "grad"} & variables:
        return ""
    if "grad" in variables and any(selection.parameters[name].requires_grad for name in selection.hidden_parameters):
        variables.add("weight_grad")  # replaces the output gradients, which are not accessible
    kinds = {"weight": "values", "weight_grad": "gradients", "update": "updates"}
    words = [word for kind, word in kinds.items() if kind in variables and selection.hidden_parameters]
    shown = " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
    names = ", ".join(selection.hidden_modules[:3]) + (", …" if len(selection.hidden_modules) > 3 else "")
    lost = " and ".join(word for kind, word in (("output", "outputs"), ("grad", "gradients")) if kind in variables)
    return (
        f"{len(selection.hidden_modules)} layers ({names}) run inside compiled code, where no hook is called: "
        f"their {lost} are not watched; {f'of their weights {shown} are' if shown else 'nothing of them is'}"
    )


def unwrapped(model: nn.Module) -> nn.Module:
    """Strip DistributedDataParallel, DataParallel and `torch.compile` from a model."""
    while True:
        if isinstance(model, _WRAPPERS):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def plain_name(name: str) -> str:
    """A module's name without the path segments that `torch.compile`, checkpointing and FSDP insert."""
    return re.sub(r"(^|\.)(_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)(?=\.|$)", "", name).removeprefix(
        "."
    )


def _computes(module: nn.Module) -> bool:
    module = unwrapped(module)
    if isinstance(module, _CONTAINERS):
        return False
    return not any(True for _ in module.children()) or any(p is not None for p in module._parameters.values())


def _as_iterable(layers: Any) -> Iterable[Any]:
    if isinstance(layers, list | tuple | set | frozenset):
        return layers
    if isinstance(layers, Mapping):
        raise BadArgument("layers: a mapping has no meaning here; give patterns, modules or functions")
    return (layers,)


def _match(selector: Any, named: dict[str, nn.Module]) -> list[nn.Module]:
    """The modules that one selector matches."""
    if isinstance(selector, str):
        matches = [module for name, module in named.items() if fnmatchcase(name, selector)]
        if not matches:
            raise BadArgument(_no_match_message(selector, list(named)))
        return matches
    if isinstance(selector, nn.Module):
        inner = unwrapped(selector)
        matches = [module for module in named.values() if unwrapped(module) is inner]
        if not matches:
            raise BadArgument(f"layers: a {type(selector).__name__} was given that is no part of this model")
        return matches
    if callable(selector):
        return [module for name, module in named.items() if selector(name, module)]
    raise BadArgument(f"layers: {selector!r} is no pattern, no module and no function of name and module")


def _no_match_message(pattern: str, names: list[str]) -> str:
    """The error text for a pattern that matches no name."""
    near = get_close_matches(pattern, names, 3, 0.4) or names[1:4] or names[:1]
    return f"layers: nothing matches {pattern!r} among {len(names)} modules. Did you mean {', '.join(map(repr, near))}?"


def _parameters(named: dict[str, nn.Module], owners: list[nn.Module]) -> dict[str, nn.Parameter]:
    """The parameters of these modules and their parts, each once."""
    root = unwrapped(next(iter(named.values())))
    parameter_ids = {id(parameter) for module in owners for parameter in module.parameters()}
    return {plain_name(name): p for name, p in root.named_parameters() if id(p) in parameter_ids}


Place = tuple[nn.Module, str]  # a module, and the name of one of its parameters


def parameter_places(model: nn.Module) -> dict[int, list[Place]]:
    """Where each parameter is, by its id; without a name where it may be exchanged: shards (FSDP), scripts."""
    places: dict[int, list[Place]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            may_change = hasattr(parameter, "_local_tensor") or isinstance(module, torch.jit.ScriptModule)
            places.setdefault(id(parameter), []).append((module, "" if may_change else name))
    return places


def replaced_parameters(places: dict[int, list[Place]]) -> set[int]:
    """The ids of the parameters that another parameter has replaced everywhere."""

    def is_in_place(number: int, module: nn.Module, name: str) -> bool:
        current = module._parameters.get(name) if name else None
        return id(current) == number or not isinstance(current, nn.Parameter)

    return {number for number, homes in places.items() if not any(is_in_place(number, *home) for home in homes)}
