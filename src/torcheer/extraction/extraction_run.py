"""`torcheer.extract`: write selected layers of every sample while they are computed."""

from __future__ import annotations

import math
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torcheer.archive import Archive
from torcheer.archive.format.value_codecs import check_codec
from torcheer.errors import ArchiveBusy, ArchiveDamaged, BadArgument, NotAModel, NotAnArchive
from torcheer.extraction import extraction_plan as plans
from torcheer.extraction.batch_values import LayerReader, choose_device, evaluation_mode, is_close
from torcheer.extraction.batches import Batch, Batches, batch_ids
from torcheer.extraction.collation import Collate
from torcheer.extraction.extracted_tensors import ExtractedTensors, collect_tensors
from torcheer.extraction.extraction_estimate import Estimate, measure
from torcheer.extraction.extraction_plan import PEAK, PEAK_PLACE, ExtractionPlan, shard_name
from torcheer.extraction.extraction_reader import Extraction, open_extraction
from torcheer.extraction.fingerprints import fingerprint, old_weights_checksum
from torcheer.extraction.unit_peaks import find_peaks
from torcheer.extraction.value_rows import BatchValues, Mask, sample_maker
from torcheer.extraction.writers.shards import ShardWriter
from torcheer.history.error_notes import annotate
from torcheer.models import plain_name, unwrapped
from torcheer.terminal import Progress, ProgressCallback, human_bytes, plural

WRITERS = 4  # threads that write
_SMALL_BATCH_BYTES, _SMALL_BYTES = 4 << 20, 256 << 20  # of a batch, of all: below either, one thread writes as fast


class TrialBatch(NamedTuple):
    """The first batch and its values."""

    batch: Batch
    values: BatchValues
    checksum: int  # over what the model was given


@dataclass
class ExtractionJob:
    """Everything a process needs to work on an extraction."""

    reader: LayerReader
    batches: Batches
    path: Path
    plan: ExtractionPlan
    sample_ids: Sequence[Any] | None  # the caller's ids of the samples
    trial: TrialBatch | None = None  # so that its batch need not be computed twice


def extract(
    model: torch.nn.Module,
    data: Any,
    *,
    layers: Any,
    to: str | os.PathLike[str] | None,
    batch_size: int | None = None,
    device: Any = None,
    transform: Callable[[Any], Any] | None = None,
    mask: Mask = None,
    ids: Sequence[Any] | None = None,
    workers: int = 0,
    writers: int | None = None,
    shard_samples: int | None = None,
    codec: str = "raw",
    seed: int = 0,
    top: bool = False,
    dry_run: bool = False,
    progress: bool | None = None,
) -> Extraction | ExtractedTensors | Estimate:
    """Run `model` over `data` and save `layers` of every sample to a folder; a rerun resumes.

    `data`: a Dataset, DataLoader, tensor, list or iterable of samples. `layers`: one or a list in any form of
    `torcheer.selection`, or a dict from these to a function of the layer's value (and of the batch, if it takes two
    parameters, as it was given before `transform`) that returns one row per sample. `to`: the folder; None: return the
    tensors in memory. `batch_size`: 32 by default; a DataLoader has its own. `device`: where to run, "auto" for a GPU
    if there is one; by default where the model is. `transform`: applied to each sample, or to each batch of a
    DataLoader. `mask`: which positions of each sample to keep, the others are padding: a key of the batch
    ("attention_mask") or a function of it; it applies to the layers that begin with its shape. `ids`: a text or number
    per sample, by default its index. `workers`: processes that share the work, 0 for this one alone. `writers`: threads
    of each process that write, each to a shard of its own; 4 by default, 1 for what is small. `shard_samples`: samples
    per shard, by default about 256 MB. `codec`: how values are stored, a name of `value_codecs.CODECS`. `seed`: for
    models that draw random numbers. `top`: keep each sample's largest value of every unit, too, so that `features.top`
    need not read the layers. `dry_run`: return an `Estimate` and write nothing. `progress`: show on stderr how
    far it is; None: on a terminal and in a notebook.

    >>> found = extract(torch.nn.Sequential(torch.nn.Linear(2, 3)), torch.ones(5, 2), layers=["0"], to=folder)
    >>> found["0"].shape
    (5, 3)
    """
    if not isinstance(model, torch.nn.Module):
        raise NotAModel(f"extract needs an nn.Module, got {type(model).__name__}")
    if type(seed) is not int:
        raise BadArgument(f"seed={seed!r}: give a whole number")
    if type(top) is not bool:
        raise BadArgument(f"top={top!r}: give True or False; features.top(layer, k) says how many")
    batches, target_device = Batches(data, batch_size, transform), choose_device(model, device)
    with closing(batches):
        _check_ids(ids, batches)
        if dry_run and batches.is_single_pass:
            raise BadArgument(
                "dry_run would use up the first samples of a generator; give data that can be begun again"
            )
        transformed = transform is not None
        reader = LayerReader(model, layers, device=target_device, transformed=transformed, seed=seed, mask=mask)
        batches.keeps_given, batches.collate = reader.wants_batch, Collate(for_gpu=target_device.type == "cuda")
        batches.is_old = to is not None and plans.is_old(Path(to))
        with evaluation_mode(model, target_device):
            first = batches.first()
            trial = TrialBatch(first, reader.run_trial(first), batches.checksum(first))
            if dry_run:
                return measure(reader, batches, first, trial.values)
            batches.loaded = first
        plan = replace(_make_plan(reader, batches, trial, shard_samples, writers, codec, ids), top=top)
        if to is None:
            if workers or codec != "raw" or top:
                raise BadArgument(
                    "to=None keeps tensors in memory: workers, codec and top go with a folder; give to='features'"
                )
            with Progress("extracting", batches.samples, "samples", progress=progress) as shown:
                return collect_tensors(reader, batches, trial.values, ids, shown.add)
        job = ExtractionJob(reader, batches, Path(to), plan, ids, trial)
        del first, trial  # the job has them while they are needed
        return _extract_to_folder(job, workers, progress)


