"""An extraction that ranks share, as a script: `extraction_ranks.py FOLDER GATES` on each of them.

A rank that GATES names in a file `stop<rank>` claims a shard, leaves `held<rank>` there, and does nothing more; the
others wait for that before they compute on. With `kill<rank>` it is killed where it would stop. With `stop-one` any
process stops, the first of all; its number is in `held-one`.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch
from seams import rank_of
from torch import nn
from torch.utils.data import Dataset

import torcheer as tl

BATCH, SHARD, SAMPLES = 4, 8, 80


class GatedRows(Dataset):
    """Rows of a fixed tensor, which stop a rank in the middle of a shard."""

    def __init__(self, gates: Path) -> None:
        self.rows = torch.rand(SAMPLES, 16, generator=torch.Generator().manual_seed(1))
        self.gates, self.rank = gates, rank_of()[0]

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= BATCH:  # the first batch is every rank's trial
            self._pass_gate()
        return self.rows[index]

    def _pass_gate(self) -> None:
        held = self.gates / f"held{self.rank}"
        if (self.gates / "stop-one").exists():
            with suppress(FileExistsError), open(self.gates / "held-one", "x") as file:
                file.write(f"{os.getpid()}\n")
                file.flush()
                signal.pause()
        if (self.gates / f"kill{self.rank}").exists():
            (self.gates / f"kill{self.rank}").unlink()
            held.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if (self.gates / f"stop{self.rank}").exists():
            held.touch()
            signal.pause()
        for gate in [*self.gates.glob("stop*"), *self.gates.glob("kill*")]:
            while gate.exists() and not (self.gates / f"held{gate.name[4:]}").exists():
                time.sleep(0.005)


def make_model() -> nn.Sequential:
    """Make the model, with the same weights each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(inplace=True), nn.Linear(32, 8))


def main(folder: str, gates: Path, **options: object) -> None:
    """Extract to a folder."""
    torch.set_num_threads(1)
    data = GatedRows(gates)
    tl.extract(
        make_model(),
        data,
        layers=["0", "1", "2"],
        to=folder,
        batch_size=BATCH,
        shard_samples=SHARD,
        top=True,
        **options,
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
    print("done", flush=True)
