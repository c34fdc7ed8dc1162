"""Runs the grammars in turns for a stated time, on several cores."""

from __future__ import annotations

import multiprocessing
import queue
import time
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from fuzz.driver import Fuzzer, Report

_BATCH: Final = 25  # files


def run_rounds(formats: list[str], seed: str, secs: float, saved: Path, jobs: int) -> dict[str, Report]:
    """Share batches of files, each format in its turn, among so many jobs until the time is up."""
    reports, known, end = {format: Report() for format in formats}, Counter[str](), time.monotonic() + secs
    context = multiprocessing.get_context("spawn")
    tasks, done = context.Queue(), context.Queue()
    workers = [context.Process(target=_work, args=(seed, saved, tasks, done), daemon=True) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    batches, waiting, turns = Counter[str](), 0, cycle(formats)
    while time.monotonic() < end or waiting:
        while time.monotonic() < end and waiting < 2 * jobs:
            format = next(turns)
            tasks.put((format, batches[format] * _BATCH, known))
            batches[format], waiting = batches[format] + 1, waiting + 1
        try:
            format, report = done.get(timeout=10)
        except queue.Empty:
            if all(worker.is_alive() for worker in workers):
                continue
            raise RuntimeError("a worker of the fuzzer has ended") from None
        reports[format].add(report)
        known.update(report.findings)
        waiting -= 1
    for _ in workers:
        tasks.put(None)
    for worker in workers:
        worker.join()
    return reports


def _work(seed: str, saved: Path, tasks: Any, done: Any) -> None:
    seen = Counter[str]()
    fuzzer = Fuzzer(seed, saved, seen)
    while (task := tasks.get()) is not None:
        format, first, known = task
        seen |= known
        done.put((format, fuzzer.run(format, range(first, first + _BATCH))))
    fuzzer.close()
