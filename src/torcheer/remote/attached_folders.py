"""Local folders that stand for a URL: what is read in them is fetched, what is published in them is copied there.

Readers and writers call these for any path; for one that stands for nothing, they do nothing.
"""

from __future__ import annotations

import atexit
import os
import re
from pathlib import Path

from torcheer.disk import is_url, shown
from torcheer.errors import BadArgument
from torcheer.remote.remote_folder import RemoteFolder
from torcheer.wire.temporary_folders import TemporaryFolder

_attached: dict[Path, RemoteFolder] = {}
_folders: list[TemporaryFolder] = []


def attach(local: Path, url: str) -> RemoteFolder:
    """Let a local folder stand for a URL in all that this module does."""
    folder = _attached[Path(os.path.abspath(local))] = RemoteFolder(Path(os.path.abspath(local)), url)
    return folder


def open_url(url: str) -> RemoteFolder:
    """Attach a new temporary folder to a URL, and fetch the files at its top; removed when this process ends."""
    temporary = TemporaryFolder("remote")
    if not _folders:
        atexit.register(_remove_folders)
    _folders.append(temporary)
    folder = attach(temporary.path / re.sub(r"[^\w.-]+", "+", shown(url)), url)  # so that errors name it
    folder.local.mkdir()
    folder.fetch_folder(folder.local)
    return folder


def local_folder(path: str | os.PathLike[str]) -> Path:
    """Return a path as it is, and for a URL a folder that stands for it."""
    return open_url(str(path)).local if is_url(path) else Path(path)


def _remove_folders() -> None:
    for folder in _folders:
        folder.remove()


def attached(path: Path) -> RemoteFolder | None:
    """Return the remote folder that a path is in, or None."""
    if not _attached:
        return None
    absolute = Path(os.path.abspath(path))
    return next((_attached[place] for place in (absolute, *absolute.parents) if place in _attached), None)


def address(path: Path) -> Path | str:
    """Return the URL that a folder stands for, or the path itself: what another process can open."""
    folder = attached(path)
    return path if folder is None or Path(os.path.abspath(path)) != folder.local else folder.url


def name_of(path: Path) -> str:
    """Return a folder's URL as it may be printed, or its path."""
    folder = attached(path)
    return str(path) if folder is None or Path(os.path.abspath(path)) != folder.local else folder.shown


def suffixed(path: Path, suffix: str) -> Path:
    """Return the folder beside another whose name is longer by a suffix; of a folder that stands for a URL, fetched."""
    beside = address(path)
    return (
        open_url(beside.rstrip("/") + suffix).local if isinstance(beside, str) else path.with_name(path.name + suffix)
    )


def fetch_folder(path: Path) -> None:
    """Fetch the files of a folder if it stands for a remote one."""
    if folder := attached(path):
        folder.fetch_folder(Path(os.path.abspath(path)))


def fetch_file(path: Path) -> None:
    """Fetch a file if it stands for a remote one."""
    if folder := attached(path):
        folder.fetch_file(Path(os.path.abspath(path)))


def fill(file: Path, start: int, stop: int) -> None:
    """Fetch a range of a file of values if it stands for a remote one."""
    if folder := attached(file):
        folder.fill(Path(os.path.abspath(file)), start, stop)


def publish(path: Path) -> None:
    """Copy a file or folder that is complete to the URL that its folder stands for, if it does for one."""
    if folder := attached(path):
        folder.publish(Path(os.path.abspath(path)))


def publish_once(file: Path) -> None:
    """Copy a file unless there is one, if its folder stands for a remote one."""
    if folder := attached(file):
        folder.publish_once(Path(os.path.abspath(file)))


def upload(local: Path, url: str) -> None:
    """Copy a whole folder to a URL where there is none."""
    folder = RemoteFolder(Path(os.path.abspath(local)), url)
    if folder.has_other_files(folder.local):
        raise BadArgument(
            f"{folder.shown} is there already; save elsewhere: what others may be reading is not replaced"
        )
    folder.publish(folder.local)
