"""The run directory: its run.json, its lock, and atomic writes."""

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

from torcheer.archive.format.archive_folder import WritingLock, fsync_folder
from torcheer.archive.format.index_frames import strict_json
from torcheer.errors import ArchiveBusy, ArchiveDamaged, BadArgument, CannotWrite, TorcheerError

FORMAT, VERSION = "torcheer run", 1
_ADVICE = {  # errno -> what to try
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
    """Write run.json where there is none yet; return its contents."""
    path = directory / "run.json"
    if not path.exists():
        contents: dict[str, Any] = {"format": FORMAT, "version": VERSION, "made_by": made_by, "config": config_hash}
        contents["versions"] = {"torcheer": _torcheer_version(), "torch": torch.__version__, "numpy": np.__version__}
        contents["versions"]["python"] = platform.python_version()
        with explain_write_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(contents, indent=1).encode() + b"\n")
    return read_run(directory)


def _torcheer_version() -> str:
    try:
        return version("torcheer")
    except PackageNotFoundError:  # run from a source tree, not installed
        return ""


def read_run(directory: Path) -> dict[str, Any]:
    """Read and check run.json of a run directory."""
    path = directory / "run.json"
    if not path.is_file():
        raise BadArgument(f"{directory} is no run directory: there is no {path.name} in it")
    contents = strict_json(path.read_bytes(), str(path))
    if not isinstance(contents, dict) or contents.get("format") != FORMAT:
        raise ArchiveDamaged(f"{path} is not one of ours")
    if contents.get("version") != VERSION:
        raise BadArgument(
            f"{directory} is of version {contents.get('version')!r}, and this torcheer knows {VERSION}: update it"
        )
    return contents


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a run directory.

    A second writer is refused, a killed one leaves no lock.
    """
    try:
        with explain_write_errors(directory):
            lock = WritingLock(directory)
    except ArchiveBusy as error:
        owner = "this process" if "this process" in str(error) else "another process"
        raise ArchiveBusy(
            f"{directory} is being trained by {owner}; wait for it, stop it, or use another one"
        ) from None
    try:
        yield
    finally:
        lock.release()


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically: after a crash it is the old or the new one."""
    part = path.with_name(f".tmp-{path.name}")
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        fsync_folder(path.parent)


@contextmanager
def explain_write_errors(path: Path, context: str = "") -> Iterator[None]:
    """Turn an OSError of the body into CannotWrite, with its context and what to try."""
    try:
        yield
    except OSError as error:
        if isinstance(error, TorcheerError):
            raise
        advice = _ADVICE.get(error.errno or 0, "See what the system says of this disk")
        raise CannotWrite(error.errno, f"{path}: {error.strerror or error}. {context}{advice}, and go on") from error
