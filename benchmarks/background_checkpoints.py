"""How long checkpoints keep the training thread from training: written in the background, beside waiting for them.

    python benchmarks/background_checkpoints.py [--width 2048] [--layers 16] [--every-secs 30] [--secs 120]

Prints the size of a checkpoint, how many there were, and the share of the time that the training thread spent in
saving: copies to the host, and waiting for the checkpoint before. The first save allocates the memory of the copies,
and is counted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torcheer.training import EpochsCompleted, Loader, Options, Session, Stage
from torcheer.training.checkpoints.checkpoint_folders import CheckpointStore
from torcheer.training.loop.events import CheckpointSaved, StepDone


class Noise(torch.utils.data.Dataset[Any]):
    def __init__(self, width: int) -> None:
        self._width = width

    def __len__(self) -> int:
        return 1 << 22

    def __getitem__(self, index: int) -> Any:
        return torch.randn(self._width), torch.randn(self._width)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--every-secs", type=float, default=10.0)
    parser.add_argument("--secs", type=float, default=60.0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--waits", action="store_true", help="wait for each checkpoint, as before")
    chosen = parser.parse_args()
    blocked, save = [], CheckpointStore.save

    def timed(self: CheckpointStore, session: Session, *, waits: bool = True) -> Any:
        began = time.monotonic()
        path = save(self, session, waits=waits or chosen.waits)
        blocked.append(time.monotonic() - began)
        return path

    CheckpointStore.save = timed  # type: ignore[method-assign]
    width = chosen.width
    model = nn.Sequential(*(part for _ in range(chosen.layers) for part in (nn.Linear(width, width), nn.ReLU())))
    with tempfile.TemporaryDirectory() as folder:
        session = Session(
            models={"net": model},
            optimizers={"adam": torch.optim.AdamW(model.parameters(), 1e-4)},
            loaders={"train": Loader(Noise(width), chosen.batch, shuffle=False)},
            losses={"loss": nn.MSELoss()},
            stages=[Stage(("train",), (), EpochsCompleted(1))],
            options=Options(
                device=chosen.device, checkpoint_secs=chosen.every_secs, limit_secs=chosen.secs, keep_last=1
            ),
            to=Path(folder) / "run",
        )
        began, steps, secs = time.monotonic(), 0, 0.0
        for event in session.run(progress=False):
            if isinstance(event, StepDone):
                if not steps:
                    began = time.monotonic()
                    blocked.clear()
                steps, secs = event.step, time.monotonic() - began
            elif isinstance(event, CheckpointSaved):
                size = sum(file.stat().st_size for file in event.path.iterdir())
    periodic = blocked[:-1]  # the last one, at the end, is waited for
    share = sum(periodic) / secs
    print(
        f"{size / 1e6:,.0f} MB a checkpoint, {len(periodic)} in {secs:.0f} s ({steps / secs:.1f} steps a second), "
        f"every {chosen.every_secs:g} s: blocked {sum(periodic):.2f} s, {share:.2%} of the time; each "
        f"{', '.join(f'{wait:.2f}' for wait in periodic) or '-'} s"
    )


if __name__ == "__main__":
    main()
