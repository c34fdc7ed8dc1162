"""What an extraction is: written down when it begins, the same for every process and every later run."""

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
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_TOLD = {  # of what is too long to be told, that it differs
    "weights": "other weights",
    "data": "other data, in another order, or with another transform",
    "ids": "other ids",
}


@dataclass(frozen=True)
class Plan:
    """What makes two runs the same extraction."""

    model: str  # "ResNet"
    weights: int  # a checksum over every parameter and buffer
    layers: tuple[str, ...]
    batch_size: int | None  # None where the data gives batches
    samples: int | None  # None where only the end will tell
    data: int  # a checksum over the first batch, and over the order where that is known
    ids: int | None  # a checksum over the caller's own
    batches_per_shard: int
    codec: str
    seed: int

    def __post_init__(self) -> None:
        """What was read from a file may be anything."""
        numbers = (self.weights, self.data, self.batches_per_shard, self.seed)
        perhaps = (self.batch_size, self.samples, self.ids)
        good = all(type(one) is int for one in numbers) and all(one is None or type(one) is int for one in perhaps)
        good = good and isinstance(self.model, str) and isinstance(self.codec, str) and self.batches_per_shard > 0
        if not good or not all(isinstance(name, str) for name in self.layers):
            raise TypeError(f"{_short(self)} is no plan")

    @property
    def check(self) -> int:
        """Every shard names it, so that none can come from elsewhere."""
        return _checksum(asdict(self))


def about_shard(plan: Plan, number: int) -> dict[str, Any]:
    """What the archive of a shard says of itself."""
    return {"kind": "extraction", "shard": number, "model": plan.model, "plan": plan.check}


def begin(path: Path, plan: Plan) -> Plan:
    """Write a plan down; where one is there already, go on with it if it is the same."""
    file = path / "extraction.json"
    if not file.exists():
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            others = [one.name for one in path.iterdir() if not one.name.startswith(".extraction.json.")]
            if others and not file.exists():  # or another process has just begun
                raise BadArgument(f"{path} is not empty and holds no extraction; give another folder")
            _write(file, {"format": FORMAT, "version": VERSION, "plan": asdict(plan)}, once=True)
    there = read(path)
    for field in fields(Plan):
        old, new = getattr(there, field.name), getattr(plan, field.name)
        if old != new and field.name != "batches_per_shard":
            what = _TOLD.get(field.name) or f"{field.name}={_short(old)}, not {_short(new)}"
            raise BadArgument(f"{path} was begun with {what}; go on with the same, or give another folder")
    return there


def read(path: Path) -> Plan:
    """The plan of an extraction."""
    file = path / "extraction.json"
    found = _json(file)
    if found.get("format") != FORMAT:
        raise NotAnArchive(f"{path} holds no extraction: {file.name} is not one of ours")
    if found.get("version") != VERSION:
        raise NotAnArchive(
            f"{path} is of version {found.get('version')!r}, and this torcheer reads version {VERSION}: update it"
        )
    _check(file, found)
    try:
        plan = found["plan"]
        return Plan(**{**plan, "layers": tuple(plan["layers"])})
    except (KeyError, TypeError) as error:
        raise ArchiveDamaged(f"{file} cannot be read: {error}") from None


def finish(path: Path, counts: list[int]) -> None:
    """Say that everything is there, and how many samples each shard has."""
    with writing(path):
        _write(path / "complete.json", {"samples": sum(counts), "shards": counts})
        for left in path.glob(".*.json.*"):  # by processes that were killed
            left.unlink(missing_ok=True)


def finished(path: Path) -> list[int] | None:
    """How many samples each shard has, or None while the extraction is not complete."""
    file = path / "complete.json"
    if not file.exists():
        return None
    found = _json(file)
    _check(file, found)
    counts = found.get("shards")
    if not isinstance(counts, list) or not all(type(count) is int and count >= 0 for count in counts):
        raise ArchiveDamaged(f"{file} does not say how many samples each shard has")
    return counts


def shard_name(number: int) -> str:
    return f"{number:06}"


def sealed(path: Path) -> list[int]:
    """The shards that are complete: only those have a name."""
    found = (folder.name for folder in (path / "shards").glob("[0-9]*"))
    return sorted(int(name) for name in found if name.isdecimal() and name == shard_name(int(name)))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system refuses, with where."""
    try:
        yield
    except OSError as error:
        if isinstance(error, TorcheerError):
            raise
        raise CannotWrite(error.errno, f"{path}: {error.strerror or error}. What is complete there stays") from error


def _write(file: Path, content: dict[str, Any], *, once: bool = False) -> None:
    """Write a small file so that it is there whole or not at all; `once`, one that is there already stays."""
    part = file.with_name(f".{file.name}.{os.getpid()}-{get_ident()}")
    try:
        with open(part, "w") as out:
            json.dump({**content, "crc32": _checksum(content)}, out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        if once:
            _link(part, file)
        else:
            with suppress(FileNotFoundError):  # another process was done at the same time
                part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _link(part: Path, file: Path) -> None:
    try:
        os.link(part, file)
    except FileExistsError:
        pass  # of a process that began at the same time
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        part.replace(file)  # this file system has no links


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _check(file: Path, found: dict[str, Any]) -> None:
    if found.pop("crc32", None) != _checksum(found):
        raise ArchiveDamaged(f"{file} is not what was written: its checksum differs")


def fingerprint(values: Iterable[tuple[str, Any]]) -> int:
    """A checksum over the names and the whole content of tensors: other weights give another number."""
    check = 0
    for name, value in values:
        for part in value if isinstance(value, (tuple, list)) else [value]:  # quantised modules pack theirs
            told = (str(part.dtype), tuple(part.shape)) if hasattr(part, "detach") else type(part).__name__
            check = zlib.crc32(_content(part), zlib.crc32(ascii((name, told)).encode(), check))
    return check


def _content(value: Any) -> bytes | memoryview:
    """The bytes of a tensor; none of what is no tensor, or keeps its numbers in a way of its own."""
    if hasattr(value, "detach"):
        with suppress(BadArgument, RuntimeError, TypeError):
            plain = value.dequantize() if value.is_quantized else value
            return to_bytes(plain.to_dense() if str(plain.layout) != "torch.strided" else plain)[2]
    return b""


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise NotAnArchive(f"{file.parent} holds no extraction: there is no {file.name} in it")
    found = strict_json(file.read_bytes(), str(file))
    if not isinstance(found, dict):
        raise ArchiveDamaged(f"{file} is not a JSON object")
    return found


def _short(value: Any) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) < 80 else f"{text[:77]}…"
