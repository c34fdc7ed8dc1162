"""A folder behind a URL, by fsspec: files are copied there once they are complete, and read range by range.

Values are copied first, then the index that names them, then seals, and last the
file that says a folder is complete; they are read in the opposite order, and files only grow. So whenever a writer is
killed, a reader finds an older state or the whole, and checksums are those of the files themselves.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from torcheer.disk import LOCK, replacing, shown, write_at, write_file
from torcheer.errors import ArchiveDamaged, BadArgument, CannotRead, CannotWrite, TorcheerError
from torcheer.terminal import did_you_mean

_LAZY: Final = ".data"  # the suffix of files whose ranges are fetched when they are read: the values of an archive
_ORDER: Final = (_LAZY, ".index", ".seal")  # what is copied after all else of a folder, and before what completes it
_ARCHIVE: Final = "archive.json"
_LAST: Final = (_ARCHIVE, "MANIFEST.json", "complete.json")  # say that a folder is complete
_HAVE_BUCKETS: Final = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci", "oss")
_BLOCK_BYTES: Final = 1 << 20  # what is fetched at least
_LEFT_AT_HOME: Final = ("checkpoints",)  # folders of a run that `fetch_tree` leaves out: they are fetched one by one


class RemoteFolder:
    """A URL and the local folder that stands for it, filled as it is read."""

    def __init__(self, local: Path, url: str) -> None:
        self.local, self.url, self.shown = local, url, shown(url)
        self._file_systems: dict[int, Any] = {}  # process -> fsspec's object: a fork needs its own
        self._versions: dict[Path, object] = {}  # file -> what was fetched or copied of it
        self._blocks: dict[Path, bytearray] = {}  # values fetched in part -> a byte for each block: whether it is here
        self._changing = threading.Lock()
        self._root = _open(url)[1].rstrip("/")
        if not self._root:
            raise BadArgument(f"{url} names no folder: give one, such as {url.rstrip('/')}//bucket/run")

    @property
    def fs(self) -> Any:
        """Return fsspec's file system of this process."""
        process = os.getpid()
        if process not in self._file_systems:
            self._file_systems[process] = _open(self.url)[0]
        return self._file_systems[process]

    def key(self, path: Path) -> str:
        """Return the name of a file or folder on the storage."""
        inner = path.relative_to(self.local).as_posix()
        return self._root if inner == "." else f"{self._root}/{inner}"

    # -- reading -------------------------------------------------------------------------------------------------------

    def listing(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Return what the storage knows of each file in a folder, by name."""
        with self._explained("read"):
            try:
                entries = self.fs.ls(self.key(folder), detail=True, refresh=True)
            except (FileNotFoundError, NotADirectoryError):
                return {}
        files = (entry for entry in entries if entry["type"] == "file")
        return {entry["name"].rpartition("/")[2]: entry for entry in files}

    def fetch_folder(self, folder: Path) -> bool:
        """Fetch the files of a folder, of values only their size; return whether there are any.

        An archive that was not copied to its end is not there: its writer was killed, or is at work.
        """
        names = sorted(self.listing(folder), key=_copy_order, reverse=True)
        if _ARCHIVE not in names and any(name.endswith(_ORDER) for name in names):
            return False
        for name in names:
            if not name.endswith(_LAZY):
                self.fetch_file(folder / name)
        for name, entry in self.listing(folder).items() if any(name.endswith(_LAZY) for name in names) else ():
            if name.endswith(_LAZY):  # listed after the index was read, which names no more than there is
                self._make_sparse(folder / name, int(entry["size"]))
        return bool(names)

    def fetch_tree(self) -> None:
        """Fetch the files of all folders, values and checkpoints left out."""
        inner = (name.rpartition("/")[0] for name in self.files())
        for folder in sorted({name for name in inner if name.partition("/")[0] not in _LEFT_AT_HOME}):
            self.fetch_folder(self.place(folder))

    def files(self) -> dict[str, int]:
        """Return the sizes of all files, by their paths in the folder: what is copied last of a folder comes first."""
        with self._explained("read"):
            self.fs.invalidate_cache()
            try:
                entries = self.fs.find(self._root, detail=True)
            except FileNotFoundError:
                return {}
        sizes = {name.removeprefix(f"{self._root}/"): int(entry["size"]) for name, entry in entries.items()}
        order = sorted(sizes, key=lambda name: (name.rpartition("/")[0], -_copy_order(name.rpartition("/")[2]), name))
        return {name: sizes[name] for name in order}

    def copy_here(self, name: str, to: Path | None = None) -> None:
        """Copy a whole file from the storage to its place here, or to another; it replaces what is there."""
        target = self.place(name) if to is None else to
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as part, self._explained("read"):
            self.fs.get_file(f"{self._root}/{name}", str(part))

    def place(self, name: str) -> Path:
        """Return where a file or folder of the storage lies here; raise for a name that would lead elsewhere."""
        if ".." in name.split("/") or name.startswith("/"):
            raise ArchiveDamaged(f"{self.shown} has a file named {name!r}, which is none of ours")
        return self.local / name

    def fetch_file(self, file: Path) -> bool:
        """Fetch a whole file, again if it has changed; return whether it is there. A file of this machine stays."""
        if file.exists() and file not in self._versions:
            return True
        with self._explained("read"):
            try:
                version = _version(self.fs.info(self.key(file), refresh=True))
                if file.exists() and self._versions.get(file) == version:
                    return True
                data = self.fs.cat_file(self.key(file))
            except FileNotFoundError:
                return False
        write_file(file, data, sync=False)
        self._versions[file] = version
        return True

    def _make_sparse(self, file: Path, size: int) -> None:
        """Make a local file of the size of a remote one, without its bytes.

        A mark beside it tells it from a file of this machine: forked processes share the folder, not what they know.
        """
        mark = file.with_name(f".{file.name}.remote")
        with self._changing:
            if file.exists() and not mark.exists():
                return
            file.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
            blocks = self._blocks.setdefault(file, bytearray())
            with open(file, "ab") as local:
                if size > local.tell():  # files only grow
                    if blocks and local.tell() % _BLOCK_BYTES:
                        blocks[-1] = 0  # it was shorter
                    local.truncate(size)
            blocks.extend(bytes(max(0, -(-size // _BLOCK_BYTES) - len(blocks))))

    def fill(self, file: Path, start: int, stop: int) -> None:
        """Fetch a range of a file of values, unless it is here."""
        blocks = self._blocks.get(file)
        if blocks is None or stop <= start:
            return
        with self._changing:
            missing = [n for n in range(start // _BLOCK_BYTES, -(-stop // _BLOCK_BYTES)) if not blocks[n]]
        for first, last in _runs(missing):
            begin, end = first * _BLOCK_BYTES, min((last + 1) * _BLOCK_BYTES, file.stat().st_size)
            with self._explained("read"):
                data = self.fs.cat_file(self.key(file), start=begin, end=end)
            if len(data) != end - begin:
                raise ArchiveDamaged(f"{self.shown}: {file.name} has changed while it was read; open it again")
            with open(file, "r+b", buffering=0) as local:
                write_at(local, data, begin)
            with self._changing:
                blocks[first : last + 1] = b"\1" * (last + 1 - first)

    def has(self, file: Path) -> bool:
        """Return whether the storage has a file."""
        with self._explained("read"):
            self.fs.invalidate_cache()
            try:
                self.fs.info(self.key(file))  # not `exists`, which takes any error for an absence
            except FileNotFoundError as error:
                if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
                    raise error.__cause__ from None  # of HTTP: a server that is not there
                return False
            return True

    def list_tree(self, folder: Path, name: str) -> list[str]:
        """Return the folders directly in a folder that have a file of a name."""
        with self._explained("read"):
            self.fs.invalidate_cache()
            try:
                keys = self.fs.find(self.key(folder))
            except FileNotFoundError:
                return []
        inner = (key.removeprefix(f"{self.key(folder)}/").split("/") for key in keys)
        return sorted(parts[0] for parts in inner if parts[1:] == [name])

    # -- writing -------------------------------------------------------------------------------------------------------

    def publish(self, path: Path) -> None:
        """Copy a file, or a folder and all in it that has changed; in each folder, what completes it goes last.

        A folder that is removed meanwhile is left out.
        """
        if not path.is_dir():
            files = [path] if _is_copied(path, path.parent) else []
        else:
            files = [file for file in path.rglob("*") if _is_copied(file, path)]
        for parent in sorted({file.parent for file in files}):
            try:
                self._publish_files([file for file in files if file.parent == parent])
            except FileNotFoundError:
                if parent.exists():
                    raise

    def _publish_files(self, files: list[Path]) -> None:
        """Copy files of one folder. Indexes are read before values are copied, which meanwhile may grow."""
        changed = [file for file in files if self._versions.get(file) != _local_version(file)]
        changed.sort(key=lambda file: _copy_order(file.name))
        versions = {file: _local_version(file) for file in changed}
        texts = {file: file.read_bytes() for file in changed if _copy_order(file.name) > 1}
        for file in changed:
            with self._explained("written"):
                self._copy(file, texts.get(file))
            self._versions[file] = versions[file]

    def has_other_files(self, folder: Path) -> bool:
        """Return whether a folder has files that are no rest of an archive whose copying was interrupted."""
        return any(not name.endswith(_ORDER) for name in self.listing(folder))

    def remove(self, folder: Path, first: str) -> None:
        """Remove a folder from the storage, the file that says it is complete first."""
        with self._explained("written"):
            self.fs.rm_file(f"{self.key(folder)}/{first}")
            self.fs.rm(self.key(folder), recursive=True)

    def _copy(self, file: Path, text: bytes | None, mode: str = "overwrite") -> None:
        """Copy a file, or what was read of it; with mode "create", raise FileExistsError where there is one."""
        key = self.key(file)

        def copy() -> None:
            self.fs.put_file(str(file), key) if text is None else self.fs.pipe_file(key, text, mode=mode)

        try:
            copy()
        except FileNotFoundError:  # storage with folders
            if not file.exists():
                raise
            self._check_bucket()
            self.fs.makedirs(key.rpartition("/")[0], exist_ok=True)
            copy()

    def _check_bucket(self) -> None:
        """Raise where there is no bucket: `makedirs` would make one, in the account of whoever misspelt its name."""
        bucket = self._root.partition("/")[0]  # "" of storage that has folders from its root on
        if bucket and not self.fs.exists(bucket):
            raise CannotWrite(errno.ENOENT, f"{self.shown}: there is no bucket {bucket!r}; create it, or give another")

    def check_bucket(self) -> None:
        """Raise where the storage has buckets and not this one; before anything is read or written."""
        if self.url.partition("://")[0] in _HAVE_BUCKETS:
            with self._explained("read"):
                self._check_bucket()

    def publish_once(self, file: Path) -> None:
        """Copy a file unless there is one; then fetch that one in its place, where the storage can tell."""
        with self._explained("written"):
            try:
                self._copy(file, file.read_bytes(), "create")
                self._versions[file] = _version(self.fs.info(self.key(file), refresh=True))
            except FileExistsError:
                self._versions[file] = None
        self.fetch_file(file)

    def release(self, folder: Path) -> None:
        """Remove the local files of a folder that was copied; they are fetched again when they are read."""
        for file in folder.iterdir():
            self._versions.pop(file, None)
        shutil.rmtree(folder)

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turn an error of the storage into one of ours, without what a URL may hide."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, FileExistsError, TorcheerError):
            raise
        except Exception as error:  # each storage has its own
            text = f"{self.shown} cannot be {doing}: {_plain(error, self.url)}"
            if doing == "written":
                raise CannotWrite(getattr(error, "errno", None), f"{text}. What is complete there stays") from None
            raise CannotRead(text) from None


def _plain(error: Exception, url: str) -> str:
    return f"{type(error).__name__}: {error}".replace(url, shown(url))


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each run of consecutive numbers."""
    first = last = -1
    for number in numbers:
        if number != last + 1 or first < 0:
            if first >= 0:
                yield first, last
            first = number
        last = number
    if first >= 0:
        yield first, last


def _copy_order(name: str) -> int:
    """Return when a file of a folder is copied: values, the rest, index, seals, what completes it."""
    if name in _LAST:
        return len(_ORDER) + 2
    suffix = os.path.splitext(name)[1]
    if suffix in _ORDER:
        return _ORDER.index(suffix) + (0 if suffix == _LAZY else 2)
    return 1


def _is_copied(file: Path, root: Path) -> bool:
    """Return whether a file belongs to what is complete: no lock, no socket, nothing that is being written."""
    inner = file.relative_to(root).parts
    return file.is_file() and file.name != LOCK and not any(part.startswith(".") for part in inner)


def _local_version(file: Path) -> object:
    status = file.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def _version(entry: dict[str, Any]) -> object:
    """Return what changes with a remote file, as far as its storage says."""
    return entry["size"], *(str(entry.get(key)) for key in ("ETag", "LastModified", "mtime", "created"))


def _open(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise TorcheerError(f"{shown(url)}: a URL needs fsspec: pip install 'torcheer[all]'") from None
    try:
        # Not an instance that another process has: a fork may not use its parent's.
        found: tuple[Any, str] = fsspec.core.url_to_fs(url, skip_instance_cache=True)
    except ImportError as error:
        raise TorcheerError(f"{shown(url)}: {error}") from None
    except ValueError as error:
        scheme, known = url.partition("://")[0], fsspec.available_protocols()
        if scheme in known:
            raise BadArgument(f"{shown(url)}: {_plain(error, url)}") from None
        hint = did_you_mean(scheme, known) or " Storage such as file, s3, gs, az or sftp can be used."
        raise BadArgument(f"{shown(url)}: fsspec knows no storage {scheme!r}.{hint}") from None
    return found
