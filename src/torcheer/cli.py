"""The `torcheer` command: one thin subcommand per verb."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, requires, version


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="torcheer", description="See, train and understand any PyTorch model.")
    parser.add_argument("--version", action="version", version=f"torcheer {version('torcheer')}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, (_, summary) in COMMANDS.items():
        subparsers.add_parser(name, help=summary, description=summary)
    chosen = parser.parse_args(arguments)
    run, _ = COMMANDS[chosen.command]
    return run(chosen)


def doctor(_: argparse.Namespace) -> int:
    """Print what is installed; nothing is imported, so that it answers on a broken machine too."""
    for name in ("torcheer", "torch", "numpy"):
        print(f"{name:<14} {installed(name)}")
    for extra, names in extras().items():
        print(f"\ntorcheer[{extra}]")
        for name in names:
            print(f"  {name:<12} {installed(name)}")
    return 0


def installed(name: str) -> str:
    """The version of a package, or "missing"."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def extras() -> dict[str, list[str]]:
    """The packages each extra asks for, as torcheer's own metadata has them."""
    found: dict[str, list[str]] = {}
    for line in requires("torcheer") or []:
        name, _, extra = line.partition("; extra == ")
        if extra:
            found.setdefault(extra.strip("'\""), []).append(name)
    return found


# name -> (what runs, one line for the help)
COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], int], str]] = {
    "doctor": (doctor, "print the versions in use and which extras are installed"),
}
