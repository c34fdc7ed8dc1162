"""The folder of an extraction, as far as its shards are archives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torcheer.errors import ArchiveDamaged
from torcheer.history.sizes import plural


def is_one(path: Path) -> bool:
    """Whether a folder holds an extraction."""
    return (path / "extraction.json").is_file()


def shards(path: Path) -> list[Path]:
    """The archives in it, in order."""
    found = (file.parent for file in path.glob("shards/*/archive.json"))
    return sorted(folder for folder in found if folder.name.isdecimal())  # not those that are being written, or mended


def described(path: Path) -> str:
    """One line about it."""
    model = _json(path / "extraction.json").get("plan", {}).get("model")
    ended = "complete" if (path / "complete.json").is_file() else "not complete"
    return f"extraction{f' of {model}' if model else ''}, {ended}: {plural(len(shards(path)), 'shard')}"


def missing(path: Path) -> Iterator[str]:
    """A line for each shard that a complete extraction lacks."""
    if not (path / "complete.json").is_file():
        return
    there = {int(folder.name) for folder in shards(path)}
    counts = _json(path / "complete.json").get("shards")
    for number in range(len(counts) if isinstance(counts, list) else 0):
        if number not in there:
            yield f"{path}: shard {number} is missing"


def _json(file: Path) -> Any:
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ArchiveDamaged(f"{file} cannot be read: {error}") from None
    return found if isinstance(found, dict) else {}
