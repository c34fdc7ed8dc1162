"""A session as understood: plain data in one dialect, which knows where each part of it was written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torcheer.config import Config, problem
from torcheer.config.line_numbers import KeyPath
from torcheer.config.problems import where
from torcheer.errors import BadConfig
from torcheer.training.checkpoints.run_directory import replace_file
from torcheer.training.spec.read.value_kinds import Fault

Places = dict[KeyPath, tuple[Config, KeyPath]]  # where a part of the data was written

VERSION = 1  # of spec.json
FILE = "spec.json"
DEFINITIONS: KeyPath = ("initialize", "definitions")
PIPELINES: KeyPath = ("initialize", "pipelines")
DEBUG: KeyPath = ("initialize", "debug_pipelines")
STAGES: KeyPath = ("train", "stages")


@dataclass(frozen=True)
class Definition:
    """One of the definitions, and where it stands."""

    group: str
    name: str
    spec: dict[str, Any]
    path: KeyPath  # of its spec


@dataclass(frozen=True)
class Spec:
    """What a config says, in one dialect and complete."""

    data: dict[str, Any]  # plain JSON
    places: Mapping[KeyPath, tuple[Config, KeyPath]]
    changed: frozenset[tuple[str, str]] = frozenset()  # definitions that are not those of the session any more

    def place(self, path: KeyPath) -> tuple[Config, KeyPath]:
        """The config and the key path in which a part of the data was written."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.places:
                config, origin = self.places[path[:length]]
                return config, (*origin, *path[length:])
        raise KeyError(path)

    def problem(self, path: KeyPath, message: str, known: Iterable[str] = ()) -> BadConfig:
        """An error about one part, said of the place where it was written."""
        if self.is_completed(path):
            message = f"{message.rstrip('.')} (this was filled in, since the config does not say it)"
        config, origin = self.place(path)
        return problem(config, origin, message, known)

    def where(self, path: KeyPath) -> str:
        """The place of a part, for people."""
        return where(*self.place(path))

    def problems(self, faults: Iterable[Fault]) -> list[str]:
        """What is wrong, in the order of the file."""
        found = {str(self.problem(one.path, one.message, one.known)): self._line(one.path) for one in faults}
        return sorted(found, key=lambda text: found[text])

    def _line(self, path: KeyPath) -> int:
        config, origin = self.place(path)
        while origin and config.line(origin) is None:
            origin = origin[:-1]
        return config.line(origin) or 0

    @property
    def completed(self) -> list[list[Any]]:
        """What was filled in: `["splits", "split"]`, `["pipelines", "training", "graph"]`."""
        return [one for one in self._source("completed", []) if isinstance(one, list)]

    def is_completed(self, path: KeyPath) -> bool:
        """Whether a part was filled in."""
        here = label(self.data, path)
        return any(here[: len(one)] == one for one in self.completed)

    @property
    def folder(self) -> Path:
        """The folder of the config that all began with."""
        return Path(self._source("config", ".")).parent

    def _source(self, key: str, default: Any) -> Any:
        source = self.data.get("source")
        found = source.get(key) if isinstance(source, dict) else None
        return found if isinstance(found, type(default)) else default

    def definitions(self, group: str = "") -> Iterator[Definition]:
        """The definitions of a group, or all of them."""
        return definitions(self.data, group)

    def text(self) -> str:
        """As JSON."""
        return json.dumps(self.data, indent=1, ensure_ascii=False) + "\n"

    def save(self, directory: Path) -> Path:
        """Write spec.json."""
        path = directory / FILE
        replace_file(path, self.text().encode())
        return path


def definitions(data: Mapping[str, Any], group: str = "") -> Iterator[Definition]:
    """The definitions in a description, those of one group or all; what is no definition is passed over."""
    listed = data.get("initialize", {}).get("definitions", []) if isinstance(data.get("initialize"), dict) else []
    for number, one in enumerate(listed if isinstance(listed, list) else []):
        if not isinstance(one, dict) or not isinstance(one.get("spec"), dict):
            continue
        found, name = one.get("group"), one.get("name")
        if isinstance(found, str) and isinstance(name, str) and group in ("", found):
            yield Definition(found, name, one["spec"], (*DEFINITIONS, number, "spec"))


def label(data: Mapping[str, Any], path: KeyPath) -> list[Any]:
    """A path as people see it: definitions by their group and name, wherever they stand."""
    depth = len(DEFINITIONS)
    one = next((one for one in definitions(data) if one.path == path[: depth + 2]), None)
    if one is not None:
        return [one.group, one.name, *path[depth + 2 :]]
    return list(path[1:] if path[:1] == ("initialize",) else path)


def part(data: Mapping[str, Any], path: KeyPath) -> Any:
    """What stands at a path, None where nothing does."""
    found: Any = data
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found
