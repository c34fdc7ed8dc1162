"""Errors of the server itself, printed to stderr, each once."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress

_MOST = 1000
_REPORTED: set[str] = set()


def report(text: str) -> None:
    """Print a line, unless it was printed before."""
    _print_once(text, text)


def report_error(error: Exception) -> None:
    """Print a handled error with its traceback, once: some repeat ten times a second."""
    _print_once(repr(error), "".join(traceback.format_exception(error)).rstrip())


def _print_once(key: str, text: str) -> None:
    if key not in _REPORTED and len(_REPORTED) < _MOST:
        _REPORTED.add(key)
        with suppress(OSError, ValueError):  # stderr is closed: keep serving
            print(text, file=sys.stderr, flush=True)
