"""The viewer's process: reports its URL, ends with its parent or stays for those who still look."""

from __future__ import annotations

import os
import time
from typing import Final

from torcheer.errors import CannotWrite
from torcheer.wire.child_process import ONE_THREAD, ChildProcess, Program
from torcheer.wire.page_lifetime import alone_secs, terminal_fd
from torcheer.wire.temporary_folders import TemporaryFolder

_PROGRAM: Final = Program(
    "torcheer.studio.server", "serves a page that shows a network", "the studio", ONE_THREAD, imports_as_here=False
)
_START_SECS: Final = 60.0
_END_SECS: Final = 3.0
_TERMINATE_SECS: Final = 1.0

started_urls: Final = set[str]()  # pages of the viewers that this process has started


class ViewerProcess:
    """A viewer that serves `url`, which includes its token; ends by `end`, and with this process unless it `stays`."""

    def __init__(
        self, path: str | os.PathLike[str], *options: str, folder: TemporaryFolder | None = None,
        outlives: bool = False,
    ) -> None:  # fmt: skip
        """`path` is a run, a folder of runs, a recording or a host's socket; `options` are the server's.

        The viewer holds `folder`, too, and removes it if it is the last to do so. `outlives`: it shows a run that can
        be looked at after this process has ended, so it stays where a person sits at a terminal (`page_lifetime`).
        """
        secs = alone_secs() if outlives else 0.0
        self.stays = secs > 0
        fds = [] if folder is None else [folder.fd]
        options += () if folder is None else (f"--folder={folder.path}",)
        if self.stays:
            fds, options = [*fds, terminal_fd()], (*options, f"--stays={secs}")
        self._child = ChildProcess(_PROGRAM, [str(path), *options], fds=fds, captures=True)
        self.process = self._child.popen
        try:
            self.url = self._receive_url()
        except BaseException:
            self.end()
            raise
        started_urls.add(self.url)

    @property
    def error_output(self) -> str:
        """What it has printed; the last 8 KB."""
        return self._child.printed

    def end(self) -> None:
        """Ask it to end; kill it if it does not."""
        self._child.wire.send({"kind": "close"})  # tells this from the death of its parent
        if not self._child.wait(time.monotonic() + _END_SECS):
            self._child.terminate(time.monotonic() + _TERMINATE_SECS)
        self._child.close()

    def _receive_url(self) -> str:
        """Receive the URL that the server reports first; raise with what it printed if it reports none."""
        deadline, wire = time.monotonic() + _START_SECS, self._child.wire
        while (remaining_secs := deadline - time.monotonic()) > 0 and not wire.closed:
            for message in wire.exchange(remaining_secs):
                return str(message["url"])
        why = f"has not answered for {_START_SECS:g} s"
        if wire.closed:
            why = "has ended"
            self._child.wait(time.monotonic() + _END_SECS)
        raise CannotWrite(f"the studio could not be started: it {why}. {self.error_output or 'It said nothing.'}")
