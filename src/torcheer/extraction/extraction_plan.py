"""The plan of an extraction (extraction.json), shared by all its processes and later runs."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from torcheer.disk import explain_write_errors, read_json, write_file, write_once
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive
from torcheer.terminal import short_repr

FORMAT = "torcheer extraction"
VERSION = 1
SHARD_BYTES = 256 << 20
KEPT = "What is complete there stays. "  # said where the system refuses a write
_DIFFERENCES = {  # how to report a field whose checksum differs
    "weights": "other weights",
    "data": "other data, in another order, or with another transform",
    "ids": "other ids",
}


@dataclass(frozen=True)
class ExtractionPlan:
    """Identity of an extraction: two runs with equal plans continue each other."""

    model: str  # "ResNet"
    weights: int  # checksum over every parameter and buffer
    layers: tuple[str, ...]
    batch_size: int | None  # None for a DataLoader, which has its own
    samples: int | None  # None if unknown before the end
    data: int  # checksum over the first batch, and over the order where that is known
    ids: int | None  # checksum over the caller's ids
    batches_per_shard: int
    codec: str
    seed: int

    def __post_init__(self) -> None:
        """Validate the field types: a file may hold anything."""
        numbers = (self.weights, self.data, self.batches_per_shard, self.seed)
        optional_numbers = (self.batch_size, self.samples, self.ids)
        is_valid = all(type(number) is int for number in numbers) and all(
            number is None or type(number) is int for number in optional_numbers
        )
        is_valid = (
            is_valid and isinstance(self.model, str) and isinstance(self.codec, str) and self.batches_per_shard > 0
        )
        if not is_valid or not all(isinstance(name, str) for name in self.layers):
            raise TypeError(f"{short_repr(self)} is no plan")

    @property
    def checksum(self) -> int:
        """Return a checksum over the plan.

        Every shard stores it, so that a foreign shard is detected.
        """
        return _checksum(asdict(self))


def shard_metadata(plan: ExtractionPlan, number: int) -> dict[str, Any]:
    """Return the metadata (`about`) of a shard's archive."""
    return {"kind": "extraction", "shard": number, "model": plan.model, "plan": plan.checksum}


def write_or_match(path: Path, plan: ExtractionPlan) -> ExtractionPlan:
    """Write a new plan, or return the stored one if it matches; raise where it differs."""
    file = path / "extraction.json"
    if not file.exists():
        with explain_write_errors(path, KEPT):
            path.mkdir(parents=True, exist_ok=True)
            other_files = [entry.name for entry in path.iterdir() if not entry.name.startswith(".")]  # of killed ones
            if other_files and not file.exists():  # it exists if another process has just started
                raise BadArgument(f"{path} is not empty and holds no extraction; give another folder")
            write_once(file, _checked_text({"format": FORMAT, "version": VERSION, "plan": asdict(plan)}))
    stored = read_plan(path)
    for field in fields(ExtractionPlan):
        old, new = getattr(stored, field.name), getattr(plan, field.name)
        if old != new and field.name != "batches_per_shard":
            difference = _DIFFERENCES.get(field.name) or f"{field.name}={short_repr(old)}, not {short_repr(new)}"
            raise BadArgument(f"{path} was begun with {difference}; go on with the same, or give another folder")
    return stored


def read_plan(path: Path) -> ExtractionPlan:
    """Read the plan of an extraction."""
    file = path / "extraction.json"
    document = read_json(file)
    if document is None:
        raise NotAnArchive(f"{path} holds no extraction: there is no {file.name} in it")
    if document.get("format") != FORMAT:
        raise NotAnArchive(f"{path} holds no extraction: {file.name} is not one of ours")
    if document.get("version") != VERSION:
        raise NotAnArchive(
            f"{path} is of version {document.get('version')!r}, and this torcheer reads version {VERSION}: update it"
        )
    _verify_checksum(file, document)
    try:
        plan = document["plan"]
        return ExtractionPlan(**{**plan, "layers": tuple(plan["layers"])})
    except (KeyError, TypeError) as error:
        raise ArchiveDamaged(f"{file} cannot be read: {error}") from None


def mark_complete(path: Path, counts: list[int]) -> None:
    """Mark an extraction complete, with the sample count of each shard."""
    write_file(path / "complete.json", _checked_text({"samples": sum(counts), "shards": counts}))


def read_shard_counts(path: Path) -> list[int] | None:
    """Read the sample count of each shard; None while the extraction is incomplete."""
    file = path / "complete.json"
    document = read_json(file)
    if document is None:
        return None
    _verify_checksum(file, document)
    counts = document.get("shards")
    if not isinstance(counts, list) or not all(type(count) is int and count >= 0 for count in counts):
        raise ArchiveDamaged(f"{file} does not say how many samples each shard has")
    return counts


def shard_name(number: int) -> str:
    return f"{number:06}"


def list_sealed_shards(path: Path) -> list[int]:
    """List the complete shards: only those have their final name."""
    names = (folder.name for folder in (path / "shards").glob("[0-9]*"))
    return sorted(int(name) for name in names if name.isdecimal() and name == shard_name(int(name)))


def _checked_text(content: dict[str, Any]) -> str:
    return json.dumps({**content, "crc32": _checksum(content)}, indent=1)


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _verify_checksum(file: Path, document: dict[str, Any]) -> None:
    if document.pop("crc32", None) != _checksum(document):
        raise ArchiveDamaged(f"{file} is not what was written: its checksum differs")
