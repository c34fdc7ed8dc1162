"""A second copy of the final seal, in its own file.

It distinguishes a truncated archive from one whose writer was killed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torcheer.archive.format.index_frames import to_json
from torcheer.disk import has_checksum, strict_json, with_checksum, write_in_place
from torcheer.errors import ArchiveDamaged

_COPY_NAME = re.compile(r"([0-9]{6}|[1-9][0-9]{6,})\.seal")
_ALWAYS_SEALED = ("history", "studio recording")  # renamed into place only when complete


def write_pending_copy(path: Path, number: int, seal_crc: int, *, sync: bool) -> None:
    """Write the copy under a temporary name before the seal.

    A writer killed between the two leaves this file.
    """
    text = with_checksum(to_json({"segment": number, "frame": seal_crc}, "a seal"))
    write_in_place(_pending_path(path, number), text, sync=sync)


def publish_copy(path: Path, number: int) -> None:
    """Rename the copy to its final name, after the seal was written."""
    _pending_path(path, number).replace(_copy_path(path, number))


def publish_pending_copy(path: Path, number: int) -> None:
    """Rename a copy that a killed writer left under its temporary name, if there is one."""
    if _pending_path(path, number).exists():
        publish_copy(path, number)


def read_copies(path: Path) -> dict[int, int | None]:
    """Read the copies: segment -> CRC-32 of its seal; None where the copy is damaged.

    Call it before reading the indexes: a copy appears only after its seal.
    """
    files = (file for file in path.glob("[0-9]*.seal") if _COPY_NAME.fullmatch(file.name))
    return {int(file.stem): _read_copy(file) for file in files}


def find_faults(
    path: Path,
    seal_copies: Mapping[int, int | None],
    final_seals: Mapping[int, int | None],
    about: object,
    *,
    keeps_copies: bool,
) -> Iterator[str]:
    """Yield a sentence for each seal that is missing, truncated or different from its copy.

    `final_seals`: for each segment the CRC-32 of its final seal, or None. `keeps_copies`: whether the archive's writer
    stores copies of seals (`"seals": "twice"` in its header).
    """
    for number, seal_crc in sorted(seal_copies.items()):
        if seal_crc is None:
            yield f"{_copy_path(path, number)}: the copy of the seal of segment {number} is cut or damaged"
        elif final_seals.get(number) != seal_crc:
            yield f"{path}: segment {number} was sealed, and its seal is gone: the end of its index is cut off"
    last = max(final_seals, default=0)
    if final_seals.get(last) is None:
        kind = about.get("kind") if isinstance(about, dict) else None
        if kind in _ALWAYS_SEALED and last not in seal_copies and not path.name.startswith("."):
            yield f"{path}: a {kind} is always sealed, and its seal is missing: the end of its index is cut off"
    elif keeps_copies and not any(file.exists() for file in (_copy_path(path, last), _pending_path(path, last))):
        yield f"{_copy_path(path, last)} is missing: the copy of the seal of segment {last}"


def _read_copy(file: Path) -> int | None:
    try:
        text = file.read_bytes()
        document = strict_json(text, str(file))
        is_valid = has_checksum(text) and document.get("segment") == int(file.stem)
        return int(document["frame"]) if is_valid else None
    except (ArchiveDamaged, OSError, LookupError, TypeError, ValueError, AttributeError):
        return None


def _copy_path(path: Path, number: int) -> Path:
    return path / f"{number:06}.seal"


def _pending_path(path: Path, number: int) -> Path:
    return path / f".{number:06}.seal.part"
