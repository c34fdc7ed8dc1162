"""What it costs to keep four layers of ResNet-18 over a dataset, beside the bare forward loop and other ways.

    python benchmarks/extraction.py [--images 2000] [--rounds 2] [--write docs/benchmarks.md]

Each way goes through all the images in turn; the bare loop runs before and after each, and a way's throughput is
given as a share of the mean of the two. TorchLens changes torch for good, so it has a process of its own, and few
images.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from processes import processor
from report import table, write_section
from torch.utils.data import DataLoader
from zoo_torchvision import load

import torcheer as tl

LAYERS = ["layer1", "layer2", "layer3", "layer4"]
BATCH = 32
FLOOR = 0.93
TORCHLENS_IMAGES = 2 * BATCH


class Images(torch.utils.data.Dataset[Any]):
    """Images made of few different ones: their content costs nothing here."""

    def __init__(self, count: int) -> None:
        self._count, self._some = count, torch.rand(64, 3, 224, 224)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._some[index % 64]


def bare(model: Any, images: Images, folder: Path) -> None:
    """The forward loop and nothing else."""
    with torch.no_grad():
        for batch in DataLoader(images, batch_size=BATCH):
            model(batch)


def ours(model: Any, images: Images, folder: Path) -> None:
    """tl.extract: checksums, shards, resumable."""
    tl.extract(model, images, layers=LAYERS, to=folder / "ours", batch_size=BATCH, progress=False)


def hooks(model: Any, images: Images, folder: Path) -> None:
    """Forward hooks, and a torch.save for each batch."""
    kept: dict[str, torch.Tensor] = {}
    handles = [
        model.get_submodule(name).register_forward_hook(lambda _, __, out, name=name: kept.update({name: out}))
        for name in LAYERS
    ]
    with torch.no_grad():
        for number, batch in enumerate(DataLoader(images, batch_size=BATCH)):
            model(batch)
            torch.save(kept, folder / f"{number}.pt")
    for handle in handles:
        handle.remove()


def torchvision_extractor(model: Any, images: Images, folder: Path) -> None:
    """torchvision's feature extraction, and a torch.save for each batch."""
    from torchvision.models.feature_extraction import create_feature_extractor

    extractor = create_feature_extractor(model, LAYERS)
    with torch.no_grad():
        for number, batch in enumerate(DataLoader(images, batch_size=BATCH)):
            torch.save(extractor(batch), folder / f"{number}.pt")


def torchlens(model: Any, images: Images, folder: Path) -> None:
    """TorchLens's trace of each batch, its values of the four layers saved with torch.save."""
    import torchlens

    for number, batch in enumerate(DataLoader(images, batch_size=BATCH)):
        with torch.no_grad():
            history = torchlens.trace(model, batch)
        torch.save([history[name].out for name in LAYERS], folder / f"{number}.pt")


WAYS: dict[str, Callable[[Any, Images, Path], None]] = {
    "tl.extract": ours,
    "forward hooks + torch.save": hooks,
    "torchvision feature extraction + torch.save": torchvision_extractor,
}


def timed(way: Callable[[Any, Images, Path], None], model: Any, images: Images) -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        way(model, images, Path(folder))
        return time.perf_counter() - start


def measure(count: int, rounds: int) -> dict[str, list[float]]:
    """For each way, its throughput over that of the bare loop around it, once for each round."""
    model, images = load().models.resnet18().eval(), Images(count)
    bare(model, Images(2 * BATCH), Path())
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    before = timed(bare, model, images)
    for _ in range(rounds):
        for name, way in WAYS.items():
            took = timed(way, model, images)
            after = timed(bare, model, images)
            found[name].append((before + after) / 2 / took)
            print(f"{name}: {took:.1f} s, bare {before:.1f} and {after:.1f} s", file=sys.stderr, flush=True)
            before = after
    return found


def alone() -> None:
    """TorchLens in a process of its own."""
    model, images = load().models.resnet18().eval(), Images(TORCHLENS_IMAGES)
    bare(model, images, Path())
    base = timed(bare, model, images)
    print(json.dumps(base / timed(torchlens, model, images)))


def rows(count: int, rounds: int) -> list[list[str]]:
    """The table's rows."""
    made = []
    for name, shares in measure(count, rounds).items():
        share = statistics.median(shares)
        met = "" if name != "tl.extract" else f"≥{FLOOR} {'floor met' if share >= FLOOR else 'FLOOR MISSED'}"
        made.append([name, f"{count:,}", f"{share:.2f}x", met])
    if importlib.util.find_spec("torchlens"):
        done = subprocess.run([sys.executable, __file__, "--alone"], capture_output=True, text=True)
        share_text = f"{float(done.stdout):.2f}x" if done.returncode == 0 else done.stderr.strip().splitlines()[-1][:60]
        made.append(["TorchLens trace + torch.save", str(TORCHLENS_IMAGES), share_text, ""])
    else:
        made.append(["TorchLens trace + torch.save", "", "not installed", "`make setup-peers`"])
    return made


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--write", default="", help="put the table into this file")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone:
        alone()
        return
    free = shutil.disk_usage(tempfile.gettempdir()).free
    needed = chosen.images * 1_600_000
    if free < needed:
        sys.exit(f"{needed / 1e9:.1f} GB are needed in {tempfile.gettempdir()}, and {free / 1e9:.1f} GB are free")
    header = ["4 layers of ResNet-18, 224×224, kept on disk", "images", "throughput of the bare loop", "floor"]
    text = f"{table(header, rows(chosen.images, chosen.rounds))}\n\n{processor()}, torch {torch.__version__}."
    print(text)
    if chosen.write:
        write_section(Path(chosen.write), "extraction", text)


if __name__ == "__main__":
    main()
