"""The manifest that all exchange formats share: all of an archive but its array data.

Formats store arrays under names, or as rows of a table. What they have no place for (an array's step, layer, variable
and item, its type where they lack it, the metadata of the archive and its frames) goes into the manifest: a CRC-32 in
eight digits, a blank, and a JSON object.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from torcheer.archive.exchange.guards import check_unpacked_size, read_errors, total_bytes
from torcheer.archive.format.archive_reader import Archive
from torcheer.archive.value_names import array_names
from torcheer.disk import strict_json
from torcheer.encoding import bytes_of, decode, described, to_bytes
from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.records import Sample
from torcheer.terminal import ProgressCallback

FORMAT, VERSION = "torcheer exchange", 1
KEY = "torcheer"  # a format stores the manifest under this key
MADE_BY = {"made_by": FORMAT}  # stored beside it: a file with only one of them is damaged, not another program's

Frames = Iterator[tuple[dict[str, Any], Iterator[Sample]]]  # per frame: its metadata and its values


class ValueInfo(NamedTuple):
    """Description of a value: everything but its bytes."""

    step: int
    layer: str
    variable: str
    item: int
    type: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return bytes_of(self.type, self.shape)

    def checksum(self, data: Any) -> str:
        """Return a checksum over the description and the bytes."""
        return f"{zlib.crc32(data, zlib.crc32(json.dumps(self).encode())):08x}"


class LazyArray(NamedTuple):
    """An array of a file, read by `load` when needed."""

    type: str
    shape: tuple[int, ...]
    load: Callable[[], NDArray[Any]]

    @property
    def bytes(self) -> int:
        return bytes_of(self.type, self.shape)


class ImportContent(NamedTuple):
    """Content of a file to import; its frames yield one value in memory at a time."""

    about: dict[str, Any]
    frames: Frames


class ExportSource:
    """An archive being exported: its values, each read once, then the manifest."""

    def __init__(self, archive: Archive, on_progress: ProgressCallback) -> None:
        self.archive = archive
        self.infos = [
            ValueInfo(entry.step or 0, entry.layer, entry.variable, entry.item, entry.type, entry.shape)
            for entry in archive.entries
        ]
        self.crcs = ["00000000"] * len(self.infos)
        self._on_progress = on_progress

    def read_bytes(self, place: int) -> memoryview:
        """Read the bytes of a value, and note its checksum."""
        data = self.archive.memory(self.archive.entries[place])
        self.crcs[place] = self.infos[place].checksum(data)
        self._on_progress(len(data))
        return data

    def names(self, *, as_folders: bool = False) -> list[str]:
        """Return the names of the arrays."""
        return array_names(self.archive, as_folders=as_folders)

    def manifest(self, names: list[str] | None = None) -> str:
        """Return the manifest's text, of the same length before and after the values are read.

        `names`: of the arrays; None for tables, which store the descriptions as columns.
        """
        frames = [{"about": body.get("about", {}), "values": len(body["entries"])} for body in self.archive.frames]
        document = {"format": FORMAT, "version": VERSION, "about": self.archive.about, "frames": frames}
        if names is not None:
            rows = zip(names, self.infos, self.crcs, strict=True)
            document["values"] = [{"name": name, **info._asdict(), "crc32": crc} for name, info, crc in rows]
        text = json.dumps(document, separators=(",", ":"))
        return f"{zlib.crc32(text.encode()):08x} {text}"


def parse_manifest(text: Any, file: Path) -> dict[str, Any]:
    """Parse a manifest and verify its checksum and version."""
    crc, _, body = str(text).partition(" ")
    if crc != f"{zlib.crc32(body.encode(errors='replace')):08x}":
        raise ArchiveDamaged(f"{file}: what it says of its values is not what was written")
    document = strict_json(body.encode(), f"{file}: what it says of its values")
    if (
        not isinstance(document, dict)
        or document.get("format") != FORMAT
        or not isinstance(document.get("version"), int)
    ):
        raise ArchiveDamaged(f"{file}: what it says of its values is not one of ours")
    if document["version"] > VERSION:
        raise BadArgument(
            f"{file} is of version {document['version']}, and this torcheer reads up to {VERSION}: update it"
        )
    frames = document.get("frames")
    is_valid = isinstance(document.get("about"), dict) and isinstance(frames, list)
    if not is_valid or not all(
        isinstance(frame, dict) and isinstance(frame.get("about"), dict) for frame in document["frames"]
    ):
        raise ArchiveDamaged(f"{file}: what it says of its frames cannot be read")
    return document


def pop_manifest(metadata: dict[str, Any], file: Path) -> Any:
    """Remove the manifest from a file's metadata and return it.

    None for a file of another program.
    """
    if metadata.get("made_by") == FORMAT and KEY not in metadata:
        raise ArchiveDamaged(f"{file}: what it says of its values is missing, though export wrote it")
    return metadata.pop(KEY, None)


def named_content(file: Path, manifest: Any, values: Mapping[str, LazyArray], about: dict[str, Any]) -> ImportContent:
    """Build the content from named arrays; without a manifest each array is a layer."""
    check_unpacked_size(sum(array.bytes for array in values.values()), total_bytes(file), file)
    if manifest is None:
        document: dict[str, Any] = {"about": {"kind": "tensors", "from": file.name, **about}}
        rows = [{"name": name, **_info_of_foreign_array(name, value)._asdict()} for name, value in values.items()]
        document["frames"] = [{"about": {}, "values": len(rows)}]
    else:
        document = parse_manifest(manifest, file)
        rows = _check_rows(document.get("values"), values, file)
    samples = (decode_value(row, _load_bytes(row["name"], values, file), file) for row in rows)
    return ImportContent(document["about"], group_into_frames(document["frames"], samples, file))


def _info_of_foreign_array(name: str, value: LazyArray) -> ValueInfo:
    return ValueInfo(0, name, "value", -1, value.type, value.shape)


def _check_rows(rows: Any, values: Mapping[str, LazyArray], file: Path) -> list[dict[str, Any]]:
    """Validate the manifest's rows: they must name exactly the arrays in the file."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ArchiveDamaged(f"{file}: what it says of its values cannot be read")
    names = [str(row.get("name")) for row in rows]
    if len(names) != len(values) or set(names) != set(values):
        mismatches = sorted(set(names) ^ set(values)) or ["one of them twice"]
        raise ArchiveDamaged(f"{file}: its arrays are not those it was written with: {', '.join(mismatches[:5])}")
    return rows


