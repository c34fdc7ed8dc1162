"""A watched compiled training step on a GPU: `python benchmarks/gpu_compiled.py [--tiny] [--only resnet] [--parts]`.

A watched compiled model and its unwatched twin take turns, step by step, from the same seeds: whether their losses have
the same bits, how many graphs and breaks there were, which layers were seen, and what idle and watched steps cost. With
`--parts` a watched step is taken apart: the eager program's own forward and backward, without which its layers cannot
be seen; preserving the model's state; the rest. Where there is no GPU, it is the CPU time of one thread.
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
from processes import processor
from torch import nn
from torch.autograd.graph import get_gradient_edge

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torcheer as tl
from torcheer.inspector import Every
from torcheer.tap.compiled.preserved_state import PreservedState

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


class Layers(nn.Module):
    """Linear layers and ReLUs: every kernel of theirs is deterministic."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(size, size) for _ in range(8)])
        self.head = nn.Linear(size, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)


def mlp(tiny: bool) -> tuple[nn.Module, torch.Tensor]:
    size = 64 if tiny else 2048
    return Layers(size), torch.rand(8 if tiny else 512, size)


def resnet(tiny: bool) -> tuple[nn.Module, torch.Tensor]:
    size = 64 if tiny else 224
    return torchvision().models.resnet18(weights=None), torch.rand(8 if tiny else 128, 3, size, size)


def torchvision() -> Any:
    if DEVICE == "cpu":  # where it lacks its compiled half
        from zoo_torchvision import load

        return load()
    import torchvision as library

    return library


def blocks(tiny: bool) -> tuple[nn.Module, torch.Tensor]:
    size = 64 if tiny else 1024
    return Blocks(size).bfloat16(), torch.rand(2 if tiny else 8, 16 if tiny else 512, size).bfloat16()


ROWS: dict[str, tuple[Callable[[bool], tuple[nn.Module, torch.Tensor]], str]] = {
    "resnet": (resnet, "default"),
    "blocks": (blocks, "default"),
    "blocks-graphs": (blocks, "reduce-overhead"),
    "mlp-graphs": (mlp, "reduce-overhead"),
}
WATCHED = (("output",), ("output", "grad"), ("output", "grad", "weight", "update"))


def step_of(make: Callable[[bool], tuple[nn.Module, torch.Tensor]], mode: str, tiny: bool) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    inner, x = make(tiny)
    inner, x = inner.to(DEVICE), x.to(DEVICE)
    model = torch.compile(inner, fullgraph=True, mode=mode)
    optimizer = torch.optim.SGD(inner.parameters(), 1e-3)
    y = torch.randint(0, 10, (len(x),), device=DEVICE)

    def step(number: int) -> tuple[float, float]:
        torch.manual_seed(number)
        start = now()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()
        return now() - start, loss.item()

    return model, step, x


def now() -> float:
    """Seconds: of the clock once the GPU has done what it was given; of CPU time where there is none."""
    if DEVICE == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def measured(name: str, tiny: bool, steps: int, watches: bool) -> str:
    """A row of the table."""
    make, mode = ROWS[name]
    torch._dynamo.utils.counters.clear()
    _, plain, _ = step_of(make, mode, tiny)
    model, watched, _ = step_of(make, mode, tiny)
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


def parts(name: str, tiny: bool, rounds: int) -> str:
    """What a watched step consists of, in steps of the compiled model; the parts take turns."""
    make, mode = ROWS[name]
    _, plain, _ = step_of(make, mode, tiny)
    model, watched, x = step_of(make, mode, tiny)
    inner: nn.Module = model._orig_mod
    ways: dict[str, Callable[[int], float]] = {
        "compiled": lambda number: plain(number)[0],
        "forward": lambda number: timed(lambda: inner(x)),
        "forward and backward": lambda number: timed(lambda: eager_gradients(inner, x)),
        "state preserved": lambda number: timed(lambda: preserve(inner)),
    }
    took: dict[str, list[float]] = {}  # ratios of each round
    usual_secs: list[float] = []
    for number in range(3):
        plain(number), watched(number)
    for what in WATCHED:
        with tl.watch(model, what=what, every=1, tell=lambda text: None):
            for number in range(3):
                watched(number)
            for number in range(rounds):
                secs = {way: measure(number) for way, measure in ways.items()}
                secs["watched: " + ", ".join(what)] = watched(number)[0]
                usual_secs.append(secs.pop("compiled"))
                for way, each in secs.items():
                    took.setdefault(way, []).append(each / usual_secs[-1])
    usual = statistics.median(usual_secs)
    ratios = [f"{way} {statistics.median(each):.3f}x" for way, each in took.items()]
    return " | ".join([name, mode, f"{1e3 * usual:.2f} ms", *ratios])


def timed(action: Callable[[], object]) -> float:
    start = now()
    action()
    return now() - start


def eager_gradients(model: nn.Module, x: torch.Tensor) -> None:
    """The least that shows gradients of all layers: a forward, and a backward without the weights' share."""
    edges: list[Any] = []

    def note(module: nn.Module, arguments: Any, output: Any) -> None:
        edges.append(get_gradient_edge(output))

    handles = [module.register_forward_hook(note) for module in model.modules()]
    output = model(x)
    for handle in handles:
        handle.remove()
    torch.autograd.grad([output], edges, [torch.ones_like(output)], allow_unused=True)


def preserve(model: nn.Module) -> None:
    state = PreservedState(model)
    for _ in range(2):  # of the forward and of the backward pass
        with state.restored():
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--control", action="store_true", help="no step is watched: are twins equal at all?")
    parser.add_argument("--deterministic", action="store_true", help="torch.use_deterministic_algorithms")
    parser.add_argument("--parts", action="store_true", help="what a watched step consists of")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.use_deterministic_algorithms(chosen.deterministic, warn_only=True)
    torch.set_num_threads(1)
    print(processor(), torch.__version__, DEVICE, flush=True)
    for name in chosen.only.split(","):
        if chosen.parts:
            print(parts(name, chosen.tiny, chosen.steps), flush=True)
            continue
        print(measured(name, chosen.tiny, chosen.steps, not chosen.control), flush=True)


if __name__ == "__main__":
    main()
