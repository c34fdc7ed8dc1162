"""The folder of an archive: header (archive.json) and the segments' files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from torcheer.archive.format import seals
from torcheer.archive.format.index_frames import VERSION, encode_frame, index_header, scan_index, to_json
from torcheer.disk import has_checksum, open_descriptor, strict_json, sync_folder, with_checksum, write_at, write_file
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive

FORMAT = "torcheer archive"
_SEGMENT_NAME = re.compile(r"([0-9]{6}|[1-9][0-9]{6,})\.(index|data)")


def write_header(path: Path, about: dict[str, Any], *, sync: bool) -> None:
    """Write the header of a new archive; check and keep that of an existing one."""
    if (path / "archive.json").exists() or list_segments(path):
        read_about(path)
        return
    if not isinstance(about, dict):
        raise BadArgument(f"about={about!r}: what an archive is about is a dictionary")
    header = {"format": FORMAT, "version": VERSION, "seals": "twice", "about": about}
    write_file(path / "archive.json", with_checksum(to_json(header, "what an archive is about")), sync=sync)


def read_about(path: Path) -> dict[str, Any]:
    """Read the metadata (`about`) of an archive; raise where there is no readable archive."""
    return read_header(path)[0]


def read_header(path: Path) -> tuple[dict[str, Any], bool]:
    """Read the metadata (`about`) of an archive, and whether it keeps copies of its seals."""
    file = path / "archive.json"
    if not file.is_file():
        if list_segments(path):
            raise ArchiveDamaged(f"{path} has segments, but its {file.name} is missing")
        raise NotAnArchive(f"{path} holds no archive: there is no {file.name} in it")
    text = file.read_bytes()
    header = strict_json(text, str(file))
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise NotAnArchive(f"{path} holds no archive: {file.name} is not one of ours")
    version, about = header.get("version"), header.get("about")
    if type(version) is not int or version != VERSION:
        raise NotAnArchive(f"{path} is of version {version!r}, and this torcheer reads version {VERSION}: update it")
    if not has_checksum(text):
        raise ArchiveDamaged(f"{file} is not what was written: its checksum differs")
    if not isinstance(about, dict):
        raise ArchiveDamaged(f"{file} cannot be read: its about is no object")
    return about, header.get("seals") == "twice"


def list_segments(path: Path) -> list[int]:
    """List the segment numbers in order; raise where one is missing."""
    numbers = sorted(int(file.stem) for file in list_segment_files(path) if file.suffix == ".index")
    if numbers != list(range(len(numbers))):
        raise ArchiveDamaged(f"{path}: segments {numbers} are there; one between them is missing")
    return numbers


def list_segment_files(path: Path) -> list[Path]:
    """List the segments' files.

    Raise on anything but a regular file: reading a device or pipe might never end.
    """
    files = [file for file in path.glob("[0-9]*") if _SEGMENT_NAME.fullmatch(file.name)]
    for file in files:
        if not file.is_file():
            raise ArchiveDamaged(f"{file} is not a regular file; a segment of an archive is one")
    return files


def segment_paths(path: Path, number: int) -> tuple[Path, Path]:
    """Return the paths of a segment's index and data file."""
    return path / f"{number:06}.index", path / f"{number:06}.data"


class CommitState(NamedTuple):
    """Committed extent of a segment.

    Replaced in one assignment, so that an interrupt cannot leave half of it.
    """

    frames: int
    last_crc: int  # CRC-32 of the last frame's body
    index_end: int
    data_end: int
    sealed: bool = False


