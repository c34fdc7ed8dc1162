"""A run's folder: its run.json; what is in it, opened for reading. Nothing in it is run."""

from __future__ import annotations

import json
import os
import platform
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import numpy as np

from torcheer.archive import Archive
from torcheer.disk import loose_json, read_json, write_file
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive
from torcheer.public_names import PublicClass
from torcheer.runlog.log_reader import TRAIN, RunLog, refuse_earlier
from torcheer.runlog.log_writer import log_folder
from torcheer.runlog.media.logged_samples import LoggedSamples
from torcheer.runlog.run_tables import logs
from torcheer.runlog.table import Table
from torcheer.runlog.watch_reader import WRITER, Watched, logs_in, name_of, open_watch
from torcheer.samples import Alert
from torcheer.terminal import plural

FORMAT: Final = "torcheer run"
VERSION: Final = 1


def begin_run(directory: Path, *, made_by: str = "torcheer.training", config_hash: str = "") -> dict[str, Any]:
    """Write run.json where there is none yet, and that its run goes on where one has ended; return its contents."""
    import torch

    path = directory / "run.json"
    if not path.exists():
        contents: dict[str, Any] = {"format": FORMAT, "version": VERSION, "made_by": made_by, "config": config_hash}
        contents["versions"] = {"torcheer": _torcheer_version(), "torch": torch.__version__, "numpy": np.__version__}
        contents["versions"]["python"] = platform.python_version()
        _write_run(directory, contents)
    contents = read_run(directory)
    if contents.pop("ended", None) is not None:
        _write_run(directory, contents)
    return contents


def end_run(directory: Path, status: str, why: str = "") -> None:
    """Add to run.json how the run has ended, "done" or "failed", and with which exception."""
    _write_run(directory, {**read_run(directory), "ended": {"status": status, "why": why}})


def _write_run(directory: Path, contents: dict[str, Any]) -> None:
    write_file(directory / "run.json", json.dumps(contents, indent=1).encode() + b"\n")


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
    refuse_earlier(directory)
    if contents.get("version") != VERSION:
        raise BadArgument(
            f"{directory} is of version {contents.get('version')!r}, and this torcheer knows {VERSION}: update it"
        )
    return contents


class RunFolder(metaclass=PublicClass):
    """What a run has left so far; read when it is asked for, so a run that goes on can be opened too."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not is_run(self.path):
            raise NotAnArchive(f"{self.path} is no run directory: it has neither run.json nor metrics")

    @cached_property
    def tables(self) -> dict[str, Table]:
        """Rows of epochs, steps and tests by name: `run.tables["train_epoch"].to_pandas()`."""
        return logs(self.path)

    @cached_property
    def alerts(self) -> list[Alert]:
        """The alerts of the run and its watches, by step."""
        return RunLog(self.path).alerts

    def samples(self, kind: str = "", name: str = "") -> LoggedSamples:
        """Logged images, sounds, texts, tables and confusion matrices, by step: `run.samples("image")[-1]`."""
        return RunLog(self.path).samples.of(kind, name)

    @cached_property
    def watches(self) -> dict[str, Watched]:
        """What was watched, by model; empty without a watch."""
        if log_folder(self.path, TRAIN).is_dir() and logs_in(self.path) == [self.path]:
            return {WRITER: open_watch(self.path)}
        return {name_of(folder): open_watch(folder) for folder in logs_in(self.path)}

    @cached_property
    def captures(self) -> Archive | None:
        """Captured layers over time, if there are any."""
        folder = self.path / "captures"
        return Archive(folder) if (folder / "archive.json").is_file() else None

    @cached_property
    def config(self) -> dict[str, Any] | None:
        """The config as it was understood when the run began."""
        file = self.path / "spec.json"
        if not file.is_file():
            return None
        config = loose_json(file)
        if not isinstance(config, dict):
            raise ArchiveDamaged(f"{file} cannot be read: it holds no object")
        return config

    @property
    def checkpoints(self) -> list[int]:
        """The steps of which there are checkpoints."""
        return sorted(int(entry.name) for entry in (self.path / "checkpoints").glob("*") if entry.name.isdecimal())

    def __repr__(self) -> str:
        tables = ", ".join(f"{name} ({plural(len(table), 'row')})" for name, table in self.tables.items()) or "none"
        return f"RunFolder({str(self.path)!r}, tables: {tables}; {plural(len(self.checkpoints), 'checkpoint')})"


def is_run(path: Path) -> bool:
    """Whether a folder is one that training or `tl.live` writes to."""
    return (path / "run.json").is_file() or (path / "metrics").is_dir()
