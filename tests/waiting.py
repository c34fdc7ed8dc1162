"""The one loop in which a test waits for another process, a thread or a page."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

WAIT_SECS = 60.0  # far more than anything takes, also on a busy machine


def wait_until(
    condition: Callable[[], Any],
    what: str = "",
    *,
    secs: float = WAIT_SECS,
    page: Any = None,
    poll: Callable[[], Any] | None = None,
    seen: Callable[[], Any] | None = None,
) -> Any:
    """Call `condition` until it returns something true, which is returned; fail after `secs` seconds.

    what: what is waited for, for the failure's text; by default the condition's source.
    page: a browser's page that hears its events meanwhile.
    poll: called between two tries, where what is waited for comes only to someone who reads.
    seen: what to show in the failure's text; by default the last value of the condition.
    """
    end = time.monotonic() + secs
    while not (found := condition()):
        if time.monotonic() > end:
            last = seen() if seen else found
            raise AssertionError(f"waited {secs:g} s for {what or _source(condition)}; last seen: {last!r}")
        if poll:
            poll()
        page.wait_for_timeout(20) if page else time.sleep(0.005)
    return found


def _source(condition: Callable[[], Any]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):  # a method of a built-in type, code of a string
        return repr(condition)
