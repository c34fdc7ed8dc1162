"""One child process and the two pipes to it: its start-up data, its start, messages in both directions."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from torcheer.errors import BadArgument, CannotWrite
from torcheer.monitor.child_plan import Plan
from torcheer.wire.shared_memory import anonymous_memory, copy_for_child

_BEGIN: Final = """\
# torcheer.monitor.child: watches a training run
import sys
sys.path[:] = [sys.argv[6], *sys.path, *(entry for entry in sys.argv[7:] if entry not in sys.path)]
from torcheer.monitor.child import main
main()
"""
LETTER_HEAD: Final = 8  # bytes of the length prefix before the JSON of the start-up data


class Child:
    """A child process and the two pipes to it."""

    def __init__(self, letter: bytes, ring_fd: int, folder: str = "") -> None:
        self._partial_line, self._unsent, self.why, self._lock = b"", b"", "", threading.RLock()
        hear, self._tell = os.pipe()
        self._hear, say = os.pipe()
        letter_fd = -1
        try:
            letter_fd = _write_letter(letter)
            self.popen = _start((ring_fd, letter_fd, hear, say), folder)
        except BaseException:
            self.close()
            raise
        finally:
            for fd in (hear, say, letter_fd):
                if fd >= 0:
                    os.close(fd)
        os.set_blocking(self._tell, False)
        os.set_blocking(self._hear, False)

    def tell(self, line: bytes) -> None:
        """Send a line; what the pipe does not accept is sent with the next call. Ignored once the child is gone."""
        with self._lock:  # else the descriptor might be reused by another file
            self._unsent += line + b"\n"
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            try:
                self._unsent = self._unsent[os.write(self._tell, self._unsent) :]
            except BlockingIOError:
                return
            except OSError:
                self._unsent = b""

    def listen(self, inbox: list[dict[str, Any]]) -> bool:
        """Read the available lines; False where the child has closed its end."""
        if self._unsent:
            self._flush()
        for _ in range(16 if self._hear >= 0 else 0):  # bounded: a flood of messages is read in several calls
            try:
                piece = os.read(self._hear, 1 << 16)
            except BlockingIOError:
                return True
            if not piece:
                return False
            *lines, self._partial_line = (self._partial_line + piece).split(b"\n")
            for message in filter(None, map(_parse_message, lines)):
                inbox.append(message)
                if message.get("kind") == "done":
                    self.why = str(message.get("why"))
        return self._hear >= 0

    def wait(self, deadline: float, inbox: list[dict[str, Any]]) -> bool:
        """Read its messages until it has ended; False where that takes too long."""
        while self.popen.poll() is None:
            remaining_secs = deadline - time.monotonic()
            if remaining_secs <= 0:
                return False
            if self.listen(inbox):
                select.select([self._hear], [], [], min(remaining_secs, 0.02))
            else:
                time.sleep(min(remaining_secs, 0.005))
        self.listen(inbox)
        return True

    def close(self) -> None:
        """Close the pipes."""
        with self._lock:
            self.close_in_fork()

    def close_in_fork(self) -> None:
        """The same in a fork, which may have inherited the lock in locked state."""
        for name in ("_tell", "_hear"):
            fd = getattr(self, name)
            setattr(self, name, -1)
            if fd >= 0:
                os.close(fd)


def _start(inherited_fds: tuple[int, ...], folder: str) -> subprocess.Popen[bytes]:
    """Start a fresh interpreter, never a fork: threads, CUDA and a script without a main guard do not affect it.

    It may import what the script may import, but the script's folder comes last until all of our modules are loaded:
    a `json.py` there must not shadow the standard library.
    """
    if not sys.executable:
        raise CannotWrite("there is no Python to start the watching process with: sys.executable is empty")
    fds = [copy_for_child(fd) for fd in inherited_fds]
    path = [str(Path(__file__).parents[2]), *_path()]
    numbers = map(str, (*fds, os.getpid()))
    environment = {"OMP_NUM_THREADS": "1", **os.environ}  # leave the other cores to the training
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _BEGIN, *numbers, *path],
            stdin=subprocess.DEVNULL,
            pass_fds=fds,
            close_fds=True,
            env=environment,
            cwd=folder
            if os.path.isdir(folder)
            else None,  # the script may have changed its folder since the first start
            start_new_session=True,  # Ctrl-C in the terminal is for the parent, which then ends the child
        )
    finally:
        for fd in fds:
            os.close(fd)


def working_folder() -> str:
    """The current folder; "" where it no longer exists."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _path() -> list[str]:
    return [str(entry) or working_folder() for entry in sys.path]


def letter_of(plan: Plan, callbacks: bytes) -> bytes:
    """Serialize the start-up data of a child: plan, import path, callbacks."""
    try:
        text = json.dumps({"plan": asdict(plan), "path": _path()}).encode()
    except (TypeError, ValueError) as error:
        raise BadArgument(f"the plan of a watch must be text, numbers, lists and tables: {error}") from None
    return len(text).to_bytes(LETTER_HEAD, "little") + text + callbacks


def _write_letter(letter: bytes) -> int:
    """Write the start-up data to anonymous memory: of any length, without waiting for the reader."""
    fd = anonymous_memory("torcheer-letter")
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(letter)
    return fd


def _parse_message(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except ValueError:  # cut off by the child's death
        return None
    return message if isinstance(message, dict) else None
