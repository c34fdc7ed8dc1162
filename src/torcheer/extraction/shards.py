"""Writer of shards, each a sealed archive, locked by one process at a time.

A thread writes each batch while the next one is computed.
"""

from __future__ import annotations

import math
import queue
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torcheer.archive import Archive, Writer
from torcheer.archive.format import seals
from torcheer.disk import FolderLock, explain_write_errors, rename_durably
from torcheer.errors import ArchiveDamaged, NotAnArchive
from torcheer.extraction.extraction_plan import KEPT, ExtractionPlan, shard_metadata, shard_name
from torcheer.records import Sample

MAX_QUEUED_BATCHES = 2  # batches that may wait for the disk; more would only use memory
_UNLIMITED_BYTES = 1 << 62


class ShardWriter:
    """Writer of the shards that this process has claimed."""

    def __init__(self, path: Path, plan: ExtractionPlan) -> None:
        self.folder = path / "shards"
        self.plan = plan
        with explain_write_errors(path, KEPT):
            self.folder.mkdir(exist_ok=True)
            self._locks = FolderLock(path, "extracted to")  # a byte for each shard
        self.batch_count = 0
        self._writers: dict[int, Writer] = {}
        self._committed: dict[int, int] = {}  # shard -> batches of it on disk; -1: not this process's
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(MAX_QUEUED_BATCHES)
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="torcheer-extraction", daemon=True)
        self._thread.start()

    def should_compute(self, batch: int) -> bool:
        """Return whether this process computes a batch; a shard is claimed with its first batch."""
        self.batch_count = max(self.batch_count, batch + 1)
        shard, place = divmod(batch, self.plan.batches_per_shard)
        if shard not in self._committed:
            self._committed[shard] = self._claim(shard)
        return place >= self._committed[shard] >= 0

    def _claim(self, shard: int) -> int:
        """Claim a shard; return how many of its batches are committed, -1 if it is sealed or locked."""
        final, part = self.folder / shard_name(shard), self.folder / f".{shard_name(shard)}.part"
        with explain_write_errors(self.folder, KEPT):
            if final.exists() or not self._locks.acquire(shard):
                return -1
        if final.exists():  # its writer has just finished
            self._locks.release(shard)
            return -1
        metadata = shard_metadata(self.plan, shard)
        committed = _count_committed_batches(part, metadata, shard * self.plan.batches_per_shard)
        if committed is None:  # sealed, and its writer killed before the rename
            seals.publish_pending_copy(part, 0)
            self._publish(shard)
            return -1
        self._writers[shard] = Writer(
            part, about=metadata, codec=self.plan.codec, segment_bytes=_UNLIMITED_BYTES,
            fsync="interval", interval_secs=math.inf,  # fsync only when it is sealed
        )  # fmt: skip
        if committed == self.plan.batches_per_shard:  # complete, and its writer killed before the seal
            self._seal(shard)
            return -1
        return committed

    def write(self, batch: int, samples: Callable[[], list[Sample]], metadata: dict[str, Any]) -> None:
        """Queue a batch for writing; blocks while the queue is full."""
        shard, place = divmod(batch, self.plan.batches_per_shard)
        self._enqueue(lambda: self._writers[shard].step(samples(), **metadata))
        if place == self.plan.batches_per_shard - 1:
            self._enqueue(lambda: self._seal(shard))

    def _seal(self, shard: int) -> None:
        self._writers.pop(shard).close()
        self._publish(shard)

    def _publish(self, shard: int) -> None:
        """Rename a sealed shard to its final name, which marks it complete."""
        final, part = self.folder / shard_name(shard), self.folder / f".{shard_name(shard)}.part"
        (part / "LOCK").unlink(missing_ok=True)
        rename_durably(part, final)
        self._locks.release(shard)

    def seal_open_shards(self) -> None:
        """Seal the open shards at the end of the data: the last one may be short."""
        per_shard = self.plan.batches_per_shard
        for shard, done in list(self._committed.items()):
            if done >= 0 and (shard + 1) * per_shard > self.batch_count:
                self._enqueue(lambda shard=shard: self._seal(shard) if shard in self._writers else None)  # type: ignore[misc]

    def _enqueue(self, task: Callable[[], None]) -> None:
        while self._problem is None:
            try:
                self._queue.put(task, timeout=0.2)
                return
            except queue.Full:
                continue
        raise self._problem

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            try:
                if self._problem is None:
                    task()
            except BaseException as problem:
                self._problem = problem

    def close(self) -> None:
        """Wait for the queue, close everything, and raise the first error of the writing thread."""
        self._queue.put(None)
        self._thread.join()
        try:
            for writer in self._writers.values():  # unfinished: the next run resumes them
                writer.close(seal=False)
        finally:
            self._writers.clear()
            self._locks.close()
        if self._problem is not None:
            raise self._problem


def _count_committed_batches(part: Path, metadata: dict[str, Any], first: int) -> int | None:
    """Return how many batches of an unfinished shard are committed; None where it is sealed.

    A damaged shard is deleted and starts again: a power loss came before its fsync.
    """
    if not part.exists():
        return 0
    try:
        archive = Archive(part)
        archive.verify()
        if archive.about != metadata or archive.steps != list(range(first, first + len(archive.frames))):
            raise ArchiveDamaged(f"{part} is of another extraction")
    except (NotAnArchive, ArchiveDamaged):
        with explain_write_errors(part, KEPT):
            shutil.rmtree(part)
        return 0
    return None if archive.sealed else len(archive.frames)
