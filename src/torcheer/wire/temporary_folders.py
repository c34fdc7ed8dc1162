"""Temporary folders that are held by a lock: who holds one removes it, and the next start clears those of the dead."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

LOCK: Final = ".torcheer-temporary"  # what makes a folder one of these; a run's directory has another
_PREFIX: Final = "torcheer-"


class TemporaryFolder:
    """A private folder, which goes with `remove`, or with the next one that is made after its holder's death.

    The lock belongs to the open file, not to a process: a child that is given the descriptor holds the folder, too.
    """

    def __init__(self, kind: str) -> None:
        """`kind` is a part of its name."""
        clear()
        self._process = os.getpid()
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))  # only its owner may enter
        self.fd = os.open(self.path / f"{LOCK}-new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        os.rename(self.path / f"{LOCK}-new", self.path / LOCK)  # found by others when it is locked, not before

    @classmethod
    def inherited(cls, path: Path, fd: int) -> TemporaryFolder:
        """The folder of the process that started this one, by the descriptor that it gave."""
        folder = object.__new__(cls)
        folder._process, folder.path, folder.fd = os.getpid(), path, fd
        os.set_inheritable(fd, False)
        return folder

    def close(self) -> None:
        """Hold it no longer: it stays for as long as another does."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def remove(self) -> None:
        """Remove it; again, or in a forked process, this does nothing but let go."""
        if self._process == os.getpid() and (self.path / LOCK).exists():
            _remove(self.path)
        self.close()


def clear() -> None:
    """Remove the folders that nobody holds any more; never those of another user."""
    try:
        found = [one for one in os.scandir(tempfile.gettempdir()) if one.name.startswith(_PREFIX)]
    except OSError:
        return
    for one in found:
        try:
            _clear(Path(one.path))
        except OSError:  # another start clears it just now, or it is held
            continue


def _clear(path: Path) -> None:
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return
    fd = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(path)
    finally:
        os.close(fd)


def _remove(path: Path) -> None:
    """The lock goes last: a folder that is half removed when its process dies is still known as one of these."""
    for entry in list(os.scandir(path)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.name != LOCK:
            os.unlink(entry.path)
    shutil.rmtree(path, ignore_errors=True)