class Segment:
    """Index and data file of a segment, open for writing; created where they do not exist."""

    def __init__(self, path: Path, number: int, *, sync: bool) -> None:
        self._path, self.number = path, number
        index, data = segment_paths(path, number)
        seal_copies = {segment: crc for segment, crc in seals.read_copies(path).items() if segment >= number}
        is_new = not index.exists()
        scan = scan_index(b"" if is_new else index.read_bytes(), number, str(index))
        for fault in seals.find_faults(
            path, seal_copies, {number: scan.final_seal_crc}, {}, keeps_copies=read_header(path)[1]
        ):
            raise ArchiveDamaged(fault)
        self._index, self._data = _open_or_create(index), _open_or_create(data)
        self._identities = [(str(index), os.fstat(self._index.fileno())), (str(data), os.fstat(self._data.fileno()))]
        scan.check_data(os.fstat(self._data.fileno()).st_size, str(data))
        sealed = scan.seal is not None
        self.committed = CommitState(scan.steps, scan.last_crc, scan.end, scan.data_end, sealed)
        self.expects_next = scan.expects_next  # whether another segment was to follow
        self.dirty = False  # whether there may be uncommitted bytes
        if scan.final_seal_crc is not None:
            seals.publish_pending_copy(path, number)
        if sealed:
            return
        self.rollback()
        if not scan.end:
            write_at(self._index, index_header(number), 0)
            self.committed = self.committed._replace(index_end=len(index_header(number)))
        if is_new and sync:
            sync_folder(path)

    def write_values(self, data: Any, offset: int) -> None:
        """Write values; they become visible once a frame that names them is committed."""
        self.dirty = True
        write_at(self._data, data, offset)

    def commit(self, body: dict[str, Any], data_end: int, *, sync: bool) -> None:
        """Write a frame, which commits its step."""
        before = self.committed
        text, crc = encode_frame(body, before.last_crc)
        if sync:
            os.fsync(self._data.fileno())
        self.dirty = True
        write_at(self._index, text, before.index_end)
        if sync:
            os.fsync(self._index.fileno())
        self.committed = CommitState(before.frames + 1, crc, before.index_end + len(text), data_end, "seal" in body)
        self.dirty = False

    def seal(self, *, more: bool, sync: bool) -> None:
        """Seal the segment: no frames follow.

        `more` announces another segment. The final seal is stored twice.
        """
        state = self.committed
        body = {"seal": {"frames": state.frames, "bytes": state.data_end, "more": more}}
        if not more:
            seals.write_pending_copy(self._path, self.number, encode_frame(body, state.last_crc)[1], sync=sync)
        self.commit(body, state.data_end, sync=sync)
        if not more:
            seals.publish_copy(self._path, self.number)
            if sync:
                sync_folder(self._path)

    def rollback(self) -> None:
        """Truncate both files to what is committed."""
        for file, end in ((self._data, self.committed.data_end), (self._index, self.committed.index_end)):
            if os.fstat(file.fileno()).st_size != end:  # or ext4 would write everything out when the file is closed
                os.ftruncate(file.fileno(), end)
        self.dirty = False

    def sync_values(self) -> None:
        """Sync the values that were written; any thread may, until the segment is closed."""
        getattr(os, "fdatasync", os.fsync)(self._data.fileno())  # macOS has only the second

    def sync(self) -> None:
        """Fsync both files."""
        os.fsync(self._data.fileno())
        os.fsync(self._index.fileno())

    def duplicates(self) -> list[int]:
        """Duplicate the descriptors of both files, the data first."""
        return [os.dup(self._data.fileno()), os.dup(self._index.fileno())]

    def is_in_place(self) -> bool:
        """Return whether the open files are still the ones under their names in the folder."""
        try:
            return all(os.path.samestat(identity, os.stat(name)) for name, identity in self._identities)
        except OSError:
            return False

    def close(self) -> None:
        """Close both files without truncating or sealing them."""
        try:
            self._index.close()
        finally:
            self._data.close()


def sync_and_close(descriptors: list[int]) -> None:
    """Fsync what `Segment.duplicates` gave, and close it."""
    try:
        for descriptor in descriptors:
            os.fsync(descriptor)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _open_or_create(path: Path) -> BinaryIO:
    """Open a file for reading and writing, created if missing ("r+b" would not create it).

    A file object rather than a descriptor: it closes itself when garbage-collected.
    """
    return os.fdopen(open_descriptor(path, os.O_RDWR | os.O_CREAT), "r+b", buffering=0)
