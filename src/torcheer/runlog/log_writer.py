"""Writes a run's log: rows, alerts, the network, statistics and samples, as frames of a crash-safe archive.

Each writer ("watch", "live", …) has an archive of its own, `<run>/log/<writer>`; `log_frames` says what a frame holds.
"""

from __future__ import annotations

import errno
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from torcheer.archive import Writer
from torcheer.archive.format.archive_folder import read_about
from torcheer.errors import ArchiveDamaged, BadArgument, TorcheerError
from torcheer.records import Sample
from torcheer.runlog.commit_times import (
    COMMIT_SECS,
    MOST_BYTES,
    MOST_ROWS,
    MOST_WAITING,
    RETRY_SECS,
    BackgroundCommits,
    FullDisk,
)
from torcheer.runlog.log_buffer import Buffer, KeptKeys, sample_row
from torcheer.runlog.log_frames import (
    EVERYTHING,
    LAYER,
    METRICS,
    ROWS,
    UNCUT,
    LogPlace,
    about_log,
    encode_cell,
    encode_head,
)
from torcheer.runlog.table_cells import frozen_cells
from torcheer.runlog.table_records import TableHead
from torcheer.runlog.volume.log_budget import LogBudget
from torcheer.runlog.volume.log_chunks import last_archive, next_archive
from torcheer.samples import Account, Alert, Delivery, disk_full
from torcheer.vocabulary.array_statistics import Statistics

_SYNC_SECS: Final = 10.0  # of what was committed, at most, a power failure takes


