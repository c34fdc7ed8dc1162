"""What a killed rank costs, beside Lightning and Accelerate: `make bench-ranks`.

    python benchmarks/rank_kills.py [--rounds 1] [--write docs/benchmarks.md]

Every way trains the same net (with dropout) on two processes of torchrun, 4 epochs of 16 steps, and saves every 10
steps. Once it is left alone; once rank 1 is killed (SIGKILL) after 37 steps, and torchrun starts both again, as
`--max-restarts` says, from the newest checkpoint, in the way that each documentation shows. A step waits for 30 ms,
so that it takes as long as those of larger nets. Each rank notes which samples it trains with, at which step: of the
steps that a run's weights are made of, every sample must be there once in each epoch.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from processes import processor, version_of
from report import table, write_section
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, RANKS, EPOCHS, SAVES, KILL = 32, 2, 4, 10, 37
SAMPLES = 16 * BATCH
STEP_SECS, LIMIT_SECS = 0.03, 900.0
PATIENCE = 3  # times as long as a run that was killed and went on: then one hangs
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"  # without it, ranks that torchrun starts again wait for the old ones
NOT_ENDED = ("hangs", "fails")
Steps = Callable[[], int]


def make_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))


def make_data() -> TensorDataset:
    draw = torch.Generator().manual_seed(0)
    inputs, targets = torch.rand(SAMPLES, 32, generator=draw), torch.randint(0, 10, (SAMPLES,), generator=draw)
    inputs[:, 0] = torch.arange(SAMPLES) / SAMPLES  # tells which one it is
    return TensorDataset(inputs, targets)


class Notes:
    """What a rank trains with, step by step; one of them is killed on the way."""

    def __init__(self, net: nn.Module, folder: Path, steps: Steps) -> None:
        self.rank, self.attempt = int(os.environ["RANK"]), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
        self._file, self._steps = open(folder / f"notes{self.rank}.txt", "a"), steps
        self._is_killed = "KILL" in os.environ and self.rank == 1 and self.attempt == 0
        net.register_forward_pre_hook(self._note)

    def _note(self, net: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        step, samples = self._steps(), (inputs[0][:, 0] * SAMPLES).int().tolist()
        facts = {"attempt": self.attempt, "step": step, "samples": samples, "time": time.time()}
        print(json.dumps(facts), file=self._file, flush=True)
        if self._is_killed and step == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(STEP_SECS)


def torcheer(net: nn.Module, folder: Path) -> None:
    from torcheer.training import EpochsCompleted, Loader, Options, Session, Stage

    session = Session(
        models={"net": net},
        optimizers={"adam": torch.optim.Adam(net.parameters(), 1e-3)},
        loaders={"train": Loader(make_data(), BATCH)},
        losses={"loss": nn.CrossEntropyLoss()},
        stages=[Stage(("train",), (), EpochsCompleted(EPOCHS))],
        options=Options(checkpoint_steps=SAVES),
        to=folder / "run",
    )
    Notes(net, folder, lambda: session.place.step)
    for _ in session.run(progress=False):
        pass


def lightning(net: nn.Module, folder: Path, steps: int | None = SAVES) -> None:
    """`ckpt_path="last"`; steps: of a checkpoint, None saves after every epoch."""
    from zoo_torchvision import load

    load()  # torchmetrics, which it brings, stumbles over a torchvision without its compiled half
    import lightning as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    pl.seed_everything(0, workers=True)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.loss_of = net, nn.CrossEntropyLoss()

        def training_step(self, batch: Any, index: int) -> Any:
            return self.loss_of(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), 1e-3)

    saving = ModelCheckpoint(dirpath=folder / "checkpoints", every_n_train_steps=steps, save_last=True)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        accelerator="cpu", devices=RANKS, strategy="ddp", max_epochs=EPOCHS, callbacks=[saving], **quiet
    )
    Notes(net, folder, lambda: trainer.global_step)
    trainer.fit(Module(), DataLoader(make_data(), BATCH // RANKS, shuffle=True), ckpt_path="last")


def lightning_epochs(net: nn.Module, folder: Path) -> None:
    lightning(net, folder, None)


def accelerate(net: nn.Module, folder: Path) -> None:
    """`save_state`, `load_state` and `skip_first_batches`."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration, set_seed

    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    set_seed(0)
    loss_of, done = nn.CrossEntropyLoss(), 0
    Notes(net, folder, lambda: done)
    loader = DataLoader(make_data(), BATCH // RANKS, shuffle=True)
    model, optimizer, loader = accelerator.prepare(net, torch.optim.Adam(net.parameters(), 1e-3), loader)
    if saved := sorted(int(path.name.split("_")[1]) for path in folder.glob("step_*")):
        accelerator.load_state(str(folder / f"step_{saved[-1]}"))
        done = saved[-1]
    for epoch in range(done // len(loader), EPOCHS):
        loader.set_epoch(epoch)
        batches = loader
        if skipped := done - epoch * len(loader):
            batches = accelerator.skip_first_batches(loader, skipped)
            batches.set_epoch(epoch)
        for x, y in batches:
            optimizer.zero_grad()
            accelerator.backward(loss_of(model(x), y))
            optimizer.step()
            done += 1
            if done % SAVES == 0:
                accelerator.save_state(str(folder / f"step_{done}"))


WAYS: dict[str, tuple[str, Callable[[nn.Module, Path], None], str]] = {
    "torcheer": (f"torcheer, every {SAVES} steps", torcheer, "torcheer"),
    "lightning": (f"Lightning, every {SAVES} steps", lightning, "lightning"),
    "lightning_epochs": ("Lightning, after epochs", lightning_epochs, "lightning"),
    "accelerate": (f"Accelerate, every {SAVES} steps", accelerate, "accelerate"),
}


def be_rank(way: str, folder: Path) -> None:
    """One of the processes: train, leave a hash of the weights."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    net = make_net()
    WAYS[way][1](net, folder)
    content = b"".join(value.detach().numpy().tobytes() for value in net.parameters())
    (folder / f"hash{os.environ['RANK']}.txt").write_text(hashlib.sha256(content).hexdigest())
    os._exit(0)  # gloo's threads abort a process that ends in order, now and then


class Run(NamedTuple):
    """What one run of two processes left."""

    hash: str  # or one of `NOT_ENDED`
    notes: list[list[dict[str, Any]]]  # by rank
    start_secs: float = 0.0  # until the first step
    secs: float = 0.0


def run(way: str, *, is_killed: bool, has_own_store: bool = True, limit_secs: float = LIMIT_SECS) -> Run:
    """Train in a fresh folder; a run that takes longer than the limit is ended."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    environment = {name: value for name, value in os.environ.items() if name not in ("KILL", OWN_STORE)}
    environment |= {"OMP_NUM_THREADS": "1"} | ({"KILL": "1"} if is_killed else {})
    if has_own_store and way != "torcheer":
        environment[OWN_STORE] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = [*command, "--max-restarts=1", __file__, "--rank", way, name]
        began = time.time()
        process = subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(limit_secs)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)  # torchrun ends its ranks, where SIGKILL would leave them
            process.wait()
            return Run("hangs", [])
        if process.returncode:
            return Run("fails", [])
        lines = [(folder / f"notes{rank}.txt").read_text().splitlines() for rank in range(RANKS)]
        notes = [list(map(json.loads, of_rank)) for of_rank in lines]
        return Run((folder / "hash0.txt").read_text(), notes, notes[0][0]["time"] - began, time.time() - began)


def computed_again(killed: Run) -> int:
    """Steps that rank 0 has begun twice, less the one in which it waited for the killed rank."""
    return len(killed.notes[0]) - len({note["step"] for note in killed.notes[0]}) - 1


def misplaced(result: Run) -> int:
    """Samples too many or too few in an epoch, over the steps that the weights are made of."""
    last = {(rank, note["step"]): note for rank, notes in enumerate(result.notes) for note in notes}
    epochs: dict[int, Counter[int]] = {epoch: Counter() for epoch in range(EPOCHS)}
    for (_, step), note in last.items():
        epochs[step * BATCH // SAMPLES].update(note["samples"])
    return sum(abs(counts[sample] - 1) for counts in epochs.values() for sample in range(SAMPLES))


def secs_lost(killed: Run) -> float:
    """From the kill until the step that was killed is begun again."""
    at = next(note["time"] for note in killed.notes[1] if note["step"] == KILL)
    return min(note["time"] for note in killed.notes[0] if note["attempt"] and note["step"] >= KILL) - at


def restart_as_it_is(way: str, killed: Run) -> str:
    """How torchrun's restart ends where nobody sets `OWN_STORE`."""
    if way != "torcheer":
        killed = run(way, is_killed=True, has_own_store=False, limit_secs=PATIENCE * killed.secs)
    return killed.hash if killed.hash in NOT_ENDED else "works"


def row(way: str, rounds: int) -> list[str]:
    whole, *killed = (run(way, is_killed=number > 0) for number in range(rounds + 1))
    if failed := [result.hash for result in (whole, *killed) if result.hash in NOT_ENDED]:
        return [WAYS[way][0], failed[0], "–", "–", f"0 of {rounds}", "–", "–"]
    measures = (computed_again, misplaced, secs_lost, attrgetter("start_secs"))
    again, misses, lost, start = (statistics.median(map(measure, killed)) for measure in measures)
    equal = sum(result.hash == whole.hash for result in killed)
    counts = [f"{again:g}", f"{misses:g} of {EPOCHS * SAMPLES}", f"{equal} of {rounds}"]
    return [WAYS[way][0], restart_as_it_is(way, killed[0]), *counts, f"{lost:.0f} s", f"{start:.0f} s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1, help="kills of each way")
    parser.add_argument("--only", default=",".join(WAYS), help="some of the ways")
    parser.add_argument("--write", type=Path, help="replace the section of this file")
    parser.add_argument("--rank", nargs=2, metavar=("WAY", "FOLDER"), help="be one of the processes")
    chosen = parser.parse_args()
    if chosen.rank:
        be_rank(chosen.rank[0], Path(chosen.rank[1]))
        return
    rows = []
    for way in chosen.only.split(","):
        if importlib.util.find_spec(WAYS[way][2]):
            rows.append(row(way, chosen.rounds))
            print(rows[-1], file=sys.stderr, flush=True)
    packages = ", ".join(f"{name} {version_of(name)}" for name in ("torch", "lightning", "accelerate"))
    header = [
        "way",
        "torchrun's restart as it is",
        "steps computed again",
        "samples misplaced",
        "same hash",
        "time lost",
        "a start takes",
    ]
    text = f"Two processes of one thread, gloo, {processor()}, {packages}.\n\n" + table(header, rows)
    print(text)
    if chosen.write:
        write_section(chosen.write, "rank kills", text)


if __name__ == "__main__":
    main()
