"""`torcheer studio`: a run, a folder of runs or a recording in the browser, until Ctrl-C."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from torcheer.errors import BadArgument
from torcheer.terminal import add_json, tell_now
from torcheer.terminal.command_parser import CommandParser
from torcheer.wire.page_address import ADDRESS_OPTIONS, chosen_address


def main(command: str, arguments: Sequence[str]) -> int:
    """Run `torcheer studio …` and return its exit status."""
    options = make_parser(command).parse_args(arguments)
    if options.other is None and not options.path.exists():
        raise BadArgument(
            f"there is nothing at {options.path}; name a run, a folder of runs, a recording or a model's file"
        )
    if options.path.is_file():
        from torcheer.foreign.ask_readers import start_reading

        start_reading("safetensors")  # the process that reads model files; it starts while the server is imported
    from torcheer.network.heads.token_names import read_token_names
    from torcheer.studio.server import serve_path
    from torcheer.wire.open_viewer import browse, can_browse

    def ready(url: str) -> None:
        tell_now(url=url)
        if not options.no_browser and can_browse():
            browse(url)

    names = read_token_names(options.token_names)
    serve_path(options.path, chosen_address(options), other=options.other, token_names=names, ready=ready)
    return 0


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    parser = CommandParser(
        prog=f"torcheer {command}",
        description="Open a run, a folder of runs or a recording in the browser; attach to a training run. Or "
        "open a model file (.safetensors, .gguf, .onnx, .pt2, .pt), without executing it. Two of the same kind are "
        "compared side by side: runs (RUN@best, RUN@100), checkpoints, model files, saved histories.",
    )
    parser.add_argument("path", type=Path, metavar="RUN_OR_FOLDER_OR_FILE")
    parser.add_argument("other", type=Path, nargs="?", metavar="OTHER", help="compare with this one, layer by layer")
    from torcheer.studio.server import add_token_names

    for name, settings in ADDRESS_OPTIONS.items():
        parser.add_argument(name, **settings)
    add_token_names(parser)
    parser.add_argument("--no-browser", action="store_true", help="print the URL without opening it")
    add_json(parser)
    return parser
