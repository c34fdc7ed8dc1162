"""The socket's place in the file system: private, short enough, and never in another process's way."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Final

from torcheer.errors import CannotWrite, TorcheerError
from torcheer.wire.socket_lines import Address
from torcheer.wire.temporary_folders import TemporaryFolder

NAME: Final = "control.sock"
_OWNER_ONLY: Final = 0o600


class HostBusy(TorcheerError, BlockingIOError):
    """Another process listens in the same directory."""


class Doorway:
    """A socket that listens at `path` until it is closed; without a directory in a private temporary folder."""

    def __init__(self, directory: Path | None) -> None:
        self._temporary: TemporaryFolder | None = None
        self._process = os.getpid()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.path = self._private() if directory is None else self._in(directory)
            self.socket.listen(16)
            self.socket.setblocking(False)
            self._identity = _identity(self.path)
        except OSError as error:
            self._give_up()
            if isinstance(error, TorcheerError):
                raise
            raise CannotWrite(f"no socket can be made in {directory}: {error}; try another directory") from error

    def _private(self) -> Path:
        self._temporary = TemporaryFolder("socket")
        return self._bound(self._temporary.path / NAME)

    def _in(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory.absolute() / NAME
        self._make_room(path)
        try:
            return self._bound(path)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise HostBusy(f"{path} was taken by another process just now; try again") from None
        # A file system without sockets, or a system that knows no short way to a long path: the socket lies elsewhere.
        path.symlink_to(self._private())
        return path

    def _bound(self, path: Path) -> Path:
        with Address(path) as address:
            self.socket.bind(address)
        os.chmod(path, _OWNER_ONLY)  # nobody can have come: it does not listen yet
        return path

    @staticmethod
    def _make_room(path: Path) -> None:
        """Take away what a dead process left; refuse where a living one listens."""
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
            except OSError:  # its backlog is full: it lives
                pass
        raise HostBusy(
            f"another process listens at {path}: it trains in this directory. Stop it, or take another directory"
        )

    def let_go(self) -> None:
        """In a forked process: close what was inherited, remove nothing."""
        self.socket.close()
        if self._temporary is not None:
            self._temporary.close()

    def close(self) -> None:
        """Stop listening and remove the socket, unless another has taken its place."""
        self.socket.close()
        if self._process == os.getpid():
            if _identity(self.path) == self._identity:
                self.path.unlink(missing_ok=True)
            self._give_up()

    def _give_up(self) -> None:
        self.socket.close()
        if self._temporary is not None:
            self._temporary.remove()


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = os.lstat(path)
    except OSError:
        return (-1, -1)
    return found.st_dev, found.st_ino
