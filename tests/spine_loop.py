"""A loop that is watched and shown at once, as a program: `spine_loop.py FOLDER STEPS [watch] [page]`.

It prints the processes that it started, a line at every hundredth step, and at last the sum of its losses.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from children import children_of
from torch import nn

import torcheer as tl


def main(folder: str, steps: str, *readers: str) -> str:
    """Run it; the sum of its losses."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    total = 0.0
    with ExitStack() as stack:
        logs, started = _open(stack, model, optimizer, Path(folder), readers)
        print(json.dumps(started), flush=True)
        for step in range(int(steps)):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.randn(4, 8)), torch.tensor([0, 1, 2, 0]))
            loss.backward()
            optimizer.step()
            for log in logs:
                log(loss=loss)
            total += loss.item()
            if step % 100 == 0:
                print(step, flush=True)
    print(total.hex(), flush=True)
    return total.hex()


def _open(stack: ExitStack, model: nn.Module, optimizer: Any, folder: Path, readers: Any) -> tuple[list[Any], Any]:
    """What logs each step, and the process ids of those that were started."""
    logs, started = list[Any](), dict[str, int]()
    for reader in readers:
        before = set(children_of(os.getpid()))
        if reader == "watch":
            view: Any = tl.watch(model, every=5, to=folder, tell=lambda text: None)
        else:
            view = tl.live(model, optimizer=optimizer, to=folder, browser=False)
        logs.append(stack.enter_context(view).log)
        (started[reader],) = set(children_of(os.getpid())) - before
    return logs, started


if __name__ == "__main__":
    main(*sys.argv[1:])
