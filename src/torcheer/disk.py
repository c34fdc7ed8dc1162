"""The one way to disk: files that are whole or absent, locks between processes, checked JSON.

A write goes to a hidden name beside its target, is fsynced, renamed, and its folder fsynced: after a kill or a power
loss the target is the old one or the new one. Files that grow (segments of an archive, CSV and JSON lines) are
appended to by their owners.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import shutil
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakValueDictionary

from torcheer.errors import (
    ArchiveBusy,
    ArchiveDamaged,
    BadArgument,
    CannotWrite,
    NotAnArchive,
    TorcheerError,
    UnsupportedSystem,
)
from torcheer.ranks import is_main
from torcheer.terminal import notice, short_repr

StrPath = str | os.PathLike[str]  # a file or a folder, as a caller names it

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# -- whole files and folders -------------------------------------------------------------------------------------------

_NAME_BYTES: Final = 180  # of the target's name in that of its temporary file: a file system takes 255 in all
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_NO_FOLDER_SYNC: Final = (errno.EINVAL, errno.EOPNOTSUPP, errno.EACCES)  # of network file systems, or not readable
_FOLDER_IS_THERE: Final = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EACCES)  # the last on Windows
_BINARY: Final = getattr(os, "O_BINARY", 0)  # without it, Windows translates the ends of lines
_numbers = count()
_seeking = threading.Lock()  # where a file has one position for all threads


def _host() -> str:
    """Return a short name of this host, or container: a process of another one cannot be asked whether it runs."""
    namespace = "/proc/self/ns/pid"
    container = os.readlink(namespace) if os.path.exists(namespace) else ""
    return f"{zlib.crc32((platform.node() + container).encode()):08x}"


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
            if error.errno not in _FOLDER_IS_THERE or not part.is_dir():
                raise
            _swap_folders(part, path)
        if sync:
            sync_folder(path.parent)


_URL: Final = re.compile(r"[a-z][a-z0-9+.-]+:/(/)?", re.IGNORECASE)


def is_url(path: object) -> bool:
    """Return whether a path is a URL, such as s3://bucket/run; raise for one that has lost a slash."""
    match = _URL.match(str(path)) if isinstance(path, str | os.PathLike) else None
    if match is not None and not match[1]:
        name = str(path)
        raise BadArgument(
            f"{name!r} is a URL that has lost a slash, as in a Path: give {name.replace(':/', '://', 1)!r} as a "
            f"string, or for a folder of this name {f'./{name}'!r}"
        )
    return match is not None


def shown(url: str) -> str:
    """Return a URL as it may be printed: without a user, password or query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def local_path(path: str | os.PathLike[str], instead: str) -> Path:
    """Return a path as one; raise for a URL, saying what to write instead."""
    if is_url(path):
        raise BadArgument(f"{shown(str(path))} is a URL, and this grows in a local folder: {instead}")
    return Path(path)


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


def open_descriptor(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Open a file as `os.open` does, for bytes on every system."""
    return os.open(path, flags | _BINARY, 0o666)


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
    descriptor = open_descriptor(path, os.O_RDWR if os.name == "nt" and path.is_file() else os.O_RDONLY)
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
    if os.name == "nt":  # there `kill` with 0 is Ctrl-C
        return True
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


def write_at(file: BinaryIO, data: Any, offset: int) -> None:
    """Write all bytes at a place of a file; another thread may write elsewhere in it."""
    remaining = memoryview(data)
    while remaining:
        if hasattr(os, "pwrite"):
            written = os.pwrite(file.fileno(), remaining, offset)
        else:
            with _seeking:
                os.lseek(file.fileno(), offset, os.SEEK_SET)
                written = os.write(file.fileno(), remaining)
        remaining, offset = remaining[written:], offset + written


def read_at(file: int, target: memoryview, offset: int) -> int:
    """Read bytes of a descriptor from a place on into `target`; return how many, 0 at the end of the file."""
    if hasattr(os, "preadv"):
        return os.preadv(file, [target], offset)
    with _seeking:
        os.lseek(file, offset, os.SEEK_SET)
        data = os.read(file, len(target))
    target[: len(data)] = data
    return len(data)


# -- what the system refuses -------------------------------------------------------------------------------------------

