"""How long a viewer stays after the process that started it: where a person sits at a terminal, an hour alone."""

from __future__ import annotations

import os
import select
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from torcheer.wire.temporary_folders import TemporaryFolder, is_held

ALONE_SECS: Final = 3600.0  # without a connected page, once the process that started it has ended
_PID: Final = "pid"
_VARIABLE: Final = "TORCHEER_PAGE_SECS"  # sets another time; 0: the viewer ends with its process


def alone_secs() -> float:
    """Seconds that a viewer of this process may stay alone after it; 0.0 without a terminal, and in CI."""
    if os.environ.get("CI") or terminal_fd() < 0:
        return 0.0
    try:
        return max(0.0, float(os.environ.get(_VARIABLE, ALONE_SECS)))
    except ValueError:
        return ALONE_SECS


def terminal_fd() -> int:
    """The terminal that a person started this process from; -1 if there is none, as in notebooks and batch jobs."""
    if not any(map(_is_terminal, (sys.stdout, sys.stderr))) or not _is_terminal(sys.stdin):
        return -1
    return int(sys.stdin.fileno())


def _is_terminal(stream: Any) -> bool:
    try:
        return stream is not None and bool(stream.isatty())
    except ValueError:  # closed
        return False


def hold_port(port: int) -> TemporaryFolder:
    """Note that this process serves a port for no one's program any more: it gives way to another viewer."""
    folder = TemporaryFolder(f"page-{port}")
    (folder.path / _PID).write_text(str(os.getpid()), encoding="utf-8")
    return folder


def free_port(port: int) -> bool:
    """Ask viewers of this user that have outlived their program to leave a port; True if one was asked."""
    folders = Path(tempfile.gettempdir()).glob(f"torcheer-page-{port}-*")
    return any([_ask_to_end(folder) for folder in folders if is_held(folder)])


def _ask_to_end(folder: Path) -> bool:
    try:
        os.kill(int((folder / _PID).read_text(encoding="utf-8")), signal.SIGTERM)
    except (OSError, ValueError):  # it has just ended
        return False
    return True


def is_hung_up(fd: int) -> bool:
    """True once a terminal was closed, or its shell has ended."""
    poll = select.poll()
    poll.register(fd, 0)
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))
