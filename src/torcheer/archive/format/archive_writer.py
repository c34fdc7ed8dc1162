"""Writer of an archive: a step's values first, then the index frame that commits them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from threading import Lock, get_ident
from typing import Any, NamedTuple

from torcheer.archive.format.archive_folder import Segment, list_segments, sync_and_close, write_header
from torcheer.archive.format.index_frames import ALIGN
from torcheer.archive.format.parallel_checksums import ParallelChecksum
from torcheer.archive.format.value_codecs import Codec, check_codec, codec_for, pack
from torcheer.disk import explain_write_errors, lock_folder
from torcheer.encoding import crc32, describe, encode, whole_number
from torcheer.errors import ArchiveClosed, BadArgument
from torcheer.public_names import PublicClass
from torcheer.records import Sample

SEGMENT_BYTES = 1 << 30
FSYNC_MODES = ("step", "interval", "never")
_SMALL_BYTES, _BUFFER_BYTES = 1 << 16, 1 << 20  # values below the first are buffered, up to the second


class StreamedValue(NamedTuple):
    """An array of a Sample that arrives in blocks, each valid until the next: what is still on a device."""

    type: str
    shape: tuple[int, ...]
    bytes: int
    blocks: Callable[[], Iterator[memoryview]]


class Writer(metaclass=PublicClass):
    """Append steps to an archive, each of them atomically.

    `to`: the folder; created if missing, otherwise appended to. `about`: metadata of a new archive, as JSON.
    `fsync="step"` waits for the disk at every step, `"interval"` at most every `interval_secs`, `"never"` leaves it to
    the system. A killed process loses nothing that was committed, either way; a power loss may.
    `segment_bytes`: start a new segment beyond this size.
    `codec` compresses values: a name of `value_codecs.CODECS`, or a function from a Sample to one.
    `checksums`: threads that compute them while the bytes are written; by default they are computed before.

    - `fsync`: when to wait for the disk, as above.
    """

    def __init__(
        self,
        to: str | os.PathLike[str],
        *,
        about: dict[str, Any] | None = None,
        fsync: str = "interval",
        interval_secs: float = 5.0,
        segment_bytes: int = SEGMENT_BYTES,
        codec: Codec = "raw",
        checksums: ParallelChecksum | None = None,
    ) -> None:
        if fsync not in FSYNC_MODES:
            raise BadArgument(f"fsync={fsync!r}: use one of {', '.join(FSYNC_MODES)}")
        self.path = Path(to)
        self._codec = codec if callable(codec) else check_codec(codec)
        self._checksums = checksums
        self._fsync, self._interval_secs, self._segment_bytes = fsync, interval_secs, segment_bytes
        self._fsyncs = fsync != "never"
        self._last_fsync = time.monotonic()
        self._steps = 0  # committed by this writer
        self._step_lock, self._writing_thread = Lock(), 0  # the thread that is inside step()
        self.closed = False
        with self._explain_os_errors():
            self._lock = lock_folder(self.path)
            try:
                write_header(self.path, about or {}, sync=self._fsyncs)
                self._segment = Segment(self.path, max(list_segments(self.path), default=0), sync=self._fsyncs)
                if self._segment.expects_next:  # a writer was killed between two segments
                    self._writable_segment()
            except BaseException:
                self._lock.close()
                raise

    def step(self, samples: Iterable[Sample], /, **about: Any) -> None:
        """Write the values of one step and commit them; concurrent threads are serialized."""
        if self._lock.process != os.getpid():
            raise ArchiveClosed(
                f"{self.path}: this Writer is that of process {self._lock.process}; it cannot be shared"
            )
        self._check_not_reentrant()
        with self._step_lock:
            if self.closed:
                raise ArchiveClosed(f"{self.path}: this Writer is closed; a new one goes on where it ended")
            try:
                self._writing_thread = get_ident()
                self._step(samples, about)
            finally:
                self._writing_thread = 0

    def _check_not_reentrant(self) -> None:
        if self._writing_thread == get_ident():
            raise BadArgument(f"{self.path}: the samples of a step cannot write or close the archive that they go to")

    def _step(self, samples: Iterable[Sample], about: dict[str, Any]) -> None:
        segment = self._writable_segment()
        try:
            buffer = _StepBuffer(self, segment)
            body, fsync_due = {**buffer.write_all(samples), "about": about}, self._fsync_due()
            with self._explain_os_errors():
                buffer.flush()
                segment.commit(body, buffer.end, sync=fsync_due)
        except BaseException:
            with suppress(OSError):  # if it fails now, it is repeated before the next step
                segment.rollback()  # the disk is full, an array cannot be stored: committed steps stay
            raise
        self._steps += 1
        if fsync_due:
            self._last_fsync = time.monotonic()

    def _writable_segment(self) -> Segment:
        """Return the segment to write to; start the next one where the current one is full."""
        segment = self._segment
        with self._explain_os_errors():
            if segment.dirty:
                segment.rollback()
            state = segment.committed
            full = state.frames and state.data_end + state.index_end >= self._segment_bytes
            if full or state.sealed:
                if not state.sealed:
                    segment.seal(more=True, sync=self._fsyncs)
                self._segment = Segment(self.path, segment.number + 1, sync=self._fsyncs)
                segment.close()
        return self._segment

    def sync(self) -> None:
        """Wait until the disk has all that was committed so far; other threads go on writing meanwhile."""
        with self._step_lock:
            if self.closed or not self._fsyncs or self._lock.process != os.getpid():
                return  # closing waited for the disk
            with self._explain_os_errors():
                descriptors = self._segment.duplicates()  # the segment may be closed while the disk is waited for
        with self._explain_os_errors():
            sync_and_close(descriptors)
        self._last_fsync = time.monotonic()

    @property
    def size_bytes(self) -> int:
        """How much the current segment holds."""
        state = self._segment.committed
        return state.index_end + state.data_end

    @property
    def value_bytes(self) -> int:
        """Return how many bytes of values the segment that is written to has."""
        return self._segment.committed.data_end

    def sync_values(self) -> None:
        """Wait until the disk has the values so far, while another thread goes on with the next steps."""
        with self._explain_os_errors():
            self._segment.sync_values()

    @property
    def in_place(self) -> bool:
        """Return whether the open files are still those at the archive's path.

        False after it was removed.
        """
        return self._segment.is_in_place()

    def close(self, *, seal: bool = True) -> None:
        """Close the archive; `seal` records where it ends, so that a lost tail is detected."""
        if self._lock.process != os.getpid():
            self.closed = True  # a forked copy: the archive belongs to the parent process
            return
        self._check_not_reentrant()
        with self._step_lock:
            if self.closed:
                return
            with self._explain_os_errors():
                try:
                    self._end_segment(seal)
                except BaseException:
                    with suppress(OSError):  # the first error is the one to report
                        self._release()
                    raise
                self._release()

    def _release(self) -> None:
        """Close all files; network storage says only now what it could not write."""
        self.closed = True
        try:
            self._segment.close()
        finally:
            self._lock.close()

    def _end_segment(self, seal: bool) -> None:
        segment = self._segment
        if segment.dirty:
            segment.rollback()
        if seal and not segment.committed.sealed:
            segment.seal(more=False, sync=self._fsyncs)
        elif self._fsyncs:
            segment.sync()

    def _fsync_due(self) -> bool:
        late = time.monotonic() - self._last_fsync >= self._interval_secs
        return self._fsync == "step" or (self._fsync == "interval" and late)

    def _explain_os_errors(self) -> AbstractContextManager[None]:
        """Turn an OSError into CannotWrite, with what is committed and what to try."""
        kept = f"The {self._steps} steps that this writer has committed are there, and all before them. "
        return explain_write_errors(self.path, kept)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *problem: Any) -> None:
        self.close(seal=problem[0] is None)


class _StepBuffer:
    """Write buffer for the values of one step: small ones are written together."""

    def __init__(self, writer: Writer, segment: Segment) -> None:
        self._writer, self._segment = writer, segment
        self.end = segment.committed.data_end
        self._pending = bytearray()
        self._entries: list[dict[str, Any]] = []

    def write_all(self, samples: Iterable[Sample]) -> dict[str, Any]:
        """Write every value; return the frame's step and entries."""
        steps, keys = set(), set()
        for sample in samples:
            entry = self._write(sample)
            steps.add(whole_number(sample.step, "step"))
            keys.add((entry["layer"], entry["variable"], entry["item"]))
        if len(steps) > 1 or len(keys) < len(self._entries):
            raise BadArgument("step(): a frame holds one step, and each layer, variable and item once")
        return {"step": min(steps, default=None), "entries": self._entries}

    def _write(self, sample: Sample) -> dict[str, Any]:
        codec, value = codec_for(self._writer._codec, sample), sample.array
        if isinstance(value, StreamedValue):
            if codec == "raw" and value.bytes >= _SMALL_BYTES:
                return self._write_blocks(sample, value)
            descriptor, payload = (
                describe(sample, value.type, value.shape),
                memoryview(b"".join(map(bytes, value.blocks()))),
            )
        else:
            descriptor, payload = encode(sample)
        codec_fields, stored = pack(codec, descriptor["type"], payload)
        offset, crc = self._add(stored)
        entry = {**descriptor, "offset": offset, "stored": len(stored), "crc32": crc, **codec_fields}
        self._entries.append(entry)
        return entry

    def _write_blocks(self, sample: Sample, value: StreamedValue) -> dict[str, Any]:
        """Write a value block by block as it arrives."""
        self.flush()
        offset = self.end + -self.end % ALIGN
        crc, end = 0, offset
        for block in value.blocks():
            crc = self._write_at(block, end, crc)
            end += len(block)
        self.end = end
        descriptor = describe(sample, value.type, value.shape)
        entry = {**descriptor, "offset": offset, "stored": end - offset, "crc32": crc}
        self._entries.append(entry)
        return entry

    def _write_at(self, data: Any, offset: int, crc: int) -> int:
        """Write bytes; return their checksum, continued from `crc`."""
        checksums = self._writer._checksums
        wait = None if checksums is None else checksums.start(data, crc)
        try:
            crc = crc32(data, crc) if wait is None else crc
            with self._writer._explain_os_errors():
                self._segment.write_values(data, offset)
        finally:  # a block's memory is used again after this
            crc = crc if wait is None else wait()
        return crc

    def _add(self, stored: Any) -> tuple[int, int]:
        """Write or buffer a value; return its place and its checksum."""
        padding = -self.end % ALIGN if len(stored) else 0
        offset = self.end + padding
        if len(stored) < _SMALL_BYTES:
            self._pending += bytes(padding)
            self._pending += stored
            self.end, crc = offset + len(stored), crc32(stored)
            if len(self._pending) >= _BUFFER_BYTES:
                self.flush()
        else:
            self.flush()
            crc = self._write_at(stored, offset, 0)
            self.end = offset + len(stored)
        return offset, crc

    def flush(self) -> None:
        """Write the buffered values."""
        if self._pending:
            with self._writer._explain_os_errors():
                self._segment.write_values(self._pending, self.end - len(self._pending))
            self._pending = bytearray()
