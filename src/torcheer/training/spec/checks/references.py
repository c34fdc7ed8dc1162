"""Which definitions name which: whether those exist, and in what order all can be built."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torcheer.config.line_numbers import DEPTH, KeyPath
from torcheer.training.datasets import PARTS
from torcheer.training.spec.read.description import DEBUG, PIPELINES, Definition, definitions, part
from torcheer.training.spec.read.grammar import GROUPS
from torcheer.training.spec.read.value_kinds import Fault, Finding, Reference

SPLIT_PART = re.compile(r"(?P<split>.+?)(?:\.(?P<word>\w+)|\[(?P<number>\d+)\])$")
NAMED = (*GROUPS, "pipelines", "debug_pipelines")


@dataclass
class Names:
    """The names that a description defines, by group."""

    groups: dict[str, dict[str, Definition | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, data: dict[str, Any]) -> Names:
        names = cls({group: {} for group in GROUPS})
        for one in definitions(data):
            names.groups.setdefault(one.group, {}).setdefault(one.name, one)
        for group, path in (("pipelines", PIPELINES), ("debug_pipelines", DEBUG)):
            found = part(data, path)
            names.groups[group] = dict.fromkeys(found) if isinstance(found, dict) else {}
        return names

    def fault(self, one: Reference) -> Fault | None:
        """What is wrong with a reference; one to a definition whose group is misspelt is a fault of that one."""
        if any(one.name in found for group, found in self.groups.items() if group not in NAMED):
            return None
        if one.group == "data":
            return self._data_fault(one)
        known = self.groups[one.group]
        if one.name in known:
            return None
        there = f"there is {', '.join(known)}" if known else "there are none"
        return Fault(one.path, f"there is no {one.name!r} among the {one.group}; {there}", tuple(known))

    def _data_fault(self, one: Reference) -> Fault | None:
        datasets, splits = self.groups["datasets"], self.groups["splits"]
        if one.name in datasets:
            return None
        if one.name in splits:
            parts = tuple(f"{one.name}.{word}" for word in self.parts(one.name))
            return Fault(one.path, f"{one.name!r} is a split, and one of its parts is needed: {', '.join(parts)}")
        split, part = split_part(one.name)
        if split in splits:
            return self._part_fault(one, split, part)
        known = (*datasets, *(f"{name}.{word}" for name in splits for word in self.parts(name)))
        there = f"there is {', '.join(known)}" if known else "there are none"
        return Fault(one.path, f"there is no {one.name!r} among the datasets; {there}", known)

    def _part_fault(self, one: Reference, split: str, part: str | int) -> Fault | None:
        parts = self.parts(split)
        count = self.part_count(split)
        if part in parts or (isinstance(part, int) and part < count):
            return None
        known = tuple(f"{split}.{word}" for word in parts)
        return Fault(one.path, f"the split {split!r} has {count} parts, {', '.join(known)}; {part!r} is none", known)

    def part_count(self, split: str) -> int:
        one = self.groups["splits"][split]
        ratio = one.spec.get("ratio") if one else None
        return len(ratio) if isinstance(ratio, list) else len(PARTS)

    def parts(self, split: str) -> tuple[str, ...]:
        """The names of a split's parts."""
        return PARTS[: self.part_count(split)]

    def dependency(self, one: Reference) -> tuple[str, str] | None:
        """The definition that must be built before the one that names it."""
        if one.group != "data":
            return (one.group, one.name) if one.name in self.groups.get(one.group, {}) else None
        if one.name in self.groups["datasets"]:
            return "datasets", one.name
        split, _ = split_part(one.name)
        return ("splits", split) if split in self.groups["splits"] else None


def split_part(name: str) -> tuple[str, str | int]:
    """The split and the part that `s.train` or `s[0]` names; the name itself where it has no such form."""
    found = SPLIT_PART.fullmatch(name)
    if found is None:
        return name, ""
    return found["split"], found["word"] or int(found["number"])


def reference_faults(data: dict[str, Any], findings: Iterable[Finding]) -> Iterator[Fault]:
    """References to what is not there."""
    names = Names.of(data)
    for one in findings:
        fault = names.fault(one) if isinstance(one, Reference) else None
        if fault is not None:
            yield fault


class Order:
    """The definitions in the order in which they are written, each after those that it names."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._names = Names.of(data)
        self._all = {(one.group, one.name): one for one in definitions(data)}
        self.found: list[Definition] = []
        self.cycles: list[Fault] = []
        self._seen: set[tuple[str, str]] = set()
        for key in self._all:
            self._visit(key, [])

    def _visit(self, key: tuple[str, str], above: list[tuple[str, str]]) -> None:
        if key in above:
            circle = " → ".join(name for _, name in [*above[above.index(key) :], key])
            self.cycles.append(Fault(self._all[key].path, f"these definitions name one another: {circle}"))
            return
        if key in self._seen or self._is_too_deep(key, len(above)):
            return
        for needed in self.needed(key):
            self._visit(needed, [*above, key])
        if key not in self._seen:
            self._seen.add(key)
            self.found.append(self._all[key])

    def needed(self, key: tuple[str, str]) -> Iterator[tuple[str, str]]:
        """The definitions that one names."""
        one = self._all[key]
        for finding in GROUPS[one.group].walk(one.spec, one.path) if one.group in GROUPS else ():
            found = self._names.dependency(finding) if isinstance(finding, Reference) else None
            if found is not None:
                yield found

    def _is_too_deep(self, key: tuple[str, str], depth: int) -> bool:
        if depth > DEPTH:
            self.cycles.append(Fault(self._all[key].path, f"more than {DEPTH} definitions hang one on the other"))
        return depth > DEPTH


def twice(data: dict[str, Any]) -> Iterator[Fault]:
    """Names that a group has twice."""
    seen: dict[tuple[str, str], KeyPath] = {}
    for one in definitions(data):
        if (one.group, one.name) in seen:
            path = (*one.path[:-1], "name")
            yield Fault(path, f"{one.group} has a {one.name!r} already, defined before this one")
        seen.setdefault((one.group, one.name), one.path)
