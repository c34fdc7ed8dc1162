"""What nobody asked for, said in the place for it: warnings, differences from the originals, log messages."""

from __future__ import annotations

import logging
import sys
import warnings
from contextlib import suppress

from torcheer.errors import TorcheerWarning
from torcheer.terminal.text_tables import folded


def warn_or_print(text: str, *, stacklevel: int = 1) -> None:
    """Warn, `stacklevel` frames above the caller; where warnings are errors, print: a model must not see this one."""
    try:
        warnings.warn(text, TorcheerWarning, stacklevel=stacklevel + 2)
    except RuntimeWarning:
        try:
            print(folded(text if text.startswith("torcheer") else f"torcheer: {text}"), file=sys.stderr)
        except (OSError, ValueError):  # stderr is closed
            return


def warn_of_difference(original: str, text: str) -> None:
    """Warn once in a process of what an original does otherwise, at the first line that is not torcheer's.

    - `original`: the name of its page in docs/migration.
    """
    if (original, text) in _differences:
        return
    _differences.add((original, text))
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("torcheer", "torch"):
        level, frame = level + 1, frame.f_back
    warn_or_print(f"{text} (docs/migration/{original}.md says why)", stacklevel=level)


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
