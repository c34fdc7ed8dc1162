"""What the child saw, on disk: an archive of statistics that survives a kill, and a line for every alert.

`<to>/samples` is an archive. A frame holds values of one step, of as many keys as came together; a step may have
several frames. Its `about` names them (`rows`); three arrays under layer `(watch)` have a row for each of them:
`statistics` (float64, columns `STATISTICS`), `counts` (int64, columns `COUNTS`) and `histogram` (uint32, of those rows
whose count `binned` says which). Arrays that are kept whole are entries of their own, under their layer and variable.
`<to>/alerts.jsonl` has one JSON object a line, `<to>/account.json` what became of the values when the watch was closed.

A folder that has a log is written on: whoever opens it says so in his first frame (`opened`), and readers believe the
newest where steps come again.
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
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from torcheer.archive import Writer
from torcheer.archive.format.archive_folder import read_about
from torcheer.encoding import refusal, type_name
from torcheer.errors import BadArgument, TorcheerError
from torcheer.records import Sample
from torcheer.samples import BINS, PERCENTILES, Alert, Delivery, Statistics, disk_full

if TYPE_CHECKING:
    from torcheer.samples import Account

LAYER = "(watch)"
STATISTICS = ("time_secs", "minimum", "maximum", "mean", "std", "norm", *(f"p{one}" for one in PERCENTILES))
COUNTS = ("item", "seen", "count", "zeros", "nans", "infs", "stride", "finite", "binned")
ABOUT = {"kind": "watch", "version": 1}
_MOST_ROWS, _MOST_BYTES = 4096, 32 << 20  # of a frame, in memory until it is written
_COMMIT_SECS = 0.25
ACCOUNT = "account.json"


class Log:
    """Appends to the log in a folder; what cannot be written is told once, and nothing is written from then on."""

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
        self._rows: list[_Row] = []
        self._arrays: dict[tuple[str, str, int], Sample] = {}
        self._bytes, self._written = 0, time.monotonic()
        self._opened = time.time()
        self._first = True
        self.written, self.why = 0, ""  # values that are in the log; why there are no more
        self._writer: Writer | None = None
        self._alerts: BinaryIO | None = None
        try:
            _check_kind(self.folder / "samples")
            self._writer = Writer(self.folder / "samples", about=ABOUT, interval_secs=30.0)
            self._alerts = open(self.folder / "alerts.jsonl", "ab", buffering=0)
            self._mend()
        except (OSError, TorcheerError) as error:
            self._give_up(error)

    def add(self, sent: Delivery, summary: Statistics) -> None:
        """Note a value; it is committed with its step, or at the next tick."""
        if self._writer is None:
            return
        sample, self._step = sent.sample, sent.sample.step
        place = (sample.layer, sample.variable, sample.item)
        if self._rows and self._rows[0].step != sample.step:
            self.commit()
        keeps = self._keeps(sent)
        if keeps and place in self._arrays:
            self.commit()
        if keeps:
            self._arrays[place] = sample
            self._bytes += sample.array.nbytes
        self._rows.append(_row(sent, summary))
        if len(self._rows) >= _MOST_ROWS or self._bytes >= _MOST_BYTES:
            self.commit()

    def tick(self) -> None:
        """Commit what has waited long enough."""
        if self._rows and time.monotonic() - self._written >= _COMMIT_SECS:
            self.commit()

    def commit(self) -> None:
        """Write what waits as a frame."""
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
            self._writer.step([*_packed(rows), *arrays.values()], **about)
            self._first = False
            self.written += len(rows)
        except (OSError, TorcheerError) as error:
            self._give_up(error)

    def _in_place(self) -> bool:
        """Whether what is written can be read: its folder may have been removed, or moved."""
        if self._writer is not None and not self._writer.in_place:
            self.written = 0
            self._give_up(FileNotFoundError(errno.ENOENT, "the folder that was written is gone"))
        return self._writer is not None

    def alert(self, alert: Alert) -> None:
        """Write an alert; it is in the file when this returns."""
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
        """Commit what waits, and seal the archive."""
        self.commit()
        try:
            if self._writer is not None and self._in_place():
                self._writer.close()
        except (OSError, TorcheerError) as error:
            self._tell_of(error)
        self._let_go()

    def _keeps(self, sent: Delivery) -> bool:
        """Whether a value's array is wanted, and can be stored."""
        found = self._kept.get(sent.key)
        if found is None:
            name = "/".join(sent.key)
            found = any(fnmatchcase(name, pattern) for pattern in self._keep)
            found = self._kept[sent.key] = found and sent.key[0] != LAYER
        return found and sent.sample.array.size > 0 and not refusal(sent.sample.array)

    def _mend(self) -> None:
        """End a line that a killed child left unfinished."""
        assert self._alerts is not None
        if not self._alerts.tell():
            return
        with open(self._alerts.name, "rb") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                _write_all(self._alerts, b"\n")

    def _give_up(self, error: Exception) -> None:
        """Statistics and rules go on without a log."""
        if self._writer is not None:
            with suppress(OSError, TorcheerError):
                self._writer.close(seal=False)
        self._tell_of(error)
        self._let_go()

    def _tell_of(self, error: Exception) -> None:
        self.why = _short(error)
        full = disk_full(error, self.folder, "log", self._step)
        if full is not None and self._raise_alarm is not None:
            if self._alerts is not None:
                with suppress(OSError):  # a line may fit where an array does not
                    self._write_alert(full)
            self._raise_alarm(full)
            return
        self._tell(f"there is no log in {self.folder} from here on: {self.why}. Statistics and rules go on.")

    def _let_go(self) -> None:
        if self._alerts is not None:
            with suppress(OSError):
                self._alerts.close()
        self._writer = self._alerts = None
        self._rows, self._arrays = [], {}