def _extract_to_folder(job: ExtractionJob, workers: int, progress: bool | None) -> Extraction:
    """Write what the folder does not have yet."""
    job.plan = plans.write_or_match(job.path, job.plan)
    _check_first_batch(job)
    if plans.read_completion(job.path) is None:
        assert job.trial is not None
        samples = job.batches.samples
        _warn_if_disk_too_small(job.path, samples, job.trial.values)
        with Progress(f"extracting to {job.path}", samples, "samples", progress=progress) as shown:
            shown.skip(_count_existing_samples(job.path))
            _run_all(job, workers, shown.add)
    return open_extraction(job.path)


def _check_first_batch(job: ExtractionJob) -> None:
    """Check stored values of the first batch against this run's.

    Even another reduce function is another extraction.
    """
    assert job.trial is not None
    for name in (shard_name(0), f".{shard_name(0)}.part"):
        with suppress(NotAnArchive, ArchiveDamaged):  # missing; damage is reported by the reader
            archive = Archive(job.path / "shards" / name)
            first = (entry for entry in archive.entries if entry.step == 0 and entry.variable == "value")
            stored = {(entry.layer, entry.item): entry for entry in first}
            for layer, item, value in job.trial.values.items() if stored else ():
                entry = stored.get((layer, item))
                if entry is None or not is_close(value, archive.array(entry), entry.type):
                    raise BadArgument(
                        f"{job.path} holds other values of {layer!r} for the first batch: the model, the "
                        f"layer's function or torch's own settings differ; go on with the same, or give another folder"
                    )


def _run_all(job: ExtractionJob, workers: int, on_progress: ProgressCallback) -> None:
    try:
        if workers:
            from torcheer.extraction.writers.worker_pool import run_workers

            run_workers(job, workers, on_progress)
            _check_first_batch(job)  # a new interpreter does not inherit autocast or the default dtype
        run_job(job, on_progress)
    except Exception as error:
        annotate(
            error,
            kept=f"{plural(len(plans.list_sealed_shards(job.path)), 'shard')} in {job.path}; run it again to go on",
        )
        raise
    except KeyboardInterrupt:
        print(
            f"\nstopped: {len(plans.list_sealed_shards(job.path))} shards are kept in {job.path}; "
            "run it again to go on",
            file=sys.stderr,
        )
        raise


def run_job(job: ExtractionJob, on_progress: ProgressCallback, *, is_helper: bool = False) -> None:
    """Compute every shard that is neither finished nor claimed.

    Then mark the extraction complete, if it is.
    """
    reader, writer = job.reader, ShardWriter(job.path, job.plan)
    try:
        wanted = job.batches.select(writer.should_compute)
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
    if not is_helper:
        _finish(job, writer.batch_count)


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


