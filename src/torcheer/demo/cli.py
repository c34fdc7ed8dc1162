"""`torcheer demo`: train a small network on handwritten digits, with studio and watch."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from torcheer.disk import has_unix
from torcheer.errors import BadArgument
from torcheer.runlog.watch_reader import logs_in, open_watch
from torcheer.terminal import add_json, format_table, plural
from torcheer.terminal.command_parser import CommandParser

FOLDER = "torcheer-demo"
DATA = "ABOUT-THE-DIGITS.txt"
EPOCHS = "train.stages.0.stop_condition.kwargs.num_epochs"


def main(command: str, arguments: Sequence[str]) -> int:
    """Run the demo and return its exit status."""
    options = make_parser(command).parse_intermixed_args(arguments)
    if "=" in options.folder:  # no folder was given
        options.changes, options.folder = [options.folder, *options.changes], FOLDER
    import torch  # not for the help

    from torcheer.training.cli import main as run_training

    if not has_unix():
        print("This system has no Unix sockets: the demo trains without studio and watch. Then: torcheer studio RUN")
        options.no_studio, options.changes = True, ["watch=null", *options.changes]
    torch.set_num_threads(1)  # tensors this small do not gain from threads, and a browser may need the other cores
    home = new_folder(Path(options.folder))
    copy_project(home)
    picture = draw_network(home)
    train_arguments = [str(home.absolute() / "training.yaml"), f"session_dir={home / 'run'}", *options.changes]
    train_arguments += [] if options.no_studio else ["--studio", "--port", str(options.port)]
    train_arguments += ["--no-browser"] * options.no_browser
    train_arguments += ["--stay"] * (sys.stdout.isatty() and not options.no_studio)
    return run_training("train", train_arguments, then=lambda: print(summary(home, picture), flush=True))


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    parser = CommandParser(
        prog=f"torcheer {command}",
        description="Train a small convolutional network on real handwritten digits, from a config file, with\n"
        "the studio, a watch that raises alerts, a capture of layers in each epoch, a video and a drawing of the\n"
        "network. On a terminal the studio stays open until Ctrl-C; elsewhere the demo exits when it is done.",
        epilog=(resources.files(__package__) / "project" / DATA).read_text(encoding="utf-8"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", nargs="?", default=FOLDER, help=f"output folder; default: {FOLDER}")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="override a config value: seed=3")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="port of the studio; by default a free one")
    parser.add_argument("--no-browser", action="store_true", help="print the studio's URL without opening it")
    parser.add_argument("--no-studio", action="store_true", help="train without the studio")
    add_json(parser)
    return parser


def new_folder(folder: Path) -> Path:
    """Return the folder, or the next numbered one that is free: nothing is overwritten."""
    candidate, number = folder, 1
    while candidate.exists() and (not candidate.is_dir() or any(candidate.iterdir())):
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    if candidate != folder:
        print(f"{folder} is there already; this demo goes to {candidate}", file=sys.stderr)
    return candidate


def copy_project(home: Path) -> None:
    """Copy the demo project: a config, the code that it names, the data."""
    source = resources.files(__package__) / "project"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for file in source.iterdir():
            if file.is_file() and file.name != "__init__.py":
                (home / file.name).write_bytes(file.read_bytes())
    except OSError as error:
        raise BadArgument(f"{home}: the demo cannot be written there: {error.strerror}; name another folder") from None


def draw_network(home: Path) -> Path:
    """Draw the network to a PNG, or to SVG if that is not possible."""
    import torch

    from torcheer.demo.project.digits import Net
    from torcheer.drawing import draw

    drawing = draw(Net().eval(), torch.zeros(1, 1, 8, 8), path=home / "network.svg", depth="all")
    try:
        return drawing.save(home / "network.png")
    except ImportError:
        return home / "network.svg"


def summary(home: Path, picture: Path) -> str:
    """Describe the outputs, where they are, and what to try next."""
    run = home / "run"
    with open(run / "metrics" / "0.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    best = max(rows, key=lambda row: float(row["val acc"]))
    alerts = sum(len(open_watch(folder).alerts) for folder in logs_in(run))
    outputs = [
        (home / "training.yaml", "the config, and digits.py, which it names: change them"),
        (
            run / "metrics" / "0.csv",
            f"{len(rows)} epochs; the best reads {float(best['val acc']):.1%} of new digits right",
        ),
        (run / "checkpoints", "the weights: the last ones and the best"),
        (run / "captures", "three layers, in each epoch"),
        (run / "log", f"rows of epochs, what every 10th step looked like, and {plural(alerts, 'alert')}"),
        *((video, "feature maps while they learn") for video in sorted((run / "watch" / "videos").glob("*.mp4"))),
        (picture, "the network; network.svg can be zoomed into"),
    ]
    lines = [f"  {line}" for line in format_table([(str(path), text) for path, text in outputs], left=2)]
    commands = [
        f"torcheer studio {run}",
        f"torcheer evaluate {run} --best",
        f"torcheer train {run} {EPOCHS}={len(rows) + 10}",
    ]
    return "\n".join(["", "This is what there is now:", *lines, "", "Try:", *(f"  {command}" for command in commands)])
