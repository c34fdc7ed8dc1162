"""Resolve the setting `layers=` to named modules and parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from torcheer.encoding import held_bytes
from torcheer.errors import BadArgument, NotAModel, UnknownLayer
from torcheer.models import modules_of, plain_name, unwrapped
from torcheer.records import Stored
from torcheer.selection import ModuleLayer, Selector, class_name, parse_all
from torcheer.tap.compiled.compiled_parts import compiled_parts
from torcheer.terminal import did_you_mean, first_names, plural
from torcheer.terminal.notices import program_line
from torcheer.vocabulary.variables import WATCHED_OF_UNITS, WATCHED_OF_WEIGHTS

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


@dataclass(frozen=True, slots=True)
class ModuleSelection:
    """The modules and parameters of a model that are watched."""

    modules: dict[str, nn.Module] = field(default_factory=dict)  # by name, in the model's order
    parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    compiled_modules: tuple[str, ...] = ()  # those of them that run inside compiled code, seen by passes beside it
    hidden_modules: tuple[str, ...] = ()  # selected modules where no hook is called
    hidden_parameters: tuple[str, ...] = ()  # parameters of such modules

    def count_values(self, what: Collection[str]) -> int:
        """Number of values per watched step, as far as can be predicted."""
        of_modules = len(set(WATCHED_OF_UNITS) & set(what)) * len(self.modules)
        return of_modules + len(set(WATCHED_OF_WEIGHTS) & set(what)) * len(self.parameters)


def outermost(modules: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """Leave out modules that are inside another one: 'blocks.*' also matches the parts of each block."""
    return {
        name: module
        for name, module in modules.items()
        if not any(name.startswith(f"{other}." if other else "") for other in modules if other != name)
    }


def choose(model: nn.Module, layers: Any = None, verb: str = "watch") -> ModuleSelection:
    """Select the modules that `layers` names (`torcheer.selection`), with their parameters.

    None and "all" are every module that computes: all that have no parts, and those that hold parameters themselves.
    """
    if not isinstance(model, nn.Module):
        raise NotAModel(f"{verb} needs an nn.Module, got {type(model).__name__}")
    named = modules_of(model)
    selectors = parse_all("all" if layers is None else layers, named, verb)
    modules: dict[str, nn.Module] = {}
    for selector in selectors:
        modules |= matching_modules(selector, named, verb)
    if not selectors:
        raise BadArgument(f"{verb}: layers={layers!r} chooses nothing; layers=None chooses every module that computes")
    modules = {name: module for name, module in named.items() if name in modules}
    parameters = _parameters(named, list(named.values())[:1] if layers is None else list(modules.values()))
    compiled, hidden = _inside(model)
    hooked = {name: module for name, module in modules.items() if id(module) not in hidden}
    stored = {id(p) for module in model.modules() if id(module) in hidden for p in module.parameters(recurse=False)}
    return ModuleSelection(
        hooked,
        parameters,
        tuple(name for name, module in hooked.items() if id(module) in compiled),
        tuple(name for name in modules if name not in hooked),
        tuple(name for name, parameter in parameters.items() if id(parameter) in stored),
    )


def matching_modules(selector: Selector, named: Mapping[str, nn.Module], verb: str) -> Mapping[str, nn.Module]:
    """Return the modules that a selector means; raises UnknownLayer if it means none."""
    if selector.form == "module" and selector.name in named:
        return {selector.name: named[selector.name]}
    if selector.form in ("class", "pattern", "role"):
        modules = dict(named.items())
        parts = modules if not selector.reads_class else {name: unwrapped(part) for name, part in modules.items()}
        names = selector.modules_among(parts)
        if not selector.means_every_call:
            names = [name for name in names if selector.matches_call(name, 0, class_name(parts[name]))]
        matches = {name: modules[name] for name in names}
    else:
        matches = {name: module for name, module in named.items() if _matches(selector, name, module)}
    if not matches and selector.form not in ("all", "none"):
        hint = did_you_mean(str(selector.key), named, 3) or " 'all' chooses every module that computes."
        raise UnknownLayer(f"{verb}: nothing among {len(named)} modules matches {selector.key!r}.{hint}")
    return matches


def _inside(model: nn.Module) -> tuple[set[int], set[int]]:
    """The ids of the modules that are seen by a pass beside compiled code, and of those that no hook can see."""
    compiled, hidden = set[int](), set[int]()
    for part in compiled_parts(model):
        (hidden if part.refusal() else compiled).update(map(id, part.modules_inside()))
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            hidden.update(map(id, module.modules()))
    return compiled - hidden, hidden


def describe_compiled(names: Sequence[str]) -> str:
    """Message about layers inside compiled code, whose values are the eager program's; "" for none."""
    if not names:
        return ""
    return (
        f"{plural(len(names), 'layer')} ({first_names(names, 3)}) run inside compiled code, which is left as it is: "
        "their values are those of the eager program, run beside it in the steps that are looked at. Last bits and "
        "random numbers (dropout) are its own"
    )


