"""What a training step costs in a session, beside a hand-written loop doing the same work: `make bench-training`.

    python benchmarks/training.py [--only mlp] [--quick] [--write docs/benchmarks.md]

Each way has a process of its own, in which it and the hand-written loop take turns, one epoch each; CPU time, one
thread; the ratio is the median over the pairs. glibc is told to keep its memory, for both: else a step of LeNet has a
hundred page faults, which strike one loop or the other. How a process lies in memory still moves it by some percent
either way, so a session is measured in seven processes: the median of their medians counts, the least and the greatest
stand beside it.
The loop has what anyone writes: a DataLoader, zero_grad, forward, loss, backward, step, a running loss that is not
waited for, and a CSV row at the end of the epoch.
"""

from __future__ import annotations

import argparse
import csv
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
from pathlib import Path
from typing import Any

import torch
from processes import KEEPS_MEMORY, processor
from report import table, write_section
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from models import LeNet

BATCH = 32
Epoch = Callable[[], int]  # trains an epoch; how many steps it had


def mlp() -> tuple[nn.Module, TensorDataset]:
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    return model, TensorDataset(torch.rand(200 * BATCH, 32), torch.randint(0, 10, (200 * BATCH,)))


def lenet() -> tuple[nn.Module, TensorDataset]:
    return LeNet(), TensorDataset(torch.rand(50 * BATCH, 1, 28, 28), torch.randint(0, 10, (50 * BATCH,)))


CASES: dict[str, tuple[str, Callable[[], tuple[nn.Module, TensorDataset]], float]] = {
    "mlp": ("MLP 32-64-10, batches of 32", mlp, 1.05),
    "lenet": ("LeNet, batches of 32", lenet, 1.03),
}
EXTRA_MICROSECONDS = 15.0  # or so much more for each step of the MLP
PROCESSES = 7
GAP = 0.05  # of an epoch may pass before the next begins: its row, its checkpoint, the first batch


# -- ways to train ---------------------------------------------------------------------------------------------------


def hand(model: nn.Module, data: TensorDataset, folder: Path) -> Epoch:
    """The loop that people write."""
    optimizer, loss_of = torch.optim.Adam(model.parameters(), 1e-3), nn.CrossEntropyLoss()
    loader = DataLoader(data, BATCH, shuffle=True)

    def epoch() -> int:
        model.train()
        total, count, steps = torch.zeros(()), 0, 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(x)
            count, steps = count + len(x), steps + 1
        with open(folder / "hand.csv", "a") as file:
            csv.writer(file).writerow([float(total) / count])
        return steps

    return epoch


def ours(model: nn.Module, data: TensorDataset, folder: Path) -> Epoch:
    """A session, its events drained."""
    from torcheer.training import EpochsCompleted, Loader, Session, Stage
    from torcheer.training.loop.events import EpochDone, StepDone

    session = Session(
        models={"model": model},
        optimizers={"adam": torch.optim.Adam(model.parameters(), 1e-3)},
        loaders={"train": Loader(data, BATCH)},
        losses={"loss": nn.CrossEntropyLoss()},
        stages=[Stage(("train",), stop=EpochsCompleted(10**9))],
        to=folder / "run",
    )
    events: Iterator[Any] = session.run()

    def epoch() -> int:
        steps = 0
        for event in events:
            if type(event) is StepDone:
                steps += 1
            elif type(event) is EpochDone:
                return steps
        return steps

    return epoch


def lightning(model: nn.Module, data: TensorDataset, folder: Path) -> Epoch:
    """Lightning's Trainer, its bar and its checkpoints off."""
    from zoo_torchvision import load

    load()  # torchmetrics, which it brings, stumbles over a torchvision without its compiled half
    import lightning as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.loss_of = model, nn.CrossEntropyLoss()

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
            loss: Tensor = self.loss_of(self.model(batch[0]), batch[1])
            self.log("loss", loss, on_step=False, on_epoch=True)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), 1e-3)

    module, loader = Module(), DataLoader(data, BATCH, shuffle=True)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, **quiet)

    def epoch() -> int:
        trainer.fit_loop.max_epochs = trainer.current_epoch + 1
        trainer.fit(module, loader)
        return len(loader)

    return epoch


