"""Runs one after the other in one directory: what an earlier one made lies in `<run>/earlier/<n>/`, whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.archive.format.archive_folder import sync_folder
from torcheer.archive.format.index_frames import strict_json
from torcheer.errors import TorcheerError
from torcheer.training.checkpoints.run_directory import replace_file, telling

if TYPE_CHECKING:
    from torcheer.training.session import Session

FOLDER, RESULT = "earlier", "result.json"
# The checkpoints go last: until then the run that was is still the one that goes on, should anything end this.
MOVED = ("metrics", "tests", "watch", "captures", "profile", "tensorboard", "wandb", "checkpoints")


def earlier(directory: Path | None) -> list[dict[str, Any]]:
    """What came of the runs before this one, the first one first."""
    found = []
    for path in _numbered(directory):
        try:
            result = strict_json((path / RESULT).read_bytes(), str(path))
        except (OSError, TorcheerError):  # moved away in part, or by hand
            continue
        if isinstance(result, dict):
            found.append(result)
    return found


def number_of(directory: Path | None) -> int:
    """The number of the run at work, from 1."""
    return 1 + max((int(path.name) for path in _numbered(directory)), default=0)


def result_of(session: Session, secs: float) -> dict[str, Any]:
    """What came of a run."""
    rows = [row for stage in session.rows for row in stage]
    values = {name: value for name, value in rows[-1].items() if name != "epoch"} if rows else {}
    return {
        "run": number_of(session.directory), "seed": session.options.seed, "epochs": session.place.epoch,
        "steps": session.place.step, "seconds": round(secs, 3), "values": values,
    }  # fmt: skip


def put_away(directory: Path, result: dict[str, Any]) -> Path:
    """Move what a run has made to a folder of its own; the directory is as if it had only been begun."""
    home = directory / FOLDER / str(number_of(directory))
    with telling(home):
        home.mkdir(parents=True)
        finite = {key: value if isinstance(value, int) or abs(value) < float("inf") else str(value)
                  for key, value in result["values"].items()}  # fmt: skip
        replace_file(home / RESULT, json.dumps({**result, "values": finite}, indent=1).encode() + b"\n")
        for name in MOVED:
            if (directory / name).exists():
                (directory / name).rename(home / name)
                sync_folder(directory)
    return home


def _numbered(directory: Path | None) -> list[Path]:
    folder = None if directory is None else directory / FOLDER
    found = list(folder.iterdir()) if folder is not None and folder.is_dir() else []
    return sorted((path for path in found if path.name.isdecimal()), key=lambda path: int(path.name))
