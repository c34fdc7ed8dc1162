"""Handle SIGTERM, SIGHUP and Ctrl-C.

Training ends at the next step boundary, with everything saved; a command that does not train yet, or no more, at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Protocol

from torcheer.data_workers import GROUP_SIGNALS

RESTART = "another run begins"  # a stop reason that a signal overrides
STOPPED = 130  # exit status of a command that was stopped, with everything saved
BEFORE = "before training began: nothing is lost, and the same command trains"
_AFTER = "while nothing was being trained: what was saved is there, and the same command goes on"


class Stoppable(Protocol):
    stop_reason: str


class _EndAtOnce:
    """The handler of a command outside of its training: it raises KeyboardInterrupt with a sentence."""

    def __init__(self) -> None:
        self.received, self.when = "", BEFORE

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.received = f"{signal.Signals(number).name} was received"
        if _is_rank():  # threads of its process group abort a process that ends in order, now and then
            with suppress(OSError):
                os.write(2, f"torcheer train: {self.sentence}\n".encode() if self.sentence else b"")
            os._exit(STOPPED)
        raise KeyboardInterrupt(self.sentence)

    @property
    def sentence(self) -> str:
        """What happened, and what to do; "" on a rank for which another process says it."""
        return f"{self.received} {self.when}" if _speaks() else ""


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Let SIGTERM, SIGHUP and Ctrl-C raise KeyboardInterrupt, whatever runs: torch may be half imported.

    For a command that trains, from its first line on; `stop_on_signals` takes over while it trains.
    """
    handler = _EndAtOnce()
    with _handling(handler):
        try:
            yield
        except Exception:
            if handler.received:  # what was interrupted has made another exception of it
                raise KeyboardInterrupt(handler.sentence) from None
            raise


@contextmanager
def stop_on_signals(session: Stoppable) -> Iterator[None]:
    """Let SIGTERM, SIGHUP and Ctrl-C request a stop; a second Ctrl-C ends at once.

    A command that was stopped in this way exits with 130. A SIGHUP that is already ignored (`nohup`) stays ignored.
    Outside of the main thread this does nothing.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        is_stopping = session.stop_reason not in ("", RESTART)
        if number == signal.SIGINT and is_stopping:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a third Ctrl-C need not wait for Python
            raise KeyboardInterrupt
        if not is_stopping:
            session.stop_reason = f"{signal.Signals(number).name} was received"

    with _handling(handle) as before:
        for ending in {each for each in before if isinstance(each, _EndAtOnce)}:
            ending.when = _AFTER
            if ending.received and not session.stop_reason:  # its KeyboardInterrupt was lost, in a destructor perhaps
                session.stop_reason = ending.received
        yield


@contextmanager
def _handling(handle: Callable[[int, FrameType | None], None]) -> Iterator[list[Any]]:
    """Have a function handle the signals; yield the handlers before, which are put back."""
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    hangup = getattr(signal, "SIGHUP", None)
    is_under_nohup = hangup is not None and signal.getsignal(hangup) is signal.SIG_IGN
    handled = [number for number in GROUP_SIGNALS if not (number == hangup and is_under_nohup)]
    previous = {number: signal.signal(number, handle) for number in handled}
    try:
        yield list(previous.values())
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _is_rank() -> bool:
    """Whether torchrun or Slurm has started this process beside others; no import, as it runs in a handler."""
    return os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")) != "1" and "torch" in sys.modules


def _speaks() -> bool:
    """Whether this rank says how it ended: the first, where no launcher says it for all."""
    first = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0"
    return first and "TORCHEER_STATUS_FILE" not in os.environ
