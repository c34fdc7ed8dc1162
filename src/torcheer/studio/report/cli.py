"""`torcheer report`: a run as one HTML file, to send to somebody."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from torcheer.errors import BadArgument
from torcheer.studio.report import MOST_BYTES, report
from torcheer.terminal import add_json, tell
from torcheer.terminal.command_parser import CommandParser


def main(command: str, arguments: Sequence[str]) -> int:
    """Run `torcheer report …` and return its exit status."""
    options = make_parser(command).parse_args(arguments)
    path = options.path or Path(f"{options.run.resolve().name}.html")
    said = report(options.run, path, steps=_steps(options.steps), most_bytes=options.most_bytes, title=options.title)
    tell(file=path, written=said)
    print(said)
    return 0


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    parser = CommandParser(
        prog=f"torcheer {command}",
        description="Write a run, a recording or a saved history as one HTML file: its graph, its values in 3D, plots, "
        "tables, alerts, summary and config. It opens from disk in any browser, and asks the network for nothing.",
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("path", type=Path, nargs="?", help="the file to write; default: RUN's name with .html")
    parser.add_argument(
        "--steps", metavar="N,N,…", help="steps whose values are kept; default: up to 50, evenly spaced"
    )
    parser.add_argument(
        "--most-bytes", type=int, default=MOST_BYTES, metavar="N", help="maximum size; default: 5,000,000"
    )
    parser.add_argument("--title", default="", help="title of the report; default: the run's")
    add_json(parser)
    return parser


def _steps(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise BadArgument(f"--steps takes whole numbers with commas between them, not {text!r}") from None