def describe_hidden(selection: ModuleSelection, what: Collection[str]) -> str:
    """Message about what compiled code hides of the selected layers, and what is still watched; "" for nothing."""
    variables = set(what)
    if not variables.intersection(WATCHED_OF_UNITS):
        return ""
    if not selection.hidden_modules:
        return describe_compiled(selection.compiled_modules)
    if "grad" in variables and any(selection.parameters[name].requires_grad for name in selection.hidden_parameters):
        variables.add("weight_grad")  # replaces the output gradients, which are not accessible
    kinds = {"weight": "values", "weight_grad": "gradients", "update": "updates"}
    words = [word for kind, word in kinds.items() if kind in variables and selection.hidden_parameters]
    shown = " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
    names = ", ".join(selection.hidden_modules[:3]) + (", …" if len(selection.hidden_modules) > 3 else "")
    lost = " and ".join(word for kind, word in (("output", "outputs"), ("grad", "gradients")) if kind in variables)
    return (
        f"{len(selection.hidden_modules)} layers ({names}) run inside code where no hook is called: "
        f"their {lost} are not watched; {f'of their weights {shown} are' if shown else 'nothing of them is'}"
    )


def _computes(module: nn.Module) -> bool:
    module = unwrapped(module)
    if isinstance(module, _CONTAINERS):
        return False
    return not any(True for _ in module.children()) or any(p is not None for p in module._parameters.values())


def _matches(selector: Selector, name: str, module: nn.Module) -> bool:
    if selector.test is not None:
        return bool(selector.test(_as_layer(name, module)))
    return selector.form == "all" and _computes(module)


def _as_layer(name: str, module: nn.Module) -> ModuleLayer:
    inner = unwrapped(module)
    groups = (("parameter", inner._parameters), ("buffer", inner._buffers))
    stored = (
        Stored(f"{name}.{key}", kind, tuple(value.shape), str(value.dtype), held_bytes(value), value.requires_grad)
        for kind, tensors in groups
        for key, value in tensors.items()
        if value is not None and not is_lazy(value)
    )
    return ModuleLayer(name, name, class_name(inner), tuple(stored))


def _parameters(named: dict[str, nn.Module], owners: list[nn.Module]) -> dict[str, nn.Parameter]:
    """The parameters of these modules and their parts, each once."""
    root = unwrapped(next(iter(named.values())))
    parameter_ids = {id(parameter) for module in owners for parameter in module.parameters()}
    return {plain_name(name): p for name, p in root.named_parameters() if id(p) in parameter_ids}


Places = dict[str, str]  # of modules by name, the class and the line of the program that calls it: "ReLU, net.py:14"


def classes_of(modules: Mapping[str, nn.Module]) -> Places:
    """The classes of modules by name: all that is known of their places before the first pass."""
    return {name: class_name(unwrapped(module)) for name, module in modules.items()}


def place_of(module: nn.Module) -> str:
    """The place of a module that is being called.

    The line is that of the program's nearest frame; it is not known where the module was made. For a part of a
    `Sequential` it is the line that calls the `Sequential`.
    """
    return ", ".join(filter(None, (class_name(unwrapped(module)), program_line())))


Place = tuple[nn.Module, str]  # a module, and the name of one of its parameters


def parameter_places(model: nn.Module) -> dict[int, list[Place]]:
    """Where each parameter is, by its id; without a name where it may be exchanged: shards (FSDP), scripts."""
    places: dict[int, list[Place]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            may_change = hasattr(parameter, "_local_tensor") or isinstance(module, torch.jit.ScriptModule)
            places.setdefault(id(parameter), []).append((module, "" if may_change else name))
    return places


class PartsInPlace:
    """Notices modules and parameters of a model that were replaced."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._places = model, parameter_places(model)
        self._replaced = set[int]()  # ids of the parameters that others had replaced at the last check

    def check(self) -> tuple[set[int], set[int]]:
        """The ids of the model's modules, and of the parameters that are no longer in one of them."""
        module_ids, modules = set[int](), [self._model]
        while modules:  # `modules()` takes ten times as long
            module = modules.pop()
            if id(module) not in module_ids:
                module_ids.add(id(module))
                modules += [child for child in module._modules.values() if child is not None]
        orphans, replaced = set[int](), set[int]()
        for number, places in self._places.items():
            if not _is_held(number, places):
                replaced.add(number)
            for module, _ in places:
                if id(module) in module_ids:
                    break
            else:
                orphans.add(number)
        previous, self._replaced = self._replaced, replaced
        # Those in both: `functional_call` substitutes parameters for one pass.
        return module_ids, orphans | (previous & replaced)


def _is_held(number: int, places: list[Place]) -> bool:
    """Whether no other parameter has replaced the one with this id everywhere."""
    for module, name in places:
        current = module._parameters.get(name) if name else None
        if id(current) == number or not isinstance(current, nn.Parameter):
            return True
    return False
