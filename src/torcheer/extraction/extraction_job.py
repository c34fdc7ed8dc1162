"""One process's part of an extraction: passes over the data that compute free shards, until all are sealed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from torcheer import remote
from torcheer.archive import Archive
from torcheer.disk import FolderLock, explain_write_errors, patiently
from torcheer.errors import ArchiveBusy, ArchiveDamaged
from torcheer.extraction import extraction_plan as plans
from torcheer.extraction.batches import Batch, Batches, BatchFilter, batch_ids
from torcheer.extraction.extraction_plan import PEAK, PEAK_PLACE, ExtractionPlan, shard_name
from torcheer.extraction.model_ranks import ModelRanks
from torcheer.extraction.values.batch_values import LayerReader, evaluation_mode
from torcheer.extraction.values.unit_peaks import find_peaks
from torcheer.extraction.values.value_rows import BatchValues, sample_maker
from torcheer.extraction.writers.shard_writer import ShardWriter
from torcheer.history.error_notes import annotate
from torcheer.terminal import ProgressCallback

_POLL_SECS: Final = 0.1  # between two looks at the shards of other processes
_REMOTE_POLL_SECS: Final = 2.0  # where each is a request
_COMPLETION_BYTE: Final = 1 << 40  # of the lock file: who writes complete.json; shards have the bytes from 0 on


class TrialBatch(NamedTuple):
    """The first batch and its values."""

    batch: Batch
    values: BatchValues
    checksum: int  # over what the model was given


class Team(NamedTuple):
    """The processes that share an extraction, and which of them this one is: they wait for each other's shards."""

    rank: int
    size: int

    def owns(self, shard: int) -> bool:
        """Return whether a shard is this process's on storage without locks, where none can be claimed."""
        return shard % self.size == self.rank


@dataclass
class ExtractionJob:
    """Everything a process needs to work on an extraction."""

    reader: LayerReader
    batches: Batches
    path: Path
    plan: ExtractionPlan
    sample_ids: Sequence[Any] | None  # the caller's ids of the samples
    trial: TrialBatch | None = None  # so that its batch need not be computed twice
    team: Team | None = None
    model_ranks: ModelRanks | None = None  # that run every batch with this one; the first of them writes

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "path": (self.path, remote.address(self.path))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        path, address = state["path"]
        if isinstance(address, str):  # a URL, for which processes of one machine share a folder and its locks
            path = remote.attach(path, address).local if path.exists() else remote.open_url(address).local
        vars(self).update(state, path=path)


def run_job(job: ExtractionJob, on_progress: ProgressCallback, *, is_helper: bool = False) -> None:
    """Compute every shard that is neither finished nor claimed, then mark the extraction complete, if it is.

    With a team, wait for the shards of the others: what one of them leaves when it dies is computed here.
    """
    with explain_write_errors(job.path, plans.KEPT):
        locks = FolderLock(job.path, "extracted to")  # a byte for each shard
    if remote.attached(job.path) and job.team is not None:
        locks.problem = "without locks"
    with closing(locks):
        while True:
            batches = _compute_free_shards(job, locks, on_progress)
            if is_helper and job.team is None:
                return
            missing = _missing_shards(job, batches)
            if not missing:
                break
            if job.team is None:
                total = job.plan.count_shards(batches)
                raise ArchiveBusy(
                    f"{total - len(missing)} of {total} shards are done in {job.path}, and another process is at work "
                    f"on the rest; wait for it, or run this again"
                )
            _wait_for_shard(job, locks, missing, on_progress)
        _complete(job, locks, batches)


def _compute_free_shards(job: ExtractionJob, locks: FolderLock, on_progress: ProgressCallback) -> int:
    """Compute the shards that this process can claim; return how many batches the data has."""
    reader, writer, ranks = job.reader, ShardWriter(job.path, job.plan, locks), job.model_ranks
    if locks.problem and job.team is not None:
        writer.is_assigned = job.team.owns
    try:
        wanted = job.batches.select(_ask_first(ranks, writer.should_compute))
        with evaluation_mode(reader.model, reader.device), closing(wanted):
            for batch in wanted:
                values = job.trial.values if job.trial and batch.number == 0 else _read_batch(job, batch)
                job.trial = None
                samples = sample_maker(values, batch.number, _extras(job, values))
                writer.write(batch.number, samples, _batch_metadata(job, batch, values))
                on_progress(values.count)
            writer.seal_open_shards()
    except BaseException:
        with suppress(Exception):  # the first error is the one to report
            writer.close()
        raise
    writer.close()
    return writer.batch_count


