"""A run that another program logged: its tables, settings and samples, as far as they can be shown."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from torcheer.runlog.media.logged_samples import LoggedSample
from torcheer.runlog.table_records import TableRows

EVENTS, LIGHTNING = "events", "lightning"
FOREIGN: Final = (EVENTS, LIGHTNING)
LIGHTNING_FILE: Final = "metrics.csv"
_EVENT_FILE: Final = ".tfevents."


@dataclass(slots=True)
class ForeignRun:
    """What was read of it."""

    tables: dict[str, TableRows] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    samples: list[LoggedSample] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def foreign_kind(names: Collection[str]) -> str:
    """What a folder with these files is: "events", "lightning", or "" for neither."""
    if any(_EVENT_FILE in name for name in names):
        return EVENTS
    return LIGHTNING if LIGHTNING_FILE in names else ""


def read_foreign(path: Path, kind: str) -> ForeignRun:
    """Read a run of this kind."""
    from torcheer.runlog.foreign.event_runs import read_event_run
    from torcheer.runlog.foreign.lightning_logs import read_lightning_run

    return read_event_run(path) if kind == EVENTS else read_lightning_run(path)


def event_files(path: Path) -> list[Path]:
    """The event files of a folder, oldest first: their names begin with the time."""
    return sorted(Path(entry.path) for entry in os.scandir(path) if _EVENT_FILE in entry.name and entry.is_file())
