"""What nobody asked for, said in the place for it: warnings, differences from the originals, log messages."""

from __future__ import annotations

import logging
import sys
import warnings
from contextlib import suppress
from types import FrameType

from torcheer.errors import TorcheerWarning
from torcheer.terminal.text_tables import folded


def warn(text: str, category: type[Warning] = TorcheerWarning) -> None:
    """Warn at the line of the program that led here: the nearest that is neither torcheer's nor torch's."""
    frame = sys._getframe()
    while frame.f_back is not None and _package(frame) in _NOT_THE_PROGRAM:
        frame = frame.f_back
    names = frame.f_globals
    warnings.warn_explicit(
        text, category, frame.f_code.co_filename, frame.f_lineno, names.get("__name__"),
        names.setdefault("__warningregistry__", {}),
    )  # fmt: skip


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


_NOT_THE_PROGRAM = frozenset(("torcheer", "torch", "contextlib", "functools", "threading", "concurrent"))


def warn_or_print(text: str) -> None:
    """Warn; where warnings are errors, print: a model must not see this one."""
    try:
        warn(text)
    except RuntimeWarning:
        try:
            print(folded(text if text.startswith("torcheer") else f"torcheer: {text}"), file=sys.stderr)
        except (OSError, ValueError):  # stderr is closed
            return


def warn_of_difference(original: str, text: str) -> None:
    """Warn once in a process of what an original does otherwise.

    - `original`: the name of its page in docs/migration.
    """
    if (original, text) not in _differences:
        _differences.add((original, text))
        warn_or_print(f"{text} (docs/migration/{original}.md says why)")


_differences: set[tuple[str, str]] = set()  # those that were said


def notice(room: str, text: str) -> None:
    """Log what a program's user did not ask for, under `torcheer.ROOM`: a retry, a worker that was replaced.

    It is printed on stderr until the program gives the logger `torcheer` a handler or a level of its own.
    """
    root = logging.getLogger("torcheer")
    if not root.handlers:
        root.addHandler(_StderrHandler())
    logging.getLogger(f"torcheer.{room}").warning(text)


class _StderrHandler(logging.Handler):
    """Prints on what stderr is at the time; never raises."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError, AttributeError):
            print(folded(f"torcheer: {record.getMessage()}"), file=sys.stderr, flush=True)
