"""The process that started this one with `ChildProcess`: the wire to it, and whether it still lives."""

from __future__ import annotations

import mmap
import os
import select
import socket
import threading
import time
from typing import Final

from torcheer.wire.socket_lines import Wire

_POLL_SECS: Final = 1.0  # between two checks of the parent's pid


class Parent:
    """The parent process, as its child sees it."""

    def __init__(self, pid: int, wire_fd: int, *fds: int) -> None:
        for fd in (wire_fd, *fds):
            os.set_inheritable(fd, False)
        self.pid, self.fds = pid, fds  # descriptors that it passed on
        self.wire = Wire(socket.socket(fileno=wire_fd), drops_oldest=True)

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, or closed the wire."""
        return os.getppid() != self.pid or self.wire.closed  # forks of the parent may hold its end of the wire

    def exit_when_gone(self, *, grace_secs: float = 0.0) -> None:
        """Start a thread that exits `grace_secs` after the parent's end, whatever the main thread does."""
        threading.Thread(target=self._exit_when_gone, args=(grace_secs,), daemon=True).start()

    def _exit_when_gone(self, grace_secs: float) -> None:
        hangup = select.poll()
        hangup.register(self.wire, 0)  # only the end of the connection: messages are left to the main thread
        while not self.is_gone and not hangup.poll(1000 * _POLL_SECS):
            continue
        time.sleep(grace_secs)
        os._exit(1)


def map_payload(fd: int) -> mmap.mmap:
    """Map the data of `child_process.payload_memory`: all children share it, without a copy."""
    try:
        return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(fd)
