"""Writing an archive: values first, then the frame that makes them count."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, get_ident
from typing import Any

from torcheer.archive.format.archive_folder import Segment, WritingLock, begin, segments_of
from torcheer.archive.format.index_frames import ALIGN
from torcheer.archive.format.value_codecs import Codec, codec_for, known, pack
from torcheer.encoding import crc32, encode, whole_number
from torcheer.errors import ArchiveClosed, BadArgument, CannotWrite, TorcheerError
from torcheer.records import Sample

SEGMENT_BYTES = 1 << 30
SYNCS = ("step", "interval", "never")
_SMALL_BYTES, _GATHERED_BYTES = 1 << 16, 1 << 20  # smaller values are gathered, and written together
_TRY = {  # what helps
    errno.ENOSPC: "Free some space and go on: the writer can be used further",
    errno.EDQUOT: "Free some of your quota and go on: the writer can be used further",
    errno.EFBIG: "Raise the limit on the size of files (ulimit -f), or use a smaller segment_bytes",
    errno.EROFS: "Write to a folder that is not mounted read-only",
    errno.EACCES: "Write to a folder that you may write to, or ask for the right to write to this one",
    errno.EPERM: "Write to a folder that you may write to, or ask for the right to write to this one",
    errno.EMFILE: "Close other files, or raise the limit on open files (ulimit -n)",
    errno.ENFILE: "Close other files: the whole system has too many open",
}


class Writer:
    """Appends steps to an archive; each is there whole or not at all.

    `fsync="step"` waits for the disk at every step, `"interval"` at most every `interval_secs`, `"never"` leaves it to
    the system. A process that is killed loses nothing that was committed, either way; a machine without power may.
    `codec` stores less than the values themselves: a name of `codecs.CODECS`, or a function from a Sample to one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        about: dict[str, Any] | None = None,
        fsync: str = "interval",
        interval_secs: float = 5.0,
        segment_bytes: int = SEGMENT_BYTES,
        codec: Codec = "raw",
    ) -> None:
        if fsync not in SYNCS:
            raise BadArgument(f"fsync={fsync!r}: use one of {', '.join(SYNCS)}")
        self.path = Path(path)
        self._codec = codec if callable(codec) else known(codec)
        self._fsync, self._interval, self._limit = fsync, interval_secs, segment_bytes
        self._syncs = fsync != "never"
        self._synced = time.monotonic()
        self._steps = 0  # committed by this writer
        self._turn, self._inside = Lock(), 0  # the thread that writes a step
        self.closed = False
        with self._told():
            self._lock = WritingLock(self.path)
            try:
                begin(self.path, about or {}, sync=self._syncs)
                self._segment = Segment(self.path, max(segments_of(self.path), default=0), sync=self._syncs)
                if self._segment.more:  # a writer was killed between two segments
                    self._room()
            except BaseException:
                self._lock.release()
                raise

    def step(self, samples: Iterable[Sample], /, **about: Any) -> None:
        """Write the values of one step, and commit them; threads wait for one another."""
        if self._lock.process != os.getpid():
            raise ArchiveClosed(
                f"{self.path}: this Writer is that of process {self._lock.process}; it cannot be shared"
            )
        self._assert_not_inside()
        with self._turn:
            if self.closed:
                raise ArchiveClosed(f"{self.path}: this Writer is closed; a new one goes on where it ended")
            try:
                self._inside = get_ident()
                self._step(samples, about)
            finally:
                self._inside = 0

    def _assert_not_inside(self) -> None:
        if self._inside == get_ident():
            raise BadArgument(f"{self.path}: the samples of a step cannot write or close the archive that they go to")

    def _step(self, samples: Iterable[Sample], about: dict[str, Any]) -> None:
        segment = self._room()
        try:
            values = _Values(self, segment)
            body, due = {**values.gather(samples), "about": about}, self._due()
            with self._told():
                values.flush()
                segment.commit(body, values.end, sync=due)
        except BaseException:
            with suppress(OSError):  # what cannot be taken away now is before the next step
                segment.forget()  # the disk is full, an array cannot be kept: what was committed stays
            raise
        self._steps += 1
        if due:
            self._synced = time.monotonic()

    def _room(self) -> Segment:
        """The segment to write to: the next one, where this one is full."""
        segment = self._segment
        with self._told():
            if segment.dirty:
                segment.forget()
            ended = segment.committed
            full = ended.frames and ended.data_end + ended.index_end >= self._limit
            if full or ended.sealed:
                if not ended.sealed:
                    segment.seal(more=True, sync=self._syncs)
                self._segment = Segment(self.path, segment.number + 1, sync=self._syncs)
                segment.close()
        return self._segment

    @property
    def in_place(self) -> bool:
        """Whether the files that are written are still those under the archive's name; False where it was removed."""
        return self._segment.is_at(self.path)

    def close(self, *, seal: bool = True) -> None:
        """End the archive. Sealed, it says where it ends, and a lost tail would be noticed."""
        if self._lock.process != os.getpid():
            self.closed = True  # a fork's copy: the archive is its parent's
            return
        self._assert_not_inside()
        with self._turn:
            if self.closed:
                return
            try:
                with self._told():
                    self._end(seal)
            finally:
                self._let_go()

    def _let_go(self) -> None:
        self.closed = True
        self._segment.close()
        self._lock.release()

    def _end(self, seal: bool) -> None:
        segment = self._segment
        if segment.dirty:
            segment.forget()
        if seal and not segment.committed.sealed:
            segment.seal(more=False, sync=self._syncs)
        elif self._syncs:
            segment.sync()

    def _due(self) -> bool:
        late = time.monotonic() - self._synced >= self._interval
        return self._fsync == "step" or (self._fsync == "interval" and late)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What the system refuses, with what is there and what to try."""
        try:
            yield
        except OSError as error:
            if isinstance(error, TorcheerError):
                raise
            advice = _TRY.get(error.errno or 0, "See what the system says of this disk")
            raise CannotWrite(
                error.errno,
                f"{self.path}: {error.strerror or error}. The {self._steps} steps that this writer has committed are "
                f"there, and all before them. {advice}.",
            ) from error

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *problem: Any) -> None:
        self.close(seal=problem[0] is None)


class _Values:
    """The values of one step on their way into the data file."""

    def __init__(self, writer: Writer, segment: Segment) -> None:
        self._writer, self._segment = writer, segment
        self.end = segment.committed.data_end
        self._small = bytearray()
        self._entries: list[dict[str, Any]] = []

    def gather(self, samples: Iterable[Sample]) -> dict[str, Any]:
        """Write every value; return the frame's step and entries."""
        steps, seen = set(), set()
        for sample in samples:
            about = self._write(sample)
            steps.add(whole_number(sample.step, "step"))
            seen.add((about["layer"], about["variable"], about["item"]))
        if len(steps) > 1 or len(seen) < len(self._entries):
            raise BadArgument("step(): a frame holds one step, and each layer, variable and item once")
        return {"step": min(steps, default=None), "entries": self._entries}

    def _write(self, sample: Sample) -> dict[str, Any]:
        about, payload = encode(sample)
        codec, stored = pack(codec_for(self._writer._codec, sample), about["type"], payload)
        entry = {**about, "offset": 0, "stored": len(stored), "crc32": crc32(stored), **codec}
        entry["offset"] = self._add(stored)
        self._entries.append(entry)
        return entry

    def _add(self, stored: Any) -> int:
        gap = -self.end % ALIGN if len(stored) else 0
        offset = self.end + gap
        if len(stored) < _SMALL_BYTES:
            self._small += bytes(gap)
            self._small += stored
            self.end = offset + len(stored)
            if len(self._small) >= _GATHERED_BYTES:
                self.flush()
        else:
            self.flush()
            with self._writer._told():
                self._segment.put(stored, offset)
            self.end = offset + len(stored)
        return offset

    def flush(self) -> None:
        """Write what was gathered."""
        if self._small:
            with self._writer._told():
                self._segment.put(self._small, self.end - len(self._small))
            self._small = bytearray()
