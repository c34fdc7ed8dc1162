"""The command `torcheer new`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from torcheer.errors import BadArgument
from torcheer.terminal import add_json, tell
from torcheer.terminal.command_parser import CommandParser
from torcheer.training.projects.new_project import KINDS, new_project


def main(command: str, arguments: Sequence[str]) -> int:
    """Write a project and say what to run next."""
    chosen = make_parser(command).parse_args(arguments)
    if chosen.kind not in KINDS and not chosen.folder:
        new_project(chosen.kind, Path())  # raises with the kinds that there are
    folder = Path(chosen.folder or chosen.kind)
    if folder.exists() and not folder.is_dir():
        raise BadArgument(f"{folder} is a file; name a folder")
    config, data = new_project(chosen.kind, folder, format=chosen.format)
    tell(config=config, data=data)
    print(f"{config} and {data} are written. Train at once, then put your own data into {data.name}:")
    place = f'"{folder}"' if " " in str(folder) else folder
    inside = f"cd {place} && " if folder != Path() else ""
    print(f"  {inside}torcheer train {config.name}")
    return 0


def make_parser(command: str) -> argparse.ArgumentParser:
    kinds = "\n".join(f"  {kind:<12} {meaning}" for kind, meaning in KINDS.items())
    parser = CommandParser(
        prog=f"torcheer {command}",
        description="Create a commented config and a data file that train as they are.",
        epilog=f"kinds:\n{kinds}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument(
        "folder", nargs="?", metavar="FOLDER", help="the folder to create; by default named after the kind"
    )
    parser.add_argument("--format", choices=("yaml", "toml"), default="", help="format of the config; yaml by default")
    add_json(parser)
    return parser
