"""Writer of shards, each a sealed archive, locked by one process at a time.

Several are filled at the same time, each by a thread of its own, while the next batches are computed.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torcheer import remote
from torcheer.archive import Archive, Writer
from torcheer.archive.format import seals
from torcheer.archive.format.parallel_checksums import ParallelChecksum
from torcheer.disk import FolderLock, explain_write_errors, rename_durably
from torcheer.encoding import has_fast_crc32
from torcheer.errors import ArchiveDamaged, NotAnArchive
from torcheer.extraction.extraction_plan import KEPT, ExtractionPlan, list_sealed_shards, shard_metadata, shard_name
from torcheer.extraction.writers.writer_threads import WriterThreads
from torcheer.records import Sample

_UNLIMITED_BYTES = 1 << 62
_SYNC_BYTES = 32 << 20  # of values, after which they are sent to the disk: it would begin much later by itself


class ShardWriter:
    """Writer of the shards that this process has claimed."""

    def __init__(self, path: Path, plan: ExtractionPlan, locks: FolderLock) -> None:
        """`locks`: the extraction's lock file, with a byte for each shard; left open."""
        self.folder = path / "shards"
        self.plan, self._locks = plan, locks
        with explain_write_errors(path, KEPT):
            self.folder.mkdir(exist_ok=True)
        self._sealed = (
            set(list_sealed_shards(path)) if remote.attached(path) else set()
        )  # by others, as far as is known
        self.is_assigned: Callable[[int], bool] = lambda shard: True  # whether this process may claim a shard
        self.batch_count = 0
        self._writers: dict[int, Writer] = {}
        self._sent_bytes: dict[int, int] = {}  # shard -> bytes of values that are on their way to the disk
        self._committed: dict[int, int] = {}  # shard -> batches of it on disk; -1: not this process's
        self._checksums = None if has_fast_crc32() else ParallelChecksum()
        self._threads = WriterThreads(plan.lanes)

    def should_compute(self, batch: int) -> bool:
        """Return whether this process computes a batch; a shard is claimed with its first batch."""
        self.batch_count = max(self.batch_count, batch + 1)
        shard, place = self.plan.place_of(batch)
        if shard not in self._committed:
            self._committed[shard] = self._claim(shard)
        return place >= self._committed[shard] >= 0

    def _claim(self, shard: int) -> int:
        """Claim a shard; return how many of its batches are committed, -1 if it is sealed or locked."""
        final, part = self.folder / shard_name(shard), self.folder / f".{shard_name(shard)}.part"
        with explain_write_errors(self.folder, KEPT):
            if final.exists() or shard in self._sealed or not self.is_assigned(shard) or not self._locks.acquire(shard):
                return -1
        if self._has_just_been_sealed(final):
            self._locks.release(shard)
            return -1
        batches = self.plan.batches_of(shard)
        committed = _count_committed_batches(part, shard_metadata(self.plan, shard), batches)
        if committed is None:  # sealed, and its writer killed before the rename
            seals.publish_pending_copy(part, 0)
            self._publish(shard)
            return -1
        if committed == len(batches):  # complete, and its writer killed before the seal
            self._seal(shard)
            return -1
        return committed

    def _has_just_been_sealed(self, final: Path) -> bool:
        if final.name in os.listdir(self.folder):  # NFS may remember for a while that it did not exist
            return True
        folder = remote.attached(final)
        return folder is not None and folder.has(final / "archive.json")

    def _writer(self, shard: int) -> Writer:
        """Return the writer of a shard, made by the thread that first needs it: it waits for the disk."""
        if shard not in self._writers:
            self._writers[shard] = Writer(
                self.folder / f".{shard_name(shard)}.part", about=shard_metadata(self.plan, shard),
                codec=self._codec, segment_bytes=_UNLIMITED_BYTES, checksums=self._checksums,
                fsync="interval", interval_secs=math.inf,  # fsync only when it is sealed
            )  # fmt: skip
        return self._writers[shard]

    def _codec(self, sample: Sample) -> str:
        """Return how a value is stored; what is beside the layers is small, and stays as it is."""
        return self.plan.codec if sample.variable == "value" else "raw"

    def write(self, batch: int, samples: Callable[[], list[Sample]], metadata: dict[str, Any]) -> None:
        """Queue a batch for writing; blocks while too many are on their way."""
        shard, place = self.plan.place_of(batch)
        lane = shard % self.plan.lanes
        self._threads.put_batch(lane, lambda: self._write_batch(shard, samples(), metadata))
        if place == self.plan.batches_per_shard - 1:
            self._threads.put_end(lane, lambda: self._seal(shard))

    def _write_batch(self, shard: int, samples: list[Sample], metadata: dict[str, Any]) -> None:
        writer = self._writer(shard)
        writer.step(samples, **metadata)
        if writer.value_bytes - self._sent_bytes.get(shard, 0) >= _SYNC_BYTES:
            self._sent_bytes[shard] = writer.value_bytes
            self._threads.put_beside(shard % self.plan.lanes, writer.sync_values)

    def _seal(self, shard: int) -> None:
        writer = self._writer(shard)
        writer.close()
        del self._writers[shard]
        self._sent_bytes.pop(shard, None)
        self._publish(shard)

    def _publish(self, shard: int) -> None:
        """Rename a sealed shard to its final name, which marks it complete."""
        final, part = self.folder / shard_name(shard), self.folder / f".{shard_name(shard)}.part"
        (part / "LOCK").unlink(missing_ok=True)
        try:
            rename_durably(part, final)
        except OSError as error:  # on storage where locks do not hold, another process wrote the same bytes
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not (final / "archive.json").exists():
                raise
            shutil.rmtree(part)
        if folder := remote.attached(final):
            folder.publish(final)
            folder.release(final)
        self._locks.release(shard)

    def seal_open_shards(self) -> None:
        """Seal the open shards at the end of the data: the last ones may be short."""
        for shard, done in list(self._committed.items()):
            if done >= 0 and self.plan.batches_of(shard)[-1] >= self.batch_count:
                self._threads.put_end(shard % self.plan.lanes, lambda shard=shard: self._seal(shard))  # type: ignore[misc]

    def close(self) -> None:
        """Wait for the threads, close everything, and raise the first error of one."""
        problem = self._threads.close()
        try:
            for writer in self._writers.values():  # unfinished: the next run resumes them
                writer.close(seal=False)
        finally:
            self._writers.clear()
            if self._checksums is not None:
                self._checksums.close()
        if problem is not None:
            raise problem


def _count_committed_batches(part: Path, metadata: dict[str, Any], batches: range) -> int | None:
    """Return how many batches of an unfinished shard are committed; None where it is sealed.

    A damaged shard is deleted and starts again: a power loss came before its fsync.
    """
    if not part.exists():
        return 0
    try:
        archive = Archive(part)
        archive.verify()
        if archive.about != metadata or archive.steps != list(batches[: len(archive.frames)]):
            raise ArchiveDamaged(f"{part} is of another extraction")
    except (NotAnArchive, ArchiveDamaged):
        with explain_write_errors(part, KEPT):
            shutil.rmtree(part)
        return 0
    return None if archive.sealed else len(archive.frames)
