"""The folder of an archive: what it says of itself, its lock, and the two files of a segment as a writer holds them."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import zlib
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from weakref import WeakValueDictionary

from torcheer.archive.format import seals
from torcheer.archive.format.index_frames import VERSION, frame, head, scan, strict_json, to_json
from torcheer.errors import ArchiveBusy, ArchiveDamaged, BadArgument, NotAnArchive

FORMAT = "torcheer archive"
_NAME = re.compile(r"([0-9]{6}|[1-9][0-9]{6,})\.(index|data)")
CHECK_MARK = b',"crc32":'  # the last key of archive.json: of the bytes before it


def begin(path: Path, about: dict[str, Any], *, sync: bool) -> None:
    """Say what a new archive is; leave an old one as it is."""
    if (path / "archive.json").exists() or segments_of(path):
        read_about(path)
        return
    if not isinstance(about, dict):
        raise BadArgument(f"about={about!r}: what an archive is about is a dictionary")
    said = {"format": FORMAT, "version": VERSION, "seals": "twice", "about": about}
    text = to_json(said, "what an archive is about")[:-1]
    text += CHECK_MARK + b"%d}" % zlib.crc32(text)
    part = path / ".archive.json.part"
    with open(part, "wb") as file:
        file.write(text)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    part.replace(path / "archive.json")
    if sync:
        sync_folder(path)


def read_about(path: Path) -> dict[str, Any]:
    """What an archive says of itself; raises where there is none that we can read."""
    return read_head(path)[0]


def read_head(path: Path) -> tuple[dict[str, Any], bool]:
    """What an archive says of itself, and whether its seals stand in a file of their own, too."""
    file = path / "archive.json"
    if not file.is_file():
        if segments_of(path):
            raise ArchiveDamaged(f"{path} has segments, but its {file.name} is missing")
        raise NotAnArchive(f"{path} holds no archive: there is no {file.name} in it")
    text = file.read_bytes()
    found = strict_json(text, str(file))
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise NotAnArchive(f"{path} holds no archive: {file.name} is not one of ours")
    version, about = found.get("version"), found.get("about")
    if type(version) is not int or version != VERSION:
        raise NotAnArchive(f"{path} is of version {version!r}, and this torcheer reads version {VERSION}: update it")
    if text != text.rpartition(CHECK_MARK)[0] + CHECK_MARK + b"%d}" % zlib.crc32(text.rpartition(CHECK_MARK)[0]):
        raise ArchiveDamaged(f"{file} is not what was written: its checksum differs")
    if not isinstance(about, dict):
        raise ArchiveDamaged(f"{file} cannot be read: its about is no object")
    return about, found.get("seals") == "twice"


def segments_of(path: Path) -> list[int]:
    """The numbers of the segments there are, in order; raises where one is missing."""
    numbers = sorted(int(file.stem) for file in files_of(path) if file.suffix == ".index")
    if numbers != list(range(len(numbers))):
        raise ArchiveDamaged(f"{path}: segments {numbers} are there; one between them is missing")
    return numbers


def files_of(path: Path) -> list[Path]:
    """The files of the segments; raises where one is no file: reading a device or a pipe might never end."""
    found = [file for file in path.glob("[0-9]*") if _NAME.fullmatch(file.name)]
    for file in found:
        if not file.is_file():
            raise ArchiveDamaged(f"{file} is not a regular file; a segment of an archive is one")
    return found


def segment_files(path: Path, number: int) -> tuple[Path, Path]:
    """The index and the data file of a segment."""
    return path / f"{number:06}.index", path / f"{number:06}.data"


def sync_folder(path: Path) -> None:
    """Have the names in a folder survive a loss of power, too."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class WritingLock:
    """The right to write to an archive: held until it is released, let go of, or its process ends."""

    _held: WeakValueDictionary[tuple[int, int], WritingLock] = WeakValueDictionary()

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        found = path.stat()
        key = (found.st_dev, found.st_ino)
        other = WritingLock._held.get(key)
        self.process = os.getpid()
        # lockf keeps out other processes only, and closing a second descriptor would release the first one's lock.
        if other is not None and other.process == self.process and not other._file.closed:
            raise ArchiveBusy(f"{path} is being written by this process; close that Writer first, or write elsewhere")
        self._file: BinaryIO = open(path / "LOCK", "ab", buffering=0)
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise ArchiveBusy(f"{path} is being written by another process; wait for it, or write elsewhere") from None
        WritingLock._held[key] = self

    def release(self) -> None:
        """Let others write."""
        self._file.close()


