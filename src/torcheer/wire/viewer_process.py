"""The viewer's process: started with a fresh interpreter, prints its URL, ends with its parent."""

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

_SCRIPT: Final = """\
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


class ViewerProcess:
    """A viewer that serves `url`, which includes its token; ends with this process, or by `end`."""

    def __init__(self, path: str | os.PathLike[str], *options: str, folder: TemporaryFolder | None = None) -> None:
        """`path` is a run, a folder of runs, a recording or a host's socket; `options` are the server's.

        The viewer takes over `folder` and removes it when it ends.
        """
        self._errors: IO[bytes] | None = tempfile.TemporaryFile()
        self._last_errors, self._folder = "", folder
        self.process = _start(Path(path), options, self._errors, folder)
        if folder is not None:
            folder.close()  # the viewer holds it from here on
        try:
            self.url = self._read_url()
        except BaseException:
            self.end()
            raise

    @property
    def error_output(self) -> str:
        """What it has written to standard error; the last 8 KB."""
        if self._errors is None:
            return self._last_errors
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), 8192, max(0, size - 8192)).decode("utf-8", "replace").strip()

    def end(self) -> None:
        """End it by closing its standard input; kill it if it does not end."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            with suppress(OSError):  # it has ended already
                os.write(self.process.stdin.fileno(), CLOSE)  # tells this from the death of its parent
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(_END_SECS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self._errors is not None:
            self._last_errors = self.error_output
            self._errors.close()
            self._errors = None
        if self._folder is not None:
            self._folder.remove()  # where it was killed

    def _read_url(self) -> str:
        """Read the URL that the server prints first; raise with its error output if it prints none."""
        assert self.process.stdout is not None
        deadline, output = time.monotonic() + _START_SECS, b""
        while not output.endswith(b"\n"):
            remaining_secs = deadline - time.monotonic()
            ready = select.select([self.process.stdout], [], [], max(0.0, remaining_secs))[0]
            piece = os.read(self.process.stdout.fileno(), 4096) if ready else b""
            if not piece:
                why = "has ended" if ready else f"has not answered for {_START_SECS:g} s"
                if ready:
                    self.process.wait(_END_SECS)
                raise CannotWrite(
                    f"the studio could not be started: it {why}. {self.error_output or 'It said nothing.'}"
                )
            output += piece
        return output.decode().splitlines()[0]


def _start(
    path: Path, options: tuple[str, ...], errors: IO[bytes], folder: TemporaryFolder | None
) -> subprocess.Popen[bytes]:
    """Start a fresh interpreter in a new session: a Ctrl-C meant for the training loop does not end it."""
    if not sys.executable:
        raise CannotWrite("there is no Python to start the studio with: sys.executable is empty")
    paths = "\n".join(entry for entry in sys.path if entry and "\n" not in entry)
    inherited_fds = () if folder is None else (folder.fd,)
    folder_options = [] if folder is None else ["--folder", str(folder.path), "--folder-descriptor", str(folder.fd)]
    server = [str(path), "--parent", str(os.getpid()), *folder_options, *options]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _SCRIPT, str(Path(__file__).parents[2]), paths, *server],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True, pass_fds=inherited_fds,
        env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ},  # leave the cores to the training
    )  # fmt: skip
