"""Reads an archive's frames from its end, newest first: what is asked for of a long log are mostly its last rows.

Each frame names the checksum of the one before it, so a chain that is read backwards is as certain as one that is read
forwards; damage raises once it is reached.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from torcheer.archive.format import seals
from torcheer.archive.format.archive_folder import list_segments, read_header, segment_paths
from torcheer.archive.format.index_frames import (
    HEADER_BYTES,
    find_frame_marks,
    is_frame_start,
    parse_step,
    read_frame,
)
from torcheer.disk import strict_json
from torcheer.errors import ArchiveDamaged

_BLOCK_BYTES = 1 << 16

FrameText = tuple[bytes, int]  # its body and checksum


def read_backwards(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the committed steps of an archive, newest first: "step", "entries" and "about" as `Archive.frames` has."""
    about, keeps_copies = read_header(path)
    copies = seals.read_copies(path)  # before the index, which may be sealed meanwhile
    numbers = list_segments(path)
    for number in reversed(numbers):
        index, bodies = segment_paths(path, number)[0], _bodies(segment_paths(path, number)[0])
        last, crc = next(bodies, ({}, 0))
        _check_end(path, number, number == numbers[-1], last, crc, (copies, about, keeps_copies))
        for body in chain([last] if last else [], (body for body, _ in bodies)):
            if "seal" not in body:
                yield parse_step(body, number, str(index))


def is_sealed(path: Path) -> bool:
    """Whether the last writer of an archive has closed it: it may be killed, or still at work otherwise."""
    numbers = list_segments(path)
    last, _ = next(_bodies(segment_paths(path, numbers[-1])[0]), ({}, 0)) if numbers else ({}, 0)
    return "seal" in last


def _check_end(path: Path, number: int, is_last: bool, body: dict[str, Any], crc: int, facts: Any) -> None:
    """Check the last frame of a segment against the copy of its seal."""
    copies, about, keeps_copies = facts
    seal = body.get("seal")
    if not is_last and seal is None:
        raise ArchiveDamaged(f"{segment_paths(path, number)[0]} is not sealed, though another segment follows it")
    is_final = isinstance(seal, dict) and not seal.get("more")
    own = {segment: copy for segment, copy in copies.items() if segment == number}
    for fault in seals.find_faults(path, own, {number: crc if is_final else None}, about, keeps_copies=keeps_copies):
        raise ArchiveDamaged(fault)


def _bodies(index: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each frame's body and checksum, newest first."""
    where = str(index)
    after: Any = None  # what the frame behind names as the checksum of this one
    with open(index, "rb") as file:
        for text, crc in _texts(file, where):
            body = strict_json(text, where)
            if not isinstance(body, dict) or after not in (None, crc):
                raise ArchiveDamaged(f"{where}: a frame does not follow the one before it")
            after = body.get("after")
            yield body, crc
    if after not in (None, 0):
        raise ArchiveDamaged(f"{where}: its first frame follows another, which is gone")


def _texts(file: BinaryIO, where: str) -> Iterator[FrameText]:
    """Yield the frames of an index, newest first, a block at a time."""
    end, is_tail = os.fstat(file.fileno()).st_size, True
    size = _BLOCK_BYTES
    while end > HEADER_BYTES:
        start = max(end - size, HEADER_BYTES)
        file.seek(start)
        block = file.read(end - start)
        first, texts = _frames_in(block, start == HEADER_BYTES, is_tail)
        if not texts and start > HEADER_BYTES:
            size *= 2  # a frame that is longer than a block
            continue
        if not texts and not is_tail:
            raise ArchiveDamaged(f"{where}: the frame before byte {end} is damaged; others follow it")
        yield from reversed(texts)
        end, size, is_tail = start + first, _BLOCK_BYTES, False
        if not texts:
            return


def _frames_in(block: bytes, begins: bool, is_tail: bool) -> tuple[int, list[FrameText]]:
    """Find the frames that fill a block to its end; return where the first begins, and all of them.

    `begins`: a frame begins where the block does. `is_tail`: a frame that was not finished may stand at the end.
    """
    for mark in [0] if begins else find_frame_marks(block, 0):
        texts, offset = list[FrameText](), mark
        while (match := read_frame(block, offset)) is not None:
            text, offset, crc = match
            texts.append((text, crc))
        if texts and (offset == len(block) or (is_tail and not _has_frame(block, offset + 1))):
            return mark, texts
    return 0, []


def _has_frame(block: bytes, start: int) -> bool:
    return any(is_frame_start(block, mark) for mark in find_frame_marks(block, start))
