"""The plan of an extraction (extraction.json), shared by all its processes and later runs."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from torcheer import remote
from torcheer.disk import explain_write_errors, patiently, read_json, write_file, write_once
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive
from torcheer.terminal import short_repr

FORMAT = "torcheer extraction"
VERSION = 2
OLD_VERSION = 1  # of folders whose weights have another checksum, which is computed for them when they go on
SHARD_BYTES = 256 << 20
PEAK, PEAK_PLACE = "peak", "peak place"  # variables of a layer beside its values: see `unit_peaks`
NO_PLACE = -1  # of a sample of which a mask left nothing
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
    lanes: int = 1  # shards that are written at the same time: batches are dealt out to so many
    top: bool = False  # whether each sample's largest value of every unit is kept beside the layers

    def __post_init__(self) -> None:
        """Validate the field types: a file may hold anything."""
        numbers = (self.weights, self.data, self.batches_per_shard, self.seed, self.lanes)
        optional_numbers = (self.batch_size, self.samples, self.ids)
        is_valid = all(type(number) is int for number in numbers) and all(
            number is None or type(number) is int for number in optional_numbers
        )
        is_valid = is_valid and isinstance(self.model, str) and isinstance(self.codec, str)
        is_valid = is_valid and self.batches_per_shard > 0 and self.lanes > 0 and type(self.top) is bool
        if not is_valid or not all(isinstance(name, str) for name in self.layers):
            raise TypeError(f"{short_repr(self)} is no plan")

    @property
    def checksum(self) -> int:
        """Return a checksum over the plan.

        Every shard stores it, so that a foreign shard is detected.
        """
        content = asdict(self)
        for name, default in (("lanes", 1), ("top", False)):  # as it was before there were these
            if content[name] == default:
                del content[name]
        return _checksum(content)

    def place_of(self, batch: int) -> tuple[int, int]:
        """Return the shard of a batch, and its place there.

        `lanes` shards are filled together, batch by batch in turn, so that each can have a thread that writes it.
        """
        group, place = divmod(batch, self.lanes * self.batches_per_shard)
        return group * self.lanes + place % self.lanes, place // self.lanes

    def batches_of(self, shard: int) -> range:
        """Return the numbers of the batches of a shard that is full."""
        group, lane = divmod(shard, self.lanes)
        size = self.lanes * self.batches_per_shard
        return range(group * size + lane, (group + 1) * size, self.lanes)

    def count_shards(self, batches: int) -> int:
        """Return how many shards so many batches make."""
        full, rest = divmod(batches, self.lanes * self.batches_per_shard)
        return full * self.lanes + min(rest, self.lanes)


def shard_metadata(plan: ExtractionPlan, number: int) -> dict[str, Any]:
    """Return the metadata (`about`) of a shard's archive."""
    return {"kind": "extraction", "shard": number, "model": plan.model, "plan": plan.checksum}


def write_or_match(path: Path, plan: ExtractionPlan) -> ExtractionPlan:
    """Write a new plan, or return the stored one if it matches; raise where it differs."""
    file = path / "extraction.json"
    if not file.exists():
        with explain_write_errors(path, KEPT):
            path.mkdir(parents=True, exist_ok=True)
            names = {name for name in os.listdir(path) if not name.startswith(".")}  # hidden: of killed processes
            if names and file.name not in names:  # it is the first file that another process writes
                raise BadArgument(f"{path} is not empty and holds no extraction; give another folder")
            write_once(file, _checked_text({"format": FORMAT, "version": VERSION, "plan": asdict(plan)}))
            remote.publish_once(file)
    stored = patiently(lambda: read_plan(path), path)  # NFS may remember for a while that there was no such file
    for field in fields(ExtractionPlan):
        old, new = getattr(stored, field.name), getattr(plan, field.name)
        if old != new and field.name not in ("batches_per_shard", "lanes"):
            difference = _DIFFERENCES.get(field.name) or f"{field.name}={short_repr(old)}, not {short_repr(new)}"
            raise BadArgument(f"{path} was begun with {difference}; go on with the same, or give another folder")
    return stored


def is_old(path: Path) -> bool:
    """Return whether a folder holds an extraction of version 1, whose plan has other checksums."""
    return (path / "extraction.json").exists() and _read_document(path)["version"] == OLD_VERSION


def read_plan(path: Path) -> ExtractionPlan:
    """Read the plan of an extraction."""
    document, file = _read_document(path), path / "extraction.json"
    _verify_checksum(file, document)
    try:
        plan = document["plan"]
        return ExtractionPlan(**{**plan, "layers": tuple(plan["layers"])})
    except (KeyError, TypeError) as error:
        raise ArchiveDamaged(f"{file} cannot be read: {error}") from None


def _read_document(path: Path) -> dict[str, Any]:
    file = path / "extraction.json"
    document = read_json(file)
    if document is None:
        raise NotAnArchive(f"{path} holds no extraction: there is no {file.name} in it")
    if document.get("format") != FORMAT:
        raise NotAnArchive(f"{path} holds no extraction: {file.name} is not one of ours")
    if document.get("version") not in (OLD_VERSION, VERSION):
        raise NotAnArchive(
            f"{path} is of version {document.get('version')!r}, and this torcheer reads version {VERSION}: update it"
        )
    return document


class Completion(NamedTuple):
    """Sample counts of a complete extraction."""

    shards: list[int]
    batches: list[int] | None  # None in a folder of the old version, where the shards say it


def mark_complete(path: Path, shards: list[int], batches: list[int]) -> None:
    """Mark an extraction complete, with the sample counts of shards and batches (as runs of equal ones)."""
    runs = [[count, len(list(run))] for count, run in groupby(batches)]
    content = {"samples": sum(shards), "shards": shards, "batches": runs}
    write_file(path / "complete.json", _checked_text(content))
    remote.publish_once(path / "complete.json")


def read_completion(path: Path) -> Completion | None:
    """Read the sample counts; None while the extraction is incomplete."""
    file = path / "complete.json"
    remote.fetch_file(file)
    document = read_json(file)
    if document is None:
        return None
    _verify_checksum(file, document)
    shards, runs = document.get("shards"), document.get("batches")
    if not isinstance(shards, list) or not all(type(count) is int and count >= 0 for count in shards):
        raise ArchiveDamaged(f"{file} does not say how many samples each shard has")
    try:
        batches = None if runs is None else [count for count, times in runs for _ in range(times)]
        if batches is not None and sum(batches) != sum(shards):
            raise ValueError
    except (TypeError, ValueError):
        raise ArchiveDamaged(f"{file} does not say how many samples each batch has") from None
    return Completion(shards, batches)


def shard_name(number: int) -> str:
    return f"{number:06}"


def list_sealed_shards(path: Path) -> list[int]:
    """List the complete shards: only those have their final name."""
    names = {folder.name for folder in (path / "shards").glob("[0-9]*")}
    if folder := remote.attached(path):
        names.update(folder.list_tree(path / "shards", "archive.json"))
    return sorted(int(name) for name in names if name.isdecimal() and name == shard_name(int(name)))


def _checked_text(content: dict[str, Any]) -> str:
    return json.dumps({**content, "crc32": _checksum(content)}, indent=1)


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _verify_checksum(file: Path, document: dict[str, Any]) -> None:
    if document.pop("crc32", None) != _checksum(document):
        raise ArchiveDamaged(f"{file} is not what was written: its checksum differs")