class LogWriter:
    """Appends to one writer's log of a run. Rows may come from any thread.

    `commit` writes what is buffered: other processes see it, and it survives the death of this one. `sync` waits for
    the disk, too. After the first write error, reported once by `tell` (a full disk by `alarm`), nothing more is
    written. `goes_on` ends that report. With `waits_for_room` it is written on when a full disk has room again, and
    what was lost is reported. Without `tell` errors are raised, and what could not be written stays buffered.
    Where what is there is damaged, it stays as it is, the log goes on in another archive, and `damage` says so.
    `keep` has patterns of the values whose arrays are written, too; `elsewhere` the metrics that are only counted, as
    another writer logs them. A log that `is_temporary` never waits for the disk. `facts` stand in its first frame.
    With `log_bytes` it is written in chunks, and older ones are thinned to stay within so many (`log_budget`).
    What was logged before holds up to its first step, which is cut off (`cut`), unless it `continues` after a crash.
    """

    def __init__(
        self, run: str | os.PathLike[str], writer: str, *, tell: Callable[[str], None] | None,
        keep: Sequence[str] = (), elsewhere: Sequence[str] = (), alarm: Callable[[Alert], None] | None = None,
        goes_on: str = "", is_temporary: bool = False, waits_for_room: bool = False,
        facts: Mapping[str, Any] | None = None, log_bytes: int | None = None, continues: bool = False,
    ) -> None:  # fmt: skip
        self.folder, self.writer = Path(run), writer
        self._tell, self._alarm, self._goes_on, self._step = tell, alarm, goes_on, 0
        self._kept, self._elsewhere = KeptKeys(keep), frozenset(elsewhere)
        self._rows = deque[tuple[str, int, float, dict[str, Any]]]()  # not in the buffer yet
        self._buffer, self._written, self._synced = Buffer(), time.monotonic(), time.monotonic()
        self._is_synced = True
        self._waits_for_room = waits_for_room
        self._full: FullDisk | None = None  # while it waits for room
        self._lost: Exception | None = None  # an error of the disk that was not raised yet
        self._lock, self._writing = threading.Lock(), threading.RLock()  # of the buffer; of the archive
        self._opened, self._first, self._alerts = time.time(), True, 0
        self._facts = dict(facts or {})  # of the first frame
        self._has_cut = continues
        self.written, self.why = 0, ""  # values in the log; why writing stopped
        self._archive: Writer | None = None
        self._budget: LogBudget | None = None
        self._background: BackgroundCommits | None = None
        self.damage = ""  # a sentence, where what is there was damaged
        path = log_folder(self.folder, writer)
        try:
            self._fsync = "never" if is_temporary else "interval"  # never within a commit: `sync`
            self._archive = self._open_last(path)
            if self.damage and tell is not None:
                tell(self.damage)
            if log_bytes is not None:
                self._budget = LogBudget(path, log_bytes, tell or _ignore)
        except (OSError, TorcheerError) as error:
            self._give_up(error)

    def _open_last(self, path: Path) -> Writer:
        """Open the archive that is written to; where it is damaged, begin the next one: readers join both."""
        last = last_archive(path)
        self._has_cut = self._has_cut or not (last / "archive.json").exists()
        try:
            if (last / "archive.json").exists() and read_about(last) != about_log(self.writer):
                raise BadArgument(f"{last} is an archive of something else; write to another folder")
            return self._open_archive(last)
        except ArchiveDamaged as error:
            if not (path / "archive.json").exists():
                raise  # readers would not find what continues it
            following = next_archive(path)
            archive = self._open_archive(following)
            self.damage = (f"the log is damaged: {error}. What is intact of it is still read, and it goes on in "
                           f"{following}")  # fmt: skip
            return archive

    def _open_archive(self, path: Path) -> Writer:
        about = about_log(self.writer)
        return Writer(path, about=about, fsync=self._fsync, interval_secs=math.inf, codec=log_codec)

    def commit_in_background(self) -> None:
        """Commit and sync from a thread: for a process that has other things to do than to call `tick`."""
        if self._archive is not None:
            self._background = BackgroundCommits(self._commit_late)

    def value(self, sent: Delivery, summary: Statistics, bits: int | None = None) -> None:
        """Buffer a value's statistics, a metric as a cell of its step's row; committed with its step, or at a tick.

        `bits`: a hash of its numbers, to be compared with other ranks'.
        """
        if self._archive is None:
            return
        sample, self._step = sent.sample, sent.sample.step
        if sample.variable == METRICS and sample.array.size == 1:
            with self._lock:
                if sample.layer in self._elsewhere or EVERYTHING in self._elsewhere:
                    self._buffer.count_elsewhere()
                else:
                    self._buffer.metric(sample.step, sent.time_secs, sample.layer, sample.array.reshape(-1)[0])
        else:
            keeps = self._kept.match(sent)
            if not self._buffer.fits(sample, keeps):
                self.commit()
            with self._lock:
                self._buffer.value(sample_row(sent, summary, bits), sample if keeps else None)
        self._commit_full()

    def row(self, table: str, cells: Mapping[str, Any], step: int, *, wakes: bool = True) -> None:
        """Buffer a row of numbers, text or arrays. `wakes=False` where the caller commits: the thread may sleep on."""
        if self._archive is not None:
            self._rows.append((table, step, time.time(), frozen_cells(cells)))
            if wakes and self._background is not None:
                self._background.wake()
            if len(self._rows) >= MOST_ROWS:
                self._take_rows()

    def sample(self, sample: Sample, record: Mapping[str, Any], when: float = 0.0) -> None:
        """Buffer something that a person logged: an image, a text, …; `record` is what its array means.

        Its array must not be changed afterwards.
        """
        if self._archive is not None:
            named = {"name": sample.layer, "kind": sample.variable, "item": sample.item, "time": when or time.time()}
            with self._lock:
                self._buffer.own_sample(sample, {**named, **record})
            self._wake()
            self._commit_full()

    def _take_rows(self) -> None:
        """Move rows to the buffer; commit it if it is full, and no thread does."""
        with self._lock:
            self._settle()
        self._commit_full()

    def _settle(self) -> None:
        rows = self._rows  # to which other threads may append
        self._buffer.rows([rows.popleft() for _ in range(len(rows))])

    def clear(self, table: str) -> None:
        """Buffer that the rows of a table so far no longer hold."""
        with self._lock:
            self._settle()
            self._buffer.clear(table)
        self._wake()

    def cut(self, **until: int) -> None:
        """Write at once that what was logged before holds only until this `step`, epochs' rows until this `epoch`.

        Without any: that all of it holds.
        """
        self.commit()
        self._write([], cut=until)
        self._wake()

    def head(self, head: TableHead, **facts: Any) -> None:
        """Buffer a table's title, axes and columns, and further facts; columns that its rows have are added."""
        with self._lock:
            self._buffer.heads[head.name] = encode_head(head) | facts
        self._wake()

    def network(self, network: Mapping[str, Any]) -> None:
        """Buffer the network, as JSON; the last one holds."""
        with self._lock:
            self._buffer.network = dict(network)
        self._wake()

    def end(self, status: str, why: str = "") -> None:
        """Write how what is logged has ended, "done" or "failed": nothing but a killed process leaves a log without."""
        self.commit()
        self._write([], ended={"status": status, "why": why})

    def alert(self, alert: Alert) -> Alert:
        """Write an alert at once; return it with its id (the writer, its opening, a number), if it was written."""
        logged = self._identified(alert)
        if not self._write([], alerts=[encode_cell(asdict(logged))]):
            return alert
        self._wake()
        return logged

    def _identified(self, alert: Alert) -> Alert:
        with self._lock:
            self._alerts += 1
            return replace(alert, id=f"{self.writer}:{int(self._opened * 1_000_000):x}:{self._alerts}")

    def tick(self) -> None:
        """Commit the buffer once it is old enough; sync it now and then."""
        if time.monotonic() - self._written >= COMMIT_SECS:
            self.commit()
        if not self._is_synced and time.monotonic() - self._synced >= _SYNC_SECS:
            self._sync()

    def _commit_late(self) -> float | None:
        """Commit, and sync now and then, in the thread; return how many seconds later to sync, None for never."""
        with suppress(OSError, TorcheerError):  # without `tell`: it stays buffered, and the next `commit` raises
            self.commit()
            self.tick()
        if self._full is not None:
            return RETRY_SECS
        return None if self._is_synced else max(self._synced + _SYNC_SECS - time.monotonic(), 0.1)

    def sync(self) -> None:
        """Write the buffer, and wait until the disk has all of it."""
        self.commit()
        self._sync()
        lost, self._lost = self._lost, None
        if lost is not None:
            raise lost

    def _sync(self) -> None:
        archive, self._is_synced, self._synced = self._archive, True, time.monotonic()
        try:
            if archive is not None:
                archive.sync()
        except (OSError, TorcheerError) as error:
            if self._tell is None:
                self._lost = error  # a second fsync would succeed, though what the first should have written is lost
            else:
                self._fail(error)

    def commit(self) -> None:
        """Write the buffer: a frame, and one for each step with samples of people's own.

        Other processes see it from here on, and it survives the death of this one; `sync` waits for the disk.
        """
        with self._writing:
            with self._lock:
                self._settle()
                if self._full is not None and not self._full.is_due(self._buffer):
                    return
                buffer, self._buffer, self._written = self._buffer, Buffer(), time.monotonic()
            try:
                written, lost = self._write_frames(buffer)
            except (OSError, TorcheerError):
                with self._lock:
                    buffer.extend(self._buffer)
                    self._buffer = buffer
                raise
            if self._full is not None:
                self._full.lost += lost
                if lost:
                    with self._lock:
                        self._buffer.keep_facts(buffer)
                elif written:
                    self._go_on(self._full)

    def _write_frames(self, buffer: Buffer) -> tuple[int, int]:
        """Write all of a buffer; return how many of its rows and values were written, and how many could not be."""
        written = lost = 0
        for samples, about, count in buffer.frames():
            if self._write(samples, **about):
                written, self.written = written + count, self.written + count
            else:
                lost += count
        return written, lost

    def _go_on(self, full: FullDisk) -> None:
        """Report that there is room again, and what was lost before."""
        self._full, self.why = None, ""
        if self._tell is not None:
            self._tell(f"there is room for the log in {self.folder} again: it goes on, without {full.lost:,} rows and "
                       "other values of the time between")  # fmt: skip

    @property
    def in_place(self) -> bool:
        """False once the log's folder was removed or moved."""
        return self._archive is not None and self._archive.in_place

    def close(self) -> None:
        """Commit the buffer, and seal the archive."""
        if self._background is not None:
            self._background.stop()
        if self._full is not None:
            self._full.try_now()
        self.commit()
        with self._writing:
            try:
                if self._archive is not None and self._in_place():
                    self._archive.close()
            except (OSError, TorcheerError) as error:
                if self._full is None:  # else it was reported
                    self._report_error(error)
            finally:
                self._archive = None
        if self._budget is not None:
            self._budget.close()

    @property
    def size_bytes(self) -> int:
        """How much was written."""
        return self._archive.size_bytes if self._archive is not None else 0

    def _commit_full(self) -> None:
        most = MOST_ROWS if self._background is None else MOST_WAITING
        if self._buffer.count >= most or self._buffer.bytes >= MOST_BYTES:
            self.commit()

    def _wake(self) -> None:
        if self._background is not None:
            self._background.wake()

    def _write(self, samples: Sequence[Sample], /, **about: Any) -> bool:
        with self._writing:
            if self._archive is None or not self._in_place():
                return False
            if self._first:
                about |= {"opened": self._opened, **self._facts}
            if not self._has_cut and "cut" not in about and (first := first_step(samples, about)) is not None:
                about["cut"] = {"step": first - 1}
            try:
                self._archive.step(samples, **about)
                self._begin_chunk(self._archive)
            except (OSError, TorcheerError) as error:
                if self._tell is None:
                    raise  # nothing of it was written, and the archive can be written on
                self._fail(error)
                return False
            self._has_cut = self._has_cut or "cut" in about
            is_first, self._first, self._is_synced = self._is_synced, False, False
            if is_first:
                self._wake()  # it syncs this, and what follows until then
            return True

    def _begin_chunk(self, archive: Writer) -> None:
        """Begin another chunk, if there is a budget and this one is full; the first has only what came first."""
        path = log_folder(self.folder, self.writer)
        if self._budget is None or (archive.path != path and archive.size_bytes < self._budget.chunk_bytes):
            return
        self._archive = self._open_archive(next_archive(path))
        archive.close()
        self._budget.note_chunk()

    def _fail(self, error: Exception) -> None:
        """Give up, or wait until a full disk has room again, which is reported once."""
        if not self._waits_for_room or disk_full(error, self.folder, "log", self._step) is None:
            self._give_up(error)
            return
        is_known = self._full is not None
        self._full = self._full or FullDisk()
        self._full.try_later()
        if not is_known:
            self._report_error(error)

    def _in_place(self) -> bool:
        """True if the log's folder still exists: it may have been removed or moved."""
        if self._archive is not None and not self._archive.in_place:
            self.written = 0
            self._give_up(FileNotFoundError(errno.ENOENT, "the folder that was written is gone"))
        return self._archive is not None

    def _give_up(self, error: Exception) -> None:
        """Stop writing after an error; the caller goes on without a log."""
        if self._tell is None:
            raise error
        archive, self._archive = self._archive, None
        self._report_error(error, archive)
        if archive is not None:
            with suppress(OSError, TorcheerError):
                archive.close(seal=False)

    def _report_error(self, error: Exception, archive: Writer | None = None) -> None:
        if self._tell is None:
            raise error
        self.why = _system_message(error)
        full = disk_full(error, self.folder, "log", self._step)
        if full is None or self._alarm is None:
            until = "until there is room" if full is not None and self._waits_for_room else "from here on"
            self._tell(f"there is no log in {self.folder} {until}: {self.why}. {self._goes_on}".rstrip())
            return
        full = self._identified(full)
        if archive is not None:
            with suppress(OSError, TorcheerError):  # an alert may still fit where an array does not
                archive.step([], alerts=[encode_cell(asdict(full))])
        self._alarm(full)


