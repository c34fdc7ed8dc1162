"""What an extraction is: written down when it begins, the same for every process and every later run."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive

FORMAT = "torcheer extraction"
VERSION = 1
SHARD_BYTES = 256 << 20


@dataclass(frozen=True)
class Plan:
    """What makes two runs the same extraction."""

    model: str  # "ResNet"
    weights: int  # a checksum over samples of every parameter and buffer
    layers: tuple[str, ...]
    batch_size: int | None  # None where the data gives batches
    samples: int | None  # None where only the end will tell
    batches_per_shard: int
    codec: str
    seed: int


def begin(path: Path, plan: Plan) -> Plan:
    """Write a plan down; where one is there already, go on with it if it is the same."""
    file = path / "extraction.json"
    if not file.exists():
        if path.is_dir() and any(path.iterdir()):
            raise BadArgument(f"{path} is not empty and holds no extraction; give another folder")
        path.joinpath("shards").mkdir(parents=True, exist_ok=True)
        write_whole(file, {"format": FORMAT, "version": VERSION, "plan": asdict(plan)})
        return plan
    there = read(path)
    for field in fields(Plan):
        old, new = getattr(there, field.name), getattr(plan, field.name)
        if old != new and field.name != "batches_per_shard":
            what = "other weights" if field.name == "weights" else f"{field.name}={_short(old)}, not {_short(new)}"
            raise BadArgument(f"{path} was begun with {what}; go on with the same, or give another folder")
    return there


def read(path: Path) -> Plan:
    """The plan of an extraction."""
    found = _json(path / "extraction.json")
    if found.get("format") != FORMAT:
        raise NotAnArchive(f"{path} holds no extraction: extraction.json is not one of ours")
    if not isinstance(found.get("version"), int) or found["version"] > VERSION:
        raise NotAnArchive(
            f"{path} is of version {found.get('version')}, and this torcheer reads up to {VERSION}: update it"
        )
    try:
        plan = Plan(**found["plan"])
        return Plan(**{**asdict(plan), "layers": tuple(plan.layers)})
    except (KeyError, TypeError) as error:
        raise ArchiveDamaged(f"{path / 'extraction.json'} cannot be read: {error}") from None


def finish(path: Path, counts: list[int]) -> None:
    """Say that everything is there, and how many samples each shard has."""
    write_whole(path / "complete.json", {"samples": sum(counts), "shards": counts})


def finished(path: Path) -> list[int] | None:
    """How many samples each shard has, or None while the extraction is not complete."""
    file = path / "complete.json"
    if not file.exists():
        return None
    counts = _json(file).get("shards")
    if not isinstance(counts, list) or not all(type(count) is int and count >= 0 for count in counts):
        raise ArchiveDamaged(f"{file} does not say how many samples each shard has")
    return counts


def shard_name(number: int) -> str:
    return f"{number:06}"


def write_whole(file: Path, content: dict[str, Any]) -> None:
    """Write a small file so that it is there whole or not at all."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    with open(part, "w") as out:
        json.dump(content, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    part.replace(file)


def fingerprint(tensors: Any) -> int:
    """A checksum over names, shapes and some values of tensors: other weights give another number."""
    check = 0
    for name, tensor in tensors:
        flat = tensor.detach().reshape(-1)
        some = flat[:: max(1, flat.numel() // 4096)].cpu()
        check = zlib.crc32(f"{name} {tuple(tensor.shape)} {tensor.dtype} {some.tolist()}".encode(), check)
    return check


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise NotAnArchive(f"{file.parent} holds no extraction: there is no {file.name} in it")
    try:
        found = json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise ArchiveDamaged(f"{file} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise ArchiveDamaged(f"{file} is not a JSON object")
    return found


def _short(value: Any) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) < 80 else f"{text[:77]}…"
