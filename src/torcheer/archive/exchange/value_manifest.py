"""What all formats share: an archive as values and a text that says the rest, and the way back.

Formats keep arrays under names, or as rows of a table. What they have no place for (which step, layer, variable and
item an array is, its type where they lack it, what the archive and its frames say of themselves) stands in the
manifest: a CRC-32 in eight digits, a blank, and a JSON object.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from torcheer.archive.exchange.guards import believable, size_of, typed, understood
from torcheer.archive.format.archive_reader import Archive
from torcheer.archive.format.index_frames import strict_json
from torcheer.archive.progress import Told
from torcheer.archive.value_names import array_names
from torcheer.encoding import bytes_of, decode, described, to_bytes
from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.records import Sample

FORMAT, VERSION = "torcheer exchange", 1
KEY = "torcheer"  # under which a format keeps the manifest
MARK = {"made_by": FORMAT}  # beside it: a file that has lost one of them is damaged, and not somebody else's

Frames = Iterator[tuple[dict[str, Any], Iterator[Sample]]]  # what each says of itself, and its values


class Facts(NamedTuple):
    """What is known of a value besides its bytes."""

    step: int
    layer: str
    variable: str
    item: int
    type: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return bytes_of(self.type, self.shape)

    def check(self, data: Any) -> str:
        """A checksum over facts and bytes."""
        return f"{zlib.crc32(data, zlib.crc32(json.dumps(self).encode())):08x}"


class Value(NamedTuple):
    """An array of a file, read when it is asked for."""

    type: str
    shape: tuple[int, ...]
    load: Callable[[], NDArray[Any]]

    @property
    def bytes(self) -> int:
        return bytes_of(self.type, self.shape)


class Content(NamedTuple):
    """What a file holds, one value in memory at a time."""

    about: dict[str, Any]
    frames: Frames


class Packing:
    """An archive on its way out: its values, each read once, and after that the manifest."""

    def __init__(self, archive: Archive, told: Told) -> None:
        self.archive = archive
        self.facts = [
            Facts(one.step or 0, one.layer, one.variable, one.item, one.type, one.shape) for one in archive.entries
        ]
        self.checks = ["00000000"] * len(self.facts)
        self._told = told

    def bits(self, place: int) -> memoryview:
        """The bytes of a value."""
        data = self.archive.memory(self.archive.entries[place])
        self.checks[place] = self.facts[place].check(data)
        self._told(len(data))
        return data

    def names(self, *, as_folders: bool = False) -> list[str]:
        """What the arrays are called."""
        return array_names(self.archive, as_folders=as_folders)

    def manifest(self, names: list[str] | None = None) -> str:
        """The text, as long before the values were read as after; tables keep facts as columns instead of names."""
        frames = [{"about": body.get("about", {}), "values": len(body["entries"])} for body in self.archive.frames]
        found = {"format": FORMAT, "version": VERSION, "about": self.archive.about, "frames": frames}
        if names is not None:
            rows = zip(names, self.facts, self.checks, strict=True)
            found["values"] = [{"name": name, **one._asdict(), "crc32": check} for name, one, check in rows]
        text = json.dumps(found, separators=(",", ":"))
        return f"{zlib.crc32(text.encode()):08x} {text}"


def parse(text: Any, file: Path) -> dict[str, Any]:
    """A manifest that can be trusted to be what was written."""
    check, _, body = str(text).partition(" ")
    if check != f"{zlib.crc32(body.encode(errors='replace')):08x}":
        raise ArchiveDamaged(f"{file}: what it says of its values is not what was written")
    found = strict_json(body.encode(), f"{file}: what it says of its values")
    if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("version"), int):
        raise ArchiveDamaged(f"{file}: what it says of its values is not one of ours")
    if found["version"] > VERSION:
        raise BadArgument(
            f"{file} is of version {found['version']}, and this torcheer reads up to {VERSION}: update it"
        )
    frames = found.get("frames")
    good = isinstance(found.get("about"), dict) and isinstance(frames, list)
    if not good or not all(isinstance(one, dict) and isinstance(one.get("about"), dict) for one in found["frames"]):
        raise ArchiveDamaged(f"{file}: what it says of its frames cannot be read")
    return found


def manifest_in(metadata: dict[str, Any], file: Path) -> Any:
    """Take the manifest out of what a file says of itself; None where it is not one of ours."""
    if metadata.get("made_by") == FORMAT and KEY not in metadata:
        raise ArchiveDamaged(f"{file}: what it says of its values is missing, though export wrote it")
    return metadata.pop(KEY, None)


def named_content(file: Path, manifest: Any, values: Mapping[str, Value], about: dict[str, Any]) -> Content:
    """Arrays under names: as the manifest says, or each as a layer of its own where there is none."""
    believable(sum(one.bytes for one in values.values()), size_of(file), file)
    if manifest is None:
        found: dict[str, Any] = {"about": {"kind": "tensors", "from": file.name, **about}}
        rows = [{"name": name, **_foreign(name, value)._asdict()} for name, value in values.items()]
        found["frames"] = [{"about": {}, "values": len(rows)}]
    else:
        found = parse(manifest, file)
        rows = _rows(found.get("values"), values, file)
    samples = (checked(row, _bits(row["name"], values, file), file) for row in rows)
    return Content(found["about"], in_frames(found["frames"], samples, file))


def _foreign(name: str, value: Value) -> Facts:
    return Facts(0, name, "value", -1, value.type, value.shape)


def _rows(rows: Any, values: Mapping[str, Value], file: Path) -> list[dict[str, Any]]:
    """What a manifest says of its arrays, where those are the ones that are there."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ArchiveDamaged(f"{file}: what it says of its values cannot be read")
    names = [str(row.get("name")) for row in rows]
    if len(names) != len(values) or set(names) != set(values):
        odd = sorted(set(names) ^ set(values)) or ["one of them twice"]
        raise ArchiveDamaged(f"{file}: its arrays are not those it was written with: {', '.join(odd[:5])}")
    return rows


def _bits(name: str, values: Mapping[str, Value], file: Path) -> memoryview:
    with understood(file, f"its array {name!r}"):
        _, _, data = to_bytes(values[name].load())
    return data


def checked(row: Mapping[str, Any], data: Any, file: Path) -> Sample:
    """The value that facts and bytes make; bytes that are not what was written raise."""
    step = row.get("step")
    try:
        sample = decode(row, data, step if type(step) is int else 0)
    except ArchiveDamaged as error:
        raise ArchiveDamaged(f"{file}: {error}") from None
    facts = Facts(sample.step, *described(row))
    if row.get("crc32") not in (None, facts.check(data)) or type(step) is not int:
        raise ArchiveDamaged(f"{file}: {facts.layer!r} {facts.variable} of step {step} is not what was written")
    return typed(sample, facts.type)


def in_frames(frames: list[dict[str, Any]], samples: Iterator[Sample], file: Path) -> Frames:
    """Values dealt out to the frames they were written in; one too few or too many raises."""
    for frame in frames:
        yield frame["about"], _next(samples, frame.get("values"), file)
    if next(samples, None) is not None:
        raise ArchiveDamaged(f"{file} holds more values than it says")


def _next(samples: Iterator[Sample], count: Any, file: Path) -> Iterator[Sample]:
    for _ in range(count if isinstance(count, int) else 0):
        sample = next(samples, None)
        if sample is None:
            raise ArchiveDamaged(f"{file} holds fewer values than it says")
        yield sample
