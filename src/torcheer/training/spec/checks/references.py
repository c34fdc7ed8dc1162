"""References between definitions.

Whether their targets exist, and the order in which to build.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torcheer.config.line_numbers import MAX_DEPTH, KeyPath
from torcheer.training.datasets import PARTS
from torcheer.training.spec.read.description import DEBUG, PIPELINES, Definition, definitions, part
from torcheer.training.spec.read.grammar import GROUPS
from torcheer.training.spec.read.value_kinds import Fault, Finding, Reference

SPLIT_PART = re.compile(r"(?P<split>.+?)(?:\.(?P<word>\w+)|\[(?P<number>\d+)\])$")
FILLED_IN = ("training", "validation")  # pipelines of a config without any; it may refer to them
NAMED = (*GROUPS, "pipelines", "debug_pipelines")


@dataclass
class DefinedNames:
    """Names that a description defines, by group."""

    groups: dict[str, dict[str, Definition | None]] = field(default_factory=dict)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> DefinedNames:
        names = cls({group: {} for group in GROUPS})
        for definition in definitions(data):
            names.groups.setdefault(definition.group, {}).setdefault(definition.name, definition)
        for group, path in (("pipelines", PIPELINES), ("debug_pipelines", DEBUG)):
            pipelines = part(data, path)
            names.groups[group] = dict.fromkeys(pipelines) if isinstance(pipelines, dict) else {}
        names.groups["pipelines"] = names.groups["pipelines"] or dict.fromkeys(FILLED_IN)
        return names

    def fault(self, reference: Reference) -> Fault | None:
        """Return the fault of a reference; a misspelt group is a fault of the definition instead."""
        if any(reference.name in names for group, names in self.groups.items() if group not in NAMED):
            return None
        if reference.group == "data":
            return self._data_fault(reference)
        names = {**self.groups[reference.group], **self.groups.get(reference.also, {})}
        if reference.name in names:
            return None
        available = f"there is {', '.join(names)}" if names else "there are none"
        groups = " and ".join(filter(None, (reference.group, reference.also)))
        message = f"there is no {reference.name!r} among the {groups}; {available}"
        return Fault(reference.path, message, tuple(names))

    def _data_fault(self, reference: Reference) -> Fault | None:
        datasets, splits = self.groups["datasets"], self.groups["splits"]
        if reference.name in datasets:
            return None
        if reference.name in splits:
            parts = tuple(f"{reference.name}.{word}" for word in self.parts(reference.name))
            return Fault(
                reference.path, f"{reference.name!r} is a split, and one of its parts is needed: {', '.join(parts)}"
            )
        split, part = split_part(reference.name)
        if split in splits:
            return self._part_fault(reference, split, part)
        choices = (*datasets, *(f"{name}.{word}" for name in splits for word in self.parts(name)))
        available = f"there is {', '.join(choices)}" if choices else "there are none"
        return Fault(reference.path, f"there is no {reference.name!r} among the datasets; {available}", choices)

    def _part_fault(self, reference: Reference, split: str, part: str | int) -> Fault | None:
        parts = self.parts(split)
        count = self.part_count(split)
        if part in parts or (isinstance(part, int) and part < count):
            return None
        choices = tuple(f"{split}.{word}" for word in parts)
        return Fault(
            reference.path, f"the split {split!r} has {count} parts, {', '.join(choices)}; {part!r} is none", choices
        )

    def part_count(self, split: str) -> int:
        definition = self.groups["splits"][split]
        ratio = definition.spec.get("ratio") if definition else None
        return len(ratio) if isinstance(ratio, list) else len(PARTS)

    def parts(self, split: str) -> tuple[str, ...]:
        """Return the names of a split's parts."""
        return PARTS[: self.part_count(split)]

    def dependency(self, reference: Reference) -> tuple[str, str] | None:
        """Return the definition that a reference needs."""
        if reference.group != "data":
            return (reference.group, reference.name) if reference.name in self.groups.get(reference.group, {}) else None
        if reference.name in self.groups["datasets"]:
            return "datasets", reference.name
        split, _ = split_part(reference.name)
        return ("splits", split) if split in self.groups["splits"] else None


def split_part(name: str) -> tuple[str, str | int]:
    """Split `s.train` or `s[0]` into split and part; any other name is returned with ""."""
    match = SPLIT_PART.fullmatch(name)
    if match is None:
        return name, ""
    return match["split"], match["word"] or int(match["number"])


def reference_faults(data: dict[str, Any], findings: Iterable[Finding]) -> Iterator[Fault]:
    """Yield faults of references to unknown definitions."""
    names = DefinedNames.from_data(data)
    for finding in findings:
        fault = names.fault(finding) if isinstance(finding, Reference) else None
        if fault is not None:
            yield fault


class BuildOrder:
    """Definitions in the order of the config, each after its dependencies."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._names = DefinedNames.from_data(data)
        self._all = {(definition.group, definition.name): definition for definition in definitions(data)}
        self.definitions: list[Definition] = []
        self.cycles: list[Fault] = []
        self._visited: set[tuple[str, str]] = set()
        for key in self._all:
            self._visit(key, [])

    def _visit(self, key: tuple[str, str], path: list[tuple[str, str]]) -> None:
        if key in path:
            cycle = " → ".join(name for _, name in [*path[path.index(key) :], key])
            self.cycles.append(Fault(self._all[key].path, f"these definitions name one another: {cycle}"))
            return
        if key in self._visited or self._is_too_deep(key, len(path)):
            return
        for needed in self.dependencies(key):
            self._visit(needed, [*path, key])
        if key not in self._visited:
            self._visited.add(key)
            self.definitions.append(self._all[key])

    def dependencies(self, key: tuple[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the definitions that a definition names."""
        definition = self._all[key]
        for finding in (
            GROUPS[definition.group].walk(definition.spec, definition.path) if definition.group in GROUPS else ()
        ):
            dependency = self._names.dependency(finding) if isinstance(finding, Reference) else None
            if dependency is not None:
                yield dependency

    def _is_too_deep(self, key: tuple[str, str], depth: int) -> bool:
        if depth > MAX_DEPTH:
            self.cycles.append(Fault(self._all[key].path, f"more than {MAX_DEPTH} definitions hang one on the other"))
        return depth > MAX_DEPTH


def duplicate_names(data: dict[str, Any]) -> Iterator[Fault]:
    """Yield faults of names that a group has twice."""
    paths: dict[tuple[str, str], KeyPath] = {}
    for definition in definitions(data):
        if (definition.group, definition.name) in paths:
            path = (*definition.path[:-1], "name")
            yield Fault(path, f"{definition.group} has a {definition.name!r} already, defined before this one")
        paths.setdefault((definition.group, definition.name), definition.path)
