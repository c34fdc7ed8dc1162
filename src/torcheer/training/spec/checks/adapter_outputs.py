"""Infer the outputs of input adapters from their arguments or source, importing nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torcheer.config.code_names import current_name
from torcheer.config.folder_modules import find_in_folder
from torcheer.training import adapters
from torcheer.training.spec.read.code_slots import Finder, arguments
from torcheer.training.spec.read.description import Definition
from torcheer.training.spec.read.value_kinds import Fault

AdapterOutputs = dict[str, list[str]]  # node -> the inputs that an adapter provides


def adapter_faults(definition: Definition, finder: Finder) -> Iterator[Fault]:
    """Yield faults of model inputs that neither the adapter nor an earlier model provides."""
    outputs = adapter_outputs(definition.spec.get("input_adapter"), finder)
    if outputs is None:
        return
    model_outputs: list[str] = []
    for number, node in enumerate(definition.spec["neural_graph"]):
        name = node.get("alias") or node["model_name"]
        available = [*outputs.get(name, ()), *model_outputs]
        for place, wanted in enumerate(node["inputs"]):
            if wanted not in available:
                path = (*definition.path, "neural_graph", number, "inputs", place)
                choices = (
                    ", ".join(available) or f"nothing: the input adapter gives {', '.join(outputs) or 'nothing at all'}"
                )
                yield Fault(path, f"there is no {wanted!r} for {name}; there is {choices}", tuple(available))
        model_outputs += node["outputs"]


def adapter_outputs(spec: Any, finder: Finder) -> AdapterOutputs | None:
    """Return the outputs of an adapter; None where only a run can tell."""
    name = spec.get("class") if isinstance(spec, Mapping) else None
    if not isinstance(name, str):
        return None
    module, _, attribute = current_name(name).rpartition(".")
    if module == adapters.__name__:
        return _builtin_outputs(attribute, spec)
    return _outputs_in_source(module, attribute, finder)


def _builtin_outputs(name: str, spec: Mapping[str, Any]) -> AdapterOutputs | None:
    """Return the outputs of a builtin adapter, from its arguments."""
    kind = getattr(adapters, name, None)
    if kind is None:
        return None
    try:
        values = arguments(kind, list(spec.get("args", [])), dict(spec.get("kwargs", {})))
        if kind is adapters.DefaultInputAdapter:
            return {values["model_name"]: ["input_1"]}
        if kind is adapters.ToModel:
            return {values["model"]: list(values["columns"])}
        return {values["model"]: [values.get("input", "x")]} if kind is adapters.StackImages else None
    except (KeyError, TypeError):  # wrong arguments are reported elsewhere
        return None


def _outputs_in_source(module: str, name: str, finder: Finder) -> AdapterOutputs | None:
    """Return the outputs of a user's adapter, where it only returns a literal dict of dicts."""
    for folder in finder.folders:
        file = find_in_folder(module, folder)
        if file is not None and file.is_relative_to(folder) and file.suffix == ".py":
            return _returned_keys(file, name)
    return None


def _returned_keys(file: Path, name: str) -> AdapterOutputs | None:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    called = _call_function(tree, name)
    if called is None:
        return None
    returns = [
        node for node in ast.walk(called) if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Lambda)
    ]
    if len(returns) != 1 or not isinstance(returns[0], ast.Return):
        return None
    nodes = _keys(returns[0].value)
    if nodes is None:
        return None
    inputs = {node: _keys(value) for node, value in nodes.items()}
    return None if None in inputs.values() else {node: list(keys or ()) for node, keys in inputs.items()}


def _call_function(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """Return the function that a call of an adapter runs; None where it may be replaced."""
    if any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store) for node in ast.walk(tree)
    ):
        return None
    named = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name]
    inside: list[ast.stmt] = [named[0]] if len(named) == 1 else []
    if inside and isinstance(inside[0], ast.ClassDef) and not inside[0].decorator_list:
        inside = [node for node in inside[0].body if isinstance(node, ast.FunctionDef) and node.name == "__call__"]
    function = inside[0] if len(inside) == 1 else None
    return function if isinstance(function, ast.FunctionDef) and not function.decorator_list else None


def _keys(value: ast.expr | None) -> dict[str, ast.expr] | None:
    """Return the items of a dict literal with string keys."""
    if not isinstance(value, ast.Dict):
        return None
    items: dict[str, ast.expr] = {}
    for key, item in zip(value.keys, value.values):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        items[key.value] = item
    return items
