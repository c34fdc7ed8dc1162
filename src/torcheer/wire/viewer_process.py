"""The viewer as a process of its own, beside the one that is looked at: it says where it listens, and is no orphan."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from torcheer.errors import CannotWrite
from torcheer.wire.temporary_folders import TemporaryFolder

_BEGIN: Final = """\
# torcheer.studio.server: serves a page that shows a network
import sys
first, rest = sys.argv[1], sys.argv[2].splitlines()
sys.path[:] = [first, *sys.path, *(entry for entry in rest if entry not in sys.path)]
from torcheer.studio.server import main
sys.exit(main(sys.argv[3:]))
"""
CLOSE: Final = b"close\n"
_START_SECS: Final = 60.0
_END_SECS: Final = 3.0


class Launched:
    """A viewer that answers at `url`, with its token; it ends with this process, or by `end`."""

    def __init__(self, path: str | os.PathLike[str], *options: str, folder: TemporaryFolder | None = None) -> None:
        """`path` is a run, a folder of runs, a recording or a host's socket; `options` are the server's.

        `folder` becomes the viewer's, which removes it when it ends.
        """
        self._printed: IO[bytes] | None = tempfile.TemporaryFile()
        self._last_said, self._folder = "", folder
        self.process = _started(Path(path), options, self._printed, folder)
        if folder is not None:
            folder.close()  # the viewer holds it
        try:
            self.url = self._first_line()
        except BaseException:
            self.end()
            raise

    @property
    def said(self) -> str:
        """What it has printed about its troubles."""
        if self._printed is None:
            return self._last_said
        size = os.fstat(self._printed.fileno()).st_size
        return os.pread(self._printed.fileno(), 8192, max(0, size - 8192)).decode("utf-8", "replace").strip()

    def end(self) -> None:
        """Let it end by closing its standard input; kill it where it does not."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            with suppress(OSError):  # it is gone already
                os.write(self.process.stdin.fileno(), CLOSE)  # so that it is not taken for this process's death
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(_END_SECS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self._printed is not None:
            self._last_said = self.said
            self._printed.close()
            self._printed = None
        if self._folder is not None:
            self._folder.remove()  # where it was killed

    def _first_line(self) -> str:
        """The address that the server prints; an error with what it said instead."""
        assert self.process.stdout is not None
        deadline, found = time.monotonic() + _START_SECS, b""
        while not found.endswith(b"\n"):
            left = deadline - time.monotonic()
            ready = select.select([self.process.stdout], [], [], max(0.0, left))[0]
            piece = os.read(self.process.stdout.fileno(), 4096) if ready else b""
            if not piece:
                why = "has ended" if ready else f"has not answered for {_START_SECS:g} s"
                if ready:
                    self.process.wait(_END_SECS)
                raise CannotWrite(f"the studio could not be started: it {why}. {self.said or 'It said nothing.'}")
            found += piece
        return found.decode().splitlines()[0]


def _started(
    path: Path, options: tuple[str, ...], printed: IO[bytes], folder: TemporaryFolder | None
) -> subprocess.Popen[bytes]:
    """A fresh interpreter in a session of its own: a Ctrl-C meant for the loop does not end it."""
    if not sys.executable:
        raise CannotWrite("there is no Python to start the studio with: sys.executable is empty")
    paths = "\n".join(entry for entry in sys.path if entry and "\n" not in entry)
    given = () if folder is None else (folder.fd,)
    owned = [] if folder is None else ["--folder", str(folder.path), "--folder-descriptor", str(folder.fd)]
    server = [str(path), "--parent", str(os.getpid()), *owned, *options]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _BEGIN, str(Path(__file__).parents[2]), paths, *server],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=printed, start_new_session=True, pass_fds=given,
        env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ},  # the cores are for the training
    )  # fmt: skip
