"""Checkpoints: folders that are there whole or not at all, the newest of which always loads."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.archive.format.archive_folder import sync_folder
from torcheer.errors import ArchiveDamaged, BadArgument, TorcheerError
from torcheer.training.checkpoints.checkpoint_files import read_checkpoint, write_checkpoint
from torcheer.training.checkpoints.checkpoint_manifest import read_manifest
from torcheer.training.checkpoints.run_directory import begin_run, locked, telling
from torcheer.training.loop.events import StepDone
from torcheer.training.observe.metric_csv import EpochTables, StepTable
from torcheer.training.stop_conditions import better

if TYPE_CHECKING:
    from torcheer.training.session import Session

__all__ = ["Keeper", "read_checkpoint"]

LOOKS = 100  # at checkpoints that are replaced meanwhile
_NAME = re.compile(r"([0-9]+)|\.old-([0-9]+)-[0-9]+")  # by its steps, or while one of the same steps replaces it

Found = tuple[dict[str, Any] | None, Path | None, list[str]]


class Keeper:
    """The checkpoints of a run directory, and the tables beside them."""

    def __init__(self, directory: str | Path, *, keep_last: int = 2, keep_best: str = "", steps_csv: int = 0) -> None:
        if keep_last < 1:
            raise BadArgument(f"keep_last={keep_last}: at least one checkpoint is kept")
        self.directory = Path(directory)
        self.folder = self.directory / "checkpoints"
        self._keep_last, self._keep_best = keep_last, keep_best
        self._tables = EpochTables(self.directory / "metrics")
        self._steps = StepTable(self.directory / "metrics" / "steps.csv", steps_csv)
        self._is_mine = False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the one that writes here; what a killed trainer was writing is removed."""
        if self._is_mine:
            yield
            return
        with locked(self.directory):
            begin_run(self.directory)
            self._is_mine = True
            try:
                with telling(self.folder):
                    self.folder.mkdir(exist_ok=True)
                    for rest in self.folder.glob(".tmp-*"):
                        shutil.rmtree(rest)
                yield
            finally:
                self._is_mine = False

    def take_over(self, other: Keeper) -> None:
        """Write on, from the beginning, where another had the right to."""
        self._is_mine = other._is_mine
        with telling(self.folder):
            self.folder.mkdir(exist_ok=True)

    def save(self, session: Session) -> Path:
        """Write a checkpoint of a session; older ones go only once it is there.

        Where the system refuses, the error comes at once: training on would be work that nothing protects. The
        session stands at a step boundary and is whole, so it can be run further once there is room again.
        """
        state = session.state()
        path = self.folder / str(state["place"]["step"])
        part = self.folder / f".tmp-{path.name}-{os.getpid()}"
        with self.locked(), telling(path, "The checkpoints before it are as they were. "):
            try:
                self._steps.flush()  # what this checkpoint has passed must not be missing there
                part.mkdir(exist_ok=True)
                write_checkpoint(part, state)
                self._put(part, path)
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)
                raise
            self._prune(int(path.name))
        return path

    def newest(self) -> Found:
        """The state in the newest checkpoint that is whole, its path, and what is wrong with newer ones.

        None where there is none; raises where there are some and none of them is whole.
        """
        for _ in range(LOOKS):
            found = self._look()
            if found is not None:
                return found
        raise ArchiveDamaged(f"the checkpoints of {self.directory} change faster than they can be read: try again")

    def _look(self) -> Found | None:
        """What is there; None where a trainer at work took a checkpoint away while it was read."""
        problems: list[str] = []
        for path in self._found():
            which = _identity(path)
            try:
                return read_checkpoint(path), path, problems
            except (TorcheerError, OSError) as error:
                if which is None or _identity(path) != which:
                    return None
                problems.append(f"checkpoint {path} cannot be used: {error}")
        if problems:
            raise ArchiveDamaged("\n".join([f"no checkpoint of {self.directory} can be used:", *problems]))
        return None, None, []

    def best(self) -> Path | None:
        """The checkpoint with the best value of the `keep_best` column; None where there is none."""
        return self._best(self._named())

    def write_tables(self, stages: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Add the rows that are new to the CSV files."""
        self._tables.write(stages)

    def settle_tables(self, stages: Sequence[Sequence[Mapping[str, Any]]], step: int) -> None:
        """Have the CSV files hold these rows and steps and no others: what came after them comes again."""
        self._tables.rewrite(stages)
        self._steps.flush()
        self._steps.cut(step)

    def note_steps(self, steps: Sequence[StepDone]) -> None:
        """Write steps down where it is their turn."""
        for one in steps:
            self._steps.add(one.step, one.epoch, one.pipeline, one.loss)

    def _found(self) -> list[Path]:
        """Every folder that may be a checkpoint, the newest first; one that was being replaced behind its successor."""
        if not self.folder.is_dir():
            return []
        found = [
            (int(match[1] or match[2]), bool(match[1]), path)
            for path in self.folder.iterdir()
            if (match := _NAME.fullmatch(path.name))
        ]
        return [path for _, _, path in sorted(found, reverse=True)]

    def _named(self) -> list[Path]:
        return [path for path in self._found() if path.name.isdecimal()]

    def _put(self, part: Path, path: Path) -> None:
        """Give a finished checkpoint its name; where one of this step is there, it is moved away and stays findable."""
        if path.exists():
            path.rename(self.folder / f".old-{path.name}-{time.time_ns()}")
        part.rename(path)
        sync_folder(self.folder)

    def _prune(self, step: int) -> None:
        """Remove what is neither among the last nor the best; the one of this step was just written."""
        named = [path for path in self._named() if int(path.name) <= step]  # a later one was found to be damaged
        kept = {*named[: self._keep_last], self._best(named)}
        for path in self._found():
            if path not in kept:
                gone = path.rename(self.folder / f".tmp-{path.name}-gone")  # nobody sees half of one
                shutil.rmtree(gone)

    def _best(self, paths: Sequence[Path]) -> Path | None:
        known = [(value, int(path.name), path) for path in paths if (value := self._value(path)) is not None]
        return min(known)[2] if known else None

    def _value(self, path: Path) -> float | None:
        """A checkpoint's value of the column to be kept, less is better."""
        column = self._keep_best.removeprefix("-")
        if not column:
            return None
        try:
            found = read_manifest(path)["row"].get(column)
        except (TorcheerError, OSError):
            return None
        is_more_better = self._keep_best.startswith("-") or better(column) == "max"
        return None if found is None else -found if is_more_better else found


def _identity(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
