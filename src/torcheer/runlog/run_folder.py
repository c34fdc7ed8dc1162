"""A training run's folder, opened for reading: tables, watch, captures, config. Nothing in it is run."""

from __future__ import annotations

import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

from torcheer.archive import Archive
from torcheer.errors import NotAnArchive
from torcheer.runlog.run_logs import logs
from torcheer.runlog.table import Table
from torcheer.runlog.watch_reader import Watched, logs_in, open_watch
from torcheer.terminal import plural


class RunFolder:
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
    def watches(self) -> dict[str, Watched]:
        """What was watched, by model; empty without a watch."""
        return {folder.name: open_watch(folder) for folder in logs_in(self.path)}

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
        config: dict[str, Any] = json.loads(file.read_text())
        return config

    @property
    def checkpoints(self) -> list[int]:
        """The steps of which there are checkpoints."""
        return sorted(int(entry.name) for entry in (self.path / "checkpoints").glob("*") if entry.name.isdecimal())

    def __repr__(self) -> str:
        tables = ", ".join(f"{name} ({plural(len(table), 'row')})" for name, table in self.tables.items()) or "none"
        return f"RunFolder({str(self.path)!r}, tables: {tables}; {plural(len(self.checkpoints), 'checkpoint')})"


def is_run(path: Path) -> bool:
    """Whether a folder is one that a training run writes to."""
    return (path / "run.json").is_file() or (path / "metrics").is_dir()
