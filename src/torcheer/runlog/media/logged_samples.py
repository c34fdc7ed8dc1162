"""What people logged beside numbers, read back: `run.samples("image")[-1].save("last.png")`."""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from torcheer.archive import Entry
from torcheer.archive.format.archive_reader import ArchiveStream
from torcheer.disk import write_file
from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.runlog.log_frames import decode_cell
from torcheer.runlog.log_stream import LogFrame
from torcheer.runlog.media.media_files import pixels_of, png_bytes, wav_bytes
from torcheer.runlog.media.media_intake import KINDS
from torcheer.runlog.table import Table
from torcheer.terminal import did_you_mean, first_names, plural

Array = NDArray[Any]
_MOST_TEXT: Final = 2000  # characters of a name or caption that are read


class LoggedSample:
    """An image, a sound, a text, a table or a confusion matrix of one step; its array is read when it is asked for.

    name, kind, step: as it was logged. item: its place in a list, -1 for one that came alone.
    time_secs: when, since 1970. caption, layout, rate, names: as they were given.
    """

    def __init__(self, archive: ArchiveStream, entry: Entry, step: int, record: dict[str, Any]) -> None:
        self._archive, self._entry = archive, entry
        self.name, self.kind, self.step, self.item = entry.layer, entry.variable, step, entry.item
        self.time_secs = float(record["time"])
        self.caption = str(record.get("caption", ""))[:_MOST_TEXT]
        self.layout, self.rate = str(record.get("layout", "")), int(record.get("rate", 0))
        self.names = tuple(str(name)[:_MOST_TEXT] for name in record.get("names") or ())

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self._entry.shape

    @property
    def nbytes(self) -> int:
        """The size of the array in the log."""
        return self._entry.stored

    @property
    def array(self) -> Array:
        """The array as it was logged, bit for bit; of text and tables, their bytes."""
        return self._archive.array(self._entry)

    @property
    def text(self) -> str:
        """The text."""
        self._check_kind("text")
        return self.array.tobytes().decode("utf-8", "surrogatepass")

    @property
    def cells(self) -> dict[str, list[Any]]:
        """The cells of a table by column, as they were logged."""
        self._check_kind("table")
        try:
            columns = json.loads(self.array.tobytes())
            if isinstance(columns, dict) and all(isinstance(cells, list) for cells in columns.values()):
                return {name: decode_cell(cells) for name, cells in columns.items()}
        except (ValueError, RecursionError):
            pass
        raise ArchiveDamaged(f"the table {self.name!r} of step {self.step} is not as torcheer writes tables")

    @property
    def table(self) -> Table:
        """The table: `sample.table.to_pandas()`."""
        columns = {name: _column(cells) for name, cells in self.cells.items()}
        return Table(columns, name=self.name, title=self.caption)

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """An image as it is drawn, uint8 of height × width × channels; a batch as a grid."""
        self._check_kind("image")
        return pixels_of(self.array, self.layout)

    @property
    def value(self) -> Any:
        """A text, a `Table`, or the array."""
        return self.text if self.kind == "text" else self.table if self.kind == "table" else self.array

    def save(self, to: str | os.PathLike[str]) -> Path:
        """Write it to a file: an image .png, sound .wav, a text .txt, a table or matrix .csv, any array .npy."""
        path = Path(to)
        writers = {suffix: write for (kind, suffix), write in _FILES.items() if kind in (self.kind, "")}
        if path.suffix.lower() not in writers:
            raise BadArgument(f"{path.name}: {self.kind} {self.name!r} can be saved as {', '.join(writers)}")
        write_file(path, writers[path.suffix.lower()](self))
        return path

    def _check_kind(self, kind: str) -> None:
        if self.kind != kind:
            raise BadArgument(f"{self.name!r} of step {self.step} is {self.kind}, not {kind}; `value` gives what it is")

    def __repr__(self) -> str:
        item = f"[{self.item}]" if self.item >= 0 else ""
        caption = f", {self.caption!r}" if self.caption else ""
        shape = "" if self.kind in ("text", "table") else f", {'×'.join(map(str, self.shape))} {self._entry.type}"
        return f"<{self.kind} {self.name}{item} of step {self.step:,}{shape}{caption}>"


def _column(cells: list[Any]) -> Array:
    """Cells as an array: numbers (a missing one is NaN), tensors, or text."""
    kinds = {type(cell) for cell in cells}
    if kinds in ({int}, {bool}):
        return np.array(cells)
    if kinds <= {int, float, bool, type(None)}:
        return np.array([np.nan if cell is None else cell for cell in cells], np.float64)
    if kinds == {list} and len({np.shape(cell) for cell in cells}) == 1:
        return np.array(cells)
    return np.array(["" if cell is None else str(cell) for cell in cells], object)