def accelerate(model: nn.Module, data: TensorDataset, folder: Path) -> Epoch:
    """Accelerate's wrappers in a hand-written loop."""
    from accelerate import Accelerator

    accelerator, loss_of = Accelerator(cpu=True), nn.CrossEntropyLoss()
    prepared = accelerator.prepare(
        model, torch.optim.Adam(model.parameters(), 1e-3), DataLoader(data, BATCH, shuffle=True)
    )
    wrapped, optimizer, loader = prepared

    def epoch() -> int:
        total = torch.zeros(())
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(wrapped(x), y)
            accelerator.backward(loss)
            optimizer.step()
            total += loss.detach() * len(x)
        return len(loader)

    return epoch


def ignite(model: nn.Module, data: TensorDataset, folder: Path) -> Epoch:
    """Ignite's supervised trainer with a running loss."""
    from ignite.engine import create_supervised_trainer
    from ignite.metrics import Average

    optimizer, loader = torch.optim.Adam(model.parameters(), 1e-3), DataLoader(data, BATCH, shuffle=True)
    trainer = create_supervised_trainer(
        model, optimizer, nn.CrossEntropyLoss(), output_transform=lambda x, y, p, loss: loss.detach()
    )
    Average().attach(trainer, "loss")

    def epoch() -> int:
        trainer.run(loader, max_epochs=1)
        return len(loader)

    return epoch


WAYS: dict[str, tuple[str, Callable[[nn.Module, TensorDataset, Path], Epoch], str]] = {
    "ours": ("torcheer session", ours, "torcheer"),
    "lightning": ("Lightning", lightning, "lightning"),
    "accelerate": ("Accelerate", accelerate, "accelerate"),
    "ignite": ("Ignite", ignite, "ignite"),
}


# -- measuring -------------------------------------------------------------------------------------------------------


