"""A run directory: its lock, and how one that is only at a URL comes here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from torcheer.archive.verification import examine
from torcheer.disk import FolderLock, explain_write_errors, lock_folder, noted_number, read_json, rename_durably
from torcheer.errors import ArchiveDamaged, BadArgument, CannotRead, TorcheerError
from torcheer.remote import RemoteFolder, open_url
from torcheer.runlog.log_reader import RunLog
from torcheer.terminal import Progress, human_bytes, plural
from torcheer.training.checkpoints.checkpoint_manifest import MANIFEST, verify_checkpoint
from torcheer.training.checkpoints.earlier_runs import run_number

_CHECKPOINTS: Final = "checkpoints"
_RUN, _SPEC = "run.json", "spec.json"
_TRAINED: Final = frozenset(("train_step", "train_epoch", "changes"))  # tables of a log
_BEGUN: Final = ".fetching"  # is there until all of a run was fetched


@contextmanager
def locked(directory: Path) -> Iterator[FolderLock]:
    """Hold the lock of a run directory, which is yielded.

    A second writer is refused, a killed one leaves no lock.
    """
    with explain_write_errors(directory):
        lock = lock_folder(directory, "trained")
    try:
        yield lock
    finally:
        lock.close()


def forget_untrained(directory: Path) -> str:
    """Remove a session of which not one step is saved, so that it can be begun anew; return a note, "" where it stays.

    The caller holds the lock. Nothing but what `torcheer train` had written before its first step is removed. What
    was chosen on its page is kept: parameters that were changed, and the seed of a run after the first.
    """
    steps = [path.name for path in (directory / _CHECKPOINTS).glob("[0-9]*")]
    if set(steps) - {"0"} or _TRAINED & RunLog(directory).tables().keys() or run_number(directory) > 1:
        return ""
    for folder in (directory / _CHECKPOINTS, directory / "log"):
        shutil.rmtree(folder, ignore_errors=True)
    for name in (_RUN, _SPEC):
        (directory / name).unlink(missing_ok=True)
    if not (lost := noted_number(directory)):
        return "nothing was trained here yet: the session begins anew"
    steps_were = "step that was" if lost == 1 else f"{lost:,} steps that were"
    return f"the {steps_were} trained here {'was' if lost == 1 else 'were'} not saved: the session begins anew"


def fetch_run(directory: Path, url: str) -> str:
    """Fetch the run at a URL into its directory where it is not here; return what was done, "" for nothing.

    The caller holds the lock. Every checkpoint is verified, and whole or absent; a fetch that was killed is done again.
    """
    if not is_elsewhere(directory, url):
        return ""
    remote = RemoteFolder(directory.absolute(), url)
    files = remote.files()
    (directory / _BEGUN).touch()
    steps = [int(step) for step in _folders_in(files, _CHECKPOINTS) if step.isdecimal()]
    checkpoints = [f"{_CHECKPOINTS}/{step}" for step in sorted(steps, reverse=True)]
    log = [name for name in files if not name.startswith(f"{_CHECKPOINTS}/")]
    fetched, problems = 0, list[str]()
    with (
        explain_write_errors(directory),
        Progress(f"fetching {remote.shown}", sum(files.values()), progress=None) as progress,
    ):
        for name in log:
            remote.copy_here(name)
            progress.add(files[name])
        _verify_log(directory, remote.shown)
        for folder in checkpoints:
            names = [name for name in files if name.startswith(f"{folder}/")]
            if f"{folder}/{MANIFEST}" not in names:
                continue  # its copying was interrupted
            if problem := _fetch_checkpoint(remote, folder, names):
                problems.append(problem)
            progress.add(sum(files[name] for name in names))
            fetched += not problem
    if problems and not fetched:
        raise ArchiveDamaged("\n".join([f"no checkpoint at {remote.shown} can be used:", *problems]))
    (directory / _BEGUN).unlink()
    text = f"{plural(fetched, 'checkpoint')} and the log, {human_bytes(sum(files.values()))}, verified"
    return "; ".join([f"the run was at {remote.shown} only, and was fetched to {directory}: {text}", *problems])


def is_elsewhere(directory: Path, url: str) -> bool:
    """Whether there is no run in a directory, or one that was fetched in part, and one at a URL."""
    if not url or (directory / _BEGUN).exists():
        return bool(url)
    if (directory / _SPEC).exists() or any((directory / _CHECKPOINTS).glob(f"[0-9]*/{MANIFEST}")):
        return False
    remote = RemoteFolder(directory.absolute(), url)
    try:
        remote.check_bucket()
        return remote.has(remote.local / _RUN)
    except CannotRead as error:  # beginning anew could write over a run
        raise CannotRead(f"{error}. If no run is there, begin this one without copy_to") from None


def read_remote_spec(url: str) -> dict[str, Any]:
    """Read spec.json of the session at a URL."""
    folder = open_url(url)
    spec = read_json(folder.local / _SPEC)
    if not isinstance(spec, dict):
        folder.check_bucket()
        raise BadArgument(f"there is no session at {folder.shown}: it has no {_SPEC}")
    return spec


def _folders_in(files: dict[str, int], folder: str) -> set[str]:
    return {name.split("/")[1] for name in files if name.startswith(f"{folder}/") and name.count("/") > 1}


def _verify_log(directory: Path, shown: str) -> None:
    for about in directory.glob("log/**/archive.json"):
        if lost := examine(about.parent).lost:
            raise ArchiveDamaged(f"{shown}: the log in {about.parent.relative_to(directory)} is damaged: {lost[0]}")


def _fetch_checkpoint(remote: RemoteFolder, folder: str, names: list[str]) -> str:
    """Fetch a checkpoint, whole or not at all; return what is wrong with it, "" for nothing."""
    target = remote.local / folder
    part = target.with_name(f".tmp-{target.name}-fetched")
    shutil.rmtree(part, ignore_errors=True)
    for name in names:
        remote.copy_here(name, part / name.removeprefix(f"{folder}/"))
    try:
        verify_checkpoint(part)
    except (TorcheerError, OSError) as error:
        shutil.rmtree(part)
        return f"checkpoint {target.name} there cannot be used: {error}"
    shutil.rmtree(target, ignore_errors=True)
    rename_durably(part, target)
    return ""
