"""The run directory: what it says of itself, who may write to it, and files that are there whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torcheer.archive.format.archive_folder import WritingLock, sync_folder
from torcheer.archive.format.index_frames import strict_json
from torcheer.errors import ArchiveBusy, ArchiveDamaged, BadArgument, CannotWrite, TorcheerError

FORMAT, VERSION = "torcheer run", 1
_TRY = {  # what helps
    errno.ENOSPC: "Free some space",
    errno.EDQUOT: "Free some of your quota",
    errno.EROFS: "Use a folder that is not mounted read-only",
    errno.EACCES: "Use a folder that you may write to",
    errno.EPERM: "Use a folder that you may write to",
    errno.EMFILE: "Close other files, or raise the limit on open files (ulimit -n)",
    errno.ENFILE: "Close other files: the whole system has too many open",
    errno.EFBIG: "Raise the limit on the size of files (ulimit -f)",
}


def begin_run(directory: Path, *, made_by: str = "torcheer.training", config_hash: str = "") -> dict[str, Any]:
    """Say in run.json what a directory holds; one that says so already is only looked at."""
    path = directory / "run.json"
    if not path.exists():
        about: dict[str, Any] = {"format": FORMAT, "version": VERSION, "made_by": made_by, "config": config_hash}
        about["versions"] = {"torcheer": _own_version(), "torch": torch.__version__, "numpy": np.__version__}
        about["versions"]["python"] = platform.python_version()
        with telling(directory):
            directory.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(about, indent=1).encode() + b"\n")
    return read_run(directory)


def _own_version() -> str:
    try:
        return version("torcheer")
    except PackageNotFoundError:  # run from its folder
        return ""


def read_run(directory: Path) -> dict[str, Any]:
    """What a run directory says of itself."""
    path = directory / "run.json"
    if not path.is_file():
        raise BadArgument(f"{directory} is no run directory: there is no {path.name} in it")
    found = strict_json(path.read_bytes(), str(path))
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ArchiveDamaged(f"{path} is not one of ours")
    if found.get("version") != VERSION:
        raise BadArgument(
            f"{directory} is of version {found.get('version')!r}, and this torcheer knows {VERSION}: update it"
        )
    return found


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Be the one that writes to a run directory; another is refused, one that was killed is not in the way."""
    try:
        with telling(directory):
            lock = WritingLock(directory)
    except ArchiveBusy as error:
        who = "this process" if "this process" in str(error) else "another process"
        raise ArchiveBusy(f"{directory} is being trained by {who}; wait for it, stop it, or use another one") from None
    try:
        yield
    finally:
        lock.release()


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that it is there as it was, or whole."""
    part = path.with_name(f".tmp-{path.name}")
    with telling(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)


@contextmanager
def telling(path: Path, kept: str = "") -> Iterator[None]:
    """What the system refuses, with what is there and what to try."""
    try:
        yield
    except OSError as error:
        if isinstance(error, TorcheerError):
            raise
        advice = _TRY.get(error.errno or 0, "See what the system says of this disk")
        raise CannotWrite(error.errno, f"{path}: {error.strerror or error}. {kept}{advice}, and go on") from error
