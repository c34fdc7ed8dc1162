"""The size of a watch's log and the time to read it: many layers, many steps, with and without a budget.

    python benchmarks/log_volume.py --layers 1000 --steps 100000 --every 20 --budget 1e9

Looks are written by the log's own writer with the statistics of random tensors, as a watch's child would; training is
left out. One line for each way: bytes, bytes a look and value, seconds to write, to open and read one series, to show
it on a page, and how many looks are left.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from torcheer.inspector import open_watch
from torcheer.records import Sample
from torcheer.runlog.follow.followed_log import FollowedLog
from torcheer.runlog.log_writer import LogWriter
from torcheer.samples import Delivery
from torcheer.terminal import format_table, human_bytes
from torcheer.vocabulary.array_statistics import Statistics, statistics_of

VARIABLES = ("output", "grad", "weight", "update")
KINDS = 64  # different sets of statistics, so that making them does not take longer than writing them


def summaries() -> list[Statistics]:
    """Statistics of tensors as training has them: of several sizes, around zero."""
    numbers = np.random.default_rng(0)
    scales = numbers.uniform(-8, 0, KINDS)
    return [statistics_of(numbers.standard_normal(4096) * 10**scale) for scale in scales]


def write(run: Path, layers: int, looks: int, every: int, budget: int | None) -> float:
    """Write a run's looks; how many seconds it took."""
    made, numbers = summaries(), np.random.default_rng(1)
    array = np.zeros(4096, np.float32)
    log = LogWriter(run, "watch", tell=print, log_bytes=budget)
    began = time.monotonic()
    for look in range(looks):
        step, chosen = look * every, numbers.integers(0, KINDS, layers * len(VARIABLES))
        for place, kind in enumerate(chosen):
            layer, variable = f"blocks.{place // 40}.part{place // 4 % 10}", VARIABLES[place % 4]
            sample = Sample(step, layer, variable, array=array)
            log.value(Delivery(sample, time_secs=1.8e9 + look, count=look), made[kind])
        loss = np.array(1 / (look + 1))
        log.value(Delivery(Sample(step, "loss", "metric", array=loss), time_secs=1.8e9 + look), statistics_of(loss))
        log.commit()
    log.close()
    return time.monotonic() - began


def measure(options: argparse.Namespace, budget: int | None) -> tuple[str, ...]:
    """Write and read a run; a row of the table."""
    looks = options.steps // options.every
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        written_secs = write(folder, options.layers, looks, options.every, budget)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        began = time.monotonic()
        watched = open_watch(folder)
        series = watched["blocks.0.part0", "output"]
        count, _ = len(series.mean), series.histogram.sum()
        read_secs = time.monotonic() - began
        del watched, series
        began = time.monotonic()
        followed = FollowedLog(folder)
        followed.refresh()
        while followed.is_behind:
            followed.refresh()
        shown_secs = time.monotonic() - began
    finally:
        shutil.rmtree(folder)
    values = looks * options.layers * len(VARIABLES)
    per_value = f"{size / values:,.0f} B" if budget is None else "–"
    name = "all" if budget is None else f"log_bytes={budget:.0e}"
    numbers: list[Any] = [human_bytes(size), human_bytes(size / looks), per_value]
    return (name, *numbers, f"{written_secs:,.0f} s", f"{read_secs:,.1f} s", f"{shown_secs:,.1f} s", f"{count:,}")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--budget", type=float, nargs="*", default=[1e7])
    parser.add_argument("--only-budget", action="store_true", help="leave out the log without a budget")
    parser.add_argument("--folder", type=Path, default=None, help="where the runs are written, and removed again")
    options = parser.parse_args()
    print(f"{options.layers:,} layers, {options.steps:,} steps, a look at every {options.every}th")
    ways = [*([] if options.only_budget else [None]), *(int(budget) for budget in options.budget)]
    heads = ("log", "size", "a look", "a value", "written in", "read in", "on a page in", "looks of a key")
    for line in format_table([heads, *(measure(options, budget) for budget in ways)], left=1):
        print(line)


if __name__ == "__main__":
    main()
