"""The folder of an extraction, as far as its shards are archives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torcheer.archive.format.archive_reader import Archive
from torcheer.errors import ArchiveDamaged, TorcheerError
from torcheer.terminal import plural


def is_one(path: Path) -> bool:
    """Whether a folder holds an extraction."""
    return (path / "extraction.json").is_file()


def shards(path: Path) -> list[Path]:
    """The archives in it, in order."""
    found = (file.parent for file in path.glob("shards/*/archive.json"))
    return sorted(folder for folder in found if folder.name.isdecimal())  # not those that are being written, or mended


def described(path: Path) -> str:
    """One line about it."""
    plan = _json(path / "extraction.json").get("plan")
    model = plan.get("model") if isinstance(plan, dict) else None
    ended = "complete" if (path / "complete.json").is_file() else "not complete"
    return f"extraction{f' of {model}' if model else ''}, {ended}: {plural(len(shards(path)), 'shard')}"


def missing(path: Path) -> Iterator[str]:
    """A line for each shard that a complete extraction lacks, or that is not the one it should be."""
    if not (path / "complete.json").is_file():
        return
    there = {int(folder.name): folder for folder in shards(path)}
    counts = _json(path / "complete.json").get("shards")
    wanted = dict(enumerate(counts)) if isinstance(counts, list) else {}
    for number in sorted(wanted.keys() | there.keys()):
        if number not in there:
            yield f"{path}: shard {number} is missing"
        elif number not in wanted:
            yield f"{path}: shard {number} is one too many"
        elif problem := _misfit(there[number], number, wanted[number]):
            yield f"{path}: shard {number} {problem}"


def _misfit(folder: Path, number: int, count: object) -> str:
    """Why an archive is not the shard that was written here; damage is told by whoever verifies it."""
    try:
        archive = Archive(folder)
    except TorcheerError:
        return ""
    if not archive.sealed:
        return "has lost its seal: its end is cut off"
    if archive.about.get("shard") != number:
        return f"is shard {archive.about.get('shard')!r} under another name"
    found = sum(int(body.get("about", {}).get("count", 0)) for body in archive.frames)
    return "" if found == count else f"has {found} samples, and {count} were written"


def _json(file: Path) -> Any:
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ArchiveDamaged(f"{file} cannot be read: {error}") from None
    return found if isinstance(found, dict) else {}
