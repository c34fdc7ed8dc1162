"""`torcheer.extract`: chosen layers of every sample of a dataset, written while they are computed."""

from __future__ import annotations

import os
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torcheer.archive import Archive
from torcheer.archive.format.value_codecs import check_codec
from torcheer.errors import ArchiveBusy, ArchiveDamaged, BadArgument, NotAModel, NotAnArchive
from torcheer.extraction import extraction_plan as plans
from torcheer.extraction.batch_values import (
    Taker,
    Values,
    are_alike,
    at_rest,
    device_of,
    fetched,
    on_their_way,
    rows_of,
    sizes_of,
)
from torcheer.extraction.batches import Batch, Batches
from torcheer.extraction.extraction_plan import Plan, shard_name
from torcheer.extraction.extraction_progress import Progress, spoken
from torcheer.extraction.extraction_reader import Extraction, open_extraction
from torcheer.extraction.shards import Shards
from torcheer.history.error_notes import annotate
from torcheer.records import Sample
from torcheer.terminal import human_bytes, plural

TRIAL_BATCHES = 4  # what a dry run measures, the first to warm up


@dataclass(frozen=True)
class Estimate:
    """What an extraction would cost."""

    samples: int | None  # None where only the end will tell
    bytes_per_sample: float
    secs_per_sample: float
    layers: dict[str, tuple[tuple[int, ...] | None, str]]  # shape and type of one sample; no shape where they differ

    @property
    def bytes(self) -> int | None:
        return None if self.samples is None else round(self.samples * self.bytes_per_sample)

    @property
    def secs(self) -> float | None:
        return None if self.samples is None else self.samples * self.secs_per_sample

    def __str__(self) -> str:
        lines = [f"  {name}: {_shape(shape)} {kind}" for name, (shape, kind) in self.layers.items()]
        if self.bytes is None or self.secs is None:
            total = f"{human_bytes(round(self.bytes_per_sample))} and {self.secs_per_sample:.2g} s for each sample"
        else:
            total = f"{self.samples:,} samples: about {human_bytes(self.bytes)} in about {spoken(self.secs)}"
        return "\n".join([total, *lines])


class Trial(NamedTuple):
    """The first batch, and what it gave."""

    batch: Batch
    values: Values
    check: int  # a checksum over what the model was given


@dataclass
class Job:
    """All that a process needs to work on an extraction."""

    taker: Taker
    batches: Batches
    path: Path
    plan: Plan
    names: Sequence[Any] | None  # the caller's own ids of the samples
    trial: Trial | None = None  # so that its batch need not be computed twice


def extract(
    model: torch.nn.Module,
    data: Any,
    *,
    layers: Sequence[str] | Mapping[str, Callable[..., Any] | None],
    to: str | os.PathLike[str],
    batch_size: int | None = None,
    device: Any = None,
    transform: Callable[[Any], Any] | None = None,
    ids: Sequence[Any] | None = None,
    workers: int = 0,
    shard_samples: int | None = None,
    codec: str = "raw",
    seed: int = 0,
    dry_run: bool = False,
    progress: bool = True,
) -> Extraction | Estimate:
    """Run `model` over `data` and keep `layers` of every sample in the folder `to`; run again, it goes on.

    >>> found = extract(torch.nn.Sequential(torch.nn.Linear(2, 3)), torch.ones(5, 2), layers=["0"], to=folder)
    >>> found["0"].shape
    (5, 3)
    """
    if not isinstance(model, torch.nn.Module):
        raise NotAModel(f"extract needs an nn.Module, got {type(model).__name__}")
    if type(seed) is not int:
        raise BadArgument(f"seed={seed!r}: give a whole number")
    batches, path, where = Batches(data, batch_size, transform), Path(to), device_of(model, device)
    _check_ids(ids, batches)
    if dry_run and batches.is_once:
        raise BadArgument("dry_run would use up the first samples of a generator; give data that can be begun again")
    taker = Taker(model, layers, device=where, transformed=transform is not None, seed=seed)
    with at_rest(model, where):
        first = batches.first()
        trial = Trial(first, taker.trial(first), batches.check(first))
        if dry_run:
            return _estimate(taker, batches, trial)
    job = Job(taker, batches, path, _plan(taker, batches, trial, shard_samples, codec, ids), ids, trial)
    job.plan = plans.begin(path, job.plan)
    _check_first(job)
    if plans.finished(path) is None:
        _warn_of_space(path, batches.samples, trial.values)
        del first, trial  # the job has them while they are needed
        _run(job, workers, Progress(f"extracting to {path}", batches.samples, quiet=not progress))
    return open_extraction(path)


