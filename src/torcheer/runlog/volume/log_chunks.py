"""The archives of a log with a budget: it is written in chunks, and older ones are thinned.

`<run>/log/watch` has the first looks, `watch~00001`, `watch~00002`, … what follows. A chunk that was thinned is another
archive, `watch~00001.1`, `watch~00001.2`, …, which is there whole before the one that it replaces is removed: readers
take the last. It has the same number of frames; of looks that are left out only rows, alerts and other facts are there.
"""

from __future__ import annotations

import re
import shutil
from glob import escape
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from torcheer.archive import Archive, Entry, Writer
from torcheer.archive.recovery import CopiedValues
from torcheer.disk import replacing
from torcheer.errors import TorcheerError
from torcheer.runlog.log_frames import COUNTS, LAYER, ROWS, Frame, known_columns

_NAME: Final = re.compile(r"(.+)~(\d+)(?:\.(\d+))?")
_STRIPPED: Final = ("values", "columns", "hashes")
_BAD: Final = [COUNTS.index("nans"), COUNTS.index("infs")]
_FINITE, _SEEN = COUNTS.index("finite"), COUNTS.index("seen")


class Chunk(NamedTuple):
    """One archive of a log."""

    number: int  # 0 for the first
    generation: int  # how often it was thinned
    path: Path

    @property
    def bytes(self) -> int:
        """Its size on disk; 0 once it is replaced."""
        try:
            return sum(file.stat().st_size for file in self.path.iterdir())
        except OSError:
            return 0


def is_chunk(path: Path) -> bool:
    """Whether a folder of a run's logs continues another one."""
    return _NAME.fullmatch(path.name) is not None


def chunks_of(path: Path) -> list[Chunk]:
    """The archives of a log, oldest first: of a chunk that is being replaced the new one."""
    newest = {chunk.number: chunk for chunk in sorted(_all_chunks(path))}
    first = [Chunk(0, 0, path)] if (path / "archive.json").is_file() else []
    return [*first, *newest.values()]


def replaced_chunks(path: Path) -> list[Path]:
    """The folders of chunks whose thinned successors are there; a kill may have removed them in part."""
    newest = {chunk.number: chunk.generation for chunk in sorted(_all_chunks(path))}
    return [chunk.path for chunk in _chunk_folders(path) if chunk.generation < newest.get(chunk.number, 0)]


def _all_chunks(path: Path) -> list[Chunk]:
    return [chunk for chunk in _chunk_folders(path) if (chunk.path / "archive.json").is_file()]


def _chunk_folders(path: Path) -> list[Chunk]:
    matches = [(_NAME.fullmatch(folder.name), folder) for folder in path.parent.glob(f"{escape(path.name)}~*")]
    return [
        Chunk(int(match[2]), int(match[3] or 0), folder) for match, folder in matches if match and match[1] == path.name
    ]


def archives_of(path: Path) -> list[Path]:
    """The folders of a log's archives, oldest first."""
    return [chunk.path for chunk in chunks_of(path)]


def chunk_after(path: Path, number: int) -> Chunk | None:
    """The first chunk of a log from this number on, as it is now."""
    return next((chunk for chunk in chunks_of(path) if chunk.number >= number), None)


def last_archive(path: Path) -> Path:
    """The archive of a log that is written to."""
    return next(reversed(archives_of(path)), path)


def next_archive(path: Path) -> Path:
    """The folder for the next chunk of a log."""
    chunks = chunks_of(path)
    return path.with_name(f"{path.name}~{chunks[-1].number + 1 if chunks else 1:05}")


def thin(chunk: Chunk, log: Path, protected: set[int]) -> Chunk:
    """Write a chunk again with the values of every 2nd look (4th, 8th, …), and remove it; returns the new one.

    Looks at `protected` steps stay, and so do those with numbers that are not finite, with arrays that were kept, and
    with what people logged.
    """
    archive = Archive(chunk.path)
    left_out = _sparse_looks(archive, protected, 2 << chunk.generation)
    name = f"{log.name}~{chunk.number:05}.{chunk.generation + 1}"
    values = CopiedValues(archive)
    with replacing(log.with_name(name)) as part, Writer(part, about=archive.about, codec=values.codec) as writer:
        for frame in archive.frames:
            if frame["step"] in left_out and "values" in frame["about"]:
                rows = [entry for entry in frame["entries"] if entry.layer == ROWS]
                about = {name: fact for name, fact in frame["about"].items() if name not in _STRIPPED}
                writer.step(values.samples(rows), **about)
            else:
                writer.step(values.samples(frame["entries"]), **frame["about"])
    shutil.rmtree(chunk.path, ignore_errors=True)
    return Chunk(chunk.number, chunk.generation + 1, log.with_name(name))


def _sparse_looks(archive: Archive, protected: set[int], every: int) -> set[int]:
    """The steps of a chunk whose values are left out: all but every n-th look, counted from the run's first."""
    left_out, kept = set[int](), set(protected)
    for frame in archive.frames:
        step, entries = frame["step"], {entry.variable: entry for entry in frame["entries"] if entry.layer == LAYER}
        if "samples" in frame["about"] or any(entry.layer not in (LAYER, ROWS) for entry in frame["entries"]):
            kept.add(step)
        if "values" in frame["about"]:
            (kept if _stays(archive, frame, entries.get("counts"), every) else left_out).add(step)
    return left_out - kept


def _stays(archive: Archive, frame: Frame, entry: Entry | None, every: int) -> bool:
    """Whether a look is an n-th one, or has numbers that are not finite; a damaged one stays as it is."""
    try:
        counts = (
            known_columns(frame["about"], "counts", archive.array(entry))
            if entry is not None
            else np.zeros((1, len(COUNTS)))
        )
        is_bad = np.any(counts[:, _BAD] > 0) or np.any(counts[:, _FINITE] == 0)
        return bool(is_bad or counts[0, _SEEN] % every == 0)
    except (TorcheerError, LookupError):
        return True
