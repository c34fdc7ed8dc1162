"""One child process and the two pipes to it: what it gets to know, how it is started, told and heard."""

from __future__ import annotations

import fcntl
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
from torcheer.wire.shared_memory import anonymous_memory

_BEGIN: Final = """\
# torcheer.monitor.child: watches a training run
import sys
sys.path[:] = [sys.argv[6], *sys.path, *(entry for entry in sys.argv[7:] if entry not in sys.path)]
from torcheer.monitor.child import main
main()
"""
LETTER_HEAD: Final = 8  # bytes of the number that says how long the JSON at the front of the letter is


class Child:
    """One process and the two pipes to it."""

    def __init__(self, letter: bytes, ring_fd: int, folder: str = "") -> None:
        self._rest, self._unsaid, self.why, self._lock = b"", b"", "", threading.RLock()
        hear, self._tell = os.pipe()
        self._hear, say = os.pipe()
        letter_fd = -1
        try:
            letter_fd = _posted(letter)
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
        """Send a line; what the pipe does not take waits for the next look, and one that is gone hears nothing."""
        with self._lock:  # or its descriptor might be another file's by now
            self._unsaid += line + b"\n"
            self._push()

    def _push(self) -> None:
        with self._lock:
            try:
                self._unsaid = self._unsaid[os.write(self._tell, self._unsaid) :]
            except BlockingIOError:
                return
            except OSError:
                self._unsaid = b""

    def listen(self, inbox: list[dict[str, Any]]) -> bool:
        """Read the lines that are there; False where the child has closed its end."""
        if self._unsaid:
            self._push()
        for _ in range(16 if self._hear >= 0 else 0):  # one that talks without end is heard another time
            try:
                piece = os.read(self._hear, 1 << 16)
            except BlockingIOError:
                return True
            if not piece:
                return False
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for said in filter(None, map(_said, lines)):
                inbox.append(said)
                if said.get("kind") == "done":
                    self.why = str(said.get("why"))
        return self._hear >= 0

    def wait(self, until: float, inbox: list[dict[str, Any]]) -> bool:
        """Hear it out until it has ended; False where that takes too long."""
        while self.popen.poll() is None:
            left = until - time.monotonic()
            if left <= 0:
                return False
            if self.listen(inbox):
                select.select([self._hear], [], [], min(left, 0.02))
            else:
                time.sleep(min(left, 0.005))
        self.listen(inbox)
        return True

    def close(self) -> None:
        """Close the pipes."""
        with self._lock:
            self.let_go()

    def let_go(self) -> None:
        """The same in a fork, which may have inherited the lock locked."""
        for name in ("_tell", "_hear"):
            fd = getattr(self, name)
            setattr(self, name, -1)
            if fd >= 0:
                os.close(fd)


def _start(given: tuple[int, ...], folder: str) -> subprocess.Popen[bytes]:
    """A fresh interpreter, never a fork: threads, CUDA and a script without a guard cannot matter to it.

    What the script may import, it may import too, but its folder comes last until all of ours is loaded: a `json.py`
    there is no concern of this process.
    """
    if not sys.executable:
        raise CannotWrite("there is no Python to start the watching process with: sys.executable is empty")
    # Not the numbers of the standard streams, which are free where those are closed: the child gets its own there.
    fds = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in given]
    path = [str(Path(__file__).parents[2]), *_path()]
    numbers = map(str, (*fds, os.getpid()))
    environment = {"OMP_NUM_THREADS": "1", **os.environ}  # the other cores are for the training
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _BEGIN, *numbers, *path],
            stdin=subprocess.DEVNULL,
            pass_fds=fds,
            close_fds=True,
            env=environment,
            cwd=folder if os.path.isdir(folder) else None,  # a script may have gone elsewhere since the first start
            start_new_session=True,  # Ctrl-C in the terminal is for the parent, which then says when to end
        )
    finally:
        for fd in fds:
            os.close(fd)


def working_folder() -> str:
    """Where this process is; "" where that folder is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _path() -> list[str]:
    return [str(entry) or working_folder() for entry in sys.path]


def letter_of(plan: Plan, callbacks: bytes) -> bytes:
    """What a child has to know, however often it is started."""
    try:
        text = json.dumps({"plan": asdict(plan), "path": _path()}).encode()
    except (TypeError, ValueError) as error:
        raise BadArgument(f"the plan of a watch must be text, numbers, lists and tables: {error}") from None
    return len(text).to_bytes(LETTER_HEAD, "little") + text + callbacks


def _posted(letter: bytes) -> int:
    """The letter in memory without a name: however long it is, nobody waits for it to be read."""
    fd = anonymous_memory("torcheer-letter")
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(letter)
    return fd


def _said(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:  # cut in two by its death
        return None
    return found if isinstance(found, dict) else None
