"""A watched compiled training step on a GPU: `python benchmarks/gpu_compiled.py [--tiny] [--only resnet]`.

A watched compiled model and its unwatched twin take turns, step by step, from the same seeds: whether their losses have
the same bits, how many graphs and breaks there were, which layers were seen, and what idle and watched steps cost.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torcheer as tl
from torcheer.monitor.watch import Every

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EVERY = 4


class Blocks(nn.Module):
    """Six blocks of a transformer with dropout, in bfloat16."""

    def __init__(self, size: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(size, 8, 4 * size, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks = nn.ModuleList([copy.deepcopy(layer) for _ in range(6)])
        self.head = nn.Linear(size, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def resnet(tiny: bool) -> tuple[nn.Module, torch.Tensor]:
    import torchvision

    size = 64 if tiny else 224
    return torchvision.models.resnet18(weights=None), torch.rand(4 if tiny else 128, 3, size, size)


def blocks(tiny: bool) -> tuple[nn.Module, torch.Tensor]:
    size = 64 if tiny else 1024
    return Blocks(size).bfloat16(), torch.rand(2 if tiny else 8, 16 if tiny else 512, size).bfloat16()


ROWS: dict[str, tuple[Callable[[bool], tuple[nn.Module, torch.Tensor]], str]] = {
    "resnet": (resnet, "default"),
    "blocks": (blocks, "default"),
    "blocks-graphs": (blocks, "reduce-overhead"),
}


def step_of(make: Callable[[bool], tuple[nn.Module, torch.Tensor]], mode: str, tiny: bool) -> tuple[Any, Any]:
    torch.manual_seed(0)
    inner, x = make(tiny)
    inner, x = inner.to(DEVICE), x.to(DEVICE)
    model = torch.compile(inner, fullgraph=True, mode=mode)
    optimizer = torch.optim.SGD(inner.parameters(), 1e-3)
    y = torch.randint(0, 10, (len(x),), device=DEVICE)

    def step(number: int) -> tuple[float, float]:
        torch.manual_seed(number)
        wait()
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()
        wait()
        return time.perf_counter() - start, loss.item()

    return model, step


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def measured(name: str, tiny: bool, steps: int, watches: bool) -> str:
    """A row of the table."""
    make, mode = ROWS[name]
    torch._dynamo.utils.counters.clear()
    _, plain = step_of(make, mode, tiny)
    model, watched = step_of(make, mode, tiny)
    every = EVERY if watches else Every(start=10**9)
    watch = tl.watch(model, what=("output", "grad"), every=every, tell=lambda text: None)
    before = torch.cuda.max_memory_allocated() if DEVICE == "cuda" else 0
    times: dict[str, list[float]] = {"plain": [], "idle": [], "watched": []}
    equal = 0
    for number in range(steps):
        theirs, mine = plain(number), watched(number)
        equal += theirs[1] == mine[1]
        if number >= 2 * EVERY:
            times["plain"].append(theirs[0])
            times["watched" if number % EVERY == 0 else "idle"].append(mine[0])
    watch.close()
    after = torch.cuda.max_memory_allocated() if DEVICE == "cuda" else 0
    counters = torch._dynamo.utils.counters
    usual = statistics.median(times["plain"])
    ratios = [f"{statistics.median(times[kind]) / usual:.2f}x" for kind in ("idle", "watched")]
    offered = watch.account.written if hasattr(watch.account, "written") else watch.account
    return " | ".join(
        [name, mode, f"{1e3 * usual:.2f} ms", f"graphs {counters['stats']['unique_graphs']} of two models",
         f"breaks {len(counters['graph_break'])}", f"equal {equal} of {steps}", *ratios, f"peak {before} -> {after}",
         str(offered), *watch.problems]
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--control", action="store_true", help="no step is watched: are twins equal at all?")
    parser.add_argument("--deterministic", action="store_true", help="torch.use_deterministic_algorithms")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.use_deterministic_algorithms(chosen.deterministic, warn_only=True)
    for name in chosen.only.split(","):
        print(measured(name, chosen.tiny, chosen.steps, not chosen.control), flush=True)


if __name__ == "__main__":
    main()
