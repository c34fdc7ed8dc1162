"""Moves runs to the trash of their folder, and back: never through a link, never while something writes to them."""

from __future__ import annotations

import os
import time
from itertools import count
from pathlib import Path
from typing import Final

from torcheer.disk import explain_write_errors, rename_durably
from torcheer.errors import ArchiveBusy, BadArgument
from torcheer.studio.runs.run_facts import SOCKET, is_locked

TRASH: Final = ".trash"  # in the folder of runs; its name begins with a dot, so that no run in it is listed


def move_to_trash(run: Path, folder: Path, *, is_live: bool) -> Path:
    """Move a run to the folder's trash and return where it lies; a refusal says why."""
    _check_place(run, folder)
    if is_live or is_locked(run) or _is_fresh_socket(run):
        raise ArchiveBusy(f"{run.name} is being written; stop it first, then delete it")
    day, name = folder / TRASH / time.strftime("%Y%m%d-%H%M%S"), os.path.relpath(run, folder)
    free = (day.with_name(f"{day.name}-{number}") if number else day for number in count())
    target = next(place / name for place in free if not os.path.lexists(place / name))
    with explain_write_errors(run):
        target.parent.mkdir(parents=True, exist_ok=True)
        rename_durably(run, target)
    return target


def take_back(place: str, folder: Path) -> Path:
    """Move a run from the folder's trash to where it was; `place` is its path in the trash. A refusal says why."""
    trash, parts = folder / TRASH, Path(place).parts  # the time of its removal, then its path in the folder
    run, target = trash / place, folder.joinpath(*parts[1:])
    is_inside = len(parts) > 1 and not Path(place).is_absolute() and run.resolve() == trash.resolve().joinpath(*parts)
    if not is_inside or not run.is_dir():
        raise BadArgument(f"{place[:200]} is not in {trash}; it may have been taken back or removed")
    if os.path.lexists(target):
        raise BadArgument(f"{target} is there again; move one of them away, and {run} to where it was")
    with explain_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        rename_durably(run, target)
        _remove_empty(run.parent, trash)
    return target


def _remove_empty(folder: Path, trash: Path) -> None:
    while folder != trash.parent and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _check_place(run: Path, folder: Path) -> None:
    """Refuse what is not a folder below `folder`, in fact and not by a link."""
    if run.is_symlink() or not run.is_dir():
        raise BadArgument(f"{run} is no folder of its own, but a link or gone; delete it where it lies")
    inside = run.resolve()
    if folder.resolve() not in inside.parents or inside != folder.resolve() / os.path.relpath(run, folder):
        raise BadArgument(f"{run} does not lie in {folder}: a link leads there; delete it where it lies")


def _is_fresh_socket(run: Path) -> bool:
    """True for a run whose host has its socket, and has not answered yet."""
    try:
        return time.time() - (run / SOCKET).lstat().st_mtime < 5
    except OSError:
        return False
