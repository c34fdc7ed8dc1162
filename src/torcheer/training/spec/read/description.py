"""A session's description.

Plain data in one dialect, with the place in the config of each part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torcheer.config import Config, problem
from torcheer.config.line_numbers import KeyPath
from torcheer.config.problems import where
from torcheer.disk import write_file
from torcheer.errors import BadConfig
from torcheer.training.spec.read.value_kinds import Fault
from torcheer.training.spec.torchassistant.habits import TORCHASSISTANTS, Habits

Places = dict[KeyPath, tuple[Config, KeyPath]]  # key path of the data -> config and key path it came from

VERSION = 1  # of spec.json
TORCHASSISTANT = "torchassistant"  # `source.dialect` of its configs
FILE = "spec.json"
DEFINITIONS: KeyPath = ("initialize", "definitions")
PIPELINES: KeyPath = ("initialize", "pipelines")
DEBUG: KeyPath = ("initialize", "debug_pipelines")
STAGES: KeyPath = ("train", "stages")
# What is filled in where a config says nothing.
RATIO = (0.8, 0.1, 0.1)  # of a split
BATCH = 32  # samples
PORT = "default_port"
OUTPUT = "y_hat"


@dataclass(frozen=True)
class Definition:
    """One definition and its key path."""

    group: str
    name: str
    spec: dict[str, Any]
    path: KeyPath  # of its spec


@dataclass(frozen=True)
class Spec:
    """A config in one dialect, completed."""

    data: dict[str, Any]  # plain JSON
    places: Mapping[KeyPath, tuple[Config, KeyPath]]
    changed: frozenset[tuple[str, str]] = frozenset()  # definitions that differ from the saved session's

    def place(self, path: KeyPath) -> tuple[Config, KeyPath]:
        """Return the config and the key path from which a part of the data came."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.places:
                config, origin = self.places[path[:length]]
                return config, (*origin, *path[length:])
        raise KeyError(path)

    def is_bare_word(self, path: KeyPath) -> bool:
        """Whether a part is a string that was typed on the command line without quotes."""
        config, origin = self.place(path)
        return origin in config.words

    def problem(self, path: KeyPath, message: str, choices: Iterable[str] = ()) -> BadConfig:
        """Make an error about one part, located where it was written."""
        if self.is_completed(path) and not self._is_written(path):
            message = f"{message.rstrip('.')} (this was filled in, since the config does not say it)"
        config, origin = self.place(path)
        return problem(config, origin, message, choices)

    def _is_written(self, path: KeyPath) -> bool:
        """Whether a part of what was filled in came from the config, as a stop condition of its short form."""
        prefixes = (path[:length] for length in range(len(path), 0, -1))
        return any(prefix in self.places and self.is_completed(prefix) for prefix in prefixes)

    def where(self, path: KeyPath) -> str:
        """Describe the place of a part."""
        return where(*self.place(path))

    def problems(self, faults: Iterable[Fault]) -> list[str]:
        """Return the texts of faults, in the order of the file."""
        lines = {
            str(self.problem(fault.path, fault.message, fault.choices)): self._line(fault.path) for fault in faults
        }
        return sorted(lines, key=lambda text: lines[text])

    def _line(self, path: KeyPath) -> int:
        config, origin = self.place(path)
        while origin and config.line(origin) is None:
            origin = origin[:-1]
        return config.line(origin) or 0

    @property
    def completed(self) -> list[list[Any]]:
        """Labels of parts that were filled in.

        Such as `["splits", "split"]` or `["pipelines", "training", "graph"]`.
        """
        return [path for path in self._source("completed", []) if isinstance(path, list)]

    def is_completed(self, path: KeyPath) -> bool:
        """Return whether a part was filled in."""
        parts = label(self.data, path)
        return any(parts[: len(prefix)] == prefix for prefix in self.completed)

    @property
    def is_torchassistants(self) -> bool:
        """Whether the config was written for TorchAssistant, whose meaning it keeps."""
        return bool(self._source("dialect", "") == TORCHASSISTANT)

    @property
    def habits(self) -> Habits:
        """What the config means by what it does not say."""
        return TORCHASSISTANTS if self.is_torchassistants else Habits()

    @property
    def folder(self) -> Path:
        """The folder of the original config."""
        return Path(self._source("config", ".")).parent

    def _source(self, key: str, default: Any) -> Any:
        source = self.data.get("source")
        value = source.get(key) if isinstance(source, dict) else None
        return value if isinstance(value, type(default)) else default

    def definitions(self, group: str = "") -> Iterator[Definition]:
        """Yield the definitions of a group, or all of them."""
        return definitions(self.data, group)

    def text(self) -> str:
        """Return the description as JSON."""
        return json.dumps(self.data, indent=1, ensure_ascii=False) + "\n"

    def save(self, directory: Path) -> Path:
        """Write spec.json."""
        path = directory / FILE
        write_file(path, self.text().encode())
        return path


def definitions(data: Mapping[str, Any], group: str = "") -> Iterator[Definition]:
    """Yield the definitions in a description, of one group or all.

    Malformed entries are skipped.
    """
    entries = data.get("initialize", {}).get("definitions", []) if isinstance(data.get("initialize"), dict) else []
    for number, entry in enumerate(entries if isinstance(entries, list) else []):
        if not isinstance(entry, dict) or not isinstance(entry.get("spec"), dict):
            continue
        entry_group, name = entry.get("group"), entry.get("name")
        if isinstance(entry_group, str) and isinstance(name, str) and group in ("", entry_group):
            yield Definition(entry_group, name, entry["spec"], (*DEFINITIONS, number, "spec"))


def label(data: Mapping[str, Any], path: KeyPath) -> list[Any]:
    """Return a readable form of a path: definitions by group and name, not by index."""
    depth = len(DEFINITIONS)
    definition = next((definition for definition in definitions(data) if definition.path == path[: depth + 2]), None)
    if definition is not None:
        return [definition.group, definition.name, *path[depth + 2 :]]
    return list(path[1:] if path[:1] == ("initialize",) else path)


def part(data: Mapping[str, Any], path: KeyPath) -> Any:
    """Return the value at a path; None where there is none."""
    value: Any = data
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