def pairs_of(case: str, way: str, pairs: int) -> dict[str, float]:
    """The median ratio of an epoch to one of the hand-written loop, and both times for each step in µs."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    make = CASES[case][1]
    with tempfile.TemporaryDirectory() as folder:
        epochs = []
        for build in (hand, WAYS[way][1]):
            torch.manual_seed(0)
            epochs.append(build(*make(), Path(folder)))
        for epoch in epochs:
            epoch()
        took = [[timed(epoch) for epoch in (epochs if number % 2 else epochs[::-1])] for number in range(pairs)]
        took = [one if number % 2 else one[::-1] for number, one in enumerate(took)]
    mine, other = (statistics.median(one[which] for one in took) for which in (1, 0))
    ratio = statistics.median(second / first for first, second in took)
    return {"ratio": ratio, "us": mine, "hand_us": other}


def timed(epoch: Epoch) -> float:
    """CPU microseconds for each step of an epoch."""
    start = time.process_time_ns()
    steps = epoch()
    return (time.process_time_ns() - start) / 1e3 / steps


def gap_of(case: str, workers: int, epochs: int) -> dict[str, float]:
    """The time from the last step of an epoch to the first batch of the next, as a part of the epoch; mean of all."""
    from torcheer.training import EpochsCompleted, Loader, Session, Stage
    from torcheer.training.loop.events import StepDone

    torch.set_num_threads(1)
    model, data = CASES[case][1]()
    with tempfile.TemporaryDirectory() as folder:
        session = Session(
            models={"model": model},
            optimizers={"adam": torch.optim.Adam(model.parameters(), 1e-3)},
            loaders={"train": Loader(data, BATCH, options={"num_workers": workers})},
            losses={"loss": nn.CrossEntropyLoss()},
            stages=[Stage(("train",), stop=EpochsCompleted(epochs + 1))],
            to=Path(folder) / "run",
        )
        began: dict[int, float] = {}
        model.register_forward_pre_hook(lambda *_: began.setdefault(session.place.epoch, time.perf_counter()) and None)
        ended = {event.epoch - 1: time.perf_counter() for event in session.run() if type(event) is StepDone}
    whole = sum(ended[epoch] - began[epoch] for epoch in range(1, epochs))
    between = sum(began[epoch + 1] - ended[epoch] for epoch in range(1, epochs))
    return {"gap_ms": 1e3 * between / (epochs - 1), "share": between / whole}


def gap_rows(only: list[str], epochs: int) -> list[list[str]]:
    made = []
    for case in only:
        for workers in (0, 2):
            found = gap_of(case, workers, epochs)
            met = "floor met" if found["share"] <= GAP else "FLOOR MISSED"
            texts = [f"{found['gap_ms']:.1f} ms", f"{found['share']:.1%}", f"{GAP:.0%} {met}"]
            made.append([CASES[case][0], str(workers), *texts])
    return made


def rows(only: list[str], pairs: int) -> list[list[str]]:
    made = []
    for case in only:
        title, _, floor = CASES[case]
        for way, (name, _, package) in WAYS.items():
            if importlib.util.find_spec(package) is None:
                made.append([title, name, "", "", "not installed", "`make setup-peers`"])
                continue
            command = [sys.executable, __file__, "--pair", case, way, "--pairs", str(pairs)]
            found = []
            for _ in range(PROCESSES if way == "ours" else 1):
                done = subprocess.run(command, capture_output=True, text=True, env=os.environ | KEEPS_MEMORY)
                if done.returncode:
                    break
                found.append(json.loads(done.stdout.splitlines()[-1]))
            if done.returncode:
                made.append([title, name, "", "", "failed", (done.stderr.strip().splitlines() or ["?"])[-1][:60]])
                continue
            made.append(row(case, title, name, found, floor if way == "ours" else None))
            print(" | ".join(made[-1]), file=sys.stderr, flush=True)
    return made


def row(case: str, title: str, name: str, found: list[dict[str, float]], floor: float | None) -> list[str]:
    ratios = sorted(one["ratio"] for one in found)
    ratio, took = statistics.median(ratios), statistics.median(one["us"] for one in found)
    extra = statistics.median(one["us"] - one["hand_us"] for one in found)
    spread = f" ({ratios[0]:.2f}–{ratios[-1]:.2f})" if len(ratios) > 1 else ""
    text = ""
    if floor is not None:
        met = ratio <= floor or (case == "mlp" and extra <= EXTRA_MICROSECONDS)
        text = f"{floor:g}x{' or 15 µs' if case == 'mlp' else ''} {'floor met' if met else 'FLOOR MISSED'}"
    return [title, name, f"{took:.0f} µs", f"{extra:+.0f} µs", f"{ratio:.2f}x{spread}", text]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"some of {','.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="few pairs: to see that it runs")
    parser.add_argument("--write", default="", help="put the table into this file")
    parser.add_argument("--pair", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--pairs", type=int, default=25, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.pair:
        print(json.dumps(pairs_of(*chosen.pair, chosen.pairs)))
        return
    header = ["model", "way", "a step", "more than by hand", "ratio", "floor"]
    only = chosen.only.split(",") if chosen.only else list(CASES)
    parts = [table(header, rows(only, 3 if chosen.quick else chosen.pairs)), "Between two epochs, by the clock:"]
    parts += [table(["model", "workers", "gap", "of an epoch", "floor"], gap_rows(only, 5 if chosen.quick else 30))]
    text = "\n\n".join([*parts, f"{processor()}, torch {torch.__version__}, one thread; steps in CPU time."])
    print(text)
    if chosen.write:
        write_section(Path(chosen.write), "training", text)


if __name__ == "__main__":
    main()
