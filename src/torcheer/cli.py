"""The `torcheer` command: one thin subcommand per verb."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module

from torcheer import __version__
from torcheer.commands.json_results import OPTION, OWN, prints_its_own, run_as_json, wants_json
from torcheer.errors import TorcheerError, TorcheerWarning
from torcheer.terminal import add_json, did_you_mean, folded, tell
from torcheer.terminal.command_parser import CommandParser
from torcheer.terminal.streams import plain_output


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = CommandParser(prog="torcheer", description="See, train and understand any PyTorch model.")
    parser.add_argument("--version", action="version", version=f"torcheer {__version__}")
    parser.epilog = "Every command has --help and --json. Exit codes and environment variables: docs/cli.md."
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, (_, summary) in COMMANDS.items():
        subparsers.add_parser(name, help=summary, description=summary, add_help=False)
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json, plain = wants_json(given)
    if problem := _command_problem(plain):
        if as_json:
            return run_as_json(plain[0] if plain else "", lambda: parser.error(problem))
        parser.error(problem)
    if as_json and plain[0].startswith("-"):  # --help and --version of torcheer itself
        return run_as_json("", lambda: int(parser.parse_args(plain) is None))
    options, remaining = parser.parse_known_args(plain)
    if as_json and options.command in OWN:
        remaining = [OPTION, *remaining]
    with plain_output():
        return _run(options.command, remaining, as_json=as_json)


def _run(command: str, arguments: list[str], *, as_json: bool) -> int:
    """Run a command, and turn its errors into exit codes."""
    module, _ = COMMANDS[command]
    try:
        with _stoppable(command), plain_warnings():
            run = import_module(f"torcheer.{module}").main if module else doctor
            if as_json:
                is_own = prints_its_own(command, arguments)
                return run_as_json(command, lambda: run(command, arguments), is_own=is_own)
            status: int = run(command, arguments)
    except TorcheerError as error:
        notes = getattr(error, "__notes__", ())
        print(folded("\n".join([f"torcheer {command}: {error}", *notes])), file=sys.stderr)
        status = 1
    except BrokenPipeError:  # `torcheer … | head`: the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except KeyboardInterrupt as error:
        status = 130
        if str(error):
            print(folded(f"torcheer {command}: {error}"), file=sys.stderr)
    return status


def _stoppable(command: str) -> AbstractContextManager[None]:
    """Have a command that trains end by its rules on a signal, also while torch is imported for it."""
    if command not in TRAINING:
        return nullcontext()
    ending: AbstractContextManager[None] = import_module(f"torcheer.{SIGNALS}").ending_on_signals()
    return ending


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print torcheer's own warnings as sentences, without a line of its code: the user of a command has none there."""
    usual = warnings.formatwarning

    def sentence(message: Warning | str, category: type[Warning], *place: object, **more: object) -> str:
        is_ours = issubclass(category, TorcheerWarning)
        if is_ours:
            return folded(f"torcheer: {message}") + "\n"
        return usual(message, category, *place, **more)  # type: ignore[arg-type]

    warnings.formatwarning = sentence
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _command_problem(arguments: Sequence[str]) -> str:
    """Return what is wrong with the name of the command, "" for nothing."""
    if not arguments:
        return f"a command is needed: {', '.join(COMMANDS)}"
    name = arguments[0]
    if name.startswith("-") or name in COMMANDS:
        return ""
    return f"there is no command {name!r}.{did_you_mean(name, COMMANDS)} There are {', '.join(COMMANDS)}"


def doctor(command: str, arguments: Sequence[str]) -> int:
    """Print what is installed, without importing anything: it works on a broken installation too."""
    make_parser(command).parse_args(arguments)
    versions = {name: package_version(name) for name in ("torcheer", "torch", "numpy")}
    extras = {extra: {name: package_version(name) for name in names} for extra, names in list_extras().items()}
    for name, installed in versions.items():
        print(f"{name:<14} {installed}")
    for extra, packages in extras.items():
        print(f"\ntorcheer[{extra}]")
        for name, installed in packages.items():
            print(f"  {name:<12} {installed}")
    tell(versions=versions, extras=extras)
    return 0


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command, for its help and for shells."""
    module, summary = COMMANDS[command]
    if not module:
        parser = CommandParser(prog=f"torcheer {command}", description=f"{summary[0].upper()}{summary[1:]}.")
        add_json(parser)
        return parser
    parser = import_module(f"torcheer.{module}").make_parser(command)
    return parser  # type: ignore[no-any-return]


def package_version(name: str) -> str:
    """Return the version of a package, or "missing"."""
    from importlib.metadata import PackageNotFoundError, version  # tens of milliseconds, in which a signal kills

    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def list_extras() -> dict[str, list[str]]:
    """List the packages of each extra from torcheer's metadata."""
    from importlib.metadata import requires

    packages: dict[str, list[str]] = {}
    for line in requires("torcheer") or []:
        name, _, extra = line.partition("; extra == ")
        if extra:
            packages.setdefault(extra.strip("'\""), []).append(name)
    return packages


TRAINING = ("train", "sweep", "demo")  # commands that end with 130 when they are stopped, and resume
SIGNALS = "training.loop.stop_signals"  # the module with their handlers

# name -> (the module whose `main(command, arguments)` runs it, one line of help); imported on use, so that archive
# commands do not wait for torch. `doctor` is in this file.
COMMANDS: dict[str, tuple[str, str]] = {
    "new": ("training.projects.cli", "create a config and a data file that train as they are"),
    "init": ("training.cli", "create a training session from a config"),
    "train": ("training.cli", "train a session, or resume it"),
    "sweep": ("training.sweep.cli", "run a hyperparameter sweep, locally or on Ray"),
    "lr-find": ("training.finders.cli", "suggest a learning rate by a range test"),
    "batch-find": ("training.finders.cli", "find the largest batch size that fits into memory"),
    "plan": ("memory.cli", "predict the memory of a config's training step, by layer"),
    "evaluate": ("training.cli", "print the metrics of a trained session"),
    "infer": ("training.cli", "run inference; interactive without inputs"),
    "check": ("training.cli", "list the mistakes in a training config"),
    "schema": ("training.cli", "print the JSON Schema of configs for editors, or the config reference"),
    "show": ("training.cli", "print the contents of a session directory"),
    "export": (
        "training.cli",
        "export a model (safetensors, torch.export, ONNX), or a log to TensorBoard, W&B, MLflow",
    ),
    "draw": ("commands.draw_command", "draw a model, a config's model, a model file or a saved history"),
    "watch": ("monitor.cli", "print the statistics and alerts of a watched run"),
    "archive": ("archive.cli", "verify, list, print, export, import or repair an archive"),
    "extract": ("extraction.cli", "extract layers of every sample of a dataset"),
    "studio": ("studio.cli", "open a run, a folder of runs, a recording or a model file in the browser"),
    "report": ("studio.report.cli", "write a run as a single HTML file"),
    "mcp": ("mcp_server.cli", "serve runs to an assistant or an editor, read-only (Model Context Protocol)"),
    "demo": ("demo.cli", "train a small net on handwritten digits, with the studio"),
    "completion": ("commands.shell_completion", "print a completion script for bash, zsh or fish"),
    "doctor": ("", "print the versions in use and which extras are installed"),
}
