"""What a step costs on two processes (gloo, CPU), beside Lightning and Accelerate: `make bench-ranks`.

    python benchmarks/training_ranks.py [--rounds 3] [--write docs/benchmarks.md]

In every round each way is started anew by torchrun on two processes of one thread, in turns; it trains both models with
DDP on the same data, and the first epoch is not counted. Batches of 32 are those of both processes together. Counted is
the CPU time of both processes for a step, so that other programs on the machine do not change it: where one process
waits for the other, that is in neither. The ratio to the hand-written loop is the median over rounds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from processes import KEEPS_MEMORY, processor
from report import table, write_section
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from training import CASES

BATCH, EPOCHS, RANKS = 32, 4, 2
Steps = list[tuple[float, int]]  # of each epoch: CPU seconds, steps


class Clock:
    """The CPU time of this process, epoch by epoch."""

    def __init__(self) -> None:
        self.epochs: Steps = []
        self._begin = time.process_time()

    def end_epoch(self, steps: int) -> None:
        now = time.process_time()
        self.epochs.append((now - self._begin, steps))
        self._begin = now


def loader_of(data: TensorDataset) -> DataLoader[Any]:
    return DataLoader(data, BATCH // RANKS, sampler=DistributedSampler(data))


def hand(model: nn.Module, data: TensorDataset, folder: Path) -> Steps:
    """The loop that people write."""
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer, loss_of, loader = torch.optim.Adam(model.parameters(), 1e-3), nn.CrossEntropyLoss(), loader_of(data)
    clock = Clock()
    for epoch in range(EPOCHS):
        loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        total, steps = torch.zeros(()), 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(wrapped(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            steps += 1
        clock.end_epoch(steps)
    return clock.epochs


def torcheer(model: nn.Module, data: TensorDataset, folder: Path) -> Steps:
    """A session, with a run directory."""
    from torcheer.training import EpochsCompleted, Loader, Options, Session, Stage
    from torcheer.training.loop.events import EpochDone

    session = Session(
        models={"net": model},
        optimizers={"adam": torch.optim.Adam(model.parameters(), 1e-3)},
        loaders={"train": Loader(data, BATCH)},
        losses={"loss": nn.CrossEntropyLoss()},
        stages=[Stage(("train",), (), EpochsCompleted(EPOCHS))],
        options=Options(system_secs=0),
        to=folder / "run",
    )
    clock = Clock()
    for event in session.run(progress=False):
        if isinstance(event, EpochDone):
            clock.end_epoch(len(data) // BATCH)
    return clock.epochs


def lightning(model: nn.Module, data: TensorDataset, folder: Path) -> Steps:
    """Lightning's Trainer with DDP, its logger and checkpoints off."""
    from zoo_torchvision import load

    load()  # torchmetrics, which it brings, stumbles over a torchvision without its compiled half
    import lightning as pl

    clock, loss_of = Clock(), nn.CrossEntropyLoss()

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, index: int) -> Any:
            return loss_of(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), 1e-3)

        def on_train_epoch_end(self) -> None:
            clock.end_epoch(len(data) // BATCH)

    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = pl.Trainer(accelerator="cpu", devices=RANKS, strategy="ddp", max_epochs=EPOCHS, **quiet)
    trainer.fit(Module(), DataLoader(data, BATCH // RANKS, shuffle=True))
    return clock.epochs


def accelerate(model: nn.Module, data: TensorDataset, folder: Path) -> Steps:
    """Accelerate's loop."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    loader = DataLoader(data, BATCH // RANKS, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters(), 1e-3), loader)
    loss_of, clock = nn.CrossEntropyLoss(), Clock()
    for _ in range(EPOCHS):
        total, steps = torch.zeros(()), 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            total += loss.detach()
            steps += 1
        clock.end_epoch(steps)
    return clock.epochs


WAYS: dict[str, tuple[str, Callable[..., Steps], str]] = {
    "hand": ("by hand, DDP", hand, ""),
    "torcheer": ("torcheer", torcheer, ""),
    "lightning": ("Lightning", lightning, "lightning"),
    "accelerate": ("Accelerate", accelerate, "accelerate"),
}


@contextmanager
def joined(way: str) -> Iterator[None]:
    """A process group, for the ways that do not make one themselves."""
    if way == "hand":
        dist.init_process_group("gloo")
    yield


def rank(way: str, folder: Path) -> None:
    """One of the processes: train both models, leave what it took."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found: dict[str, float] = {}
    with joined(way):
        for name, (_, make, _) in CASES.items():
            torch.manual_seed(0)
            epochs = WAYS[way][1](*make(), folder / name)
            found[name] = statistics.median(secs / steps for secs, steps in epochs[1:])
    (folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps(found))
    os._exit(0)  # gloo's threads abort a process that ends in order, now and then


def measure(way: str) -> dict[str, float]:
    """CPU seconds of a step, both processes together, by case."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
        environment = {**os.environ, **KEEPS_MEMORY, "OMP_NUM_THREADS": "1"}
        subprocess.run([*command, __file__, "--rank", way, folder], env=environment, check=True, capture_output=True)
        ranks = [json.loads((Path(folder) / f"rank{number}.json").read_text()) for number in range(RANKS)]
    return {name: sum(found[name] for found in ranks) for name in CASES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=Path, help="replace the section of this file")
    parser.add_argument("--rank", nargs=2, metavar=("WAY", "FOLDER"), help="be one of the processes")
    chosen = parser.parse_args()
    if chosen.rank:
        rank(chosen.rank[0], Path(chosen.rank[1]))
        return
    ways = [way for way, (_, _, package) in WAYS.items() if not package or importlib.util.find_spec(package)]
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(chosen.rounds):
        rounds.append({way: measure(way) for way in ways})
        print(f"round {number + 1} of {chosen.rounds}: {rounds[-1]}", file=sys.stderr, flush=True)
    rows: list[list[str]] = []
    for name, (title, _, _) in CASES.items():
        for way in ways:
            ratios = sorted(found[way][name] / found["hand"][name] for found in rounds)
            secs = statistics.median(found[way][name] for found in rounds)
            spread = f"{ratios[0]:.2f}–{ratios[-1]:.2f}"
            rows.append([title, WAYS[way][0], f"{secs * 1e6:.0f} µs", f"{statistics.median(ratios):.2f}x", spread])
    text = f"Two processes of one thread, gloo, {processor()}, torch {torch.__version__}.\n\n"
    text += table(["model", "way", "CPU time of a step", "to the loop by hand", "least to greatest"], rows)
    print(text)
    if chosen.write:
        write_section(chosen.write, "ranks", text)


if __name__ == "__main__":
    main()
