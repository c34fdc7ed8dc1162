"""When a log is written: a while after something came, from a thread; to a full disk, now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from torcheer.runlog.log_buffer import Buffer

MOST_ROWS, MOST_BYTES = 4096, 32 << 20  # of a frame, buffered until it is written
MOST_WAITING: Final = 16 * MOST_ROWS  # for the thread that commits; then the writing thread does it itself
COMMIT_SECS: Final = 0.25
RETRY_SECS: Final = 2.0  # between two tries to write to a full disk


class FullDisk:
    """A disk without room for a log: when to try again, and what was lost meanwhile."""

    def __init__(self) -> None:
        self.lost, self._next_try = 0, 0.0

    def try_later(self) -> None:
        """Wait a while; it was full again."""
        self._next_try = time.monotonic() + RETRY_SECS

    def try_now(self) -> None:
        """Wait no longer: it is the last time."""
        self._next_try = 0.0

    def is_due(self, buffer: Buffer) -> bool:
        """Whether to try to write what is buffered: the time has come, or it may grow no further."""
        return time.monotonic() >= self._next_try or buffer.count >= MOST_WAITING or buffer.bytes >= MOST_BYTES


class BackgroundCommits:
    """Calls a function a quarter of a second after `wake`, and again after as many seconds as it returns."""

    def __init__(self, call: Callable[[], float | None]) -> None:
        self._call, self._has_work, self._stop = call, threading.Event(), threading.Event()
        self._is_awake = False  # whether the next call is on its way; quicker to ask than the event
        self._thread = threading.Thread(target=self._run, name="torcheer log", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something to write."""
        if not self._is_awake:
            self._is_awake = True
            self._has_work.set()

    def _run(self) -> None:
        again_secs: float | None = None
        while not self._stop.is_set():
            if self._has_work.wait(again_secs) and self._stop.wait(COMMIT_SECS):
                return
            self._has_work.clear()  # before the call: what comes meanwhile is for the next one
            self._is_awake = False  # after it, or a `wake` in between would set the event in vain
            again_secs = self._call()

    def stop(self) -> None:
        """End the thread; a call in progress is waited for."""
        self._stop.set()
        self._has_work.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
