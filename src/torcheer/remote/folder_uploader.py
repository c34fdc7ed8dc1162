"""A folder that grows here and is copied to a URL in the background, each time that is asked for."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from torcheer.errors import TorcheerError
from torcheer.remote.remote_folder import RemoteFolder
from torcheer.terminal import notice

CHECKPOINTS: Final = "checkpoints"
RUN: Final = "run.json"
_MANIFEST: Final = "MANIFEST.json"
_POLL_SECS: Final = 0.2


class FolderUploader:
    """Copies a run: its log first, then its checkpoints, and removes there the checkpoints that were removed here.

    An error is printed, and what was not copied is copied with the next request: training goes on.
    """

    def __init__(self, local: Path, url: str) -> None:
        self._folder = RemoteFolder(Path(os.path.abspath(local)), url)
        self._wanted, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="torcheer-upload", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Copy what has changed, soon."""
        self._wanted.set()

    def close(self) -> None:
        """Copy what has changed since the last request, and wait for it."""
        self._ended.set()
        self._wanted.set()
        while self._thread.is_alive():  # with a limit, so that Ctrl-C works
            self._thread.join(_POLL_SECS)

    def _run(self) -> None:
        said = ""
        while True:
            self._wanted.wait()
            self._wanted.clear()
            is_last = self._ended.is_set()
            try:
                self._copy_all()
            except (TorcheerError, OSError) as error:
                problem = getattr(error, "strerror", None) or str(error)
                if problem != said:  # once: it may last as long as the run
                    notice(
                        "remote",
                        f"{problem}; it is tried again with each checkpoint, and when this run is started again",
                    )
                said = problem
            if is_last:
                return

    def _copy_all(self) -> None:
        """Copy one state of the folder: the checkpoints that were complete before its log was read."""
        folder, home = self._folder, self._folder.local / CHECKPOINTS
        checkpoints = [path.parent for path in home.glob(f"*/{_MANIFEST}") if not path.parent.name.startswith(".")]
        places = (path for path in folder.local.iterdir() if path != home)
        for place in sorted(places, key=lambda path: (path.name != RUN, path)):  # so that it is known as a run at once
            folder.publish(place)
        for checkpoint in checkpoints:
            folder.publish(checkpoint)
        here = {path.name for path in checkpoints}
        for name in folder.list_tree(home, _MANIFEST):
            if name not in here and not (home / name).exists():
                folder.remove(home / name, first=_MANIFEST)
