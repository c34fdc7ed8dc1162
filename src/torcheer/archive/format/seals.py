"""A second copy of the seal, in its own file: it tells an archive that was cut from one whose writer was killed."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from torcheer.archive.format.index_frames import strict_json, to_json
from torcheer.errors import ArchiveDamaged

_NAME = re.compile(r"([0-9]{6}|[1-9][0-9]{6,})\.seal")
_CHECK = b',"crc32":'
_ALWAYS_SEALED = ("history", "studio recording")  # they get their name once they are whole


def announce(path: Path, number: int, frame: int, *, sync: bool) -> None:
    """Write the copy under another name, before the seal itself: whoever is killed between the two left this."""
    text = to_json({"segment": number, "frame": frame}, "a seal")[:-1]
    with open(_part(path, number), "wb") as file:
        file.write(text + _CHECK + b"%d}" % zlib.crc32(text))
        file.flush()
        if sync:
            os.fsync(file.fileno())


def confirm(path: Path, number: int) -> None:
    """Give the copy its name, once the seal is written."""
    _part(path, number).replace(_file(path, number))


def complete(path: Path, number: int) -> None:
    """Give the copy its name where a writer was killed between the seal and that."""
    if _part(path, number).exists():
        confirm(path, number)


def copies(path: Path) -> dict[int, int | None]:
    """The CRC-32 of each seal of which there is a copy, by segment; None where the copy is damaged.

    To be read before the indexes: a copy is there only after its seal.
    """
    found = (file for file in path.glob("[0-9]*.seal") if _NAME.fullmatch(file.name))
    return {int(file.stem): _read(file) for file in found}


def faults(
    path: Path, copied: Mapping[int, int | None], seals: Mapping[int, int | None], about: object, *, twice: bool
) -> Iterator[str]:
    """A sentence for each seal that is missing, short or another one.

    `seals` has, for each segment that is there, the CRC-32 of the seal that says that it is the last, or None; `twice`
    says that the archive's writer keeps copies.
    """
    for number, frame in sorted(copied.items()):
        if frame is None:
            yield f"{_file(path, number)}: the copy of the seal of segment {number} is cut or damaged"
        elif seals.get(number) != frame:
            yield f"{path}: segment {number} was sealed, and its seal is gone: the end of its index is cut off"
    last = max(seals, default=0)
    if seals.get(last) is None:
        kind = about.get("kind") if isinstance(about, dict) else None
        if kind in _ALWAYS_SEALED and last not in copied and not path.name.startswith("."):
            yield f"{path}: a {kind} is always sealed, and its seal is missing: the end of its index is cut off"
    elif twice and not any(file.exists() for file in (_file(path, last), _part(path, last))):
        yield f"{_file(path, last)} is missing: the copy of the seal of segment {last}"


def _read(file: Path) -> int | None:
    try:
        text = file.read_bytes()
        whole, _, check = text.rpartition(_CHECK)
        found = strict_json(text, str(file))
        good = check == b"%d}" % zlib.crc32(whole) and found.get("segment") == int(file.stem)
        return int(found["frame"]) if good else None
    except (ArchiveDamaged, OSError, LookupError, TypeError, ValueError, AttributeError):
        return None


def _file(path: Path, number: int) -> Path:
    return path / f"{number:06}.seal"


def _part(path: Path, number: int) -> Path:
    return path / f".{number:06}.seal.part"
