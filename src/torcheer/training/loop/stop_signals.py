"""Handle SIGTERM, SIGHUP and Ctrl-C.

Training ends at the next step boundary, with everything saved.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from torcheer.data_workers import GROUP_SIGNALS

RESTART = "another run begins"  # a stop reason that a signal overrides


class Stoppable(Protocol):
    stop_reason: str


@contextmanager
def stop_on_signals(session: Stoppable) -> Iterator[None]:
    """Let SIGTERM, SIGHUP and Ctrl-C request a stop; a second Ctrl-C ends at once.

    A command that was stopped in this way exits with 130. A SIGHUP that is already ignored (`nohup`) stays ignored.
    Outside of the main thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        is_stopping = session.stop_reason not in ("", RESTART)
        if number == signal.SIGINT and is_stopping:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a third Ctrl-C need not wait for Python
            raise KeyboardInterrupt
        if not is_stopping:
            session.stop_reason = f"{signal.Signals(number).name} was received"

    hangup = getattr(signal, "SIGHUP", None)
    is_under_nohup = hangup is not None and signal.getsignal(hangup) is signal.SIG_IGN
    handled = [number for number in GROUP_SIGNALS if not (number == hangup and is_under_nohup)]
    previous = {number: signal.signal(number, handle) for number in handled}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
