"""The folder of an archive: what it says of itself, its segments, its lock."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from torcheer.archive.frames import VERSION
from torcheer.errors import ArchiveBusy, ArchiveDamaged, NotAnArchive

FORMAT = "torcheer archive"


def begin(path: Path, about: dict[str, Any]) -> None:
    """Say what a new archive is; leave an old one as it is."""
    if (path / "archive.json").exists():
        read_about(path)
        return
    part = path / ".archive.json.part"
    with open(part, "w") as file:
        json.dump({"format": FORMAT, "version": VERSION, "about": about}, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path / "archive.json")


def read_about(path: Path) -> dict[str, Any]:
    """What an archive says of itself; raises where there is none that we can read."""
    file = path / "archive.json"
    if not file.is_file():
        raise NotAnArchive(f"{path} holds no archive: there is no {file.name} in it")
    try:
        found = json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise ArchiveDamaged(f"{file} cannot be read: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise NotAnArchive(f"{path} holds no archive: {file.name} is not one of ours")
    version = found.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise NotAnArchive(f"{path} is of version {version}, and this torcheer reads up to {VERSION}: update it")
    about = found.get("about")
    return about if isinstance(about, dict) else {}


def segments_of(path: Path) -> list[int]:
    """The numbers of the segments there are, in order."""
    return sorted(int(file.stem) for file in path.glob("[0-9]*.index") if file.stem.isdigit())


def locked(path: Path) -> int:
    """Hold an archive for writing, until the file is closed or the process ends."""
    path.mkdir(parents=True, exist_ok=True)
    lock = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ArchiveBusy(f"{path} is being written by another process; wait for it, or write elsewhere") from None
    return lock