class Committed(NamedTuple):
    """How far a segment counts; replaced in one go, so that an interrupt cannot leave half of it."""

    frames: int
    last: int  # CRC-32 of the last frame's body
    index_end: int
    data_end: int
    sealed: bool = False


class Segment:
    """The two files of a segment, and how far they count; a new one where there is none."""

    def __init__(self, path: Path, number: int, *, sync: bool) -> None:
        self._path, self.number = path, number
        index, data = segment_files(path, number)
        copied = {at: check for at, check in seals.copies(path).items() if at >= number}
        new = not index.exists()
        found = scan(b"" if new else index.read_bytes(), number, str(index))
        for fault in seals.faults(path, copied, {number: found.final}, {}, twice=read_head(path)[1]):
            raise ArchiveDamaged(fault)
        self._index, self._data = _opened(index), _opened(data)
        found.check_data(os.fstat(self._data.fileno()).st_size, str(data))
        sealed = found.seal is not None
        self.committed = Committed(len(found.frames), found.last, found.end, found.data_end, sealed)
        self.more = found.more  # whether another segment was to follow
        self.dirty = False  # whether there may be bytes that do not count
        if found.final is not None:
            seals.complete(path, number)
        if sealed:
            return
        self.forget()
        if not found.end:
            self._put(self._index, head(number), 0)
            self.committed = self.committed._replace(index_end=len(head(number)))
        if new and sync:
            sync_folder(path)

    def put(self, data: Any, at: int) -> None:
        """Write values; they count once a frame that names them is committed."""
        self.dirty = True
        self._put(self._data, data, at)

    def commit(self, body: dict[str, Any], data_end: int, *, sync: bool) -> None:
        """Write a frame: from here on the step is there."""
        was = self.committed
        text, check = frame(body, was.last)
        if sync:
            os.fsync(self._data.fileno())
        self.dirty = True
        self._put(self._index, text, was.index_end)
        if sync:
            os.fsync(self._index.fileno())
        self.committed = Committed(was.frames + 1, check, was.index_end + len(text), data_end, "seal" in body)
        self.dirty = False

    def seal(self, *, more: bool, sync: bool) -> None:
        """Say that this segment ends here, and whether another follows; where none does, in two places."""
        was = self.committed
        body = {"seal": {"frames": was.frames, "bytes": was.data_end, "more": more}}
        if not more:
            seals.announce(self._path, self.number, frame(body, was.last)[1], sync=sync)
        self.commit(body, was.data_end, sync=sync)
        if not more:
            seals.confirm(self._path, self.number)
            if sync:
                sync_folder(self._path)

    def forget(self) -> None:
        """Take away whatever does not count."""
        for file, end in ((self._data, self.committed.data_end), (self._index, self.committed.index_end)):
            if os.fstat(file.fileno()).st_size != end:  # or ext4 would write everything out when the file is closed
                os.ftruncate(file.fileno(), end)
        self.dirty = False

    def sync(self) -> None:
        """Wait until the disk has everything."""
        os.fsync(self._data.fileno())
        os.fsync(self._index.fileno())

    def is_at(self, path: Path) -> bool:
        """Whether its files are those that stand under their names in a folder."""
        try:
            return all(
                os.path.samestat(os.fstat(file.fileno()), name.stat())
                for file, name in zip((self._index, self._data), segment_files(path, self.number))
            )
        except OSError:
            return False

    def close(self) -> None:
        """Let go of the files, as they are."""
        self._index.close()
        self._data.close()

    @staticmethod
    def _put(file: BinaryIO, data: Any, at: int) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(file.fileno(), rest, at)
            rest, at = rest[written:], at + written


def _opened(path: Path) -> BinaryIO:
    """A file object, because it closes itself when nobody holds it; "r+b" would not make the file."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
