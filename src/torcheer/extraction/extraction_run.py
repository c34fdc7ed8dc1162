"""Write selected layers of every sample while they are computed: what the verb `extract` does."""

from __future__ import annotations

import math
import shutil
import sys
import time
import zlib
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import torch

from torcheer import remote
from torcheer.archive import Archive
from torcheer.archive.format.value_codecs import check_codec
from torcheer.disk import StrPath
from torcheer.errors import ArchiveDamaged, BadArgument, NotAModel, NotAnArchive
from torcheer.extraction import ExtractSettings
from torcheer.extraction import extraction_plan as plans
from torcheer.extraction.batches import Batches
from torcheer.extraction.collation import Collate
from torcheer.extraction.extracted_tensors import ExtractedTensors, collect_tensors
from torcheer.extraction.extraction_estimate import Estimate, measure
from torcheer.extraction.extraction_job import ExtractionJob, Team, TrialBatch, count_samples_in, run_along, run_job
from torcheer.extraction.extraction_plan import ExtractionPlan, shard_name
from torcheer.extraction.extraction_reader import Extraction, open_extraction
from torcheer.extraction.fingerprints import fingerprint, old_weights_checksum
from torcheer.extraction.model_ranks import model_ranks, whole
from torcheer.extraction.values.batch_values import LayerReader, choose_device, evaluation_mode, is_close
from torcheer.extraction.values.value_rows import BatchValues
from torcheer.history.error_notes import annotate
from torcheer.models import plain_name, unwrapped
from torcheer.ranks import local_rank, rank_of
from torcheer.terminal import Progress, ProgressCallback, did_you_mean, human_bytes, notice, plural

WRITERS = 4  # threads that write
ENGINES: Final = ("local", "torchrun", "ray")
_SMALL_BATCH_BYTES, _SMALL_BYTES = 4 << 20, 256 << 20  # of a batch, of all: below either, one thread writes as fast
_SHARDED: Final = "FSDP"  # what FSDP2 puts before the name of a model's class
_COUNT_SECS: Final = 1.0  # between two counts of what all processes have done


def run_extraction(
    model: torch.nn.Module, data: Any, layers: Any, to: StrPath | None, settings: ExtractSettings, *, dry_run: bool
) -> Extraction | ExtractedTensors | Estimate:
    """Run `model` over `data`: to a folder, to memory, or one batch for an estimate."""
    if not isinstance(model, torch.nn.Module):
        raise NotAModel(f"extract needs an nn.Module, got {type(model).__name__}")
    if type(settings["seed"]) is not int:
        raise BadArgument(f"seed={settings['seed']!r}: give a whole number")
    if type(settings["top"]) is not bool:
        raise BadArgument(f"top={settings['top']!r}: give True or False; features.top(layer, k) says how many")
    workers, transform, ids = settings["workers"], settings["transform"], settings["ids"]
    engine = _choose_engine(settings["engine"], workers, to)
    ranks = model_ranks(model) if engine == "torchrun" else None
    team = Team(*rank_of()) if engine == "torchrun" and ranks is None else None
    batches = Batches(data, settings["batch_size"], transform)
    target_device = choose_device(model, _rank_device(settings["device"], team))
    if engine == "torchrun" and batches.is_single_pass:
        raise BadArgument("ranks: a generator can be gone through only once; give a Dataset, or engine='local'")
    with closing(batches):
        _check_ids(ids, batches)
        if dry_run and batches.is_single_pass:
            raise BadArgument(
                "dry_run would use up the first samples of a generator; give data that can be begun again"
            )
        reader = LayerReader(
            model, layers, device=target_device, transformed=transform is not None, seed=settings["seed"],
            mask=settings["mask"],
        )  # fmt: skip
        batches.keeps_given, batches.collate = reader.wants_batch, Collate(for_gpu=target_device.type == "cuda")
        path = None if to is None else _open_target(to, team)
        batches.is_old = path is not None and plans.is_old(path)
        with evaluation_mode(model, target_device):
            first = batches.first()
            trial = TrialBatch(first, reader.run_trial(first), batches.checksum(first))
            if ranks is not None:
                ranks.check_whole(trial.values.values)
            if dry_run:
                return measure(reader, batches, first, trial.values)
            batches.loaded = first
        plan = _make_plan(reader, batches, trial, settings)
        if path is None:
            if workers or settings["codec"] != "raw" or settings["top"]:
                raise BadArgument(
                    "to=None keeps tensors in memory: workers, codec and top go with a folder; give to='features'"
                )
            with Progress("extracting", batches.samples, "samples", progress=settings["progress"]) as shown:
                return collect_tensors(reader, batches, trial.values, ids, shown.add)
        job = ExtractionJob(reader, batches, path, plan, ids, trial, team, ranks)
        del first, trial  # the job has them while they are needed
        return _extract_to_folder(job, engine, workers, settings["progress"])


