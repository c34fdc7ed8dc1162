"""The plan of an extraction (extraction.json), shared by all its processes and later runs."""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from threading import get_ident
from typing import Any

from torcheer.archive.format.index_frames import strict_json
from torcheer.encoding import to_bytes
from torcheer.errors import ArchiveDamaged, BadArgument, CannotWrite, NotAnArchive, TorcheerError

FORMAT = "torcheer extraction"
VERSION = 1
SHARD_BYTES = 256 << 20
_LINK_UNSUPPORTED = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
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
            raise TypeError(f"{_shorten(self)} is no plan")

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
        with explain_os_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            other_files = [entry.name for entry in path.iterdir() if not entry.name.startswith(".extraction.json.")]
            if other_files and not file.exists():  # it exists if another process has just started
                raise BadArgument(f"{path} is not empty and holds no extraction; give another folder")
            _write_json(file, {"format": FORMAT, "version": VERSION, "plan": asdict(plan)}, once=True)
    stored = read_plan(path)
    for field in fields(ExtractionPlan):
        old, new = getattr(stored, field.name), getattr(plan, field.name)
        if old != new and field.name != "batches_per_shard":
            difference = _DIFFERENCES.get(field.name) or f"{field.name}={_shorten(old)}, not {_shorten(new)}"
            raise BadArgument(f"{path} was begun with {difference}; go on with the same, or give another folder")
    return stored


def read_plan(path: Path) -> ExtractionPlan:
    """Read the plan of an extraction."""
    file = path / "extraction.json"
    document = _read_json(file)
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
    with explain_os_errors(path):
        _write_json(path / "complete.json", {"samples": sum(counts), "shards": counts})
        for temporary in path.glob(".*.json.*"):  # left by killed processes
            temporary.unlink(missing_ok=True)


def read_shard_counts(path: Path) -> list[int] | None:
    """Read the sample count of each shard; None while the extraction is incomplete."""
    file = path / "complete.json"
    if not file.exists():
        return None
    document = _read_json(file)
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


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into CannotWrite that names the path."""
    try:
        yield
    except OSError as error:
        if isinstance(error, TorcheerError):
            raise
        raise CannotWrite(error.errno, f"{path}: {error.strerror or error}. What is complete there stays") from error


def _write_json(file: Path, content: dict[str, Any], *, once: bool = False) -> None:
    """Write a small file atomically; with `once`, keep a file that exists already."""
    part = file.with_name(f".{file.name}.{os.getpid()}-{get_ident()}")
    try:
        with open(part, "w") as out:
            json.dump({**content, "crc32": _checksum(content)}, out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        if once:
            _link_or_replace(part, file)
        else:
            with suppress(FileNotFoundError):  # another process finished at the same time
                part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _link_or_replace(part: Path, file: Path) -> None:
    try:
        os.link(part, file)
    except FileExistsError:
        pass  # written by a process that started at the same time
    except OSError as error:
        if error.errno not in _LINK_UNSUPPORTED:
            raise
        part.replace(file)  # this file system has no hard links


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _verify_checksum(file: Path, document: dict[str, Any]) -> None:
    if document.pop("crc32", None) != _checksum(document):
        raise ArchiveDamaged(f"{file} is not what was written: its checksum differs")


def weights_checksum(values: Iterable[tuple[str, Any]]) -> int:
    """Return a checksum over the names and the whole content of tensors."""
    crc = 0
    for name, value in values:
        for part in value if isinstance(value, (tuple, list)) else [value]:  # quantised modules pack their weights
            type_and_shape = (str(part.dtype), tuple(part.shape)) if hasattr(part, "detach") else type(part).__name__
            crc = zlib.crc32(_tensor_bytes(part), zlib.crc32(ascii((name, type_and_shape)).encode(), crc))
    return crc


def _tensor_bytes(value: Any) -> bytes | memoryview:
    """Return a tensor's bytes; empty for anything else, and for layouts without plain data."""
    if hasattr(value, "detach"):
        with suppress(BadArgument, RuntimeError, TypeError):
            dequantized = value.dequantize() if value.is_quantized else value
            return to_bytes(dequantized.to_dense() if str(dequantized.layout) != "torch.strided" else dequantized)[2]
    return b""


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise NotAnArchive(f"{file.parent} holds no extraction: there is no {file.name} in it")
    document = strict_json(file.read_bytes(), str(file))
    if not isinstance(document, dict):
        raise ArchiveDamaged(f"{file} is not a JSON object")
    return document


def _shorten(value: Any) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) < 80 else f"{text[:77]}…"