def _check_first(job: Job) -> None:
    """What is there must be what this run would write: a layer's function, too, makes two extractions."""
    assert job.trial is not None
    for name in (shard_name(0), f".{shard_name(0)}.part"):
        with suppress(NotAnArchive, ArchiveDamaged):  # not there; damage is told by who reads it
            archive = Archive(job.path / "shards" / name)
            there = {(entry.layer, entry.item): entry for entry in archive.entries if entry.step == 0}
            for sample in _samples(job.trial.values, 0)() if there else ():
                entry = there.get((sample.layer, sample.item))
                if entry is None or not are_alike(sample.array, archive.array(entry), entry.type):
                    raise BadArgument(
                        f"{job.path} holds other values of {sample.layer!r} for the first batch: the model, the "
                        f"layer's function or torch's own settings differ; go on with the same, or give another folder"
                    )


def _run(job: Job, workers: int, bar: Progress) -> None:
    bar.add(_samples_there(job.path), were_there=True)
    try:
        if workers:
            from torcheer.extraction.worker_pool import run_workers

            run_workers(job, workers, bar)
            _check_first(job)  # a fresh interpreter knows nothing of an autocast or a default type that is on here
        work(job, bar)
    except Exception as error:
        annotate(error, kept=f"{plural(len(plans.sealed(job.path)), 'shard')} in {job.path}; run it again to go on")
        raise
    except KeyboardInterrupt:
        print(
            f"\nstopped: {len(plans.sealed(job.path))} shards are kept in {job.path}; run it again to go on",
            file=sys.stderr,
        )
        raise
    finally:
        bar.close()


def work(job: Job, bar: Progress, *, is_helper: bool = False) -> None:
    """Do every shard that nobody has done and nobody is doing; then say that all is done, if it is."""
    taker, shards = job.taker, Shards(job.path, job.plan)
    try:
        with at_rest(taker.model, taker.device):
            for batch in job.batches.wanted(shards.wants):
                values = job.trial.values if job.trial and batch.number == 0 else _taken(job, batch)
                job.trial = None
                count = rows_of(values)
                shards.write(batch.number, _samples(values, batch.number), _about(job, batch, count))
                bar.add(count)
            shards.end_of_data()
    except BaseException:
        with suppress(Exception):  # the first problem is the one to tell
            shards.close()
        raise
    shards.close()
    if not is_helper:
        _finish(job, shards.batches_seen)


def _taken(job: Job, batch: Batch) -> Values:
    try:
        return job.taker.take(batch)
    except Exception as error:
        annotate(error, shard=f"{shard_name(batch.number // job.plan.batches_per_shard)} in {job.path}")
        raise


def _samples(values: Values, number: int) -> Callable[[], list[Sample]]:
    """What the disk is given; a GPU's values are fetched there, beside the next batch."""
    ready = on_their_way(values)

    def make() -> list[Sample]:
        found: list[Sample] = []
        for name, value in fetched(values, ready).items():
            if isinstance(value, list):
                found += [Sample(number, name, "value", item, row) for item, row in enumerate(value)]
            else:
                found.append(Sample(number, name, "value", -1, value))
        return found

    return make


def _about(job: Job, batch: Batch, count: int) -> dict[str, Any]:
    """How many samples a batch has, and which, where that is not simply the next ones."""
    about: dict[str, Any] = {"count": count}
    if job.names is not None and batch.ids is not None:
        about["ids"] = [job.names[index] for index in batch.ids]
    elif job.batches.given_batches and batch.ids is not None:
        about["ids"] = batch.ids
    return about


