"""The one way to disk: files that are whole or absent, locks between processes, checked JSON.

A write goes to a hidden name beside its target, is fsynced, renamed, and its folder fsynced: after a kill or a power
loss the target is the old one or the new one. Files that grow (segments of an archive, CSV and JSON lines) are
appended to by their owners.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import struct
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Final
from weakref import WeakValueDictionary

from torcheer.errors import ArchiveBusy, ArchiveDamaged, CannotWrite, TorcheerError
from torcheer.terminal import short_repr

# -- whole files and folders -------------------------------------------------------------------------------------------

_NAME_BYTES: Final = 180  # of the target's name in that of its temporary file: a file system takes 255 in all
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_NO_FOLDER_SYNC: Final = (errno.EINVAL, errno.EOPNOTSUPP, errno.EACCES)  # of network file systems, or not readable
_numbers = count()


def _host() -> str:
    """Return a short name of this host, or container: a process of another one cannot be asked whether it runs."""
    namespace = "/proc/self/ns/pid"
    container = os.readlink(namespace) if os.path.exists(namespace) else ""
    return f"{zlib.crc32((os.uname().nodename + container).encode()):08x}"


_HOST: Final = _host()
_PART: Final = re.compile(rf"\.part-{_HOST}-([0-9]+)-[0-9]+-.*", re.DOTALL)


def write_file(path: Path, data: bytes | str, *, sync: bool = True) -> None:
    """Write a whole file, and the folders that it is in; a refusal says what to try.

    `sync=False` leaves it to the system when it reaches the disk: a power loss may leave an empty file.
    """
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, sync=sync) as part:
            part.write_bytes(data.encode() if isinstance(data, str) else data)


def write_once(path: Path, data: bytes | str) -> None:
    """Write a whole file unless there is one: of processes that begin at the same time, the first one's stays."""
    with _temporary(path) as part:
        write_in_place(part, data.encode() if isinstance(data, str) else data)
        try:
            os.link(part, path)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.replace(part, path)
        sync_folder(path.parent)


