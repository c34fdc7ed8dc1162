"""Verification of an archive: which values are intact, and a sentence for each loss."""

from __future__ import annotations

import os
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from torcheer.archive.format import seals
from torcheer.archive.format.archive_folder import list_segment_files, read_about, read_header, segment_paths
from torcheer.archive.format.archive_reader import Archive
from torcheer.archive.format.index_frames import (
    HEADER_BYTES,
    Entry,
    find_frame_marks,
    index_header,
    is_frame_start,
    parse_entry,
    read_frame,
)
from torcheer.archive.format.record_json import history_from_json
from torcheer.archive.value_names import layer_labels
from torcheer.disk import has_checksum, strict_json
from torcheer.errors import ArchiveDamaged, NotAnArchive, TorcheerError
from torcheer.terminal import ProgressCallback, ignore_progress, plural, short_repr


def examine(path: str | os.PathLike[str], on_progress: ProgressCallback = ignore_progress) -> TrustedArchive:
    """Verify every value of an archive, damaged or not."""
    problem = ""
    try:
        Archive(path)
    except TorcheerError as error:
        problem = str(error)
    archive = TrustedArchive(path)
    archive.check(on_progress)
    if problem and not archive.lost:  # damage without a lost value
        archive.lost.append(problem)
    return archive


def open_intact(path: Path, problems: list[str]) -> Archive:
    """Open an archive; of a damaged one the intact part, adding losses to `problems`."""
    try:
        return Archive(path)
    except ArchiveDamaged:
        archive = examine(path)
        problems += archive.lost
        return archive


