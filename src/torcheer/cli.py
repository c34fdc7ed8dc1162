"""The `torcheer` command: one thin subcommand per verb."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version

from torcheer.errors import TorcheerError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="torcheer", description="See, train and understand any PyTorch model.")
    parser.add_argument("--version", action="version", version=f"torcheer {version('torcheer')}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, (_, summary) in COMMANDS.items():
        subparsers.add_parser(name, help=summary, description=summary, add_help=False)
    options, remaining = parser.parse_known_args(arguments)
    module, _ = COMMANDS[options.command]
    try:
        run = import_module(f"torcheer.{module}").main if module else doctor
        status: int = run(options.command, remaining)
    except TorcheerError as error:
        notes = getattr(error, "__notes__", ())
        print("\n".join([f"torcheer {options.command}: {error}", *notes]), file=sys.stderr)
        status = 1
    except BrokenPipeError:  # `torcheer … | head`: the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except KeyboardInterrupt:
        status = 130
    return status


def doctor(command: str, arguments: Sequence[str]) -> int:
    """Print what is installed, without importing anything: it works on a broken installation too."""
    parser = argparse.ArgumentParser(prog=f"torcheer {command}", description=COMMANDS[command][1])
    parser.parse_args(arguments)
    for name in ("torcheer", "torch", "numpy"):
        print(f"{name:<14} {package_version(name)}")
    for extra, names in list_extras().items():
        print(f"\ntorcheer[{extra}]")
        for name in names:
            print(f"  {name:<12} {package_version(name)}")
    return 0


def package_version(name: str) -> str:
    """Return the version of a package, or "missing"."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def list_extras() -> dict[str, list[str]]:
    """List the packages of each extra from torcheer's metadata."""
    packages: dict[str, list[str]] = {}
    for line in requires("torcheer") or []:
        name, _, extra = line.partition("; extra == ")
        if extra:
            packages.setdefault(extra.strip("'\""), []).append(name)
    return packages


# name -> (the module whose `main(command, arguments)` runs it, one line of help); imported on use, so that archive
# commands do not wait for torch. `doctor` is in this file.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("training.cli", "begin a training session from a config"),
    "train": ("training.cli", "train a session, or go on with it"),
    "evaluate": ("training.cli", "print the metrics of a trained session"),
    "infer": ("training.cli", "run inputs through a trained pipeline"),
    "check": ("training.cli", "say everything that is wrong with a training config"),
    "show": ("training.cli", "say what a session directory holds"),
    "export": ("training.cli", "write what was trained: weights, a torch.export program or ONNX"),
    "watch": ("monitor.cli", "print what a watch has found in a training run"),
    "archive": ("archive.cli", "verify, list, print, export, import or repair an archive"),
    "extract": ("extraction.cli", "run a model over a dataset and keep chosen layers of every sample"),
    "studio": ("studio.cli", "look at a run, a folder of runs or a recording in the browser"),
    "report": ("studio.report.cli", "write a run as one HTML file, to send to somebody"),
    "demo": ("demo.cli", "train a small net on handwritten digits, and look at it"),
    "doctor": ("", "print the versions in use and which extras are installed"),
}
