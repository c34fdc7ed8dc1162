"""`--json`: what a command has found as one JSON document on the standard output; its text goes to stderr."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stderr, redirect_stdout
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


class _Echo:
    """The standard error with the end of what is written to it: argparse says there what is wrong, and exits."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.end = stream, ""

    def write(self, text: str) -> int:
        self.end = (self.end + text)[-4000:]
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def usage_error(self) -> str:
        """The last message, without the name of the program, in one line: on a terminal it is folded."""
        _, *messages = re.split(r"(?m)^torcheer[^:\n]*: error: ", self.end)
        return " ".join(messages[-1].split()) if messages else ""


def wants_json(arguments: list[str]) -> tuple[bool, list[str]]:
    """Return whether a document is asked for, and the other arguments."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if OPTION not in arguments[:end]:
        return False, arguments
    return True, [each for place, each in enumerate(arguments) if place >= end or each != OPTION]


def prints_its_own(command: str, arguments: Sequence[str]) -> bool:
    """Whether a command prints a document of its own form; its help is a document like any other's."""
    return command in OWN and not {"-h", "--help"} & set(arguments)


def run_as_json(command: str, run: Callable[[], int], *, is_own: bool = False) -> int:
    """Run a command, and print its facts, its exit status and its error as one document.

    Of a command that prints a document of its own form (`is_own`), only an error is printed here.
    """
    out, lines = sys.stdout, _Lines()
    document: dict[str, Any] = {"command": command, "status": 1}
    errors = _Echo(sys.stderr)
    with facts_told(lambda facts: _print(out, {"command": command, **facts})) as facts:
        try:
            with nullcontext() if is_own else redirect_stdout(lines), redirect_stderr(errors):
                document["status"] = run()
        except KeyboardInterrupt as error:
            document["status"] = 130
            if reason := str(error):
                document["reason"] = reason
                print(f"torcheer {command}: {reason}", file=sys.stderr)
        except TorcheerError as error:
            document |= {"error": str(error), "kind": type(error).__name__}
            print("\n".join([f"torcheer {command}: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        except SystemExit as exit:  # argparse: --help, or arguments that it does not know
            document["status"] = exit.code if isinstance(exit.code, int) else int(bool(exit.code))
            if document["status"]:
                document |= {"error": errors.usage_error, "kind": "UsageError"}
        except Exception as error:
            _print(out, document | facts | {"error": str(error), "kind": type(error).__name__})
            raise
    if is_own and "error" not in document:
        return int(document["status"])
    if not facts and "error" not in document:
        facts["output"] = "".join(lines.parts).splitlines()
    _print(out, document | facts)
    return int(document["status"])


def _print(out: TextIO, document: dict[str, Any]) -> None:
    print(json.dumps(plain_data(document)), file=out, flush=True)  # in ASCII: stdout may be a code page's
