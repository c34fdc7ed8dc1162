"""The host's listening socket in the file system: private, with a short enough path, one per directory."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Final

from torcheer.disk import require_unix
from torcheer.errors import CannotWrite, TorcheerError
from torcheer.wire import fork_registry
from torcheer.wire.socket_lines import Address
from torcheer.wire.temporary_folders import TemporaryFolder

NAME: Final = "control.sock"
_OWNER_ONLY: Final = 0o600


class HostBusy(TorcheerError, BlockingIOError):
    """Another process listens in the same directory."""


class ListeningSocket:
    """A socket that listens at `path` until it is closed; without a directory in a private temporary folder."""

    def __init__(self, directory: Path | None) -> None:
        require_unix("a studio that controls this process")
        self._temporary: TemporaryFolder | None = None
        self._process = os.getpid()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.path = self._bind_private() if directory is None else self._bind_in(directory)
            self.socket.listen(16)
            self.socket.setblocking(False)
            self._identity = _identity(self.path)
        except OSError as error:
            self.socket.close()
            self.remove_folder()
            if isinstance(error, TorcheerError):
                raise
            raise CannotWrite(f"no socket can be made in {directory}: {error}; try another directory") from error
        fork_registry.register(self)

    def _bind_private(self) -> Path:
        self._temporary = TemporaryFolder("socket")
        return self._bind(self._temporary.path / NAME)

    def _bind_in(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory.absolute() / NAME
        self._remove_stale(path)
        try:
            return self._bind(path)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise HostBusy(f"{path} was taken by another process just now; try again") from None
        # A file system without sockets, or a system without a short way to a long path: the socket lies elsewhere.
        path.symlink_to(self._bind_private())
        return path

    def _bind(self, path: Path) -> Path:
        with Address(path) as address:
            self.socket.bind(address)
        os.chmod(path, _OWNER_ONLY)  # no client can have connected: it does not listen yet
        return path

    @staticmethod
    def _remove_stale(path: Path) -> None:
        """Remove the socket of a dead process; raise where a living one listens."""
        if not os.path.lexists(path):
            return
        if path.exists() and not path.is_socket():
            raise HostBusy(f"{path} is there and is no socket; move it away")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, Address(path) as address:
            probe.settimeout(1.0)
            try:
                probe.connect(address)
            except (ConnectionRefusedError, FileNotFoundError):
                path.unlink(missing_ok=True)
                return
            except OSError:  # its backlog is full: it is alive
                pass
        raise HostBusy(
            f"another process listens at {path}: it trains in this directory. Stop it, or take another directory"
        )

    def after_fork(self) -> None:
        """Close what a forked process has inherited, removing nothing."""
        self.socket.close()
        if self._temporary is not None:
            self._temporary.close()

    def close(self) -> None:
        """Stop listening and remove the socket file, unless another process has replaced it.

        The private folder stays, for what else lies in it, until `remove_folder`.
        """
        self.socket.close()
        if self._process == os.getpid() and _identity(self.path) == self._identity:
            self.path.unlink(missing_ok=True)

    @property
    def is_private(self) -> bool:
        """True if it lies in a private folder, which goes with its owner."""
        return self._temporary is not None and self.path.parent == self._temporary.path

    @property
    def folder(self) -> TemporaryFolder | None:
        """The private folder that it lies in."""
        return self._temporary if self.is_private else None

    def remove_folder(self) -> None:
        """Remove the private folder, if there is one and no viewer holds it."""
        if self._temporary is not None:
            self._temporary.remove()


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = os.lstat(path)
    except OSError:
        return (-1, -1)
    return status.st_dev, status.st_ino
