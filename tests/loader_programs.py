"""Programs that load data with worker processes and wait to be killed; each worker leaves a file named as its process.

`python loader_programs.py HOW FOLDER` starts them all, touches FOLDER/ready and sleeps.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from seams import StepDone
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
from waiting import wait_until

import torcheer as tl
from torcheer.training import Loader, Options, Session

COUNT = 400


class Large(Dataset[Any]):
    """A megabyte a sample: no pipe takes a batch of them at once."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return torch.ones(4), torch.ones(1), b"x" * 1_000_000


class Slow(Large):
    """A first batch for each worker, then none for an hour."""

    def __getitem__(self, index: int) -> Any:
        if index >= 8:
            time.sleep(3600)
        return super().__getitem__(index)


class Busy(Large):
    """A first batch for each worker, then C code that never lets another thread of Python run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, index: int) -> Any:
        if index >= 8:
            wait_until((self._folder / "has-first-batch").exists)  # which a thread sends
            (self._folder / f"busy-{os.getpid()}").touch()
            re.match("(a+)+$", "a" * 60 + "b")
        return super().__getitem__(index)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield Large()[0]


def collate(samples: list[Any]) -> list[Any]:
    """Batches of (x, y); what is heavy goes with y."""
    inputs, targets, weight = zip(*samples)
    return [torch.stack(inputs), [torch.stack(targets), weight]]


def distance(found: Any, wanted: Any) -> Any:
    return (found - wanted[0]).square().mean()


def note(folder: Path, number: int) -> None:
    (folder / f"worker-{os.getpid()}").touch()


def own_signals(folder: Path, number: int) -> None:
    """A start of the user's own, which takes the signals."""
    note(folder, number)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def begun(dataset: Any, folder: Path, start: Any = note, **options: Any) -> Any:
    """A session after its first step; its workers go on as far as they can."""
    model = nn.Linear(4, 1)
    options = {"num_workers": 2, "worker_init_fn": partial(start, folder), **options}
    one = Session(
        models={"model": model},
        optimizers={"sgd": torch.optim.SGD(model.parameters(), 0.1)},
        loaders={"data": Loader(dataset, 4, shuffle=False, collate=collate, options=options)},
        losses={"mse": distance},
        options=Options(device="cpu"),
    )
    events = one.run()
    while not isinstance(next(events), StepDone):
        pass
    return events


def fork(folder: Path) -> list[Any]:
    busy = begun(Busy(folder), folder)
    (folder / "has-first-batch").touch()
    wait_until(lambda: len(list(folder.glob("busy-*"))) == 2, secs=300)
    return [
        busy,
        begun(Large(), folder, num_workers=4),
        begun(Large(), folder, persistent_workers=False, prefetch_factor=8),
        begun(Slow(), folder),
        begun(Endless(), folder),
        begun(Large(), folder, own_signals),
    ]


def spawn(folder: Path, how: str = "spawn") -> list[Any]:
    """Workers that are no forks of their trainer."""
    return [begun(Large(), folder, num_workers=1, multiprocessing_context=how)]


def forkserver(folder: Path) -> list[Any]:
    """Workers that are forks of another process."""
    return spawn(folder, "forkserver")


def thread(folder: Path) -> list[Any]:
    """Workers that were started by a thread which has ended since."""
    found: list[Any] = []
    starter = threading.Thread(target=lambda: found.extend([begun(Large(), folder, num_workers=4)]))
    starter.start()
    starter.join()
    for _ in range(8):
        next(found[0])
    return found


def extraction(folder: Path) -> list[Any]:
    """Data that an extraction goes through, by its index and from its beginning."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 1))
    for number, data in enumerate((Large(), Endless())):
        loader = DataLoader(
            data, 4, collate_fn=collate, num_workers=4, worker_init_fn=partial(note, folder), prefetch_factor=8
        )
        told = threading.Event()

        def waits(batch: Any, told: threading.Event = told) -> Any:
            told.set()
            time.sleep(3600)

        target = partial(tl.extract, model, loader, to=folder / f"out-{number}", layers=["1"], transform=waits)
        threading.Thread(target=target, daemon=True).start()
        told.wait(60)
    return []


if __name__ == "__main__":
    torch.set_num_threads(1)
    place = Path(sys.argv[2])
    programs = (fork, spawn, forkserver, thread, extraction)
    kept = {program.__name__: program for program in programs}[sys.argv[1]](place)
    (place / "ready").touch()
    time.sleep(3600)
