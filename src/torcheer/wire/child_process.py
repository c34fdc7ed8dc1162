"""Start a fresh interpreter with a wire to it, and end it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from torcheer.disk import require_unix
from torcheer.errors import CannotWrite
from torcheer.wire.shared_memory import anonymous_memory, copy_for_child
from torcheer.wire.socket_lines import Wire

# The user's folders come last while our modules are imported: a `json.py` there must not shadow the standard library.
_SCRIPT: Final = """\
# {module}: {purpose}
import sys
_, numbers, count, first, *rest = sys.argv
path, arguments = rest[:int(count)], rest[int(count):]
sys.path[:] = [first, *sys.path, *(entry for entry in path if entry not in sys.path)]
from torcheer.wire.parent import Parent
from {module} import main
if {imports_as_here}:
    sys.path[:] = path
sys.exit(main(arguments, Parent(*map(int, numbers.split(",")))))
"""
ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # leaves the other cores to the training
_POLL_SECS: Final = 0.02  # between two checks whether it has ended, while its messages are read
_KILL_SECS: Final = 5.0  # for the system to end a killed process

Receive = Callable[[list[dict[str, Any]]], object]


def _ignore(messages: list[dict[str, Any]]) -> None:
    """Receive messages that no one waits for."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program of this package that runs in a process of its own."""

    module: str  # whose `main(arguments, parent)` it runs
    purpose: str  # "watches a training run", for lists of processes
    name: str  # in errors: "the studio"
    environment: Mapping[str, str]  # variables that the user has not set
    imports_as_here: bool  # `main` imports the user's modules, and in the order of this process


class ChildProcess:
    """A running program and the wire to it; it should end when the wire closes.

    A fresh interpreter, never a fork: threads, CUDA and a script without a main guard do not affect it. It has a
    session of its own: Ctrl-C in a terminal is for its parent, which then ends it.
    """

    def __init__(
        self, program: Program, arguments: Sequence[str] = (), *, fds: Sequence[int] = (), folder: str = "",
        captures: bool = False,
    ) -> None:  # fmt: skip
        """`fds` are inherited: `Parent.fds` there.

        `folder` is its working folder where that exists, else it is this process's. `captures` collects
        its standard output and error for `printed`, else they are those of this process.
        """
        require_unix(f"another process ({program.name})")
        if not sys.executable:
            raise CannotWrite(f"there is no Python to start {program.name} with: sys.executable is empty")
        self._output: IO[bytes] | None = tempfile.TemporaryFile() if captures else None
        self._last_output = ""
        here, there = socket.socketpair()
        with there, here:
            self.wire = Wire(socket.socket(fileno=copy_for_child(here.fileno())))
            copies: list[int] = []
            try:
                copies += [copy_for_child(fd) for fd in (there.fileno(), *fds)]
                self.popen = subprocess.Popen(
                    _command(program, copies, arguments),
                    stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output, pass_fds=copies,
                    start_new_session=True,
                    env={**program.environment, **os.environ}, cwd=folder if os.path.isdir(folder) else None,
                )  # fmt: skip
            except BaseException:
                self.close()
                raise
            finally:
                for fd in copies:
                    os.close(fd)

    def wait(self, deadline: float, receive: Receive = _ignore) -> bool:
        """Wait for its end, passing its messages on; False where it still runs at the deadline."""
        while self.popen.poll() is None:
            remaining_secs = deadline - time.monotonic()
            if remaining_secs <= 0:
                return False
            receive(self.wire.exchange(min(remaining_secs, _POLL_SECS)))
            if self.wire.closed:
                time.sleep(_POLL_SECS / 4)
        receive(self.wire.exchange())
        return True

    @property
    def printed(self) -> str:
        """What it has printed, where that is captured; the last 8 KB."""
        if self._output is None:
            return self._last_output
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), 8192, max(0, size - 8192)).decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Close the wire to it; `printed` stays."""
        self.wire.close()
        if self._output is not None:
            self._last_output = self.printed
            self._output.close()
            self._output = None

    def terminate(self, deadline: float, receive: Receive = _ignore) -> None:
        """End it by SIGTERM, at the deadline by SIGKILL."""
        self.popen.send_signal(signal.SIGTERM)
        if not self.wait(deadline, receive):
            self.popen.kill()  # also ends a process stopped by SIGSTOP
            self.wait(time.monotonic() + _KILL_SECS, receive)


def start_command(
    command: Sequence[str], environment: Mapping[str, str], *, first: Callable[[], None]
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, with the output of this process; `first` is called in it before."""
    return subprocess.Popen(command, env=dict(environment), start_new_session=True, preexec_fn=first)


def _command(program: Program, fds: Sequence[int], arguments: Sequence[str]) -> list[str]:
    script = _SCRIPT.format(module=program.module, purpose=program.purpose, imports_as_here=program.imports_as_here)
    path = [str(entry) or working_folder() for entry in sys.path]
    package = str(Path(__file__).parents[2])
    numbers = ",".join(map(str, (os.getpid(), *fds)))
    return [sys.executable, "-P", "-c", script, numbers, str(len(path)), package, *path, *arguments]


def working_folder() -> str:
    """The current folder; "" where it no longer exists."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def payload_memory(payload: bytes) -> int:
    """Write data for a child to anonymous memory: of any length, without waiting for the reader."""
    fd = anonymous_memory("torcheer-payload")
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(payload)
    return fd