def _npy(sample: LoggedSample) -> bytes:
    file = io.BytesIO()
    np.save(file, sample.array)
    return file.getvalue()


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    file = io.StringIO()
    csv.writer(file).writerows(rows)
    return file.getvalue().encode()


def _table_csv(sample: LoggedSample) -> bytes:
    cells = sample.cells
    return _csv([list(cells), *zip(*cells.values())])


def _matrix_csv(sample: LoggedSample) -> bytes:
    """A matrix with a header and a first column of names."""
    names = sample.names or tuple(map(str, range(sample.shape[0])))
    return _csv([["true \\ predicted", *names], *([name, *row] for name, row in zip(names, sample.array.tolist()))])


_FILES: Final[dict[tuple[str, str], Callable[[LoggedSample], bytes]]] = {
    ("image", ".png"): lambda sample: png_bytes(sample.pixels),
    ("audio", ".wav"): lambda sample: wav_bytes(sample.array, sample.rate),
    ("text", ".txt"): lambda sample: sample.text.encode("utf-8", "surrogatepass"),
    ("table", ".csv"): _table_csv,
    ("confusion", ".csv"): _matrix_csv,
    ("", ".npy"): _npy,
}


class LoggedSamples(Sequence[LoggedSample]):
    """Samples by step: `samples[-1]`, `samples.of("digits")`, `samples.steps`."""

    def __init__(self, samples: Iterable[LoggedSample]) -> None:
        self._samples = list(samples)

    @overload
    def __getitem__(self, place: int) -> LoggedSample: ...
    @overload
    def __getitem__(self, place: slice) -> LoggedSamples: ...
    def __getitem__(self, place: int | slice) -> LoggedSample | LoggedSamples:
        return LoggedSamples(self._samples[place]) if isinstance(place, slice) else self._samples[place]

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def steps(self) -> list[int]:
        """The steps that have a sample."""
        return sorted({sample.step for sample in self})

    @property
    def names(self) -> list[str]:
        """The names, in the order of first appearance."""
        return list(dict.fromkeys(sample.name for sample in self))

    def of(self, kind: str = "", name: str = "") -> LoggedSamples:
        """Those of a kind ("image", "audio", "text", "table", "confusion"), of a name, or all."""
        if kind and kind not in KINDS:
            raise BadArgument(f"no kind {kind!r}; there are {', '.join(KINDS)}.{did_you_mean(kind, KINDS)}")
        if name and name not in self.names:
            hint = did_you_mean(name, self.names) or f" There is {first_names(map(repr, self.names)) or 'nothing'}."
            raise BadArgument(f"nothing was logged as {name!r}.{hint}")
        return LoggedSamples(s for s in self if kind in ("", s.kind) and name in ("", s.name))

    def lines(self) -> list[tuple[str, str, str]]:
        """For people: each name, its kind and number, and its steps."""
        counts = Counter((sample.name, sample.kind) for sample in self)
        return [(name, _count(kind, count), _span(self.of(kind, name).steps)) for (name, kind), count in counts.items()]

    def __repr__(self) -> str:
        kinds = ", ".join(_count(kind, count) for kind, count in Counter(sample.kind for sample in self).items())
        return f"<{kinds or 'no samples'}{f'; {_span(self.steps)}' if self else ''}>"


def _count(kind: str, count: int) -> str:
    if kind == "confusion":
        return f"{count:,} confusion {'matrix' if count == 1 else 'matrices'}"
    return plural(count, "sound" if kind == "audio" else kind)


def _span(steps: list[int]) -> str:
    if len(steps) == 1:
        return f"step {steps[0]:,}"
    return f"{len(steps):,} steps, {steps[0]:,} to {steps[-1]:,}"


def read_samples(frame: LogFrame, report: Callable[[str], None]) -> Iterator[LoggedSample]:
    """Yield the samples of a frame; what is not as torcheer writes it is reported and left out."""
    for record in frame.about.get("samples", ()):
        try:
            entry = frame.entry(record["name"], record["kind"], record["item"])
            if entry is None:
                raise LookupError(record["name"])
            if entry.variable not in KINDS:
                raise ValueError(f"no kind {entry.variable[:40]!r}")
            yield LoggedSample(frame.archive, entry, int(frame.step), record)
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            report(f"step {frame.step}: a sample cannot be read: {type(error).__name__}: {str(error)[:200]}")
