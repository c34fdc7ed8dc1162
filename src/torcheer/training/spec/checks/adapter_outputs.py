"""What input adapters give to models, as far as their arguments or their source tell; nothing is imported or built."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torcheer.config.code_names import current_name
from torcheer.config.folder_modules import home
from torcheer.training import adapters
from torcheer.training.spec.read.code_slots import Finder, arguments
from torcheer.training.spec.read.description import Definition
from torcheer.training.spec.read.value_kinds import Fault

Given = dict[str, list[str]]  # node -> the inputs that an adapter gives it


def adapter_faults(one: Definition, finder: Finder) -> Iterator[Fault]:
    """Inputs of a processor's models that neither its adapter nor a model before gives."""
    given = given_by(one.spec.get("input_adapter"), finder)
    if given is None:
        return
    made: list[str] = []
    for number, node in enumerate(one.spec["neural_graph"]):
        name = node.get("alias") or node["model_name"]
        known = [*given.get(name, ()), *made]
        for place, wanted in enumerate(node["inputs"]):
            if wanted not in known:
                path = (*one.path, "neural_graph", number, "inputs", place)
                there = ", ".join(known) or f"nothing: the input adapter gives {', '.join(given) or 'nothing at all'}"
                yield Fault(path, f"there is no {wanted!r} for {name}; there is {there}", tuple(known))
        made += node["outputs"]


def given_by(spec: Any, finder: Finder) -> Given | None:
    """What an adapter gives; None where only a run can tell."""
    name = spec.get("class") if isinstance(spec, Mapping) else None
    if not isinstance(name, str):
        return None
    module, _, attribute = current_name(name).rpartition(".")
    if module == adapters.__name__:
        return _own(attribute, spec)
    return _written(module, attribute, finder)


def _own(name: str, spec: Mapping[str, Any]) -> Given | None:
    """What one of our own adapters gives, by its arguments."""
    kind = getattr(adapters, name, None)
    if kind is None:
        return None
    try:
        found = arguments(kind, list(spec.get("args", [])), dict(spec.get("kwargs", {})))
        if kind is adapters.DefaultInputAdapter:
            return {found["model_name"]: ["input_1"]}
        if kind is adapters.ToModel:
            return {found["model"]: list(found["columns"])}
        return {found["model"]: [found.get("input", "x")]} if kind is adapters.StackImages else None
    except (KeyError, TypeError):  # arguments that do not fit are a fault of their own
        return None


def _written(module: str, name: str, finder: Finder) -> Given | None:
    """What a user's adapter gives, where it returns nothing but a dict of dicts that is written out."""
    for folder in finder.folders:
        file = home(module, folder)
        if file is not None and file.is_relative_to(folder) and file.suffix == ".py":
            return _returned(file, name)
    return None


def _returned(file: Path, name: str) -> Given | None:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    called = _called(tree, name)
    if called is None:
        return None
    returns = [one for one in ast.walk(called) if isinstance(one, ast.Return | ast.Yield | ast.YieldFrom | ast.Lambda)]
    if len(returns) != 1 or not isinstance(returns[0], ast.Return):
        return None
    nodes = _keys(returns[0].value)
    if nodes is None:
        return None
    inputs = {node: _keys(value) for node, value in nodes.items()}
    return None if None in inputs.values() else {node: list(found or ()) for node, found in inputs.items()}


def _called(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """The function that a call of an adapter runs; None where something may stand in its place."""
    if any(isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store) for one in ast.walk(tree)):
        return None
    named = [one for one in tree.body if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name == name]
    inside: list[ast.stmt] = [named[0]] if len(named) == 1 else []
    if inside and isinstance(inside[0], ast.ClassDef) and not inside[0].decorator_list:
        inside = [one for one in inside[0].body if isinstance(one, ast.FunctionDef) and one.name == "__call__"]
    found = inside[0] if len(inside) == 1 else None
    return found if isinstance(found, ast.FunctionDef) and not found.decorator_list else None


def _keys(value: ast.expr | None) -> dict[str, ast.expr] | None:
    """The items of a dict that is written out with texts as keys."""
    if not isinstance(value, ast.Dict):
        return None
    found: dict[str, ast.expr] = {}
    for key, item in zip(value.keys, value.values):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        found[key.value] = item
    return found