def _finish(job: Job, batches: int) -> None:
    """Say that all is done, if it is: every batch of the data, in its place."""
    there, per_shard = plans.sealed(job.path), job.plan.batches_per_shard
    total = -(-batches // per_shard)
    if there[:total] != list(range(total)):
        raise ArchiveBusy(
            f"{len(there)} of {total} shards are done in {job.path}, and another process is at work on the rest; "
            f"wait for it, or run this again"
        )
    counts = []
    for number in there:
        archive = Archive(job.path / "shards" / shard_name(number))
        numbers = range(number * per_shard, min((number + 1) * per_shard, batches))
        if archive.steps != list(numbers):
            raise ArchiveDamaged(
                f"{archive.path} has {len(archive.steps)} batches, and {len(numbers)} are to be there: the data had "
                f"another length when it was written. Extract to another folder"
            )
        counts.append(_samples_in(archive))
    plans.finish(job.path, counts)


def _samples_in(archive: Archive) -> int:
    return sum(int(frame["about"]["count"]) for frame in archive.frames)


def _samples_there(path: Path) -> int:
    """What earlier runs have done, also of shards that they did not finish."""
    found = 0
    for file in (path / "shards").glob("*/archive.json"):
        with suppress(NotAnArchive, ArchiveDamaged):
            found += _samples_in(Archive(file.parent))
    return found


def _plan(
    taker: Taker, batches: Batches, trial: Trial, shard_samples: int | None, codec: str, ids: Sequence[Any] | None
) -> Plan:
    if shard_samples is None:
        per_shard = plans.SHARD_BYTES // max(1, sum(sizes_of(trial.values).values()))
    elif type(shard_samples) is int and shard_samples > 0:
        per_shard = shard_samples // max(1, rows_of(trial.values))
    else:
        raise BadArgument(f"shard_samples={shard_samples!r}: give a whole number from 1 on")
    weights = {**dict(taker.model.named_buffers()), **taker.model.state_dict()}  # some buffers are not in its state
    return Plan(
        model=type(taker.model).__name__,
        weights=plans.fingerprint(weights.items()),
        layers=tuple(taker.layers),
        batch_size=batches.batch_size,
        samples=batches.samples,
        data=zlib.crc32(str(batches.order).encode(), trial.check),
        ids=None if ids is None else zlib.crc32(ascii(list(ids)).encode()),
        batches_per_shard=max(1, per_shard),
        codec=check_codec(codec),
        seed=taker.seed,
    )


def _estimate(taker: Taker, batches: Batches, trial: Trial) -> Estimate:
    """Measure a few batches."""
    values = trial.values
    taker.take(trial.batch)  # the trial was slower: it looked at everything
    started, samples = time.perf_counter(), 0
    for batch in islice(batches.wanted(lambda number: number < TRIAL_BATCHES), TRIAL_BATCHES):
        samples += rows_of(taker.take(batch))
    secs = (time.perf_counter() - started) / max(1, samples)
    count = max(1, rows_of(values))
    layers: dict[str, tuple[tuple[int, ...] | None, str]] = {
        name: (None, str(value[0].dtype)) if isinstance(value, list) else (tuple(value.shape[1:]), str(value.dtype))
        for name, value in values.items()
    }
    return Estimate(batches.samples, sum(sizes_of(values).values()) / count, secs, layers)


def _warn_of_space(path: Path, samples: int | None, values: Values) -> None:
    needed = (samples or 0) * sum(sizes_of(values).values()) / max(1, rows_of(values))
    free = shutil.disk_usage(path).free
    if needed > free:
        need = f"about {human_bytes(round(needed))} will be written to {path}"
        print(f"torcheer: {need}, and {human_bytes(free)} are free there", file=sys.stderr)


def _check_ids(ids: Sequence[Any] | None, batches: Batches) -> None:
    if ids is None:
        return
    if batches.length is None:
        raise BadArgument("ids go with data of a known length: a Dataset, or a DataLoader that makes batches of one")
    if len(ids) != batches.length:
        raise BadArgument(f"{len(ids)} ids for {batches.length} samples")
    if not all(type(one) in (str, int) for one in ids):
        raise BadArgument("ids are texts or whole numbers")


def _shape(shape: tuple[int, ...] | None) -> str:
    return "of different shapes" if shape is None else "×".join(map(str, shape)) or "a number"
