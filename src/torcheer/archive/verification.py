"""Looking at an archive with doubt: what of it can be trusted, and a sentence for each thing that cannot."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from torcheer.archive.format import seals
from torcheer.archive.format.archive_folder import CHECK_MARK, files_of, read_about, read_head, segment_files
from torcheer.archive.format.archive_reader import Archive
from torcheer.archive.format.index_frames import (
    HEAD_BYTES,
    Entry,
    frame_begins,
    frame_starts,
    head,
    read_entry,
    read_frame,
    strict_json,
)
from torcheer.archive.format.record_json import from_plain
from torcheer.archive.progress import Told, tell_nobody
from torcheer.archive.value_names import layer_labels
from torcheer.encoding import cut
from torcheer.errors import ArchiveDamaged, NotAnArchive, TorcheerError
from torcheer.terminal import plural


def examine(path: str | os.PathLike[str], told: Told = tell_nobody) -> Examined:
    """Look at every value of an archive, damaged or not."""
    problem = ""
    try:
        Archive(path)
    except TorcheerError as error:
        problem = str(error)
    found = Examined(path)
    found.check(told)
    if problem and not found.lost:  # damage that cost nothing
        found.lost.append(problem)
    return found


class Examined(Archive):
    """An archive of which only what can be trusted is read; `lost` says what cannot."""

    def __init__(self, path: str | os.PathLike[str]) -> None:  # Archive's own would stop at the first damage
        self.path = Path(path)
        self.frames, self.entries, self._maps, self._checked = [], [], {}, set()
        self.torn_bytes, self.sealed = 0, False
        self.lost: list[str] = []
        self.lost_entries: list[Entry] = []
        self._labels: dict[str, str] = {}
        numbers = _numbers(self.path)
        copied, self._finals = seals.copies(self.path), dict[int, int | None]()
        about = self._read_about() if numbers else read_about(self.path)
        for number in range(len(numbers) and numbers[-1] + 1):
            self._examine(number, last=number == numbers[-1])
        self.about = self._guessed() if about is None else about
        twice = about is not None and read_head(self.path)[1]
        self.lost += seals.faults(self.path, copied, self._finals, self.about, twice=twice)
        self.entries = [entry for body in self.frames for entry in body["entries"]]
        self._labels = layer_labels(self)

    def check(self, told: Told) -> None:
        """Look at every value, and keep only those that are what was written."""
        for body in self.frames:
            body["entries"] = [entry for entry in body["entries"] if self._is_good(entry, told)]
        self.entries = [entry for body in self.frames for entry in body["entries"]]

    def _is_good(self, entry: Entry, told: Told) -> bool:
        told(entry.stored)
        if entry.offset + entry.stored > len(self.mapped(entry.segment)):
            self._lose(entry, "it lies outside of the data file")
            return False
        try:
            self.memory(entry)
        except ArchiveDamaged:
            self._lose(entry, "it is not what was written")
            return False
        return True

    def _lose(self, entry: Entry, why: str) -> None:
        item = f" item {entry.item}" if entry.item >= 0 else ""
        layer = self._labels.get(entry.layer, entry.layer)
        self.lost.append(f"step {entry.step}: {cut(layer)} {cut(entry.variable)[1:-1]}{item}: {why}")
        self.lost_entries.append(entry)

    def _read_about(self) -> dict[str, Any] | None:
        file = self.path / "archive.json"
        try:
            return read_about(self.path)
        except TorcheerError as error:
            if isinstance(error, NotAnArchive) and _is_intact(file):
                raise  # somebody else's, or of a version to come
            self.lost.append(f"what the archive says of itself: {file.name} is missing or damaged")
            return None

    def _guessed(self) -> dict[str, Any]:
        """What an archive is about, from its frames: a history can be told."""
        about = self.frames[0]["about"] if len(self.frames) == 1 else {}
        try:
            info, *_ = from_plain(deepcopy(about))  # reading uses it up
        except ArchiveDamaged:
            return {}
        parameters = any(entry.variable == "stored" for entry in self.frames[0]["entries"])
        return {"kind": "history", "model": info.model, "parameters": parameters}

    def _examine(self, number: int, last: bool) -> None:
        index, data = segment_files(self.path, number)
        if not data.exists():
            self._maps[number] = memoryview(bytearray())
        if not index.exists():
            size = len(self.mapped(number))
            self.lost.append(f"segment {number}: its index is missing, and with it what its {size} bytes of values are")
            return
        text = index.read_bytes()
        before: int | None = 0  # checksum of the frame before; None where that cannot be told
        for piece in _pieces(text, number):
            self._piece(number, text, piece, last)
            if piece.body and before is not None and piece.body.get("after") != before:
                self.lost.append(f"segment {number}: a step or more, before byte {piece.at} of its index")
            before = piece.check if piece.body else None

    def _piece(self, number: int, text: bytes, piece: Piece, last: bool) -> None:
        if piece.body is None:
            torn = last and piece.end == len(text) and not self.sealed
            if torn and not any(frame_begins(text, place) for place in frame_starts(text, piece.at + 1)):
                self.torn_bytes += piece.end - piece.at  # a step that was never finished
                return
            where = f"behind step {self.frames[-1]['step']}" if self.frames else "before all others"
            self.lost.append(
                f"segment {number}: a step or more, {where}: {plural(piece.end - piece.at, 'byte')} of its index"
            )
            return
        self.sealed = "seal" in piece.body and not _more(piece.body["seal"])
        self._finals[number] = piece.check if self.sealed else None
        if "seal" not in piece.body:
            self._step(number, piece.body)

    def _step(self, number: int, body: dict[str, Any]) -> None:
        step, entries, about = body.get("step"), body.get("entries"), body.get("about", {})
        if not isinstance(entries, list) or not isinstance(about, dict) or (type(step) is not int and entries):
            self.lost.append(f"step {cut(step)}: its frame cannot be understood")
            return
        kept: dict[tuple[str, str, int], Entry] = {}
        for entry in entries:
            try:
                made = read_entry(int(step or 0), entry, number)
            except (ArchiveDamaged, KeyError, TypeError, AttributeError) as error:
                self.lost.append(f"step {step}: {cut(entry)}: {error}")
                continue
            if kept.setdefault((made.layer, made.variable, made.item), made) is not made:
                self._lose(made, "it is there twice")
        self.frames.append({"step": step, "entries": list(kept.values()), "about": about})


class Piece(NamedTuple):
    """Some bytes of an index: a whole frame, or what lies between two."""

    at: int
    end: int
    body: dict[str, Any] | None  # None where it is no frame
    check: int


def _pieces(text: bytes, number: int) -> Iterator[Piece]:
    at = HEAD_BYTES if text.startswith(head(number)) or read_frame(text, HEAD_BYTES) else 0
    while at < len(text):
        found = read_frame(text, at)
        if found is None:
            end = next((place for place in frame_starts(text, at + 1) if read_frame(text, place)), len(text))
            yield Piece(at, end, None, 0)
        else:
            body, end, check = found
            yield Piece(at, end, _body(body), check)
        at = end


def _body(text: bytes) -> dict[str, Any] | None:
    try:
        found = strict_json(text, "a frame")
    except ArchiveDamaged:
        return None
    return found if isinstance(found, dict) else None


def _more(seal: Any) -> bool:
    return isinstance(seal, dict) and bool(seal.get("more"))


def _numbers(path: Path) -> list[int]:
    """The segments of which anything is there, in order."""
    return sorted({int(file.stem) for file in files_of(path) if file.suffix == ".index" or file.stat().st_size})


def _is_intact(file: Path) -> bool:
    """Whether a file ends with the right checksum of itself."""
    text, found, check = file.read_bytes().rpartition(CHECK_MARK) if file.is_file() else (b"", b"", b"")
    return bool(found) and check == b"%d}" % zlib.crc32(text)