def write_account(folder: Path, account: Account) -> None:
    """Write down what became of the values, all at once; nothing where there is no log."""
    if not folder.is_dir():
        return
    found = asdict(account) | {"dropped": [[*key, count] for key, count in account.dropped.items()]}
    part = folder / ".account.part"
    part.write_text(json.dumps({"time_secs": time.time(), **found}))
    os.replace(part, folder / ACCOUNT)


def _short(error: Exception) -> str:
    """What the system says; what else there is to it (`CannotWrite` adds advice) is left out."""
    if isinstance(error, OSError) and isinstance(error, TorcheerError) and error.errno is not None:
        return os.strerror(error.errno)
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.rstrip(".")


def _check_kind(path: Path) -> None:
    """Refuse to write into somebody else's archive, or a log of another version."""
    if (path / "archive.json").exists() and read_about(path) != ABOUT:
        raise BadArgument(f"{path} is an archive of something else; watch to another folder")


def _write_all(file: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) or 0 :]


class _Row(NamedTuple):
    """A value on its way into a frame."""

    step: int
    name: list[Any]  # layer, variable, type, shape; device and message, where they are not the usual ones
    statistics: list[float]
    counts: list[int]
    histogram: tuple[int, ...]


def _row(sent: Delivery, found: Statistics) -> _Row:
    sample, unknown = sent.sample, [math.nan] * len(PERCENTILES)
    extras = [sent.device, sent.message] if sent.message else [sent.device] if sent.device != "cpu" else []
    kind = sent.type or type_name(sample.array.dtype)
    name = [sample.layer, sample.variable, kind, list(sent.whole or sample.array.shape)]
    percentiles = found.percentiles if len(found.percentiles) == len(PERCENTILES) else unknown
    numbers = [sent.time_secs, found.minimum, found.maximum, found.mean, found.std, found.norm, *percentiles]
    finite = -1 if sent.finite is None else int(sent.finite)
    counts = [sample.item, sent.count, found.count, found.zeros, found.nans, found.infs, found.stride, finite]
    histogram = found.histogram if len(found.histogram) == BINS and found.count > 1 else ()
    return _Row(sample.step, name + extras, numbers, counts, histogram)


def _packed(rows: list[_Row]) -> list[Sample]:
    """The numbers of all rows, in three arrays."""
    binned = iter(range(len(rows)))
    counts = [[*row.counts, next(binned) if row.histogram else -1] for row in rows]
    histograms = np.array([row.histogram for row in rows if row.histogram], np.int64).reshape(-1, BINS)
    arrays = {
        "statistics": np.array([row.statistics for row in rows], np.float64),
        "counts": np.array(counts, np.int64),
        "histogram": np.minimum(histograms, 2**32 - 1).astype(np.uint32),
    }
    return [Sample(rows[0].step, LAYER, name, array=array) for name, array in arrays.items()]
