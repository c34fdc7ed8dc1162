"""Temporary folders held by a lock: the last holder removes it, the next start removes those of dead processes."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from torcheer.disk import require_unix

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK: Final = ".torcheer-temporary"  # marks such a folder; a run directory has another lock
_PREFIX: Final = "torcheer-"


class TemporaryFolder:
    """A private folder, deleted by its last holder, or after that one's death when the next folder is made.

    The lock belongs to the open file, not to a process: a child that inherits the descriptor holds the folder, too.
    """

    def __init__(self, kind: str) -> None:
        """`kind` becomes part of the folder's name."""
        require_unix(f"a temporary folder that processes share ({kind})")
        remove_stale()
        self._process = os.getpid()
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))  # only its owner may enter
        self.fd = os.open(self.path / f"{LOCK}-new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        os.rename(self.path / f"{LOCK}-new", self.path / LOCK)  # visible to others only once it is locked

    @classmethod
    def inherited(cls, path: Path, fd: int) -> TemporaryFolder:
        """Take over the folder of the parent process by the inherited descriptor."""
        folder = object.__new__(cls)
        folder._process, folder.path, folder.fd = os.getpid(), path, fd
        os.set_inheritable(fd, False)
        return folder

    def close(self) -> None:
        """Release the lock: the folder stays as long as another process holds it."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def remove(self) -> None:
        """Release the lock, and remove the folder unless another process holds it; in a fork, only release it."""
        self.close()
        if self._process == os.getpid():
            with suppress(OSError):  # removed before, or held by another process, which removes it
                _remove_if_stale(self.path)


def remove_stale() -> None:
    """Remove the folders that no process holds; never those of another user."""
    try:
        entries = [entry for entry in os.scandir(tempfile.gettempdir()) if entry.name.startswith(_PREFIX)]
    except OSError:
        return
    for entry in entries:
        try:
            _remove_if_stale(Path(entry.path))
        except OSError:  # another process removes it just now, or holds it
            continue


def is_held(path: Path) -> bool:
    """True for a folder of this user that a living process holds."""
    fd = -1
    try:
        fd = _open_lock(path)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        if fd >= 0:
            os.close(fd)
    return False


def _remove_if_stale(path: Path) -> None:
    fd = _open_lock(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(path)
    finally:
        os.close(fd)


def _open_lock(path: Path) -> int:
    """Open the lock of a folder of this user; raises `OSError` for all else."""
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(f"{path} is no folder of this user")
    return os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)


def _remove(path: Path) -> None:
    """Remove a folder, the lock file last: a half-removed folder is still recognized after its process dies."""
    for entry in list(os.scandir(path)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.name != LOCK:
            os.unlink(entry.path)
    shutil.rmtree(path, ignore_errors=True)
