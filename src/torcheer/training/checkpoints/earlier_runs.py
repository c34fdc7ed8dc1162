"""Consecutive runs in one directory.

The files of an earlier run are moved to `<run>/earlier/<n>/`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.disk import explain_write_errors, read_json, rename_durably, write_file
from torcheer.errors import TorcheerError

if TYPE_CHECKING:
    from torcheer.training.session import Session

FOLDER, RESULT = "earlier", "result.json"
# The checkpoints move last: if this is interrupted before, the old run is still the one that resumes.
MOVED = ("metrics", "tests", "watch", "log", "captures", "profile", "tensorboard", "wandb", "checkpoints")


def earlier_results(directory: Path | None) -> list[dict[str, Any]]:
    """Return the results of the earlier runs, oldest first."""
    results = []
    for path in _run_folders(directory):
        try:
            result = read_json(path / RESULT)
        except (OSError, TorcheerError):  # moved only in part, or by hand
            continue
        if result is not None:
            results.append(result)
    return results


def run_number(directory: Path | None) -> int:
    """Return the number of the current run, from 1."""
    return 1 + max((int(path.name) for path in _run_folders(directory)), default=0)


def run_result(session: Session, secs: float) -> dict[str, Any]:
    """Return the result of a run."""
    rows = [row for stage in session.rows for row in stage]
    values = {name: value for name, value in rows[-1].items() if name != "epoch"} if rows else {}
    return {
        "run": run_number(session.directory), "seed": session.options.seed, "epochs": session.place.epoch,
        "steps": session.place.step, "seconds": round(secs, 3), "values": values,
    }  # fmt: skip


def archive_run(directory: Path, result: dict[str, Any]) -> Path:
    """Move the files of a run to its own folder; the directory is then as after `init`."""
    home = directory / FOLDER / str(run_number(directory))
    with explain_write_errors(home):
        home.mkdir(parents=True)
        finite = {key: value if isinstance(value, int) or abs(value) < float("inf") else str(value)
                  for key, value in result["values"].items()}  # fmt: skip
        write_file(home / RESULT, json.dumps({**result, "values": finite}, indent=1).encode() + b"\n")
        for name in MOVED:
            if (directory / name).exists():
                rename_durably(directory / name, home / name)
    return home


def take_back(directory: Path) -> None:
    """Move the files of a run back where moving them was interrupted: its checkpoints are here, its log is not."""
    home = next(iter(reversed(_run_folders(directory))), None)
    if home is None or not (home / "log").exists() or (directory / "log").exists():
        return
    if (directory / "checkpoints").exists() and not (home / "checkpoints").exists():
        for name in MOVED:
            if (home / name).exists() and not (directory / name).exists():
                rename_durably(home / name, directory / name)
        (home / RESULT).unlink(missing_ok=True)
        with suppress(OSError):  # something else lies there
            home.rmdir()


def _run_folders(directory: Path | None) -> list[Path]:
    folder = None if directory is None else directory / FOLDER
    folders = list(folder.iterdir()) if folder is not None and folder.is_dir() else []
    return sorted((path for path in folders if path.name.isdecimal()), key=lambda path: int(path.name))
