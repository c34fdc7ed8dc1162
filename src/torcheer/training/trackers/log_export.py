"""A run's log, written to others' trackers afterwards: numbers by step, samples, the config."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torcheer.disk import explain_write_errors
from torcheer.errors import BadArgument
from torcheer.public_names import PublicClass
from torcheer.runlog.log_frames import METRICS
from torcheer.runlog.log_reader import RunLog, has_log, tested_columns
from torcheer.runlog.training_tables import shown_tables
from torcheer.terminal import ignore_progress, plural
from torcheer.training.trackers.tracker_kinds import WRITERS, TrackerWriter, check_writer

_PLAIN: Final = ("train_epoch", METRICS)  # tables whose columns need no prefix
_LEFT_OUT: Final = (
    "changes",
    "run",
    "test_trial",
    "test_epoch",
    "patterns",
)  # the last epochs' evaluation is in others
_COUNTERS: Final = frozenset(("Epoch", "Step", "Batch", "Trial", "Run", "Seed"))
_SHOW: Final = {
    "tensorboard": "tensorboard --logdir {}",
    "wandb": "wandb sync {}/wandb/offline-run-*",
    "mlflow": "mlflow ui --backend-store-uri sqlite:///{}/mlflow.db",
}


@dataclass(frozen=True, slots=True)
class ExportedRun(metaclass=PublicClass):
    """What was written, and where."""

    to: str  # "tensorboard", "wandb", "mlflow"
    folder: Path
    numbers: int
    series: int
    samples: int

    def __str__(self) -> str:
        what = f"{plural(self.numbers, 'number')} of {self.series} series, {plural(self.samples, 'sample')}"
        return f"{what} in {self.folder}; see them with: {_SHOW[self.to].format(self.folder)}"


def export_run(
    run: str | os.PathLike[str], to: str, folder: str | os.PathLike[str], *,
    on_progress: Callable[[int], Any] = ignore_progress,
) -> ExportedRun:  # fmt: skip
    """Write a run's numbers, samples and config to another tracker's files.

    - `run`: the folder of a run of ours: of training, `tl.live`, `tl.watch` or an integration
    - `to`: "tensorboard" (event files), "wandb" (an offline run, unless signed in) or "mlflow" (a database, no server)
    - `folder`: where these are written
    - `on_progress`: called with how many steps and samples were written since the last call
    """
    path, home = Path(run), Path(folder)
    if not path.is_dir() or not has_log(path):
        raise BadArgument(f"{path} is no run with a log; give the folder that was trained or logged to")
    check_writer(to, WRITERS)
    log = RunLog(path)
    steps, samples = _numbers(log), list(log.samples)
    with explain_write_errors(home):
        home.mkdir(parents=True, exist_ok=True)
    writer: TrackerWriter = WRITERS[to][1](path, 0, home)
    try:
        _write(writer, steps, samples, on_progress)
    finally:
        writer.close()
    series = {name for values in steps.values() for name in values}
    return ExportedRun(to, home, sum(map(len, steps.values())), len(series), len(samples))


def export_size(run: Path) -> int:
    """How many steps and samples an export of a run has."""
    log = RunLog(run)
    return len(_numbers(log)) + len(log.samples)


def _write(
    writer: TrackerWriter, steps: dict[int, dict[str, float]], samples: list[Any], on_progress: Callable[[int], Any]
) -> None:
    """Write numbers and samples together by step: W&B takes no earlier step after a later one."""
    waiting = sorted(samples, key=lambda sample: sample.step, reverse=True)
    for step in sorted({*steps, *(sample.step for sample in waiting)}):
        if step in steps:
            writer.write(steps[step], step)
            on_progress(1)
        while waiting and waiting[-1].step == step:
            writer.sample(waiting.pop())
            on_progress(1)


def _numbers(log: RunLog) -> dict[int, dict[str, float]]:
    """The numbers of each step, by name."""
    steps: dict[int, dict[str, float]] = {}
    for step, name, number in _cells(log):
        steps.setdefault(max(step, 0), {})[name] = number
    return steps


def _cells(log: RunLog) -> Iterator[tuple[int, str, float]]:
    for place, writer in log.logs:
        for table, rows in shown_tables(writer.tables, tested_columns(writer.heads)).items():
            if table in _LEFT_OUT:
                continue
            prefix = "".join(f"{part}/" for part in (place.owner, "" if table in _PLAIN else table) if part)
            for row in rows:
                for column, cell in row.cells.items():
                    if type(cell) in (int, float) and column not in _COUNTERS:
                        yield row.step, f"{prefix}{column}", float(cell)
