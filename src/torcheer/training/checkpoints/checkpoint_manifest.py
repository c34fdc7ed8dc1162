"""The manifest of a checkpoint, which says what its other files are; read and checked without torch."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torcheer.archive.format.index_frames import strict_json
from torcheer.encoding import crc32
from torcheer.errors import ArchiveDamaged, BadArgument

FORMAT, VERSION = "torcheer checkpoint", 1
MANIFEST = "MANIFEST.json"
CHUNK = 1 << 20
_CHECK = b',"crc32":'  # the last key of a manifest: of the bytes before it


def write_manifest(folder: Path, about: Mapping[str, Any]) -> None:
    """Say what a checkpoint is, with a checksum of that; waits for the disk."""
    whole = {"format": FORMAT, "version": VERSION, **about}
    text = json.dumps(whole, separators=(",", ":"), allow_nan=False)[:-1].encode()
    with open(folder / MANIFEST, "wb") as file:
        file.write(text + _CHECK + b"%d}" % zlib.crc32(text))
        file.flush()
        os.fsync(file.fileno())


def read_manifest(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself."""
    file = path / MANIFEST
    if not file.is_file():
        raise ArchiveDamaged(f"there is no {MANIFEST}")
    text = file.read_bytes()
    found = strict_json(text, str(file))
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ArchiveDamaged(f"{file} is not one of ours")
    if found.get("version") != VERSION:
        raise BadArgument(f"it is of version {found.get('version')!r}, and this torcheer reads {VERSION}: update it")
    body = text.rpartition(_CHECK)[0]
    if text != body + _CHECK + b"%d}" % zlib.crc32(body):
        raise ArchiveDamaged(f"{file} is not what was written: its checksum differs")
    return found


def verified(path: Path, told: Callable[[int], None] = lambda _: None) -> dict[str, Any]:
    """A checkpoint's manifest, every file compared with it; `told` hears of bytes as they are checked."""
    manifest = read_manifest(path)
    for name, expected in manifest["files"].items():
        size, check = _summed(path / name, told)
        if (size, check) != (expected["bytes"], expected["crc32"]):
            what = f"has {size} bytes, and {expected['bytes']} were written" if size != expected["bytes"] else "differs"
            raise ArchiveDamaged(f"{name} {what}")
    return manifest


def _summed(path: Path, told: Callable[[int], None]) -> tuple[int, int]:
    size, check = 0, 0
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            size, check = size + len(chunk), crc32(chunk, check)
            told(len(chunk))
    return size, check
