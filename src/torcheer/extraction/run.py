"""`torcheer.extract`: chosen layers of every sample of a dataset, written while they are computed."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torcheer.archive import Archive
from torcheer.archive.codecs import known
from torcheer.errors import ArchiveBusy, BadArgument, NotAModel
from torcheer.extraction import plan as plans
from torcheer.extraction.batches import Batch, Batches
from torcheer.extraction.plan import Plan, shard_name
from torcheer.extraction.progress import Progress, spoken
from torcheer.extraction.reading import Extraction, open_extraction
from torcheer.extraction.shards import Shards, sealed
from torcheer.extraction.values import Taker, Values, at_rest, device_of, fetched, on_their_way, rows_of, sizes_of
from torcheer.history.sizes import human_bytes
from torcheer.records import Sample

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


@dataclass
class Job:
    """All that a process needs to work on an extraction."""

    taker: Taker
    batches: Batches
    path: Path
    plan: Plan
    names: Sequence[Any] | None  # the caller's own ids of the samples
    first: Values | None = None  # of the trial, so that its batch need not be computed twice


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
    batches, path, where = Batches(data, batch_size, transform), Path(to), device_of(model, device)
    _check_ids(ids, batches)
    taker = Taker(model, layers, device=where, transformed=transform is not None, seed=seed)
    with at_rest(model, where):
        first = batches.first()
        values = taker.trial(first.data)
        if dry_run:
            return _estimate(taker, batches, first, values)
    job = Job(taker, batches, path, plans.begin(path, _plan(taker, batches, values, shard_samples, codec)), ids, values)
    if plans.finished(path) is None:
        _warn_of_space(path, batches.samples, values)
        _run(job, workers, Progress(f"extracting to {path}", batches.samples, quiet=not progress))
    return open_extraction(path)


def _run(job: Job, workers: int, bar: Progress) -> None:
    try:
        if workers:
            from torcheer.extraction.workers import run_workers

            run_workers(job, workers, bar)
        work(job, bar)
    except KeyboardInterrupt:
        print(
            f"\nstopped: {len(sealed(job.path))} shards are kept in {job.path}; run it again to go on", file=sys.stderr
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
                values = job.first if batch.number == 0 and job.first else taker.take(batch.data, batch.number)
                job.first = None
                count = rows_of(values)
                shards.write(batch.number, _samples(values, batch.number), _about(job, batch, count))
                bar.add(count)
            total = shards.end_of_data()
    except BaseException:
        with suppress(Exception):  # the first problem is the one to tell
            shards.close()
        raise
    shards.close()
    if not is_helper:
        _finish(job.path, total)


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
    if job.names is not None:
        start = batch.number * (job.batches.batch_size or 0)
        about["ids"] = [job.names[index] for index in batch.ids or range(start, start + count)]
    elif job.batches.given_batches and batch.ids is not None:
        about["ids"] = batch.ids
    return about


def _finish(path: Path, total: int) -> None:
    there = sealed(path)
    if there == list(range(total)):
        plans.finish(path, [_samples_in(path / "shards" / shard_name(number)) for number in there])
        return
    raise ArchiveBusy(
        f"{len(there)} of {total} shards are done in {path}, and another process is at work on the rest; "
        f"wait for it, or run this again"
    )


def _samples_in(shard: Path) -> int:
    return sum(int(frame["about"]["count"]) for frame in Archive(shard).frames)


def _plan(taker: Taker, batches: Batches, values: Values, shard_samples: int | None, codec: str) -> Plan:
    count = rows_of(values)
    if shard_samples is None:
        per_shard = plans.SHARD_BYTES // max(1, sum(sizes_of(values).values()))
    elif type(shard_samples) is int and shard_samples > 0:
        per_shard = shard_samples // count
    else:
        raise BadArgument(f"shard_samples={shard_samples!r}: give a whole number from 1 on")
    return Plan(
        type(taker.model).__name__, plans.fingerprint(taker.model.state_dict().items()), tuple(taker.layers),
        batches.batch_size, batches.samples, max(1, per_shard), known(codec), taker.seed,
    )  # fmt: skip


def _estimate(taker: Taker, batches: Batches, first: Batch, values: Values) -> Estimate:
    """Measure a few batches."""
    taker.take(first.data)  # the trial was slower: it looked at everything
    started, samples = time.perf_counter(), 0
    for batch in [first] if batches.is_once else batches.wanted(lambda number: number < TRIAL_BATCHES):
        samples += rows_of(taker.take(batch.data, batch.number))
    secs = (time.perf_counter() - started) / samples
    count = rows_of(values)
    layers: dict[str, tuple[tuple[int, ...] | None, str]] = {
        name: (None, str(value[0].dtype)) if isinstance(value, list) else (tuple(value.shape[1:]), str(value.dtype))
        for name, value in values.items()
    }
    return Estimate(batches.samples, sum(sizes_of(values).values()) / count, secs, layers)


def _warn_of_space(path: Path, samples: int | None, values: Values) -> None:
    needed = (samples or 0) * sum(sizes_of(values).values()) / rows_of(values)
    free = shutil.disk_usage(path).free
    if needed > free:
        need = f"about {human_bytes(round(needed))} will be written to {path}"
        print(f"torcheer: {need}, and {human_bytes(free)} are free there", file=sys.stderr)


def _check_ids(ids: Sequence[Any] | None, batches: Batches) -> None:
    if ids is None:
        return
    if batches.samples is None:
        raise BadArgument("ids go with data of a known length: a Dataset, or a DataLoader of one")
    if len(ids) != batches.samples:
        raise BadArgument(f"{len(ids)} ids for {batches.samples} samples")
    if not all(type(one) in (str, int) for one in ids):
        raise BadArgument("ids are texts or whole numbers")


def _shape(shape: tuple[int, ...] | None) -> str:
    return "of different shapes" if shape is None else "×".join(map(str, shape)) or "a number"
