"""`torcheer demo`: a small network learns to read handwritten digits while a studio, a watch and a capture look on."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import torch

from torcheer.errors import BadArgument
from torcheer.training.cli import main as training

FOLDER = "torcheer-demo"
DATA = "ABOUT-THE-DIGITS.txt"
EPOCHS = "train.stages.0.stop_condition.kwargs.num_epochs"


def main(command: str, arguments: Sequence[str]) -> int:
    """Run the demo and return its exit status."""
    chosen = _parser(command).parse_intermixed_args(arguments)
    if "=" in chosen.folder:  # nobody named one
        chosen.changes, chosen.folder = [chosen.folder, *chosen.changes], FOLDER
    torch.set_num_threads(1)  # tensors this small are not worth sharing, and a browser may need the other cores
    home = fresh(Path(chosen.folder))
    copied(home)
    picture = drawn(home)
    train = [str(home.absolute() / "training.yaml"), f"session_dir={home / 'run'}", *chosen.changes]
    train += [] if chosen.no_studio else ["--studio", "--port", str(chosen.port)]
    train += ["--no-browser"] * chosen.no_browser
    train += ["--stay"] * (sys.stdout.isatty() and not chosen.no_studio)
    return training("train", train, then=lambda: print(summary(home, picture), flush=True))


def _parser(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"torcheer {command}",
        description="Train a small convolutional network on real handwritten digits, from a config file, and look\n"
        "on: in the studio, with a watch that finds what goes wrong, a capture of layers in each epoch, a video\n"
        "and a picture of the network. On a terminal the studio stays open until Ctrl-C; elsewhere the demo ends\n"
        "by itself.",
        epilog=(resources.files(__package__) / "project" / DATA).read_text(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", nargs="?", default=FOLDER, help=f"where everything goes; {FOLDER} unless given")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="what to change in the config: seed=3")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="of the studio; any free one unless given")
    parser.add_argument("--no-browser", action="store_true", help="print the studio's address and open nothing")
    parser.add_argument("--no-studio", action="store_true", help="train without it")
    return parser


def fresh(folder: Path) -> Path:
    """The folder, or the next one that is not there yet: nothing is written over."""
    found, number = folder, 1
    while found.exists() and (not found.is_dir() or any(found.iterdir())):
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    if found != folder:
        print(f"{folder} is there already; this demo goes to {found}", file=sys.stderr)
    return found


def copied(home: Path) -> None:
    """The project, as anybody would write it: a config, the code that it names, the data."""
    source = resources.files(__package__) / "project"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for file in source.iterdir():
            if file.is_file() and file.name != "__init__.py":
                (home / file.name).write_bytes(file.read_bytes())
    except OSError as error:
        raise BadArgument(f"{home}: the demo cannot be written there: {error.strerror}; name another folder") from None


def drawn(home: Path) -> Path:
    """The network as a picture."""
    from torcheer.demo.project.digits import Net
    from torcheer.verbs import draw

    drawing = draw(Net().eval(), torch.zeros(1, 1, 8, 8), path=home / "network.svg", depth="all")
    try:
        return drawing.save(home / "network.png")
    except ImportError:
        return home / "network.svg"


def summary(home: Path, picture: Path) -> str:
    """What was made, where it is, and what to try next."""
    run = home / "run"
    with open(run / "metrics" / "0.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    best = max(rows, key=lambda row: float(row["val acc"]))
    alerts = sum(1 for _ in open(run / "watch" / "alerts.jsonl")) if (run / "watch" / "alerts.jsonl").exists() else 0
    made = [
        (home / "training.yaml", "the config, and digits.py, which it names: change them"),
        (
            run / "metrics" / "0.csv",
            f"{len(rows)} epochs; the best reads {float(best['val acc']):.1%} of new digits right",
        ),
        (run / "checkpoints", "the weights: the last ones and the best"),
        (run / "captures", "three layers, in each epoch"),
        (run / "watch", f"what every 10th step looked like, and {alerts} alert{'s' * (alerts != 1)}"),
        *((video, "feature maps while they learn") for video in sorted((run / "watch" / "videos").glob("*.mp4"))),
        (picture, "the network; network.svg can be zoomed into"),
    ]
    width = max(len(str(path)) for path, _ in made)
    lines = [f"  {path!s:<{width}}  {text}" for path, text in made]
    tries = [
        f"torcheer studio {run}",
        f"torcheer evaluate {run} --best",
        f"torcheer train {run} {EPOCHS}={len(rows) + 10}",
    ]
    return "\n".join(["", "This is what there is now:", *lines, "", "Try:", *(f"  {one}" for one in tries)])