def _load_bytes(name: str, values: Mapping[str, LazyArray], file: Path) -> memoryview:
    with read_errors(file, f"its array {name!r}"):
        _, _, data = to_bytes(values[name].load())
    return data


def decode_value(row: Mapping[str, Any], data: Any, file: Path) -> Sample:
    """Decode a value from its description and bytes; raise where the checksum differs."""
    step = row.get("step")
    try:
        sample = decode(row, data, step if type(step) is int else 0)
    except ArchiveDamaged as error:
        raise ArchiveDamaged(f"{file}: {error}") from None
    info = ValueInfo(sample.step, *described(row))
    if row.get("crc32") not in (None, info.checksum(data)) or type(step) is not int:
        raise ArchiveDamaged(f"{file}: {info.layer!r} {info.variable} of step {step} is not what was written")
    return sample


def group_into_frames(frames: list[dict[str, Any]], samples: Iterator[Sample], file: Path) -> Frames:
    """Distribute values to the frames they were written in; raise on one too few or too many."""
    for frame in frames:
        yield frame["about"], _take(samples, frame.get("values"), file)
    if next(samples, None) is not None:
        raise ArchiveDamaged(f"{file} holds more values than it says")


def _take(samples: Iterator[Sample], count: Any, file: Path) -> Iterator[Sample]:
    for _ in range(count if isinstance(count, int) else 0):
        sample = next(samples, None)
        if sample is None:
            raise ArchiveDamaged(f"{file} holds fewer values than it says")
        yield sample
