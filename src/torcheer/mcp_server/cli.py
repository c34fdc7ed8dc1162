"""The command `torcheer mcp`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from torcheer.terminal.command_parser import CommandParser


def main(command: str, arguments: Sequence[str]) -> int:
    """Run `torcheer mcp …` and return its exit status."""
    options = make_parser(command).parse_args(arguments)
    from torcheer.mcp_server.tool_server import tool_server

    server = tool_server(options.folder)
    if options.port is None:
        if sys.stdin.isatty():
            print("torcheer mcp: speaks the protocol on stdin and stdout; Ctrl-C ends it", file=sys.stderr)
        server.run("stdio")
    else:
        from torcheer.mcp_server.http_service import serve

        serve(server, options.port)
    return 0


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    parser = CommandParser(
        prog=f"torcheer {command}",
        description="Serve the runs, histories and model files of a folder to an assistant or an editor, by the Model "
        "Context Protocol: tools that read, and change nothing. Over stdin and stdout, or with --port over HTTP.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--port", type=int, help="serve HTTP on this port of the loopback address; 0: a free port")
    parser.add_argument("--json", action="store_true", help="accepted for consistency: the protocol is JSON")
    return parser
