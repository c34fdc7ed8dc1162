"""The checkpoint folders of a run: written atomically, so that the newest always loads."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.disk import FolderLock, explain_write_errors, rename_durably
from torcheer.errors import ArchiveDamaged, BadArgument, TorcheerError
from torcheer.remote import FolderUploader
from torcheer.runlog.run_folder import begin_run
from torcheer.runlog.tables.metric_direction import first_best
from torcheer.training.checkpoints.background_write import BackgroundWrite, HostCopies
from torcheer.training.checkpoints.checkpoint_files import (
    Packed,
    PartMissing,
    leave_part,
    pack_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from torcheer.training.checkpoints.checkpoint_manifest import read_manifest
from torcheer.training.checkpoints.earlier_runs import take_back
from torcheer.training.checkpoints.run_directory import fetch_run, locked
from torcheer.training.observe.training_log import TrainingLog

if TYPE_CHECKING:
    from torcheer.training.session import Session

__all__ = ["CheckpointStore", "read_checkpoint"]

AS_THEY_WERE = "The checkpoints before it are as they were. "
READ_ATTEMPTS = 100  # while a trainer replaces the checkpoints that are read
_NAME = re.compile(r"([0-9]+)|\.old-([0-9]+)-[0-9]+")  # its step, or the old one of a step while it is replaced

NewestCheckpoint = tuple[dict[str, Any] | None, Path | None, list[str]]  # state, path, problems of newer ones


class CheckpointStore:
    """The checkpoints of a run directory, and the log that has their rows."""

    def __init__(
        self, directory: str | Path, *, keep_last: int = 2, keep_best: str = "", copy_to: str = "", steps_csv: int = 0
    ) -> None:
        if keep_last < 1:
            raise BadArgument(f"keep_last={keep_last}: at least one checkpoint is kept")
        self.directory = Path(directory)
        self.folder = self.directory / "checkpoints"
        self._keep_last, self._keep_best = keep_last, keep_best
        self.log = TrainingLog(self.directory, steps_csv=steps_csv)
        self._lock: FolderLock | None = None
        self._copies = HostCopies()
        self._writing: BackgroundWrite | None = None
        self._has_failed = False  # training, so that another rank's part may never come
        self.is_owed = False  # a checkpoint was asked for that is not on disk (yet)
        self._copy_to, self._uploader = copy_to, None  # type: str, FolderUploader | None
        self.fetched = ""  # what was fetched from there, in words

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory's lock; remove what a killed trainer left half written. The log is closed at the end."""
        if self._lock is not None:
            yield
            return
        with locked(self.directory) as lock:
            self.fetched = fetch_run(self.directory, self._copy_to)
            begin_run(self.directory)
            self._lock = lock
            try:
                with explain_write_errors(self.folder):
                    take_back(self.directory)
                    self.folder.mkdir(exist_ok=True)
                    for leftover in self.folder.glob(".tmp-*"):
                        shutil.rmtree(leftover)
                self._uploader = FolderUploader(self.directory, self._copy_to) if self._copy_to else None
                self._has_failed = False
                yield
            except BaseException:
                self._has_failed = True
                with suppress(PartMissing):  # a rank was lost, and what is raised says so
                    self.finish()
                raise
            finally:
                try:
                    self.finish()
                finally:
                    self._lock = None
                    self.log.close()
                    if self._uploader is not None:
                        self._uploader.close()

    def take_over(self, other: CheckpointStore) -> None:
        """Take over the lock of another store of the same directory, for a run from the beginning."""
        self._lock = other._lock
        with explain_write_errors(self.folder):
            self.folder.mkdir(exist_ok=True)

    def note_step(self, step: int) -> None:
        """Note that training has reached a step: what a killed run has lost is known by it."""
        if self._lock is not None:
            self._lock.note(step)

    def save(self, session: Session, *, waits: bool = True) -> Path | None:
        """Write a checkpoint of a session; older ones are removed only afterwards.

        An error of the system is raised at once: training on would be unprotected work. The session is at a step
        boundary and consistent, so it can continue once there is space again. Rows of epochs are in the log before,
        the checkpoint counts them. Of several ranks all call this; the first returns the path, the others None.

        waits: False to write copies of its tensors in a thread; `finish` says when it is on disk.
        """
        self.finish()
        self.is_owed = True
        state, ranks = session.state(), session.ranks
        packed = pack_checkpoint(state)
        path = self.folder / str(state["place"]["step"])
        # A new name each time: of an old one, another machine would remember what it was renamed to.
        part, is_main = self.folder / f".tmp-{path.name}-{time.time_ns()}", ranks is None or ranks.is_main
        with self.locked() if is_main else nullcontext(), explain_write_errors(path, AS_THEY_WERE):
            if is_main:
                self.log.add_all(state["place"], state["rows"], waits=waits)
                part.mkdir(exist_ok=True)
            others = 0
            if ranks is not None and packed.is_sharded:
                part, others = Path(ranks.from_main(str(part))), ranks.count - 1
            if not is_main and not others:
                return None
            if not waits:
                packed = self._copies.of(packed)
            write = (
                partial(self._write, packed, part, path, others)
                if is_main
                else partial(leave_part, part, packed, session.rank)
            )
            if waits:
                write()
            else:
                self._writing = BackgroundWrite(path, write)
        return path if is_main else None

    def _write(self, packed: Packed, part: Path, path: Path, others: int) -> None:
        """Write a checkpoint into a temporary folder and rename that; `others`: ranks that write parts of it."""
        with explain_write_errors(path, AS_THEY_WERE):
            try:
                self.log.sync()
                write_checkpoint(part, packed, others, has_failed=lambda: self._has_failed)
                self._rename_into_place(part, path)
                self.is_owed = False
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)
                raise
            self._prune(int(path.name))
            if self._uploader is not None:
                self._uploader.request()

    @property
    def writing(self) -> BackgroundWrite | None:
        """The checkpoint that is written in the background, or whose end was not asked for yet."""
        return self._writing

    def finish(self) -> Path | None:
        """Wait for the checkpoint that is written in the background; return its path, None where there is none."""
        writing, self._writing = self._writing, None
        return None if writing is None else writing.finish()

    def newest(
        self, *, without_nan: bool = False, before: int | None = None, with_rows: bool = True
    ) -> NewestCheckpoint:
        """Return state and path of the newest complete checkpoint, and the problems of newer ones.

        None where there is no checkpoint; raises where there are some and none of them is complete. `without_nan`: the
        newest whose weights are numbers, `before`: of an earlier step than this, if there is one. `with_rows`: with the
        rows of its epochs, from the log; weights alone need none.
        """
        for _ in range(READ_ATTEMPTS):
            newest = self._read_newest(without_nan, before, with_rows)
            if newest is not None:
                return newest
        raise ArchiveDamaged(f"the checkpoints of {self.directory} change faster than they can be read: try again")

    def _read_newest(self, without_nan: bool, before: int | None, with_rows: bool) -> NewestCheckpoint | None:
        """Make one attempt; None where a running trainer removed a checkpoint while it was read."""
        problems: list[str] = []
        folders = self._folders()
        if without_nan:
            folders = [path for path in folders if not _has_nan(path)] or folders
        if before is not None:
            folders = [path for path in folders if _step_of(path) < before] or folders
        for path in folders:
            inode = _inode(path)
            try:
                state = read_checkpoint(path)
                if with_rows and all(isinstance(rows, int) for rows in state["rows"]):
                    state["rows"] = self.log.rows_at(state["place"], state["rows"])
                return state, path, problems
            except (TorcheerError, OSError) as error:
                if inode is None or _inode(path) != inode:
                    return None
                problems.append(f"checkpoint {path} cannot be used: {error}")
        if problems:
            raise ArchiveDamaged("\n".join([f"no checkpoint of {self.directory} can be used:", *problems]))
        return None, None, []

    def best(self) -> Path | None:
        """Return the checkpoint with the best value of the `keep_best` column, the first of equally good ones.

        None where there is none.
        """
        return self._best(self._named_folders())

    def _folders(self) -> list[Path]:
        """List folders that may be checkpoints, newest first.

        One that was being replaced comes after its successor.
        """
        if not self.folder.is_dir():
            return []
        folders = [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(folders, key=lambda path: (_step_of(path), path.name.isdecimal(), path), reverse=True)

    def _named_folders(self) -> list[Path]:
        return [path for path in self._folders() if path.name.isdecimal()]

    def _rename_into_place(self, part: Path, path: Path) -> None:
        """Rename a finished checkpoint.

        An older one of the same step is moved aside and can still be read.
        """
        if path.exists():
            path.rename(self.folder / f".old-{path.name}-{time.time_ns()}")
        rename_durably(part, path)

    def _prune(self, step: int) -> None:
        """Remove checkpoints that are neither among the last nor the best.

        This step's was just written.
        """
        # Later ones are damaged: training resumed before them.
        named = [path for path in self._named_folders() if int(path.name) <= step]
        healthy = next((path for path in named if not _has_nan(path)), None)  # to go on from without a bad sample
        kept = {*named[: self._keep_last], self._best(named), healthy}
        for path in self._folders():
            if path not in kept:
                # Renamed first: no reader sees a partial checkpoint.
                shutil.rmtree(path.rename(self.folder / f".tmp-{path.name}-gone"))

    def _best(self, paths: Sequence[Path]) -> Path | None:
        by_step = sorted(paths, key=lambda path: int(path.name))
        return first_best(self._keep_best, ((_row_of(path), path) for path in by_step)) if self._keep_best else None


def _row_of(path: Path) -> dict[str, float]:
    """Return the metrics of a checkpoint's weights; none where they cannot be read."""
    try:
        return dict(read_manifest(path)["row"])
    except (TorcheerError, OSError):
        return {}


def _step_of(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[1] or match[2]) if match else -1


def _has_nan(path: Path) -> bool:
    """Whether the weights of a checkpoint are spoiled; False where that cannot be read."""
    try:
        return bool(read_manifest(path).get("has_nan"))
    except (TorcheerError, OSError):
        return False


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
