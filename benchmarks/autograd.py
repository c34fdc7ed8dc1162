"""What a training step costs on our backward, beside torch's own in the same process: `make bench-autograd`.

    python benchmarks/autograd.py [--only mlp,convnet] [--quick] [--write docs/benchmarks.md]

Pairs of one step of each, the order alternating; CPU time, one thread; the ratio is the median over the pairs.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from processes import processor
from report import table, write_section
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from models import GPT, AlexNet, LeNet, Recurrent, ResNetBlock, images, labels

from torcheer import autograd


class Case(NamedTuple):
    title: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], Tensor]
    targets: Tensor
    floor: float | None = None
    pairs: int = 60


def mlp(width: int, depth: int) -> nn.Module:
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def convnet(norm: bool = False) -> nn.Module:
    def block(a: int, b: int) -> list[nn.Module]:
        return [nn.Conv2d(a, b, 5, padding=2), *[nn.BatchNorm2d(b)] * norm, nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(*block(1, 16), *block(16, 32), nn.Flatten(), nn.Linear(32 * 49, 10))


def rows(count: int, width: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(count, width)


def digits(count: int) -> Callable[[], Tensor]:
    return lambda: images(count, 1, 28)


CASES = {
    "mlp": Case("MLP 4×(Linear 64 + ReLU), b32", lambda: mlp(64, 4), rows(32, 64), labels(32, 10), 2, 200),
    "mlp-wide": Case("MLP 3×(Linear 256 + ReLU), b64", lambda: mlp(256, 3), rows(64, 256), labels(64, 10), 2),
    "convnet": Case("convnet, 2×(conv 5×5, ReLU, pool), b32", convnet, digits(32), labels(32, 10), 2, 40),
    "lenet": Case("LeNet, b32", LeNet, digits(32), labels(32, 10), 2),
    "convnet-norm": Case("the convnet with batch_norm", lambda: convnet(True), digits(32), labels(32, 10), None, 30),
    "resnet": Case("ResNet block, b32", ResNetBlock, lambda: images(32, 4, 16), labels(32, 3)),
    "lstm": Case("2-layer LSTM, 7 steps, b16", Recurrent, lambda: torch.randn(16, 7, 5), labels(16, 3)),
    "gpt": Case("GPT, 2 layers of 16, 12 tokens, b2", GPT, lambda: labels(24, 17).view(2, 12), labels(24, 17)),
    "alexnet": Case("AlexNet, 96×96, b2", AlexNet, lambda: images(2, 3, 96), labels(2, 10), None, 5),
}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"some of {','.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="few pairs: to see that it runs")
    parser.add_argument("--write", default="", help="put the tables into this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name in CASES if not options.only or name in options.only.split(",")]
    rows = []
    for name in names:
        print(f"measuring {CASES[name].title}", file=sys.stderr, flush=True)
        rows.append(_row(CASES[name], options.quick))
    parts = [
        f"Python {platform.python_version()}, torch {torch.__version__}; {processor()}.",
        "**CPU time of a training step with Adam over torch's own**",
        table(["model", "torch, ms", "ours, ms", "step", "forward", "backward", "floor"], rows),
    ]
    if not options.only:
        parts += ["**Backward of one convolution, 3×3 over 4×8×20×20, over torch's**", _loops()]
    print("", *parts, sep="\n\n")
    missed = [row[0] for row in rows if "MISSED" in row[-1]]
    print("", *(f"floor missed: {one}" for one in missed) if missed else ["every floor is met"], sep="\n")
    if options.write:
        write_section(Path(options.write), "autograd", "\n\n".join(parts))


def _row(case: Case, quick: bool) -> list[str]:
    sides = {ours: _trainer(case, ours) for ours in (False, True)}
    times: dict[bool, list[list[float]]] = {False: [], True: []}
    for number in range((5 if quick else case.pairs) + 3):
        for ours in (False, True) if number % 2 else (True, False):
            found = sides[ours]()
            if number >= 3:
                times[ours].append(found)
    ratios = [statistics.median(b[part] / a[part] for a, b in zip(times[False], times[True])) for part in range(3)]
    plain, ours = (statistics.median(one[0] for one in times[side]) * 1e3 for side in (False, True))
    floor = "" if case.floor is None else f"{case.floor:g} {'met' if ratios[0] <= case.floor else 'MISSED'}"
    return [case.title, f"{plain:.2f}", f"{ours:.2f}", *(f"{ratio:.2f}" for ratio in ratios), floor]


def _trainer(case: Case, ours: bool) -> Callable[[], list[float]]:
    """A function that trains one step and tells how long the step, its forward and its backward took."""
    torch.manual_seed(0)
    model = case.make()
    optimizer = torch.optim.Adam(model.parameters())
    x, targets = case.inputs(), case.targets

    def step() -> list[float]:
        with autograd.record() if ours else nullcontext():
            begin = time.process_time()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), targets)
            forward = time.process_time()
            loss.backward()
            backward = time.process_time()
            optimizer.step()
            return [time.process_time() - begin, forward - begin, backward - forward]

    return step


def _loops() -> str:
    """The way torchtrace went: Python loops over images, places and filters."""
    torch.manual_seed(0)
    x, weight = torch.randn(4, 8, 20, 20), torch.randn(8, 8, 3, 3)
    g = torch.randn(4, 8, 18, 18)

    def loops() -> tuple[Tensor, Tensor]:
        to_x, to_weight = torch.zeros_like(x), torch.zeros_like(weight)
        for image in range(4):
            for i in range(18):
                for j in range(18):
                    for f in range(8):
                        to_weight[f] += g[image, f, i, j] * x[image, :, i : i + 3, j : j + 3]
                        to_x[image, :, i : i + 3, j : j + 3] += g[image, f, i, j] * weight[f]
        return to_x, to_weight

    def torchs() -> Any:
        return torch.ops.aten.convolution_backward(
            g, x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False]
        )[:2]

    def ours() -> Any:
        from torcheer.autograd.rules import RULES

        return [one() for one in RULES["conv2d"].function(g, x, weight)[:2]]

    for way in (loops, ours):
        for one, other in zip(way(), torchs()):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    plain, rule = _median(torchs, 50), _median(ours, 50)
    slow = _median(loops, 1)
    return table(
        ["way", "ms", "ratio"],
        [
            ["torch", f"{plain * 1e3:.2f}", "1"],
            ["our rule", f"{rule * 1e3:.2f}", f"{rule / plain:.2f}"],
            ["Python loops, as in torchtrace", f"{slow * 1e3:.0f}", f"{slow / plain:.0f}"],
        ],
    )


def _median(run: Callable[[], Any], times: int) -> float:
    found = []
    for _ in range(times):
        begin = time.process_time()
        run()
        found.append(time.process_time() - begin)
    return statistics.median(found)


if __name__ == "__main__":
    main()
