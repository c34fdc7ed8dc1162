"""What nobody asked for, said in the place for it: warnings, differences from the originals, log messages."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from torcheer.errors import TorcheerWarning
from torcheer.terminal.text_tables import folded


def warn(text: str, category: type[Warning] = TorcheerWarning) -> None:
    """Warn at the line of the program that led here: the nearest that is neither torcheer's nor torch's."""
    frame = program_frame()
    names = frame.f_globals
    warnings.warn_explicit(
        text, category, frame.f_code.co_filename, frame.f_lineno, names.get("__name__"),
        names.setdefault("__warningregistry__", {}),
    )  # fmt: skip


def program_frame() -> FrameType:
    """The nearest frame that is neither torcheer's nor torch's."""
    frame = sys._getframe()
    while frame.f_back is not None and _package(frame) in LIBRARIES:
        frame = frame.f_back
    return frame


def program_line() -> str:
    """The file and line of the program that led here: "net.py:14"; a notebook's is "cell:14"."""
    frame = program_frame()
    if _package(frame) in LIBRARIES:  # a thread of torch's own
        return ""
    path = frame.f_code.co_filename
    is_cell = "ipykernel" in path or path.startswith("<ipython")
    return f"{'cell' if is_cell else os.path.basename(path)}:{frame.f_lineno}"


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


# A hook: packages that are not the program; a distribution beside torcheer adds its own.
LIBRARIES = {"torcheer", "torch", "contextlib", "functools", "threading", "concurrent"}


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


def met_difference(original: str, difference: str) -> None:
    """Note that a program meets what an original did otherwise: of interest to its own programs alone."""
    if original in DIFFERENCES:
        DIFFERENCES[original](difference)


# A hook: the name of an original -> what is called with the name of a difference that a program meets.
DIFFERENCES: dict[str, Callable[[str], None]] = {}


def notice(room: str, text: str, level: int = logging.WARNING, *, is_printed: bool = False) -> None:
    """Log what a program's user did not ask for, under `torcheer.ROOM`: a retry, an alert, a worker that was replaced.

    It is printed on stderr unless the program has given the logger `torcheer`, or the root, a handler, or a level that
    leaves it out.

    - `is_printed`: it stands on stderr already, so only handlers hear of it
    """
    logger = logging.getLogger(f"torcheer.{room}")
    if logger.hasHandlers():
        logger.log(level, text)
    elif logger.isEnabledFor(level) and not is_printed:
        with suppress(OSError, ValueError, AttributeError):  # stderr is closed, or None
            print(folded(f"torcheer: {text}"), file=sys.stderr, flush=True)


def notice_alert(text: str, severity: str, *, is_printed: bool = False) -> None:
    """Log an alert under `torcheer.watch`: an error as one, all others as warnings, or notes would not be seen."""
    notice("watch", text, logging.ERROR if severity == "error" else logging.WARNING, is_printed=is_printed)


def is_silenced(room: str) -> bool:
    """True where the program's settings of logging let no warning of a room through."""
    return not logging.getLogger(f"torcheer.{room}").isEnabledFor(logging.WARNING)