def append(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Append lines in one write, so that no reader sees a part of one; all of them or none.

    `sync=False` leaves the fsync to the system: for what can be made again.
    """
    remaining = memoryview(data)
    with explain_write_errors(path):
        try:
            file = open(path, "ab", buffering=0)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)  # not at each call: it takes as long as the rest
            file = open(path, "ab", buffering=0)
        with file:
            size = file.seek(0, os.SEEK_END)
            try:
                while remaining:
                    remaining = remaining[file.write(remaining) :]
                if sync:
                    os.fsync(file.fileno())
            except OSError:
                file.truncate(size)
                raise


@contextmanager
def replacing(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path`, with its suffix, for a file or folder that then replaces `path`.

    If the body fails nothing is left of it. Files in a folder are fsynced by whoever writes them.
    """
    with _temporary(path) as part:
        yield part
        if sync:
            sync_folder(part) if part.is_dir() else _sync(part)
        try:
            os.replace(part, path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR) or not part.is_dir():
                raise
            _swap_folders(part, path)
        if sync:
            sync_folder(path.parent)


def write_in_place(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a file under its own name and fsync it: for a folder that is renamed when all its files are there."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def rename_durably(old: Path, new: Path) -> None:
    """Rename a file or folder within its folder, or below it, so that the new name survives a power loss."""
    old.rename(new)
    sync_folder(old.parent)
    if new.parent != old.parent:
        sync_folder(new.parent)


def sync_folder(path: Path) -> None:
    """Fsync a folder, so that the names in it survive a power loss."""
    try:
        _sync(path)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def _remove(path: Path) -> None:
    """Remove a file, a link or a whole folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield an unused path beside `path`, removed at the end; so are those of killed processes, at the start.

    The name is this process's own: two that write the same file do not mix their bytes.
    """
    _remove_leftovers(path.parent)
    name = path.name.encode(errors="surrogateescape")[-_NAME_BYTES:].decode(errors="ignore")
    part = path.with_name(f".part-{_HOST}-{os.getpid()}-{next(_numbers)}-{name}")
    try:
        yield part
    finally:
        _remove(part)


def _remove_leftovers(folder: Path) -> None:
    with suppress(OSError):  # a folder that may not be listed or changed
        for entry in os.scandir(folder):
            match = _PART.fullmatch(entry.name)
            if match and not _is_running(int(match[1])):
                _remove(Path(entry.path))


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's
        return True
    return True


def _swap_folders(part: Path, path: Path) -> None:
    """Move what is at `path` aside and remove it once `part` is there: no system call swaps folders everywhere."""
    old = path.with_name(f".{path.name}.old")
    _remove(old)
    os.replace(path, old)
    os.replace(part, path)
    sync_folder(path.parent)
    _remove(old)


# -- what the system refuses -------------------------------------------------------------------------------------------

_ADVICE: Final = {
    errno.ENOSPC: "Free some space",
    errno.EDQUOT: "Free some of your quota",
    errno.EROFS: "Use a folder that is not mounted read-only",
    errno.EACCES: "Use a folder that you may write to",
    errno.EPERM: "Use a folder that you may write to",
    errno.EMFILE: "Close other files, or raise the limit on open files (ulimit -n)",
    errno.ENFILE: "Close other files: the whole system has too many open",
    errno.EFBIG: "Raise the limit on the size of files (ulimit -f)",
}


@contextmanager
def explain_write_errors(path: Path, kept: str = "") -> Iterator[None]:
    """Turn an OSError of the body into CannotWrite: the path, the system's words, what is kept, what to try."""
    try:
        yield
    except OSError as error:
        if isinstance(error, TorcheerError):  # of another file that is written within: it says all but this
            if not isinstance(error, CannotWrite) or kept.strip() in str(error):
                raise
            raise CannotWrite(error.errno, f"{error.strerror}. {kept.strip()}") from error
        advice = _ADVICE.get(error.errno or 0, "See what the system says of this disk")
        raise CannotWrite(error.errno, f"{path}: {error.strerror or error}. {kept}{advice}, and go on") from error


# -- locks -------------------------------------------------------------------------------------------------------------

LOCK: Final = "LOCK"
_FLOCK: Final = "@hhqqi0q"  # struct flock on Linux: type, whence, start, length, process


class FolderLock:
    """The lock file of a folder, open; what is locked is free again when this is closed, or its process ends.

    By `lockf`: unlike `flock`, it is not inherited by forked workers, which may outlive a killed process. It keeps out
    other processes only, and closing a second descriptor would free it: so a process opens it once.
    """

    _open: WeakValueDictionary[tuple[int, int], FolderLock] = WeakValueDictionary()
    _opening = threading.Lock()

    def __init__(self, folder: Path, being: str = "written") -> None:
        """`being`: what is done to the folder, for the text of a refusal ("written", "trained")."""
        folder.mkdir(parents=True, exist_ok=True)
        self.process = os.getpid()
        with FolderLock._opening:
            if FolderLock.of(folder) is not None:
                raise ArchiveBusy(f"{folder} is being {being} by this process; close that first, or use another folder")
            self._file: BinaryIO = open(folder / LOCK, "ab", buffering=0)
            FolderLock._open[_identity(folder)] = self

    @staticmethod
    def of(folder: Path) -> FolderLock | None:
        """Return the lock file of a folder that this process has open."""
        lock = FolderLock._open.get(_identity(folder))
        return lock if lock is not None and lock.process == os.getpid() and not lock._file.closed else None

    def acquire(self, byte: int | None = None) -> bool:
        """Lock the whole folder, or one byte, which stands for a part of it; False where another process has it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, *(() if byte is None else (1, byte)))
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return False
        return True

    def release(self, byte: int) -> None:
        """Free one byte."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)

    def close(self) -> None:
        """Free everything."""
        self._file.close()


def lock_folder(folder: Path, being: str = "written") -> FolderLock:
    """Lock a whole folder, created if missing; raise ArchiveBusy where it is locked."""
    lock = FolderLock(folder, being)
    try:
        if lock.acquire():
            return lock
    except BaseException:
        lock.close()
        raise
    lock.close()
    raise ArchiveBusy(f"{folder} is being {being} by another process; wait for it, stop it, or use another folder")


def lock_holder(folder: Path) -> int:
    """Return the pid of the process that has locked a folder; 0 where there is none, or it is unknown."""
    if FolderLock.of(folder) is not None:
        return os.getpid()  # to open and close the file would free it
    try:
        with open(folder / LOCK, "rb") as file:
            query = struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
            lock = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, query))
    except OSError:
        return 0
    return int(lock[4]) if sys.platform == "linux" and lock[0] != fcntl.F_UNLCK else 0


def _identity(folder: Path) -> tuple[int, int]:
    try:
        status = folder.stat()
    except OSError:
        return -1, -1
    return status.st_dev, status.st_ino


# -- JSON --------------------------------------------------------------------------------------------------------------

_DECODER, _ENCODER = json.JSONDecoder(), json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_CHECKSUM: Final = b',"crc32":'  # the last key of a checked file: the checksum of all bytes before it


def strict_json(text: bytes, where: str) -> Any:
    """Parse JSON in UTF-8; reject duplicate keys and NaN."""
    with suppress(ValueError, RecursionError):
        value = _DECODER.decode(text.decode())
        if _ENCODER.encode(value).encode() == text:  # as we write it: it can have neither, and this is faster
            return value
    try:
        return json.loads(text.decode(), object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise ArchiveDamaged(f"{where} cannot be read: {short_repr(str(error))}") from None


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object from a file; None where there is no file."""
    if not path.is_file():
        return None
    contents = strict_json(path.read_bytes(), str(path))
    if not isinstance(contents, dict):
        raise ArchiveDamaged(f"{path} is not one of ours: it holds no JSON object")
    return contents


def with_checksum(text: bytes) -> bytes:
    """Add a checksum as the last key of a JSON object."""
    return text[:-1] + _CHECKSUM + b"%d}" % zlib.crc32(text[:-1])


def has_checksum(text: bytes) -> bool:
    """Return whether a text is as `with_checksum` made it."""
    body, key, crc = text.rpartition(_CHECKSUM)
    return bool(key) and crc == b"%d}" % zlib.crc32(body)


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError(f"a key stands twice among {short_repr([key for key, _ in pairs])}")
    return mapping


def _reject_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
