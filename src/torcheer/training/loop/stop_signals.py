"""SIGTERM, SIGHUP and Ctrl-C: training ends at the next step boundary, with everything saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from torcheer.data_workers import GROUP_SIGNALS

ANEW = "another run begins"  # a reason to stop that gives way to a signal


class Stoppable(Protocol):
    asked_to_stop: str


@contextmanager
def stopping_on_signals(session: Stoppable) -> Iterator[None]:
    """Have SIGTERM, SIGHUP and Ctrl-C ask a session to stop; a second Ctrl-C ends at once.

    A command that was stopped in this way exits with 130. A SIGHUP that is ignored already, as `nohup` has it, stays
    ignored. Outside of the main thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        is_asked = session.asked_to_stop not in ("", ANEW)
        if number == signal.SIGINT and is_asked:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a third need not wait for Python
            raise KeyboardInterrupt
        if not is_asked:
            session.asked_to_stop = f"{signal.Signals(number).name} was received"

    is_under_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    taken = [number for number in GROUP_SIGNALS if not (number == signal.SIGHUP and is_under_nohup)]
    before = {number: signal.signal(number, ask) for number in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
