"""Describe what a session has on disk.

Which checkpoint, from when, and how many steps came after it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.disk import noted_number
from torcheer.errors import TorcheerError
from torcheer.history.error_notes import annotate
from torcheer.terminal import human_secs, plural
from torcheer.training.checkpoints.checkpoint_manifest import MANIFEST, read_manifest
from torcheer.training.loop.events import Resumed

if TYPE_CHECKING:
    from torcheer.training.session import Session


@contextmanager
def explain_saved_state(session: Session) -> Iterator[None]:
    """Annotate an error that ends a run with what of it is on disk."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if session.checkpoints is not None:
            with suppress(TorcheerError):  # one that is being written
                session.checkpoints.finish()
        if session.has_begun:
            annotate(error, saved=saved_text(session))
        raise


def saved_text(session: Session) -> str:
    """The same, of a session that stands at some step."""
    if session.checkpoints is None:
        return "Nothing of this run is saved: the session has no directory."
    return newest_text(session.checkpoints.folder, session.place.step)


def newest_text(folder: Path, reached: int | None = None) -> str:
    """ "The newest checkpoint is run/checkpoints/120: step 120, saved at 12:04:05, 13 s ago. The 3 steps after …".

    reached: the last step that was trained; None where that is not known.
    """
    path = newest_complete(folder)
    if path is None:
        return f"Nothing of this run is saved: there is no whole checkpoint under {folder}."
    age = checkpoint_age(path)
    form = "%H:%M:%S" if age < 12 * 3600 else "%Y-%m-%d %H:%M:%S"
    when = f"{datetime.fromtimestamp(_written(path)):{form}}, {human_secs(round(age))} ago"
    lost = (reached or 0) - int(path.name)
    after = f" The {plural(lost, 'step')} after it {'is' if lost == 1 else 'are'} not saved." if lost > 0 else ""
    return f"The newest checkpoint is {path}: step {int(path.name):,}, saved at {when}.{after}"


def checkpoint_age(path: Path) -> float:
    """Return how many seconds ago a checkpoint was written."""
    return max(time.time() - _written(path), 0.0)


def _written(path: Path) -> float:
    return (path / MANIFEST).stat().st_mtime


def resumed_from(session: Session, changes: Mapping[str, tuple[Any, Any]]) -> Resumed | None:
    """Describe what a session goes on from that was just restored; None where nothing was trained before.

    changes: settings that differ from the checkpoint's.
    """
    assert session.checkpoints is not None
    step, reached, age = session.place.step, noted_number(session.checkpoints.directory), None
    if not session.checkpoints.fetched:
        with suppress(OSError):  # it stood beside one that was being replaced
            age = checkpoint_age(session.checkpoints.folder / str(step))
    repeated = None if reached is None or session.checkpoints.fetched else max(reached - step, 0)
    resumed = Resumed(step, age, repeated, changes, session.place.stage >= len(session.stages))
    return resumed if step or repeated or changes else None


def newest_complete(folder: Path) -> Path | None:
    """Return the newest checkpoint with all files of its manifest.

    Contents are verified when it is read.
    """
    named = [path for path in folder.iterdir() if path.name.isdecimal()] if folder.is_dir() else []
    for path in sorted(named, key=lambda path: int(path.name), reverse=True):
        try:
            files = read_manifest(path)["files"]
            if all((path / name).stat().st_size == file["bytes"] for name, file in files.items()):
                return path
        except (TorcheerError, OSError, LookupError, TypeError):
            continue
    return None
