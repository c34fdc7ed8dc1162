"""The shards of an extraction's folder, as archives: for `torcheer archive` commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torcheer.archive.format.archive_reader import Archive
from torcheer.disk import read_json
from torcheer.errors import TorcheerError
from torcheer.terminal import plural


def is_extraction(path: Path) -> bool:
    """Return whether a folder holds an extraction."""
    return (path / "extraction.json").is_file()


def shard_folders(path: Path) -> list[Path]:
    """List the shards' archives in order."""
    folders = (file.parent for file in path.glob("shards/*/archive.json"))
    return sorted(
        folder for folder in folders if folder.name.isdecimal()
    )  # not those that are being written, or mended


def describe_extraction(path: Path) -> str:
    """Summarize an extraction in one line."""
    plan = (read_json(path / "extraction.json") or {}).get("plan")
    model = plan.get("model") if isinstance(plan, dict) else None
    ended = "complete" if (path / "complete.json").is_file() else "not complete"
    return f"extraction{f' of {model}' if model else ''}, {ended}: {plural(len(shard_folders(path)), 'shard')}"


def find_faults(path: Path) -> Iterator[str]:
    """Yield a line for each shard of a complete extraction that is missing, extra or wrong."""
    if not (path / "complete.json").is_file():
        return
    folders = {int(folder.name): folder for folder in shard_folders(path)}
    counts = (read_json(path / "complete.json") or {}).get("shards")
    expected = dict(enumerate(counts)) if isinstance(counts, list) else {}
    for number in sorted(expected.keys() | folders.keys()):
        if number not in folders:
            yield f"{path}: shard {number} is missing"
        elif number not in expected:
            yield f"{path}: shard {number} is one too many"
        elif problem := _shard_fault(folders[number], number, expected[number]):
            yield f"{path}: shard {number} {problem}"


def _shard_fault(folder: Path, number: int, count: object) -> str:
    """Return why an archive is not the expected shard, or "".

    Damage is reported by verification.
    """
    try:
        archive = Archive(folder)
    except TorcheerError:
        return ""
    if not archive.sealed:
        return "has lost its seal: its end is cut off"
    if archive.about.get("shard") != number:
        return f"is shard {archive.about.get('shard')!r} under another name"
    samples = sum(int(body.get("about", {}).get("count", 0)) for body in archive.frames)
    return "" if samples == count else f"has {samples} samples, and {count} were written"
