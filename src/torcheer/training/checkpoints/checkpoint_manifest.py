"""The manifest of a checkpoint, which lists its files with checksums.

Read and verified without torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torcheer.disk import has_checksum, strict_json, with_checksum, write_in_place
from torcheer.encoding import crc32
from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.terminal import ProgressCallback, ignore_progress

FORMAT = "torcheer checkpoint"
VERSIONS = (1, 2)  # 1 holds the rows of its epochs, 2 counts those in the log
MANIFEST = "MANIFEST.json"
CHUNK = 1 << 20


def write_manifest(folder: Path, contents: Mapping[str, Any]) -> None:
    """Write the manifest with its own checksum, and fsync it."""
    manifest = {"format": FORMAT, "version": VERSIONS[-1], **contents}
    text = json.dumps(manifest, separators=(",", ":"), allow_nan=False).encode()
    write_in_place(folder / MANIFEST, with_checksum(text))


def read_manifest(path: Path) -> dict[str, Any]:
    """Read and check the manifest of a checkpoint."""
    file = path / MANIFEST
    if not file.is_file():
        raise ArchiveDamaged(f"there is no {MANIFEST}")
    text = file.read_bytes()
    manifest = strict_json(text, str(file))
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ArchiveDamaged(f"{file} is not one of ours")
    if manifest.get("version") not in VERSIONS:
        raise BadArgument(
            f"it is of version {manifest.get('version')!r}, and this torcheer reads up to {VERSIONS[-1]}: update it"
        )
    if not has_checksum(text):
        raise ArchiveDamaged(f"{file} is not what was written: its checksum differs")
    return manifest


def verify_checkpoint(path: Path, on_progress: ProgressCallback = ignore_progress) -> dict[str, Any]:
    """Verify every file of a checkpoint against its manifest, which is returned.

    on_progress: called with the number of bytes as they are checked.
    """
    manifest = read_manifest(path)
    for name, expected in manifest["files"].items():
        size, checksum = _checksum(path / name, on_progress)
        if (size, checksum) != (expected["bytes"], expected["crc32"]):
            difference = (
                f"has {size} bytes, and {expected['bytes']} were written" if size != expected["bytes"] else "differs"
            )
            raise ArchiveDamaged(f"{name} {difference}")
    return manifest


def _checksum(path: Path, on_progress: ProgressCallback) -> tuple[int, int]:
    size, checksum = 0, 0
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            size, checksum = size + len(chunk), crc32(chunk, checksum)
            on_progress(len(chunk))
    return size, checksum
