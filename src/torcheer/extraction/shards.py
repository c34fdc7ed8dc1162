"""Shards: each a sealed archive, claimed by one process at a time, written while the next batch is computed."""

from __future__ import annotations

import fcntl
import math
import os
import queue
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torcheer.archive import Archive, Writer
from torcheer.archive.format import seals
from torcheer.archive.format.archive_folder import fsync_folder
from torcheer.errors import ArchiveBusy, ArchiveDamaged, NotAnArchive
from torcheer.extraction.extraction_plan import Plan, about_shard, shard_name, writing
from torcheer.records import Sample

WAITING = 2  # batches that may wait for the disk; more would only cost memory
_ONE_SEGMENT = 1 << 62

_open_here: set[Path] = set()  # a process cannot keep itself out with a file's lock
_opening = threading.Lock()


class Claims:
    """Which process works on which shard: byte n of one file is locked by whoever has shard n, until it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        with _opening, writing(path):
            if self._path in _open_here:
                raise ArchiveBusy(f"{path} is being extracted to in this process already")
            self._file = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT, 0o666)
            _open_here.add(self._path)

    def take(self, shard: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, shard)
        except OSError:
            return False
        return True

    def give_back(self, shard: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, shard)

    def close(self) -> None:
        os.close(self._file)
        _open_here.discard(self._path)


class Shards:
    """The shards of an extraction, as this process writes them."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.folder = path / "shards"
        self.plan = plan
        with writing(path):
            self.folder.mkdir(exist_ok=True)
        self._claims = Claims(path)
        self.batches_seen = 0
        self._writers: dict[int, Writer] = {}
        self._done: dict[int, int] = {}  # shard -> batches of it that are on disk; -1: not ours
        self._work: queue.Queue[Callable[[], None] | None] = queue.Queue(WAITING)
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="torcheer-extraction", daemon=True)
        self._thread.start()

    def wants(self, batch: int) -> bool:
        """Whether a batch is for this process to do; a shard is claimed with its first batch."""
        self.batches_seen = max(self.batches_seen, batch + 1)
        shard, place = divmod(batch, self.plan.batches_per_shard)
        if shard not in self._done:
            self._done[shard] = self._claim(shard)
        return place >= self._done[shard] >= 0

    def _claim(self, shard: int) -> int:
        """How many batches of a shard are there already; -1 where it is sealed, or another process has it."""
        final, part = self.folder / shard_name(shard), self.folder / f".{shard_name(shard)}.part"
        if final.exists() or not self._claims.take(shard):
            return -1
        if final.exists():  # its writer was just done
            self._claims.give_back(shard)
            return -1
        about = about_shard(self.plan, shard)
        done = _whole_batches(part, about, shard * self.plan.batches_per_shard)
        if done is None:  # sealed, and killed before it had its name
            seals.publish_pending_copy(part, 0)
            self._name(shard)
            return -1
        self._writers[shard] = Writer(
            part, about=about, codec=self.plan.codec, segment_bytes=_ONE_SEGMENT,
            fsync="interval", interval_secs=math.inf,  # when it is sealed, and not before
        )  # fmt: skip
        if done == self.plan.batches_per_shard:  # whole, and killed before it was sealed
            self._seal(shard)
            return -1
        return done

    def write(self, batch: int, samples: Callable[[], list[Sample]], about: dict[str, Any]) -> None:
        """Hand a batch over to the disk; waits where too many wait already."""
        shard, place = divmod(batch, self.plan.batches_per_shard)
        self._put(lambda: self._writers[shard].step(samples(), **about))
        if place == self.plan.batches_per_shard - 1:
            self._put(lambda: self._seal(shard))

    def _seal(self, shard: int) -> None:
        self._writers.pop(shard).close()
        self._name(shard)

    def _name(self, shard: int) -> None:
        """Give a sealed shard its name, which says that it is complete."""
        final, part = self.folder / shard_name(shard), self.folder / f".{shard_name(shard)}.part"
        (part / "LOCK").unlink(missing_ok=True)
        part.rename(final)
        fsync_folder(self.folder)
        self._claims.give_back(shard)

    def end_of_data(self) -> None:
        """The data has ended: seal what was begun, as the last shard may be short."""
        per_shard = self.plan.batches_per_shard
        for shard, done in list(self._done.items()):
            if done >= 0 and (shard + 1) * per_shard > self.batches_seen:
                self._put(lambda shard=shard: self._seal(shard) if shard in self._writers else None)  # type: ignore[misc]

    def _put(self, work: Callable[[], None]) -> None:
        while self._problem is None:
            try:
                self._work.put(work, timeout=0.2)
                return
            except queue.Full:
                continue
        raise self._problem

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                if self._problem is None:
                    work()
            except BaseException as problem:
                self._problem = problem

    def close(self) -> None:
        """Wait for what was handed over, let go of everything; raise what went wrong on the way."""
        self._work.put(None)
        self._thread.join()
        try:
            for writer in self._writers.values():  # begun and not finished: the next run goes on with them
                writer.close(seal=False)
        finally:
            self._writers.clear()
            self._claims.close()
        if self._problem is not None:
            raise self._problem


def _whole_batches(part: Path, about: dict[str, Any], first: int) -> int | None:
    """How many batches of an unfinished shard are there and whole; None where it is sealed.

    A damaged one is begun again: the power went before it was synced.
    """
    if not part.exists():
        return 0
    try:
        archive = Archive(part)
        archive.verify()
        if archive.about != about or archive.steps != list(range(first, first + len(archive.frames))):
            raise ArchiveDamaged(f"{part} is of another extraction")
    except (NotAnArchive, ArchiveDamaged):
        with writing(part):
            shutil.rmtree(part)
        return 0
    return None if archive.sealed else len(archive.frames)