_ADVICE: Final = {
    errno.ENOSPC: "Free some space",
    errno.EDQUOT: "Free some of your quota",
    errno.EROFS: "Use a folder that is not mounted read-only",
    errno.EACCES: "Use a folder that you may write to",
    errno.EPERM: "Use a folder that you may write to",
    errno.EMFILE: "Close other files, or raise the limit on open files (ulimit -n)",
    errno.ENFILE: "Close other files: the whole system has too many open",
    errno.ESTALE: "Mount the storage again: the server has lost this file",
    errno.ENOENT: "See who removes this folder while it is written: a person, a clean-up, or the server has lost it",
    errno.EFBIG: "Raise the limit on the size of files (ulimit -f)",
}
_UNSURE: Final = (errno.ESTALE, errno.ENOENT)  # what was written before may be lost as well


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
        kept = "" if error.errno in _UNSURE else kept
        raise CannotWrite(error.errno, f"{path}: {error.strerror or error}. {kept}{advice}, and go on") from error


# -- locks -------------------------------------------------------------------------------------------------------------

LOCK: Final = "LOCK"
_MOUNTS: Final = Path("/proc/self/mountinfo")
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # NFS without its lock service, Lustre without flock
_LOCAL_LOCKS: Final = (
    "nolock",
    "local_lock=posix",
    "local_lock=all",
    "localflock",
)  # of a mount: NFS, NFS, NFS, Lustre
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
        self._can_note = True
        self.problem = ""  # why locks do not keep other processes out; "" where they do
        with FolderLock._opening:
            if FolderLock.of(folder) is not None:
                raise ArchiveBusy(f"{folder} is being {being} by this process; close that first, or use another folder")
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | _BINARY, 0o666)
            self._file: BinaryIO = open(handle, "r+b", buffering=0)
            FolderLock._open[_identity(folder)] = self
        self.problem = _lock_problem(folder, self._file)
        if fcntl is None:
            _say_once_that_there_are_no_locks()
        elif self.problem and is_main():
            text = f"{folder} is on storage {self.problem}: a second process that writes here is not noticed"
            notice("disk", text)

    @staticmethod
    def of(folder: Path) -> FolderLock | None:
        """Return the lock file of a folder that this process has open."""
        lock = FolderLock._open.get(_identity(folder))
        return lock if lock is not None and lock.process == os.getpid() and not lock._file.closed else None

    def acquire(self, byte: int | None = None) -> bool:
        """Lock the whole folder, or one byte, which stands for a part of it; False where another process has it.

        Where there are no locks (`problem`), nobody is known to have it.
        """
        if self.problem:
            return True
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, *(() if byte is None else (1, byte)))
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return False
        return True

    def release(self, byte: int) -> None:
        """Free one byte."""
        if self.problem:
            return
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)

    def note(self, number: int) -> None:
        """Leave a number in the file, at once: it outlives the process, not a power failure."""
        if self._can_note:
            try:
                self._file.seek(0)
                self._file.write(struct.pack("<q", number))
            except OSError:  # storage that cannot write within a file, or is full: no number is better than an old one
                self._can_note = False
                with suppress(OSError):
                    self._file.truncate(0)

    def close(self) -> None:
        """Free everything."""
        self._file.close()


def noted_number(folder: Path) -> int | None:
    """Return the number that was last left in the lock file of a folder; None where there is none."""
    lock = FolderLock.of(folder)
    try:
        if lock is not None:  # to open and close the file once more would free it
            lock._file.seek(0)
            data = lock._file.read(8)
        else:
            data = (folder / LOCK).read_bytes()
    except OSError:
        return None
    return int(struct.unpack("<q", data)[0]) if len(data) == 8 else None


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
    if fcntl is None:
        return 0
    try:
        with open(folder / LOCK, "rb") as file:
            lock = _query_lock(file)
    except OSError:
        return 0
    return int(lock[4]) if sys.platform == "linux" and lock[0] != fcntl.F_UNLCK else 0


def _query_lock(file: BinaryIO) -> tuple[int, ...]:
    """Ask who has locked a file, and lock nothing."""
    query = struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
    return struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, query))


@cache
def _say_once_that_there_are_no_locks() -> None:
    text = "this system has no locks between processes: a second process that writes to a folder is not noticed"
    print(f"torcheer: {text}", file=sys.stderr, flush=True)


def _lock_problem(folder: Path, file: BinaryIO) -> str:
    """Return why the locks of a folder do not keep other processes out; "" where they do."""
    if fcntl is None:
        return "of a system without locks (fcntl)"
    if sys.platform != "linux":
        return ""
    try:
        _query_lock(file)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return f"without locks ({error.strerror})"
    option = local_lock_option(folder)
    return f"whose locks hold on one machine only (mounted with {option})" if option else ""


