"""On a GPU: what an extraction and a training step cost beside plain loops. `python benchmarks/gpu_training.py`"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torchvision

import torcheer as tl
from torcheer.training import EpochsCompleted, Loader, Options, Session, Stage
from torcheer.training.loop.events import EpochDone

LAYERS = ["layer1", "layer2", "layer3", "layer4"]


def timed(run: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def extraction() -> None:
    model, images = torchvision.models.resnet18().cuda().eval(), torch.rand(2048, 3, 224, 224)

    def bare() -> None:
        with torch.no_grad():
            for batch in DataLoader(images, batch_size=64):
                model(batch.cuda(non_blocking=True))

    def ours() -> None:
        with tempfile.TemporaryDirectory() as folder:
            tl.extract(model, images, layers=LAYERS, to=Path(folder) / "x", batch_size=64, progress=False)

    def pooled() -> None:
        layers = {name: lambda value: value.mean((2, 3)) for name in LAYERS}
        with tempfile.TemporaryDirectory() as folder:
            tl.extract(model, images, layers=layers, to=Path(folder) / "x", batch_size=64, progress=False)

    bare()
    for way in (ours, pooled):
        shares = [timed(bare) / timed(way) for _ in range(3)]
        print(f"extraction, {way.__name__}: {statistics.median(shares):.2f}x the bare loop's throughput")


def training(make: Callable[[], nn.Module], data: TensorDataset, title: str, **options: Any) -> None:
    def hand() -> Callable[[], None]:
        model = make().cuda()
        optimizer, loss_of = torch.optim.Adam(model.parameters(), 1e-3), nn.CrossEntropyLoss()
        loader = DataLoader(data, 64, shuffle=True)

        def epoch() -> None:
            total = torch.zeros((), device="cuda")
            for x, y in loader:
                optimizer.zero_grad()
                with torch.autocast("cuda", torch.bfloat16, enabled=bool(options)):
                    loss = loss_of(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
                loss.backward()
                optimizer.step()
                total += loss.detach() * len(x)
            float(total)

        return epoch

    def ours() -> Callable[[], None]:
        model = make()
        session = Session(
            models={"model": model.cuda()},
            optimizers={"adam": torch.optim.Adam(model.parameters(), 1e-3)},
            loaders={"train": Loader(data, 64)},
            losses={"loss": nn.CrossEntropyLoss()},
            stages=[Stage(("train",), stop=EpochsCompleted(10**9))],
            options=Options(device="cuda", **options),
        )
        events = session.run()

        def epoch() -> None:
            for event in events:
                if type(event) is EpochDone:
                    return

        return epoch

    first, second = hand(), ours()
    first(), second()
    ratios = sorted(timed(second) / timed(first) for _ in range(7))
    print(f"{title}: {ratios[3]:.3f}x the hand-written loop ({ratios[0]:.3f} to {ratios[-1]:.3f})")


def main() -> None:
    print(torch.cuda.get_device_name(), torch.__version__)
    extraction()
    rows = TensorDataset(torch.rand(12800, 32), torch.randint(0, 10, (12800,)))
    training(lambda: nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)), rows, "MLP")
    images = TensorDataset(torch.rand(1280, 3, 64, 64), torch.randint(0, 10, (1280,)))
    training(lambda: torchvision.models.resnet18(num_classes=10), images, "ResNet-18")
    training(lambda: torchvision.models.resnet18(num_classes=10), images, "ResNet-18, bfloat16", autocast="bfloat16")


if __name__ == "__main__":
    main()