def _finish(job: ExtractionJob, batches: int) -> None:
    """Mark the extraction complete if every batch of the data is in its shard."""
    sealed, total = plans.list_sealed_shards(job.path), job.plan.count_shards(batches)
    if sealed[:total] != list(range(total)):
        raise ArchiveBusy(
            f"{len(sealed)} of {total} shards are done in {job.path}, and another process is at work on the rest; "
            f"wait for it, or run this again"
        )
    sizes: dict[int, int] = {}
    shard_sizes = []
    for number in sealed:
        archive = Archive(job.path / "shards" / shard_name(number))
        numbers = [batch for batch in job.plan.batches_of(number) if batch < batches]
        if archive.steps != numbers:
            raise ArchiveDamaged(
                f"{archive.path} has {len(archive.steps)} batches, and {len(numbers)} are to be there: the data had "
                f"another length when it was written. Extract to another folder"
            )
        sizes |= {frame["step"]: int(frame["about"]["count"]) for frame in archive.frames}
        shard_sizes.append(_count_samples_in(archive))
    plans.mark_complete(job.path, shard_sizes, [sizes[number] for number in range(batches)])


def _count_samples_in(archive: Archive) -> int:
    return sum(int(frame["about"]["count"]) for frame in archive.frames)


def _count_existing_samples(path: Path) -> int:
    """Count the samples of earlier runs, unfinished shards included."""
    total = 0
    for file in (path / "shards").glob("*/archive.json"):
        with suppress(NotAnArchive, ArchiveDamaged):
            total += _count_samples_in(Archive(file.parent))
    return total


def _make_plan(
    reader: LayerReader,
    batches: Batches,
    trial: TrialBatch,
    shard_samples: int | None,
    writers: int | None,
    codec: str,
    ids: Sequence[Any] | None,
) -> ExtractionPlan:
    if shard_samples is None:
        per_shard = plans.SHARD_BYTES // max(1, trial.values.bytes)
    elif type(shard_samples) is int and shard_samples > 0:
        per_shard = shard_samples // max(1, trial.values.count)
    else:
        raise BadArgument(f"shard_samples={shard_samples!r}: give a whole number from 1 on")
    return ExtractionPlan(
        model=type(reader.model if batches.is_old else unwrapped(reader.model)).__name__,
        weights=_weights_checksum(reader.model, batches.is_old),
        layers=tuple(reader.layers),
        batch_size=batches.batch_size,
        samples=batches.samples,
        data=zlib.crc32(str(batches.order).encode(), trial.checksum),
        ids=None if ids is None else zlib.crc32(ascii(list(ids)).encode()),
        batches_per_shard=max(1, per_shard),
        codec=check_codec(codec),
        seed=reader.seed,
        lanes=_count_lanes(writers, batches.samples, trial.values),
    )


def _weights_checksum(model: torch.nn.Module, is_old: bool) -> int:
    """Return a checksum over every parameter and buffer; the same for a compiled model."""
    weights = {**dict(model.named_buffers()), **model.state_dict()}  # non-persistent buffers too
    if is_old:
        return old_weights_checksum(weights.items())
    return fingerprint((plain_name(name), value) for name, value in weights.items())


def _count_lanes(writers: int | None, samples: int | None, values: BatchValues) -> int:
    """Return how many shards are written at the same time: one where all of it is small."""
    if writers is not None:
        if type(writers) is not int or writers < 1:
            raise BadArgument(f"writers={writers!r}: give a whole number from 1 on")
        return writers
    total = math.inf if samples is None else samples * values.bytes / max(1, values.count)
    return WRITERS if values.bytes >= _SMALL_BATCH_BYTES and total >= _SMALL_BYTES else 1


def _warn_if_disk_too_small(path: Path, samples: int | None, values: BatchValues) -> None:
    needed = (samples or 0) * values.bytes / max(1, values.count)
    free = shutil.disk_usage(path).free
    if needed > free:
        need_text = f"about {human_bytes(round(needed))} will be written to {path}"
        print(f"torcheer: {need_text}, and {human_bytes(free)} are free there", file=sys.stderr)


def _check_ids(ids: Sequence[Any] | None, batches: Batches) -> None:
    if ids is None:
        return
    if batches.length is None:
        raise BadArgument("ids go with data of a known length: a Dataset, or a DataLoader that makes batches of one")
    if len(ids) != batches.length:
        raise BadArgument(f"{len(ids)} ids for {batches.length} samples")
    if not all(type(sample_id) in (str, int) for sample_id in ids):
        raise BadArgument("ids are texts or whole numbers")
