"""Worker processes of data loaders.

Each exits with the process that started it, even after SIGKILL.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import util
from typing import Any, Final

from torcheer.disk import has_unix
from torcheer.wire.temporary_folders import TemporaryFolder, remove_stale

POLL_SECS = 1.0  # between two checks whether the parent process is alive
# A terminal or a scheduler sends them to all at once; Windows has no SIGHUP.
GROUP_SIGNALS = tuple(
    number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)
_PR_SET_PDEATHSIG = 1  # Linux's PR_SET_PDEATHSIG
_SOCKET_BYTES: Final = 107 if sys.platform == "linux" else 103  # of the path of a socket, at most
_IN_FOLDER: Final = "/pymp-12345678/listener-12345678"  # where multiprocessing puts one
_REMOVED_AFTER: Final = -101  # finalizers of less priority run later: multiprocessing removes its own at -100

_folders: dict[int, TemporaryFolder] = {}  # by the process that made it: a fork makes its own


class WorkerStart:
    """A `worker_init_fn` that ensures a worker never outlives its loader's process.

    torch's check covers only a worker that waits for work: one that is busy, or whose batch is never read, stays.
    Create it in the thread that starts the workers. `user_init` is the user's `worker_init_fn`; with `saves_first` a
    Ctrl-C, SIGTERM or SIGHUP to the whole group leaves a worker alive until its trainer, which saves first, ends it.
    """

    def __init__(self, user_init: Callable[[int], Any] | None = None, *, saves_first: bool = False) -> None:
        self._user_init, self._saves_first = user_init, saves_first
        # Linux signals the death of the thread that forked, not of its process; the main thread lives as long.
        self._by_main_thread = threading.current_thread() is threading.main_thread()
        self._folder = _folder_for_workers()

    def __call__(self, number: int) -> None:
        if self._by_main_thread:
            end_with_parent()
        if self._saves_first:
            _ignore_group_signals()
        if self._folder:
            _keep_sockets_in(self._folder)
        parent = ParentProcess()
        threading.Thread(target=_exit_with_parent, args=(parent, self._saves_first), daemon=True).start()
        if self._user_init is not None:
            self._user_init(number)


def end_with_parent() -> None:
    """Let the kernel kill this process: C code that holds the GIL would block a watching thread."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _folder_for_workers() -> str:
    """Return this process's folder for what its workers keep on disk; "" where there is none.

    A worker that hands tensors over makes a folder with a socket, and its end removes it, which a kill prevents. In a
    folder of ours the end of this process removes it, or the next process that makes such a folder.
    """
    if not has_unix():
        return ""
    with suppress(OSError):
        if os.getpid() not in _folders:
            _folders[os.getpid()] = folder = TemporaryFolder("data")
            util.Finalize(None, _remove, args=(folder,), exitpriority=_REMOVED_AFTER)  # once the workers have ended
        path = str(_folders[os.getpid()].path)
        if os.path.isdir(path) and len(os.fsencode(path + _IN_FOLDER)) <= _SOCKET_BYTES:
            return path
    return ""


def _remove(folder: TemporaryFolder) -> None:
    folder.remove()
    remove_stale()  # of a killed process whose workers had not ended when this one began


def _keep_sockets_in(folder: str) -> None:
    """Let multiprocessing make its temporary folder there, and everybody else elsewhere."""
    before, tempfile.tempdir = tempfile.tempdir, folder
    try:
        with suppress(OSError):
            util.get_temp_dir()
    finally:
        tempfile.tempdir = before


def _ignore_group_signals() -> None:
    for number in GROUP_SIGNALS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


class ParentProcess:
    """The process that started this one, also through a fork server."""

    def __init__(self) -> None:
        started_by, self._first_parent_id = multiprocessing.parent_process(), os.getppid()
        self.number = self._first_parent_id if started_by is None or started_by.pid is None else started_by.pid
        self._sentinel = started_by  # its pipe closes late: later forks hold it too
        self._poll: select.poll | None = None
        self._gone_at_start = False
        try:
            handle = os.pidfd_open(self.number)
            self._poll = select.poll()
            self._poll.register(handle, select.POLLIN)
        except ProcessLookupError:
            self._gone_at_start = True
        except (AttributeError, OSError):  # another system, an old kernel, a sandbox
            pass

    def is_gone(self) -> bool:
        """Return whether it has ended, reaped or not."""
        if self._gone_at_start or os.getppid() != self._first_parent_id:
            return True
        if self._poll is not None and self._poll.poll(0):
            return True
        return self._sentinel is not None and not self._sentinel.is_alive()


def _exit_with_parent(parent: ParentProcess, takes_sigterm: bool) -> None:
    """Exit when the parent does, or when it sends SIGTERM.

    A signal handler could not see the sender.
    """
    while not parent.is_gone():
        if not takes_sigterm or not hasattr(signal, "sigtimedwait"):
            time.sleep(POLL_SECS)
            continue
        with suppress(InterruptedError):
            sent = signal.sigtimedwait({signal.SIGTERM}, POLL_SECS)
            if sent is not None and sent.si_pid == parent.number:
                break
    os._exit(0)
