"""What is found out once and kept: which sample is in which part of a split, what preprocessors have learned."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torcheer.archive.frames import strict_json
from torcheer.errors import ArchiveDamaged
from torcheer.training.run_directory import replace_file

GROUPS = ("datasets", "splits", "preprocessors")
FOLDER = "static"

Static = dict[str, dict[str, Any]]  # group -> name -> state; of a dataset, how many samples it has


def read_static(directory: Path | None) -> Static:
    """What was kept in a run directory; empty where nothing was."""
    return {} if directory is None else {group: one for group in GROUPS if (one := _read(directory, group)) is not None}


def _read(directory: Path, group: str) -> dict[str, Any] | None:
    path = directory / FOLDER / f"{group}.json"
    if not path.exists():
        return None
    found = strict_json(path.read_bytes(), str(path))
    if not isinstance(found, dict):
        raise ArchiveDamaged(f"{path} is not one of ours: it holds no mapping")
    return found


def write_static(directory: Path, static: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep in a run directory what was found out."""
    for group in GROUPS:
        text = json.dumps(static.get(group, {}), separators=(",", ":"), allow_nan=False)
        replace_file(directory / FOLDER / f"{group}.json", text.encode() + b"\n")


def plain(state: Any) -> Any:
    """A state as it comes back from disk; raises TypeError or ValueError where JSON cannot hold it."""
    return json.loads(json.dumps(state, allow_nan=False))


def size_of(dataset: Any) -> int | None:
    """How many samples a dataset has, where it says so."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None
