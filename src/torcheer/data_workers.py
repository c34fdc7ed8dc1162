"""Worker processes of data loaders: each ends with the process that started it, however that ended."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

LOOK_SECS = 1.0  # between two looks whether the process that started this one is still there
GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # a terminal or a scheduler sends them to all at once
_SET_DEATH_SIGNAL = 1  # Linux's PR_SET_PDEATHSIG


class WorkerStart:
    """A `worker_init_fn` after which a worker never outlives its loader's process.

    torch's own check sees only a worker that waits for work: one that is busy, or whose batch nobody takes, stays.
    Make one in the thread that starts the workers. `then` is the user's own; with `saves_first` a Ctrl-C, SIGTERM or
    SIGHUP to the whole group leaves a worker alive until its trainer, which saves first, ends it.
    """

    def __init__(self, then: Callable[[int], Any] | None = None, *, saves_first: bool = False) -> None:
        self._then, self._saves_first = then, saves_first
        # Linux means the death of the thread that forked, not of its process; the main thread lives as long.
        self._by_main_thread = threading.current_thread() is threading.main_thread()

    def __call__(self, number: int) -> None:
        if self._by_main_thread:
            _die_with_parent()
        if self._saves_first:
            _outlive_group_signals()
        parent = Parent()
        threading.Thread(target=_end_with, args=(parent, self._saves_first), daemon=True).start()
        if self._then is not None:
            self._then(number)


def _die_with_parent() -> None:
    """Have the kernel end this process: C code that holds Python's lock would keep a thread from it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def _outlive_group_signals() -> None:
    for number in GROUP_SIGNALS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


class Parent:
    """The process that started this one, also where a fork server stands between."""

    def __init__(self) -> None:
        started_by, self._first = multiprocessing.parent_process(), os.getppid()
        self.number = self._first if started_by is None or started_by.pid is None else started_by.pid
        self._sentinel = started_by  # its pipe closes late: later forks hold it, too
        self._look: select.poll | None = None
        self._was_gone = False
        try:
            handle = os.pidfd_open(self.number)
            self._look = select.poll()
            self._look.register(handle, select.POLLIN)
        except ProcessLookupError:
            self._was_gone = True
        except (AttributeError, OSError):  # another system, an old kernel, a sandbox
            pass

    def is_gone(self) -> bool:
        """True once it has ended, reaped or not."""
        if self._was_gone or os.getppid() != self._first:
            return True
        if self._look is not None and self._look.poll(0):
            return True
        return self._sentinel is not None and not self._sentinel.is_alive()


def _end_with(parent: Parent, takes_sigterm: bool) -> None:
    """End when the parent does, or sends the SIGTERM that a handler could not tell from another's."""
    while not parent.is_gone():
        if not takes_sigterm:
            time.sleep(LOOK_SECS)
            continue
        with suppress(InterruptedError):
            sent = signal.sigtimedwait({signal.SIGTERM}, LOOK_SECS)
            if sent is not None and sent.si_pid == parent.number:
                break
    os._exit(0)
