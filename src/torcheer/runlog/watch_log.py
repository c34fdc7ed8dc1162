"""Writes a watch's log: a crash-safe archive of statistics, and a line for every alert.

`<to>/samples` is an archive. A frame holds values of one step, for the keys that arrived together; a step may have
several frames. The frame's `about` names them (`rows`); three arrays under layer `(watch)` have a row for each of them:
`statistics` (float64, columns `STATISTICS`), `counts` (int64, columns `COUNTS`) and `histogram` (uint32; a row's
`binned` count is its index there, or -1). Arrays that are kept whole are separate entries, under their layer and
variable. `<to>/alerts.jsonl` has one JSON object a line, `<to>/account.json` the counts of written and dropped values,
from when the watch was closed.

A folder with a log is appended to: each writer stores its opening time in its first frame (`opened`), and readers use
the newest where steps repeat.
"""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from torcheer.archive import Writer
from torcheer.archive.format.archive_folder import read_about
from torcheer.disk import write_file
from torcheer.encoding import refusal, type_name
from torcheer.errors import BadArgument, TorcheerError
from torcheer.records import Sample
from torcheer.samples import BINS, PERCENTILES, Alert, Delivery, Statistics, disk_full
from torcheer.selection import matches_value

if TYPE_CHECKING:
    from torcheer.samples import Account

LAYER = "(watch)"
STATISTICS = ("time_secs", "minimum", "maximum", "mean", "std", "norm", *(f"p{percent}" for percent in PERCENTILES))
COUNTS = ("item", "seen", "count", "zeros", "nans", "infs", "stride", "finite", "binned")
ABOUT = {"kind": "watch", "version": 1}
_MOST_ROWS, _MOST_BYTES = 4096, 32 << 20  # of a frame, buffered until it is written
_COMMIT_SECS = 0.25
ACCOUNT = "account.json"


class WatchLog:
    """Appends to the log in a folder.

    After the first write error, reported once, nothing more is written.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        keep: Sequence[str] = (),
        *,
        tell: Callable[[str], None],
        alert: Callable[[Alert], None] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._keep, self._tell, self._raise_alarm, self._step = tuple(keep), tell, alert, 0
        self._kept: dict[tuple[str, str], bool] = {}
        self._rows: list[_SampleRow] = []
        self._arrays: dict[tuple[str, str, int], Sample] = {}
        self._bytes, self._written = 0, time.monotonic()
        self._opened = time.time()
        self._first = True
        self.written, self.why = 0, ""  # count of values in the log; why writing stopped
        self._writer: Writer | None = None
        self._alerts: BinaryIO | None = None
        try:
            _check_kind(self.folder / "samples")
            self._writer = Writer(self.folder / "samples", about=ABOUT, interval_secs=30.0)
            self._alerts = open(self.folder / "alerts.jsonl", "ab", buffering=0)
            self._repair_last_line()
        except (OSError, TorcheerError) as error:
            self._give_up(error)

    def add(self, sent: Delivery, summary: Statistics) -> None:
        """Buffer a value; it is committed with its step, or at the next tick."""
        if self._writer is None:
            return
        sample, self._step = sent.sample, sent.sample.step
        key = (sample.layer, sample.variable, sample.item)
        if self._rows and self._rows[0].step != sample.step:
            self.commit()
        keeps = self._keeps(sent)
        if keeps and key in self._arrays:
            self.commit()
        if keeps:
            self._arrays[key] = sample
            self._bytes += sample.array.nbytes
        self._rows.append(_row(sent, summary))
        if len(self._rows) >= _MOST_ROWS or self._bytes >= _MOST_BYTES:
            self.commit()

    def tick(self) -> None:
        """Commit the buffer once it is old enough."""
        if self._rows and time.monotonic() - self._written >= _COMMIT_SECS:
            self.commit()

    def commit(self) -> None:
        """Write the buffered values as a frame."""
        rows, arrays = self._rows, self._arrays
        self._rows, self._arrays, self._bytes, self._written = [], {}, 0, time.monotonic()
        if self._writer is None or not rows:
            return
        if not self._in_place():
            return
        about: dict[str, Any] = {"rows": [row.name for row in rows]}
        if self._first:
            about["opened"] = self._opened
        try:
            self._writer.step([*_pack(rows), *arrays.values()], **about)
            self._first = False
            self.written += len(rows)
        except (OSError, TorcheerError) as error:
            self._give_up(error)

    def _in_place(self) -> bool:
        """True if the log's folder still exists: it may have been removed or moved."""
        if self._writer is not None and not self._writer.in_place:
            self.written = 0
            self._give_up(FileNotFoundError(errno.ENOENT, "the folder that was written is gone"))
        return self._writer is not None

    def alert(self, alert: Alert) -> None:
        """Write an alert, unbuffered."""
        if self._alerts is None:
            return
        try:
            self._write_alert(alert)
        except OSError as error:
            self._give_up(error)

    def _write_alert(self, alert: Alert) -> None:
        assert self._alerts is not None
        line = json.dumps({**asdict(alert), "opened": self._opened}, default=str)
        _write_all(self._alerts, line.encode() + b"\n")

    def close(self) -> None:
        """Commit the buffer, and seal the archive."""
        self.commit()
        try:
            if self._writer is not None and self._in_place():
                self._writer.close()
        except (OSError, TorcheerError) as error:
            self._report_error(error)
        self._release()

    def _keeps(self, sent: Delivery) -> bool:
        """True if a value's array is to be kept, and can be stored."""
        matches = self._kept.get(sent.key)
        if matches is None:
            matches = any(matches_value(pattern, *sent.key) for pattern in self._keep)
            matches = self._kept[sent.key] = matches and sent.key[0] != LAYER
        return matches and sent.sample.array.size > 0 and not refusal(sent.sample.array)

    def _repair_last_line(self) -> None:
        """Terminate a line that a killed child left unfinished."""
        assert self._alerts is not None
        if not self._alerts.tell():
            return
        with open(self._alerts.name, "rb") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                _write_all(self._alerts, b"\n")

    def _give_up(self, error: Exception) -> None:
        """Stop writing after an error; statistics and rules go on without a log."""
        if self._writer is not None:
            with suppress(OSError, TorcheerError):
                self._writer.close(seal=False)
        self._report_error(error)
        self._release()

    def _report_error(self, error: Exception) -> None:
        self.why = _system_message(error)
        full = disk_full(error, self.folder, "log", self._step)
        if full is not None and self._raise_alarm is not None:
            if self._alerts is not None:
                with suppress(OSError):  # a line may still fit where an array does not
                    self._write_alert(full)
            self._raise_alarm(full)
            return
        self._tell(f"there is no log in {self.folder} from here on: {self.why}. Statistics and rules go on.")

    def _release(self) -> None:
        if self._alerts is not None:
            with suppress(OSError):
                self._alerts.close()
        self._writer = self._alerts = None
        self._rows, self._arrays = [], {}


