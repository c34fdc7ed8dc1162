"""SIGTERM and Ctrl-C: training ends at the next step boundary, with everything saved."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

ANEW = "another run begins"  # a reason to stop that gives way to a signal


class Stoppable(Protocol):
    asked_to_stop: str


@contextmanager
def stopping_on_signals(session: Stoppable) -> Iterator[None]:
    """Have SIGTERM and Ctrl-C ask a session to stop; a second Ctrl-C ends at once.

    A command that was stopped in this way exits with 130. Outside of the main thread this does nothing.
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

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


class CalmWorker:
    """A worker's start: Ctrl-C, or a SIGTERM to the whole group, leaves it alive until its trainer has saved."""

    def __init__(self, then: Callable[[int], Any] | None) -> None:
        self._then = then  # what the user wants done at a worker's start

    def __call__(self, number: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_when_told, args=(os.getppid(),), daemon=True).start()
        if self._then is not None:
            self._then(number)


def _end_when_told(trainer: int) -> None:
    """Wait for a SIGTERM that the trainer itself sent; a handler could not tell who did."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != trainer:
        pass
    os._exit(0)