def _ask_first(ranks: ModelRanks | None, should_compute: BatchFilter) -> BatchFilter:
    return should_compute if ranks is None else lambda batch: ranks.agree(should_compute(batch))


def run_along(job: ExtractionJob) -> None:
    """Run the batches that the first of the ranks that hold a model computes, and keep nothing."""
    assert job.model_ranks is not None
    reader, wanted = job.reader, job.batches.select(_ask_first(job.model_ranks, lambda batch: False))
    with evaluation_mode(reader.model, reader.device), closing(wanted):
        for batch in wanted:
            if job.trial is None or batch.number:
                _read_batch(job, batch)
            job.trial = None


def _missing_shards(job: ExtractionJob, batches: int) -> list[int]:
    sealed = set(plans.list_sealed_shards(job.path))
    return [shard for shard in range(job.plan.count_shards(batches)) if shard not in sealed]


def _wait_for_shard(job: ExtractionJob, locks: FolderLock, missing: list[int], on_progress: ProgressCallback) -> None:
    """Wait until one of the missing shards is sealed, or free because its process has ended."""
    while set(missing).isdisjoint(plans.list_sealed_shards(job.path)):
        for shard in missing if not locks.problem else ():
            if locks.acquire(shard):
                locks.release(shard)  # the next pass claims it, if nobody else is faster
                return
        on_progress(0)
        time.sleep(_POLL_SECS if not remote.attached(job.path) else _REMOTE_POLL_SECS)


def _complete(job: ExtractionJob, locks: FolderLock, batches: int) -> None:
    """Mark the extraction complete, once: of a team, by one process."""
    while plans.read_completion(job.path) is None:
        if locks.acquire(_COMPLETION_BYTE):
            if plans.read_completion(job.path) is None:
                _mark_complete(job, batches)
            locks.release(_COMPLETION_BYTE)
            return
        time.sleep(_POLL_SECS)


def _mark_complete(job: ExtractionJob, batches: int) -> None:
    """Check that every batch of the data is in its shard, and write how many samples each has."""
    sizes: dict[int, int] = {}
    shard_sizes = []
    for number in plans.list_sealed_shards(job.path):
        archive = _open_shard(job.path / "shards" / shard_name(number))
        numbers = [batch for batch in job.plan.batches_of(number) if batch < batches]
        if archive.steps != numbers:
            raise ArchiveDamaged(
                f"{archive.path} has {len(archive.steps)} batches, and {len(numbers)} are to be there: the data had "
                f"another length when it was written. Extract to another folder"
            )
        sizes |= {frame["step"]: int(frame["about"]["count"]) for frame in archive.frames}
        shard_sizes.append(count_samples_in(archive))
    plans.mark_complete(job.path, shard_sizes, [sizes[number] for number in range(batches)])


def _open_shard(path: Path) -> Archive:
    return patiently(lambda: Archive(path), path)  # another machine may have just written it


def count_samples_in(archive: Archive) -> int:
    """Return how many samples a shard holds."""
    return sum(int(frame["about"]["count"]) for frame in archive.frames)


def _read_batch(job: ExtractionJob, batch: Batch) -> BatchValues:
    try:
        return job.reader.read(batch)
    except Exception as error:
        annotate(error, shard=f"{shard_name(job.plan.place_of(batch.number)[0])} in {job.path}")
        raise


def _extras(job: ExtractionJob, values: BatchValues) -> list[tuple[str, str, torch.Tensor]]:
    """Return what is written beside the layers of a batch."""
    if not job.plan.top:
        return []
    named = [(name, zip((PEAK, PEAK_PLACE), peaks)) for name, peaks in find_peaks(values)]
    return [(name, variable, tensor) for name, variables in named for variable, tensor in variables]


def _batch_metadata(job: ExtractionJob, batch: Batch, values: BatchValues) -> dict[str, Any]:
    """Return a batch's sample count, its ids where they are not simply the next indices, and what a mask left."""
    metadata: dict[str, Any] = {"count": values.count}
    if (ids := batch_ids(job.batches, batch, job.sample_ids)) is not None:
        metadata["ids"] = ids
    if values.lengths is not None:
        metadata |= {"lengths": values.lengths, "masked": list(values.masked)}
    return metadata