def local_lock_option(folder: Path, mounts: Path = _MOUNTS) -> str:
    """Return the option of a folder's mount with which locks do not reach other machines, or ""."""
    options = _mount(folder, mounts)[1].split(",")
    return next((option for option in _LOCAL_LOCKS if option in options), "")


def _identity(folder: Path) -> tuple[int, int]:
    try:
        status = folder.stat()
    except OSError:
        return -1, -1
    return status.st_dev, status.st_ino


def has_unix() -> bool:
    """Return whether processes can share locks, sockets and memory as Unix has them; Windows has no such."""
    return fcntl is not None and hasattr(socket, "AF_UNIX")


def require_unix(what: str) -> None:
    """Raise `UnsupportedSystem` where processes cannot share locks, sockets and memory as Unix has them."""
    if not has_unix():
        raise UnsupportedSystem(
            f"{what} needs Unix (fcntl, Unix sockets): use Linux, macOS or WSL; capture, drawing, autograd, archives, "
            "and extraction and training in one process work here"
        )


# -- storage that several machines share -------------------------------------------------------------------------------

_NETWORK: Final = ("nfs", "nfs4", "lustre", "cifs", "smb3", "ceph", "beegfs", "gpfs", "afs", "fuse")
LATE_SECS: Final = 60.0  # until a machine sees what another one wrote: the longest that NFS remembers, as it is mounted
_LATE_POLL_SECS, _LATE_NOTICE_SECS = 0.1, 2.0
_Read = TypeVar("_Read")


def is_network_storage(folder: Path, mounts: Path = _MOUNTS) -> bool:
    """Return whether other machines may write to a folder: what they do is seen late, and not all of it at once."""
    return _mount(folder, mounts)[0].partition(".")[0] in _NETWORK


def patiently(read: Callable[[], _Read], folder: Path) -> _Read:
    """Return what a function reads of a folder; on network storage, where it may not be whole yet, try for a while."""
    start, is_told = time.monotonic(), False
    while True:
        try:
            return read()
        except (ArchiveDamaged, NotAnArchive, FileNotFoundError):
            waited = time.monotonic() - start
            if waited > LATE_SECS or not is_network_storage(folder):
                raise
        if waited > _LATE_NOTICE_SECS and not is_told:
            is_told = True
            text = f"{folder} is not whole on this machine; waiting {LATE_SECS:g} s for its storage"
            notice("disk", text)
        time.sleep(_LATE_POLL_SECS)


def _mount(folder: Path, mounts: Path) -> tuple[str, str]:
    """Return the type of file system that a folder is on, and the options that it is mounted with."""
    try:
        lines = [line.split() for line in mounts.read_text(encoding="utf-8").splitlines()]
    except OSError:  # no Linux
        return "", ""
    target = f"{os.path.realpath(folder)}/"
    places = {line[4].replace("\\040", " ").rstrip("/") + "/": line for line in lines}
    place = max((place for place in places if target.startswith(place)), key=len, default="")
    if not place:  # a chroot is not told what it lies on
        return "", ""
    line = places[place]
    return line[-3], f"{line[5]},{line[-1]}"


# -- JSON --------------------------------------------------------------------------------------------------------------

_MOST_JSON_BYTES: Final = 64 << 20
_CHECKSUM: Final = b',"crc32":'  # the last key of a checked file: the checksum of all bytes before it


def strict_json(text: bytes, where: str) -> Any:
    """Parse JSON in UTF-8; reject duplicate keys and NaN."""
    try:
        return _DECODER.decode(text.decode())
    except (ValueError, RecursionError) as error:
        raise ArchiveDamaged(f"{where} cannot be read: {short_repr(str(error))}") from None


def loose_json(path: Path) -> Any:
    """Read JSON from a small file that people may have edited; raises `ArchiveDamaged`, and `OSError` without one."""
    try:
        return json.loads(_small_file(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ArchiveDamaged):
            raise
        raise ArchiveDamaged(f"{path} cannot be read: {short_repr(str(error))}") from None


def _small_file(path: Path) -> bytes:
    """The bytes of a regular file that is not too large to be parsed."""
    size = path.stat().st_size
    if size > _MOST_JSON_BYTES or not path.is_file():
        raise ArchiveDamaged(f"{path} is no file of at most {_MOST_JSON_BYTES:,} bytes: it has {size:,}")
    return path.read_bytes()


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object from a file; None where there is no file."""
    if not path.is_file():
        return None
    contents = strict_json(_small_file(path), str(path))
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


_DECODER = json.JSONDecoder(object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant)
