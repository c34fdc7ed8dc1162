"""`--json`: what a command has found as one JSON document on the standard output; its text goes to stderr."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any, TextIO

from torcheer.errors import TorcheerError
from torcheer.terminal import facts_told, plain_data

OPTION = "--json"
OWN = ("plan", "watch", "mcp")  # they print documents of their own form


class _Lines(io.TextIOBase):
    """Text on its way to stderr, and its lines."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def write(self, text: str) -> int:
        self.parts.append(text)
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def wants_json(command: str, arguments: list[str]) -> tuple[bool, list[str]]:
    """Return whether a document is asked for, and the other arguments."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if command in OWN or OPTION not in arguments[:end]:
        return False, arguments
    return True, [each for place, each in enumerate(arguments) if place >= end or each != OPTION]


def run_as_json(command: str, run: Callable[[], int]) -> int:
    """Run a command, and print its facts, its exit status and its error as one document."""
    out, lines = sys.stdout, _Lines()
    document: dict[str, Any] = {"command": command, "status": 1}
    with facts_told(lambda facts: _print(out, {"command": command, **facts})) as facts:
        try:
            with redirect_stdout(lines):
                document["status"] = run()
        except KeyboardInterrupt:
            document["status"] = 130
        except TorcheerError as error:
            document |= {"error": str(error), "kind": type(error).__name__}
            print("\n".join([f"torcheer {command}: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        except Exception as error:
            _print(out, document | facts | {"error": str(error), "kind": type(error).__name__})
            raise
    if not facts and "error" not in document:
        facts["output"] = "".join(lines.parts).splitlines()
    _print(out, document | facts)
    return int(document["status"])


def _print(out: TextIO, document: dict[str, Any]) -> None:
    print(json.dumps(plain_data(document), ensure_ascii=False), file=out, flush=True)
