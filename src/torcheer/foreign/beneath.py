"""Opens files beneath a folder and no others: a link or a name that leads out of it is refused."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from functools import cache
from pathlib import Path
from typing import Any, Final

from torcheer.errors import BadArgument
from torcheer.terminal import short_repr

_MOST_LINKS: Final = 40
_OPENAT2: Final = 437  # the number of the call on every architecture
_BENEATH: Final = 0x08 | 0x02  # RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS
_AT_FDCWD: Final = -100
_READ: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)  # a named pipe would wait
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0)


class LeadsOut(BadArgument):
    """A name or a link that leads out of the folder that may be read."""


def open_beneath(folder: str | os.PathLike[str], name: str) -> int:
    """Open a file for reading and return its descriptor; raises `LeadsOut` where it lies outside of the folder.

    - `folder`: which may be a link itself.
    - `name`: of the file, from the folder on.

    Raises `FileNotFoundError`, and `BadArgument` for what is no file.
    """
    if not name or "\0" in name:
        raise BadArgument(f"{short_repr(name)} is no name of a file")
    try:
        descriptor = _opened(os.fspath(folder), name)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.ELOOP):
            raise LeadsOut(f"{short_repr(name)} leads out of {folder}, and only what lies in it is read") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadArgument(f"{short_repr(name)} is no file")
    return descriptor


def _opened(folder: str, name: str) -> int:
    call = _openat2()
    if call is None:
        return _walk(folder, name)
    at = os.open(folder, _FOLDER)
    try:
        return call(at, name)  # type: ignore[no-any-return]
    finally:
        os.close(at)


@cache
def _openat2() -> Any:
    """The system's own call; None where it has none, or a container forbids it."""
    if not hasattr(os, "O_PATH"):  # no Linux
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def call(at: int, name: str) -> int:
        how = (ctypes.c_uint64 * 3)(_READ, 0, _BENEATH)
        path = ctypes.c_char_p(os.fsencode(name))
        for _ in range(100):  # EAGAIN: a folder was renamed meanwhile
            descriptor = libc.syscall(_OPENAT2, at, path, ctypes.byref(how), ctypes.sizeof(how))
            if descriptor >= 0:
                return int(descriptor)
            if ctypes.get_errno() != errno.EAGAIN:
                break
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)

    try:
        os.close(call(_AT_FDCWD, "."))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EINVAL):
            return None
    return call


def _walk(folder: str, name: str) -> int:
    """The same, part by part: each is opened from the descriptor of the one before, and links are followed here."""
    folders = [os.open(folder, _FOLDER)]
    try:
        parts, links = _parts(name), 0
        while parts:
            part = parts.pop(0)
            if part == "..":
                if len(folders) == 1:
                    raise OSError(errno.EXDEV, "leads out", name)
                os.close(folders.pop())
                continue
            target = _link_at(folders[-1], part)
            if target is not None:
                links += 1
                if links > _MOST_LINKS or os.path.isabs(target):
                    raise OSError(errno.ELOOP if links > _MOST_LINKS else errno.EXDEV, "leads out", name)
                parts[:0] = _parts(target)
            elif parts:
                folders.append(os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folders[-1]))
            else:
                return os.open(part, _READ | os.O_NOFOLLOW, dir_fd=folders[-1])
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    finally:
        for descriptor in folders:
            os.close(descriptor)


def _parts(name: str) -> list[str]:
    if os.path.isabs(name):
        raise OSError(errno.EXDEV, "leads out", name)
    return [part for part in name.split(os.sep) if part not in ("", ".")]


def _link_at(folder: int, name: str) -> str | None:
    """Where a link leads; None for what is no link."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def home_of(path: Path) -> Path:
    """The folder that a file which somebody names may be read with: its own, or the repository of a hub's cache.

    There the files of a snapshot are links to `../../blobs`.
    """
    folder = path.parent
    is_snapshot = folder.parent.name == "snapshots" and (folder.parent.parent / "blobs").is_dir()
    return folder.parent.parent if is_snapshot else folder