def write_account(folder: Path, account: Account) -> None:
    """Write the account of values atomically; does nothing without a log."""
    if not folder.is_dir():
        return
    record = asdict(account) | {"dropped": [[*key, count] for key, count in account.dropped.items()]}
    write_file(folder / ACCOUNT, json.dumps({"time_secs": time.time(), **record}))


def _system_message(error: Exception) -> str:
    """The operating system's message alone, without what `CannotWrite` adds as advice."""
    if isinstance(error, OSError) and isinstance(error, TorcheerError) and error.errno is not None:
        return os.strerror(error.errno)
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.rstrip(".")


def _check_kind(path: Path) -> None:
    """Refuse to write into another kind of archive, or a log of another version."""
    if (path / "archive.json").exists() and read_about(path) != ABOUT:
        raise BadArgument(f"{path} is an archive of something else; watch to another folder")


def _write_all(file: BinaryIO, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[file.write(remaining) or 0 :]


class _SampleRow(NamedTuple):
    """A value buffered for the next frame."""

    step: int
    name: list[Any]  # layer, variable, type, shape; device and message, if not the default
    statistics: list[float]
    counts: list[int]
    histogram: tuple[int, ...]


def _row(sent: Delivery, summary: Statistics) -> _SampleRow:
    sample, missing = sent.sample, [math.nan] * len(PERCENTILES)
    extras = [sent.device, sent.message] if sent.message else [sent.device] if sent.device != "cpu" else []
    kind = sent.type or type_name(sample.array.dtype)
    name = [sample.layer, sample.variable, kind, list(sent.whole or sample.array.shape)]
    percentiles = summary.percentiles if len(summary.percentiles) == len(PERCENTILES) else missing
    numbers = [sent.time_secs, summary.minimum, summary.maximum, summary.mean, summary.std, summary.norm, *percentiles]
    finite = -1 if sent.finite is None else int(sent.finite)
    counts = [sample.item, sent.count, summary.count, summary.zeros, summary.nans, summary.infs, summary.stride, finite]
    histogram = summary.histogram if len(summary.histogram) == BINS and summary.count > 1 else ()
    return _SampleRow(sample.step, name + extras, numbers, counts, histogram)


def _pack(rows: list[_SampleRow]) -> list[Sample]:
    """Pack the numbers of all rows into three arrays."""
    binned = iter(range(len(rows)))
    counts = [[*row.counts, next(binned) if row.histogram else -1] for row in rows]
    histograms = np.array([row.histogram for row in rows if row.histogram], np.int64).reshape(-1, BINS)
    arrays = {
        "statistics": np.array([row.statistics for row in rows], np.float64),
        "counts": np.array(counts, np.int64),
        "histogram": np.minimum(histograms, 2**32 - 1).astype(np.uint32),
    }
    return [Sample(rows[0].step, LAYER, name, array=array) for name, array in arrays.items()]