class TrustedArchive(Archive):
    """The intact part of a possibly damaged archive; `lost` has a sentence for each loss."""

    def __init__(self, path: str | os.PathLike[str]) -> None:  # Archive's own would stop at the first damage
        self.path = Path(path)
        self.frames, self.entries, self._maps, self._checked = [], [], {}, set()
        self.torn_bytes, self.sealed = 0, False
        self.lost: list[str] = []
        self.lost_entries: list[Entry] = []
        self._labels: dict[str, str] = {}
        numbers = _segment_numbers(self.path)
        seal_copies, self._final_seals = seals.read_copies(self.path), dict[int, int | None]()
        about = self._read_about() if numbers else read_about(self.path)
        for number in range(len(numbers) and numbers[-1] + 1):
            self._read_segment(number, last=number == numbers[-1])
        self.about = self._guess_about() if about is None else about
        keeps_copies = about is not None and read_header(self.path)[1]
        self.lost += seals.find_faults(self.path, seal_copies, self._final_seals, self.about, keeps_copies=keeps_copies)
        self.entries = [entry for body in self.frames for entry in body["entries"]]
        self._labels = layer_labels(self)

    def check(self, on_progress: ProgressCallback) -> None:
        """Verify every value, and keep only the intact ones."""
        for body in self.frames:
            body["entries"] = [entry for entry in body["entries"] if self._value_is_intact(entry, on_progress)]
        self.entries = [entry for body in self.frames for entry in body["entries"]]

    def _value_is_intact(self, entry: Entry, on_progress: ProgressCallback) -> bool:
        on_progress(entry.stored)
        if entry.offset + entry.stored > len(self.mapped(entry.segment)):
            self._lose(entry, "it lies outside of the data file")
            return False
        try:
            self.memory(entry)
        except ArchiveDamaged:
            self._lose(entry, "it is not what was written")
            return False
        return True

    def _lose(self, entry: Entry, reason: str) -> None:
        item = f" item {entry.item}" if entry.item >= 0 else ""
        layer = self._labels.get(entry.layer, entry.layer)
        self.lost.append(f"step {entry.step}: {short_repr(layer)} {short_repr(entry.variable)[1:-1]}{item}: {reason}")
        self.lost_entries.append(entry)

    def _read_about(self) -> dict[str, Any] | None:
        file = self.path / "archive.json"
        try:
            return read_about(self.path)
        except TorcheerError as error:
            if isinstance(error, NotAnArchive) and file.is_file() and has_checksum(file.read_bytes()):
                raise  # another program's file, or a newer version
            self.lost.append(f"what the archive says of itself: {file.name} is missing or damaged")
            return None

    def _guess_about(self) -> dict[str, Any]:
        """Reconstruct the archive's metadata from its frames: possible for a history."""
        about = self.frames[0]["about"] if len(self.frames) == 1 else {}
        try:
            info, *_ = history_from_json(deepcopy(about), self.path)  # parsing modifies its argument
        except (ArchiveDamaged, RecursionError):
            return {}
        parameters = any(entry.variable == "stored" for entry in self.frames[0]["entries"])
        return {"kind": "history", "model": info.model, "parameters": parameters}

    def _read_segment(self, number: int, last: bool) -> None:
        index, data = segment_paths(self.path, number)
        if not data.exists():
            self._maps[number] = memoryview(bytearray())
        if not index.exists():
            size = len(self.mapped(number))
            self.lost.append(f"segment {number}: its index is missing, and with it what its {size} bytes of values are")
            return
        text = index.read_bytes()
        previous_crc: int | None = 0  # checksum of the previous frame; None where that is damaged
        for piece in _split_index(text, number):
            self._read_piece(number, text, piece, last)
            if piece.body and previous_crc is not None and piece.body.get("after") != previous_crc:
                self.lost.append(f"segment {number}: a step or more, before byte {piece.start} of its index")
            previous_crc = piece.crc if piece.body else None

    def _read_piece(self, number: int, text: bytes, piece: IndexPiece, last: bool) -> None:
        if piece.body is None:
            torn = last and piece.end == len(text) and not self.sealed
            if torn and not any(is_frame_start(text, place) for place in find_frame_marks(text, piece.start + 1)):
                self.torn_bytes += piece.end - piece.start  # a step that was never finished
                return
            where = f"behind step {self.frames[-1]['step']}" if self.frames else "before all others"
            self.lost.append(
                f"segment {number}: a step or more, {where}: {plural(piece.end - piece.start, 'byte')} of its index"
            )
            return
        self.sealed = "seal" in piece.body and not _announces_more(piece.body["seal"])
        self._final_seals[number] = piece.crc if self.sealed else None
        if "seal" not in piece.body:
            self._read_step(number, piece.body)

    def _read_step(self, number: int, body: dict[str, Any]) -> None:
        step, entries, about = body.get("step"), body.get("entries"), body.get("about", {})
        is_step = type(step) is int or (step is None and entries == [])
        if not isinstance(entries, list) or not isinstance(about, dict) or not is_step:
            self.lost.append(f"step {short_repr(step)}: its frame cannot be understood")
            return
        unique: dict[tuple[str, str, int], Entry] = {}
        for entry in entries:
            try:
                parsed = parse_entry(int(step or 0), entry, number)
            except (ArchiveDamaged, KeyError, TypeError, AttributeError) as error:
                self.lost.append(f"step {step}: {short_repr(entry)}: {error}")
                continue
            if unique.setdefault((parsed.layer, parsed.variable, parsed.item), parsed) is not parsed:
                self._lose(parsed, "it is there twice")
        self.frames.append({"step": step, "entries": list(unique.values()), "about": about})


class IndexPiece(NamedTuple):
    """A byte range of an index: a whole frame, or the damaged bytes between two."""

    start: int
    end: int
    body: dict[str, Any] | None  # None for damaged bytes
    crc: int


def _split_index(text: bytes, number: int) -> Iterator[IndexPiece]:
    at = HEADER_BYTES if text.startswith(index_header(number)) or read_frame(text, HEADER_BYTES) else 0
    while at < len(text):
        match = read_frame(text, at)
        if match is None:
            end = next((place for place in find_frame_marks(text, at + 1) if read_frame(text, place)), len(text))
            yield IndexPiece(at, end, None, 0)
        else:
            body, end, crc = match
            yield IndexPiece(at, end, _parse_body(body), crc)
        at = end


def _parse_body(text: bytes) -> dict[str, Any] | None:
    try:
        body = strict_json(text, "a frame")
    except ArchiveDamaged:
        return None
    return body if isinstance(body, dict) else None


def _announces_more(seal: Any) -> bool:
    return isinstance(seal, dict) and bool(seal.get("more"))


def _segment_numbers(path: Path) -> list[int]:
    """List the numbers of the segments of which any file has content, in order."""
    return sorted(
        {int(file.stem) for file in list_segment_files(path) if file.suffix == ".index" or file.stat().st_size}
    )