def _open_target(to: StrPath, team: Team | None) -> Path:
    """Return the folder to write to: of a URL, a temporary one, whose shards are copied when they are sealed."""
    if not remote.is_url(to):
        return Path(to)
    folder = remote.open_url(str(to))
    if team is not None and team.rank == 0:
        text = f"{folder.shown} has no locks: each rank has its own shards, and a killed one's wait for the next start"
        notice("extraction", text)
    return folder.local


def _extract_to_folder(job: ExtractionJob, engine: str, workers: int, progress: bool | None) -> Extraction:
    """Write what the folder does not have yet."""
    ranks = job.model_ranks
    if ranks is not None and not ranks.is_first:
        if ranks.agree(True):
            run_along(job)
        ranks.agree(None)
        return open_extraction(remote.address(job.path))
    try:
        job.plan = plans.write_or_match(job.path, job.plan)
        _check_first_batch(job)
    except BadArgument as error:
        if job.team is not None:
            hint = f"{job.team.rank} of {job.team.size}: all must make the same model and data, with the same seed"
            annotate(error, rank=hint)
        raise
    is_missing = plans.read_completion(job.path) is None
    if ranks is not None:
        ranks.agree(is_missing)
    if is_missing:
        assert job.trial is not None
        samples = job.batches.samples
        if not remote.attached(job.path):
            _warn_if_disk_too_small(job.path, samples, job.trial.values)
        shows = False if job.team is not None and job.team.rank else progress  # one of the ranks
        with Progress(f"extracting to {remote.name_of(job.path)}", samples, "samples", progress=shows) as shown:
            shown.skip(_count_existing_samples(job.path))
            _run_all(job, engine, workers, shown.add if engine == "local" else _ShardCount(job, shown).update)
    if ranks is not None:
        ranks.agree(None)  # the others wait until it is complete
    return open_extraction(remote.address(job.path))


class _ShardCount:
    """What all processes have done, for the progress of one: the shards that are sealed."""

    def __init__(self, job: ExtractionJob, shown: Progress) -> None:
        self._path, self._shown, self._next_secs = job.path, shown, 0.0
        assert job.trial is not None
        self._shard_samples = job.plan.batches_per_shard * job.trial.values.count

    def update(self, _: int) -> None:
        """Count the shards, and show it from time to time."""
        if time.monotonic() < self._next_secs:
            return
        self._next_secs = time.monotonic() + _COUNT_SECS
        done = len(plans.list_sealed_shards(self._path)) * self._shard_samples
        if self._shown.total:
            done = min(done, self._shown.total)
        self._shown.add(max(0, done - self._shown.done))


def _choose_engine(engine: str | None, workers: int, to: object) -> str:
    """Return which processes share the shards."""
    if engine is None:
        engine = "torchrun" if rank_of()[1] > 1 and to is not None and not workers else "local"
    if engine not in ENGINES:
        hint = did_you_mean(engine, ENGINES) if isinstance(engine, str) else ""
        raise BadArgument(f"engine={engine!r}: use one of {', '.join(map(repr, ENGINES))}, or leave it out.{hint}")
    if engine != "local" and to is None:
        raise BadArgument(f"engine={engine!r} shares the shards of a folder, and to=None keeps tensors in memory")
    if engine == "torchrun" and workers:
        raise BadArgument("engine='torchrun': its ranks share the shards, and workers are processes of one")
    return engine


