"""The checkpoints of a run, by their manifests: which is the newest, which the best."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torcheer.disk import loose_json
from torcheer.errors import BadArgument
from torcheer.runlog.tables.metric_direction import first_best
from torcheer.terminal import first_names

_MANIFEST, WEIGHTS = "MANIFEST.json", "model.safetensors"
LATEST, BEST = "latest", "best"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The weights of a run after a step."""

    step: int
    path: Path  # its folder
    row: dict[str, float] = field(default_factory=dict)  # of its epoch, where one had just ended
    has_nan: bool = False
    is_best: bool = False  # by the column that the run's `keep_best` names

    @property
    def weights(self) -> Path:
        """The file with its parameters and buffers."""
        return self.path / WEIGHTS


def is_checkpoint(path: Path) -> bool:
    """Whether a folder is a checkpoint."""
    return (path / _MANIFEST).is_file() and (path / WEIGHTS).is_file()


def checkpoints_of(run: Path) -> list[Checkpoint]:
    """The checkpoints of a run by their steps; none where it saved none."""
    try:
        folders = [folder for folder in (run / "checkpoints").iterdir() if folder.name.isdecimal()]
    except OSError:
        return []
    read = [_read(folder) for folder in folders if is_checkpoint(folder)]
    checkpoints = sorted(read, key=lambda checkpoint: checkpoint.step)
    best = first_best(_keep_best(run), ((checkpoint.row, checkpoint) for checkpoint in checkpoints))
    return [_marked(checkpoint) if checkpoint is best else checkpoint for checkpoint in checkpoints]


def choose_checkpoint(run: Path, which: str = LATEST) -> Checkpoint:
    """The checkpoint that is "latest", "best", or of a step; raises with those that there are."""
    checkpoints = checkpoints_of(run)
    if not checkpoints:
        raise BadArgument(f"{run} has no checkpoints: `checkpoint_steps` in the config says how often one is saved")
    if which == LATEST:
        return checkpoints[-1]
    for checkpoint in checkpoints:
        if (which == BEST and checkpoint.is_best) or which == str(checkpoint.step):
            return checkpoint
    steps = first_names([str(checkpoint.step) for checkpoint in checkpoints], 12)
    if which == BEST:
        raise BadArgument(f"{run} has no best checkpoint: train with keep_best=COLUMN. It has those of steps {steps}")
    raise BadArgument(f"{run} has no checkpoint {which!r}; there are latest, best, and those of steps {steps}")


def _read(folder: Path) -> Checkpoint:
    """A checkpoint as its manifest describes it; a damaged one has its step only."""
    manifest = _json(folder / _MANIFEST)
    row = manifest.get("row")
    numbers = {str(key): float(value) for key, value in row.items() if isinstance(value, int | float)} if isinstance(
        row, dict) else {}  # fmt: skip
    return Checkpoint(int(folder.name), folder, numbers, bool(manifest.get("has_nan")))


def _marked(checkpoint: Checkpoint) -> Checkpoint:
    return Checkpoint(checkpoint.step, checkpoint.path, checkpoint.row, checkpoint.has_nan, is_best=True)


def _keep_best(run: Path) -> str:
    value = _json(run / "spec.json").get("keep_best", "")
    return value if isinstance(value, str) else ""


def _json(path: Path) -> dict[str, Any]:
    try:
        value = loose_json(path)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
