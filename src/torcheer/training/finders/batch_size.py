"""Find a batch size: double it until memory, the data or a limit ends it, and measure how fast each is."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import default_collate

from torcheer.errors import BadArgument
from torcheer.terminal import Progress, format_table, human_bytes, human_secs
from torcheer.training.finders.trial_steps import TrialPipeline, on_trial

if TYPE_CHECKING:
    from torcheer.training.session import Session

MOST = 1 << 16  # samples
STEPS = 2  # of each size: the first one also allocates the optimizer's state
MEMORY_TEXTS = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory")


@dataclass(frozen=True)
class SizeTrial:
    """What steps with one batch size took."""

    size: int  # samples of a batch
    secs: float  # of the last step
    peak_bytes: int  # of memory; 0 where it is not known

    @property
    def samples_per_sec(self) -> float:
        """How many samples are trained in a second."""
        return self.size / max(self.secs, 1e-9)


@dataclass(frozen=True)
class SizeTrials:
    """Batch sizes that were tried, and the largest that fits."""

    trials: tuple[SizeTrial, ...]
    end: str  # why no larger one was tried

    @property
    def largest(self) -> int | None:
        """The largest batch size that fits; None where even the first does not."""
        return self.trials[-1].size if self.trials else None

    @property
    def fastest(self) -> int | None:
        """The batch size with most samples in a second."""
        return max(self.trials, key=lambda trial: trial.samples_per_sec).size if self.trials else None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        rows = [
            {
                "size": each.size,
                "secs": each.secs,
                "samples_per_sec": each.samples_per_sec,
                "peak_bytes": each.peak_bytes,
            }
            for each in self.trials
        ]
        return {"largest": self.largest, "fastest": self.fastest, "end": self.end, "trials": rows}

    def __str__(self) -> str:
        rows = [("batch size", "step", "samples/s", "memory")]
        for each in self.trials:
            memory = human_bytes(each.peak_bytes) if each.peak_bytes else "?"
            rows.append((str(each.size), human_secs(each.secs), f"{each.samples_per_sec:,.0f}", memory))
        if not self.trials:
            return f"No batch size fits: {self.end}."
        best = f"Largest that fits: {self.largest}; fastest: {self.fastest}. It ended as {self.end}."
        return "\n".join([*format_table(rows, 0), best])


def find_batch_size(
    session: Session, *, pipelines: Sequence[str] = (), least: int = 1, most: int = MOST, progress: bool | None = None
) -> SizeTrials:
    """Train with batches of `least` samples, then twice as many, until memory is used up, or `most` is reached.

    The samples are the first of the training data, again and again where there are too few. On a CPU it ends before
    memory is used up, by what the last size took: the system would end the process. `session` is afterwards as it was.

    `pipelines`: which ones of the stage that is next; all where none are named. `progress`: None shows it on a terminal
    and in a notebook.
    """
    if not 1 <= least <= most:
        raise BadArgument(f"batch sizes from {least} to {most}: least is 1 or more, and no more than most")
    trials: list[SizeTrial] = []
    size, end = least, f"{most} samples are the most that were asked for"
    with Progress("finding a batch size", 0, "sizes", progress=progress) as shown:
        while size <= most:
            if end_now := _expected_shortage(trials, session.device):
                end = end_now
                break
            try:
                trials.append(_try_size(session, pipelines, size))
            except Exception as error:
                if not is_memory_error(error):
                    raise
                end = f"{size} samples take more memory than there is"
                error.__traceback__ = None  # its frames hold the tensors that filled the memory
                break
            finally:
                gc.collect()
                if session.device.type == "cuda":
                    torch.cuda.empty_cache()
            shown.add(1)
            size *= 2
    return SizeTrials(tuple(trials), end)


def is_memory_error(error: BaseException) -> bool:
    """Return whether an exception says that memory is used up, on a GPU or here."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error).lower() for text in MEMORY_TEXTS)


def _try_size(session: Session, pipelines: Sequence[str], size: int) -> SizeTrial:
    """Train steps with batches of one size."""
    is_cuda = session.device.type == "cuda"
    if is_cuda:
        torch.cuda.reset_peak_memory_stats(session.device)
    with on_trial(session, pipelines, accumulates=False) as trials:
        batches = [_batch(trial, size) for trial in trials]
        secs = 0.0
        for number in range(1, STEPS + 1):
            began = time.perf_counter()
            for trial, batch in zip(trials, batches):
                trial.step(batch, number)
            if is_cuda:
                torch.cuda.synchronize(session.device)
            secs = time.perf_counter() - began
        peak = torch.cuda.max_memory_allocated(session.device) if is_cuda else _peak_bytes()
    return SizeTrial(size, secs, peak)


def _batch(trial: TrialPipeline, size: int) -> tuple[Any, ...]:
    """Return a batch of each loader, of so many samples."""
    batches: list[Any] = []
    for feed, _, _ in trial.runner.inputs:
        if feed.is_stream:
            raise BadArgument(f"pipeline {trial.name!r} reads a stream, whose batches cannot be made larger here")
        dataset, collate = feed.loader.dataset, feed.loader.collate or default_collate
        batches.append(collate([dataset[index % len(dataset)] for index in range(size)]))
    return tuple(batches)


def _expected_shortage(trials: Sequence[SizeTrial], device: torch.device) -> str:
    """Explain why the next size would not fit into this machine's memory; "" where it would, or on a GPU."""
    if device.type != "cpu" or len(trials) < 2:
        return ""
    growth, available = trials[-1].peak_bytes - trials[-2].peak_bytes, _available_bytes()
    if not available or growth <= 0 or 2 * growth < available:
        return ""
    needed, left = human_bytes(2 * growth), human_bytes(available)
    return f"{2 * trials[-1].size} samples would take about {needed} more, and {left} are available"


def _peak_bytes() -> int:
    """Return the most memory that this process has had; 0 where the system does not say."""
    with suppress(ImportError):
        import resource
        import sys

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return 0


def _available_bytes() -> int:
    """Return how much memory this machine has left; 0 where the system does not say."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