def _rank_device(device: Any, team: Team | None) -> Any:
    """Return the GPU of this rank where just a GPU was asked for."""
    is_any_gpu = device == "auto" or str(device) == "cuda"
    if team is None or not is_any_gpu or not torch.cuda.is_available():
        return device
    return f"cuda:{local_rank() % torch.cuda.device_count()}"


def _check_first_batch(job: ExtractionJob) -> None:
    """Check stored values of the first batch against this run's.

    Even another reduce function is another extraction.
    """
    assert job.trial is not None
    for name in (f".{shard_name(0)}.part", shard_name(0)):  # a rank may give it its name between the two
        with suppress(NotAnArchive, ArchiveDamaged, FileNotFoundError):  # missing; damage is reported by the reader
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


def _run_all(job: ExtractionJob, engine: str, workers: int, on_progress: ProgressCallback) -> None:
    try:
        if engine == "ray":
            from torcheer.extraction.writers.ray_actors import run_actors

            run_actors(job, workers, on_progress)
            _check_first_batch(job)
        elif workers:
            from torcheer.extraction.writers.worker_pool import run_workers

            run_workers(job, workers, on_progress)
            _check_first_batch(job)  # a new interpreter does not inherit autocast or the default dtype
        run_job(job, on_progress)
    except Exception as error:
        shards = plural(len(plans.list_sealed_shards(job.path)), "shard")
        annotate(error, kept=f"{shards} in {remote.name_of(job.path)}; run it again to go on")
        raise
    except KeyboardInterrupt:
        print(
            f"\nstopped: {len(plans.list_sealed_shards(job.path))} shards are kept in {remote.name_of(job.path)}; "
            "run it again to go on",
            file=sys.stderr,
        )
        raise


def _count_existing_samples(path: Path) -> int:
    """Count the samples of earlier runs, unfinished shards included."""
    total = 0
    for file in (path / "shards").glob("*/archive.json"):
        with suppress(NotAnArchive, ArchiveDamaged, FileNotFoundError):  # another rank has just given it its name
            total += count_samples_in(Archive(file.parent))
    return total


def _make_plan(reader: LayerReader, batches: Batches, trial: TrialBatch, settings: ExtractSettings) -> ExtractionPlan:
    shard_samples, ids = settings["shard_samples"], settings["ids"]
    if shard_samples is None:
        per_shard = plans.SHARD_BYTES // max(1, trial.values.bytes)
    elif type(shard_samples) is int and shard_samples > 0:
        per_shard = shard_samples // max(1, trial.values.count)
    else:
        raise BadArgument(f"shard_samples={shard_samples!r}: give a whole number from 1 on")
    return ExtractionPlan(
        model=type(reader.model if batches.is_old else unwrapped(reader.model)).__name__.removeprefix(_SHARDED),
        weights=_weights_checksum(reader.model, batches.is_old),
        layers=tuple(reader.layers),
        batch_size=batches.batch_size,
        samples=batches.samples,
        data=zlib.crc32(str(batches.order).encode(), trial.checksum),
        ids=None if ids is None else zlib.crc32(ascii(list(ids)).encode()),
        batches_per_shard=max(1, per_shard),
        codec=check_codec(settings["codec"]),
        seed=reader.seed,
        top=settings["top"],
        lanes=_count_lanes(settings["writers"], batches.samples, trial.values),
    )


def _weights_checksum(model: torch.nn.Module, is_old: bool) -> int:
    """Return a checksum over every parameter and buffer; the same for a compiled model."""
    weights = {**dict(model.named_buffers()), **model.state_dict()}  # non-persistent buffers too
    if is_old:
        return old_weights_checksum(weights.items())
    return fingerprint((plain_name(name), whole(value)) for name, value in weights.items())


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
        notice("extraction", f"{need_text}, and {human_bytes(free)} are free there")


def _check_ids(ids: Sequence[Any] | None, batches: Batches) -> None:
    if ids is None:
        return
    if batches.length is None:
        raise BadArgument("ids go with data of a known length: a Dataset, or a DataLoader that makes batches of one")
    if len(ids) != batches.length:
        raise BadArgument(f"{len(ids)} ids for {batches.length} samples")
    if not all(type(sample_id) in (str, int) for sample_id in ids):
        raise BadArgument("ids are strings or whole numbers")