def first_step(samples: Sequence[Sample], about: Mapping[str, Any]) -> int | None:
    """The first step of what a frame holds; None if nothing in it has one."""
    steps = [sample.step for sample in samples if sample.layer != ROWS]
    steps += [int(sample.array[0].min()) for sample in samples if sample.layer == ROWS and sample.variable not in UNCUT]
    steps += [alert["step"] for alert in about.get("alerts", ())]
    return min(steps, default=None)


def _ignore(_: str) -> None:
    """Say nothing: without `tell` only errors of the disk are raised."""


def log_codec(sample: Sample) -> str:
    """How a value of a log is stored: statistics, which are read frame by frame, compressed."""
    return "zlib" if sample.layer == LAYER and sample.variable != "bins" else "raw"


def log_folder(run: Path, writer: str) -> Path:
    """Where a writer's log lies in a run."""
    return LogPlace(run, writer).path


def begin_anew(log: LogWriter) -> None:
    """Write that nothing which was logged here before holds."""
    log.cut(step=-1, epoch=0)
    for table in sorted(UNCUT):
        log.clear(table)


def write_account(place: LogPlace, account: Account, *, ended: bool, failure: str = "") -> None:
    """Append the account of a watch's values to its log; does nothing without one.

    - `ended`: whether its writer has sealed it; otherwise it stays unsealed
    - `failure`: the exception that ended what was watched
    """
    path = place.path
    if not (path / "archive.json").is_file() or read_about(path) != about_log(place.writer):
        return
    record = asdict(account) | {"dropped": [[*key, count] for key, count in account.dropped.items()]}
    archive = Writer(last_archive(path), fsync="never")
    try:
        archive.step([], account=record, **({"ended": {"status": "failed", "why": failure}} if failure else {}))
    finally:
        archive.close(seal=ended)


def cut_log(place: LogPlace, step: int) -> None:
    """Write that what a watch has logged so far holds until this step; does nothing without a log.

    Not by its child, which may be restarted at any step.
    """
    if (place.path / "archive.json").is_file() and read_about(place.path) == about_log(place.writer):
        archive = Writer(last_archive(place.path), fsync="never")
        archive.step([], opened=time.time(), cut={"step": step})
        archive.close(seal=False)


def _system_message(error: Exception) -> str:
    """The operating system's message alone, without what `CannotWrite` adds as advice."""
    if isinstance(error, OSError) and isinstance(error, TorcheerError) and error.errno is not None:
        return os.strerror(error.errno)
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.rstrip(".")
