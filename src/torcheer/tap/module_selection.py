"""Which layers: patterns, modules and functions become modules and parameters with names."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
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
class Chosen:
    """What is watched of a model."""

    modules: dict[str, nn.Module] = field(default_factory=dict)  # by name, in the model's order
    parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()  # chosen modules inside compiled code, where no hook is called
    behind: tuple[str, ...] = ()  # parameters of modules in there

    def values_of(self, what: Collection[str]) -> int:
        """How many values a step has, as far as can be foreseen."""
        of_modules = len({"output", "grad"} & set(what)) * len(self.modules)
        return of_modules + len({"weight", "weight_grad", "update"} & set(what)) * len(self.parameters)


def choose(model: nn.Module, layers: Any = None) -> Chosen:
    """The modules that `layers` means, with their parameters.

    None is every module that computes: all that have no parts, and those that hold parameters themselves. A text is
    a pattern over names ("features.*"), a function gets name and module and says yes or no; lists may mix them.
    """
    if not isinstance(model, nn.Module):
        raise NotAModel(f"watch needs an nn.Module, got {type(model).__name__}")
    named = modules_of(model)
    if layers is None:
        modules = {name: module for name, module in named.items() if _computes(module)}
    else:
        wanted = {id(module) for one in _each(layers) for module in _matching(one, named)}
        modules = {name: module for name, module in named.items() if id(module) in wanted}
    if not modules:
        raise BadArgument(f"layers={layers!r} chooses no layer of {type(model).__name__}; layers=None chooses all")
    parameters = _parameters(named, list(named.values())[:1] if layers is None else list(modules.values()))
    compiled = _compiled_away(model)
    hidden = tuple(name for name, module in modules.items() if id(module) in compiled)
    seen = {name: module for name, module in modules.items() if id(module) not in compiled}
    if layers is None and id(unwrapped(model)) in compiled and id(model) not in compiled:
        seen = {next(iter(named)): model, **seen}  # what the whole returns can be had
    inside = {id(p) for module in model.modules() if id(module) in compiled for p in module.parameters(recurse=False)}
    return Chosen(seen, parameters, hidden, tuple(name for name, p in parameters.items() if id(p) in inside))


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """Every module under its name, each once; the model itself under that of its class, what wraps it left out."""
    inner = unwrapped(model)
    parts: dict[str, nn.Module] = {}
    for name, module in inner.named_modules():
        if module is not inner:
            parts.setdefault(plain_name(name), module)  # of a compiled part and what it wraps, the part
    own = type(inner).__name__
    return {f"({own})" if own in parts else own: model, **parts}


def _compiled_away(model: nn.Module) -> set[int]:
    """The modules that are called from compiled code only, by their ids."""
    found: set[int] = set()
    for module in model.modules():
        if isinstance(wrapped := getattr(module, "_orig_mod", None), nn.Module):
            found |= {id(part) for part in wrapped.modules()}
        elif getattr(module, "_compiled_call_impl", None) is not None:
            found |= {id(part) for part in module.modules()}
        elif isinstance(module, torch.jit.ScriptModule):
            found |= {id(part) for part in module.modules()}
    return found


def what_is_hidden(chosen: Chosen, what: Collection[str]) -> str:
    """In words, what compiled code hides of the chosen layers, and what is watched of them; "" for nothing."""
    asked = set(what)
    if not chosen.hidden or not {"output", "grad"} & asked:
        return ""
    if "grad" in asked and any(chosen.parameters[name].requires_grad for name in chosen.behind):
        asked.add("weight_grad")  # stands for the gradients that cannot be had
    kinds = {"weight": "values", "weight_grad": "gradients", "update": "updates"}
    seen = [word for kind, word in kinds.items() if kind in asked and chosen.behind]
    shown = " and ".join(filter(None, (", ".join(seen[:-1]), *seen[-1:])))
    some = ", ".join(chosen.hidden[:3]) + (", …" if len(chosen.hidden) > 3 else "")
    lost = " and ".join(word for kind, word in (("output", "outputs"), ("grad", "gradients")) if kind in asked)
    return (
        f"{len(chosen.hidden)} layers ({some}) run inside compiled code, where no hook is called: their {lost} are "
        f"not watched; {f'of their weights {shown} are' if shown else 'nothing of them is'}"
    )


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside DistributedDataParallel and `torch.compile`."""
    while True:
        if isinstance(model, _WRAPPERS):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def plain_name(name: str) -> str:
    """A module's name without what `torch.compile` and checkpointing put in between."""
    return re.sub(r"(^|\.)(_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)(?=\.|$)", "", name).removeprefix(
        "."
    )


def _computes(module: nn.Module) -> bool:
    module = unwrapped(module)
    if isinstance(module, _CONTAINERS):
        return False
    return not any(True for _ in module.children()) or any(p is not None for p in module._parameters.values())


def _each(layers: Any) -> Iterable[Any]:
    if isinstance(layers, list | tuple | set | frozenset):
        return layers
    if isinstance(layers, Mapping):
        raise BadArgument("layers: a mapping has no meaning here; give patterns, modules or functions")
    return (layers,)


def _matching(one: Any, named: dict[str, nn.Module]) -> list[nn.Module]:
    """The modules that one choice means."""
    if isinstance(one, str):
        found = [module for name, module in named.items() if fnmatchcase(name, one)]
        if not found:
            raise BadArgument(_nothing(one, list(named)))
        return found
    if isinstance(one, nn.Module):
        inside = unwrapped(one)
        found = [module for module in named.values() if unwrapped(module) is inside]
        if not found:
            raise BadArgument(f"layers: a {type(one).__name__} was given that is no part of this model")
        return found
    if callable(one):
        return [module for name, module in named.items() if _says_yes(one, name, module)]
    raise BadArgument(f"layers: {one!r} is no pattern, no module and no function of name and module")


def _says_yes(choice: Callable[..., Any], name: str, module: nn.Module) -> bool:
    return bool(choice(name, module))


def _nothing(pattern: str, names: list[str]) -> str:
    """What to say where a pattern matches no name."""
    near = get_close_matches(pattern, names, 3, 0.4) or names[1:4] or names[:1]
    return f"layers: nothing matches {pattern!r} among {len(names)} modules. Did you mean {', '.join(map(repr, near))}?"


def _parameters(named: dict[str, nn.Module], owners: list[nn.Module]) -> dict[str, nn.Parameter]:
    """The parameters of these modules and their parts, each once."""
    root = unwrapped(next(iter(named.values())))
    wanted = {id(parameter) for module in owners for parameter in module.parameters()}
    return {plain_name(name): p for name, p in root.named_parameters() if id(p) in wanted}


Place = tuple[nn.Module, str]


def places_of(model: nn.Module) -> dict[int, list[Place]]:
    """Where each parameter is, by its id; no name where another may be there: a shard's (FSDP), a script's."""
    found: dict[int, list[Place]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            fleeting = hasattr(parameter, "_local_tensor") or isinstance(module, torch.jit.ScriptModule)
            found.setdefault(id(parameter), []).append((module, "" if fleeting else name))
    return found


def replaced(places: dict[int, list[Place]]) -> set[int]:
    """The ids of the parameters that are no longer where they were: another is there."""

    def stands(number: int, module: nn.Module, name: str) -> bool:
        there = module._parameters.get(name) if name else None
        return id(there) == number or not isinstance(there, nn.Parameter)

    return {number for number, all_of in places.items() if not any(stands(number, *place) for place in all_of)}
