"""What goes wrong in the server itself: printed where it was started, each thing once."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress

_MOST = 1000
_REPORTED: set[str] = set()


def report(text: str) -> None:
    """Print a line, unless it was printed before."""
    _once(text, text)


def report_error(error: Exception) -> None:
    """Print an error that is being handled with its traceback; one that comes ten times a second is printed once."""
    _once(repr(error), "".join(traceback.format_exception(error)).rstrip())


def _once(key: str, text: str) -> None:
    if key not in _REPORTED and len(_REPORTED) < _MOST:
        _REPORTED.add(key)
        with suppress(OSError, ValueError):  # where it was started nobody reads any more: serve on
            print(text, file=sys.stderr, flush=True)
