"""Run directories for tests of the viewer, made by the real things."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
import training_cases
from seams import LogWriter
from torch import nn

import torcheer as tl
from torcheer.archive import Writer
from torcheer.records import Sample


def trained(folder: Path, case: str = "stages", **changes: Any) -> Path:
    """A short training run with captures and watches."""
    settings: dict[str, Any] = {"capture": {"layers": ["body.0", "body.4", "head"], "every": 5}, **changes}
    training_cases.run(case, folder, **settings)
    return folder


def fake(folder: Path, epochs: int = 3, loss: float = 0.5) -> Path:
    """The least that is a run."""
    (folder / "metrics").mkdir(parents=True)
    about = {"format": "torcheer run", "version": 1}
    (folder / "run.json").write_text(json.dumps(about))
    rows = [{"epoch": epoch, "loss": loss / epoch, "val loss": loss / epoch + 0.1} for epoch in range(1, epochs + 1)]
    log_rows(folder, "train_epoch/0", rows)
    return folder


def log_rows(run: Path, table: str, rows: Iterable[dict[str, Any]], **cut: int) -> None:
    """Rows as training logs them; what was logged before holds up to the epoch of `cut`, all of it without."""
    with closing(LogWriter(run, "train", tell=None)) as log:
        log.cut(**cut)
        for row in rows:
            log.row(table, row, row.get("Step", 0))


def captured(folder: Path, steps: int = 4, *, seal: bool = False) -> Path:
    """Captures without a run."""
    writer = Writer(folder, about={"kind": "captures"})
    for step in range(steps):
        rng = np.random.default_rng(step)
        samples = [
            Sample(step * 10, "conv", "value", -1, rng.normal(size=(4, 3, 5, 5)).astype(np.float32)),
            Sample(step * 10, "out", "value", -1, rng.normal(size=(4, 10)).astype(np.float32)),
            Sample(step * 10, "scale", "value", -1, np.float32(3.0)),
        ]
        writer.step(samples, pipeline="one", epoch=step + 1)
    writer.close(seal=seal)
    return folder


class Digits(nn.Module):
    """A small network with everything that a graph may have: a skip, a branch, functions, a layer used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.conv2 = nn.Conv2d(6, 6, 3, padding="same", groups=2)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(96, 10)
        self.again = nn.Linear(10, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv1(x))
        x = x + self.conv2(x)
        x = self.head(torch.flatten(self.pool(x), 1))
        return self.again(self.again(x).tanh())


def recorded(folder: Path, *, gradients: bool = True, parameters: bool = True) -> tuple[Digits, torch.Tensor]:
    """A recorded pass on disk."""
    torch.manual_seed(3)
    model, x = Digits(), torch.randn(4, 1, 8, 8)
    history = tl.log_forward_pass(model, x, save_gradients=gradients)
    if gradients:
        history.backward()
    history.save(folder, parameters=parameters)
    return model, x
