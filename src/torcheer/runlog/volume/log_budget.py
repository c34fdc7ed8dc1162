"""Keeps a log within its budget: thins its chunks, older ones more, from a thread."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from torcheer.archive import Archive
from torcheer.errors import BadArgument, TorcheerError
from torcheer.runlog.log_frames import decode_cell
from torcheer.runlog.volume.log_chunks import Chunk, chunks_of, replaced_chunks, thin
from torcheer.terminal import human_bytes

LEAST_BYTES: Final = 100_000
_CHUNKS: Final = 16  # of a whole budget
_NEWEST: Final = 2  # chunks at the end that are not thinned: the one that is written, and the one before
_GAIN: Final = 0.95  # of its bytes that a chunk may keep to be thinned again, once it was thinned
_MOST_THINNED: Final = 4  # times: all looks of a chunk may be 4th or 8th ones


def check_bytes(log_bytes: Any) -> int | None:
    """Check `log_bytes=`: a number of bytes, or None for no limit."""
    if log_bytes is None:
        return None
    if isinstance(log_bytes, bool) or not isinstance(log_bytes, int | float) or not log_bytes >= LEAST_BYTES:
        raise BadArgument(
            f"log_bytes={log_bytes!r}: a number of bytes from {LEAST_BYTES:,} on is needed, such as 1e9, or None"
        )
    return int(log_bytes)


class LogBudget:
    """The bytes that a log may have; `note_chunk` is called whenever it begins another chunk."""

    def __init__(self, path: Path, most_bytes: int, tell: Callable[[str], None]) -> None:
        self._path, self.most_bytes, self._tell = path, most_bytes, tell
        self.chunk_bytes = most_bytes // _CHUNKS
        self._has_work, self._ends = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._alert_steps: dict[int, set[int]] = {}  # by chunk
        self._exhausted: set[int] = set()  # numbers of chunks that cannot become smaller
        self._complained = False

    def note_chunk(self) -> None:
        """Thin what is needed, in a thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="torcheer log budget", daemon=True)
            self._thread.start()
        self._has_work.set()

    def close(self) -> None:
        """Thin what is still needed, and end the thread."""
        self._ends.set()
        self._has_work.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._has_work.wait():
            self._has_work.clear()
            try:
                self.keep()
            except (OSError, TorcheerError) as error:
                if not self._complained:
                    self._complained = True
                    self._tell(f"the log in {self._path} cannot be thinned, and goes on without that: {error}")
            if self._ends.is_set() and not self._has_work.is_set():
                return

    def keep(self) -> None:
        """Thin until the log is within its budget, or nothing more can be left out."""
        for folder in replaced_chunks(self._path):  # a process was killed before it could remove it
            shutil.rmtree(folder, ignore_errors=True)
        while True:
            chunks = chunks_of(self._path)
            sizes = {chunk.number: chunk.bytes for chunk in chunks}
            if sum(sizes.values()) <= self.most_bytes:
                return
            candidates = [chunk for chunk in chunks[:-_NEWEST] if chunk.number and chunk.number not in self._exhausted]
            if not candidates:
                self._complain(sum(sizes.values()), bool(chunks[:-_NEWEST]))
                return
            newest = chunks[-1].number
            chosen = max(candidates, key=lambda chunk: sizes[chunk.number] * (newest - chunk.number))
            thinned = thin(chosen, self._path, self._protected(chunks))
            if thinned.bytes > _GAIN * sizes[chosen.number] and thinned.generation >= _MOST_THINNED:
                self._exhausted.add(chosen.number)

    def _protected(self, chunks: list[Chunk]) -> set[int]:
        """The steps that alerts are about, wherever those are written."""
        for chunk in chunks:
            if chunk.number not in self._alert_steps or chunk is chunks[-1]:
                self._alert_steps[chunk.number] = alert_steps(chunk.path)
        return set().union(*self._alert_steps.values())

    def _complain(self, size: int, has_old: bool) -> None:
        if has_old and not self._complained:
            self._complained = True
            self._tell(
                f"the log in {self._path} has {human_bytes(size)}, and log_bytes={self.most_bytes:,} cannot be kept: "
                "numbers that are logged, arrays of keep=, samples, and looks with alerts or NaN are never left out"
            )


def alert_steps(path: Path) -> set[int]:
    """The steps of the alerts in an archive of a log: when they were found, and since when."""
    steps: set[int] = set()
    for frame in Archive(path).frames:
        for alert in decode_cell(frame["about"].get("alerts", [])):
            if isinstance(alert, dict):
                steps.update(step for step in (alert.get("step"), alert.get("since")) if isinstance(step, int))
    return steps
