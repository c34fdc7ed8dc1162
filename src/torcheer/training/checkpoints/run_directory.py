"""The run directory: its run.json and its lock."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torcheer.disk import explain_write_errors, lock_folder, read_json, write_file
from torcheer.errors import ArchiveDamaged, BadArgument

FORMAT, VERSION = "torcheer run", 1


def begin_run(directory: Path, *, made_by: str = "torcheer.training", config_hash: str = "") -> dict[str, Any]:
    """Write run.json where there is none yet; return its contents."""
    path = directory / "run.json"
    if not path.exists():
        contents: dict[str, Any] = {"format": FORMAT, "version": VERSION, "made_by": made_by, "config": config_hash}
        contents["versions"] = {"torcheer": _torcheer_version(), "torch": torch.__version__, "numpy": np.__version__}
        contents["versions"]["python"] = platform.python_version()
        write_file(path, json.dumps(contents, indent=1).encode() + b"\n")
    return read_run(directory)


def _torcheer_version() -> str:
    try:
        return version("torcheer")
    except PackageNotFoundError:  # run from a source tree, not installed
        return ""


def read_run(directory: Path) -> dict[str, Any]:
    """Read and check run.json of a run directory."""
    path = directory / "run.json"
    contents = read_json(path)
    if contents is None:
        raise BadArgument(f"{directory} is no run directory: there is no {path.name} in it")
    if contents.get("format") != FORMAT:
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
    with explain_write_errors(directory):
        lock = lock_folder(directory, "trained")
    try:
        yield
    finally:
        lock.close()
