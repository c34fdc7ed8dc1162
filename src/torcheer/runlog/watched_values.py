"""The values of a watch with their statistics, as columns; numbers are read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.archive import Entry
from torcheer.errors import ArchiveDamaged
from torcheer.runlog.log_frames import COLUMNS, COUNTS, LAYER, METRICS, STATISTICS, derive_again
from torcheer.runlog.log_rows import Rows
from torcheer.runlog.log_stream import Held, LogFrame
from torcheer.runlog.volume.packed_histograms import unpack_row
from torcheer.samples import Key
from torcheer.vocabulary.array_statistics import BINS

Array = NDArray[Any]
Columns = dict[str, list[Any]]


class WatchedValues:
    """Every value with statistics as columns, scalars among them; each has a place, a whole number."""

    def __init__(self, frames: Iterable[tuple[Held, LogFrame]]) -> None:
        self.names: list[list[Any]] = []  # layer, variable, type, shape; optionally device and message
        self.bits: list[int | None] = []  # hashes of their numbers, of weights that other ranks have, too
        self._blocks: list[_Block] = []  # of values that were logged together
        self._starts, steps = [0], [np.empty(0, np.int64)]  # the place of each block's first value
        seen: dict[str, int] = {}  # values of each metric
        for held, frame in frames:
            rows = frame.rows(METRICS) if METRICS in frame.tables else None
            has_values = frame.has_values()
            if rows is not None and has_values:  # what came late, before the values of this step
                blocks = [_scalars(rows.take(rows.steps < frame.step), held, seen)]
                rows = rows.take(rows.steps >= frame.step)
            else:
                blocks = []
            if has_values and held.has(frame.step):
                blocks.append(_Block(frame.names, np.full(len(frame.names), frame.step), frame))
            if rows is not None:
                blocks.append(_scalars(rows, held, seen))
            for block in blocks:
                self._blocks.append(block)
                self._starts.append(self._starts[-1] + len(block.names))
                self.names += block.names
                self.bits += (block.frame.hashes if block.frame is not None else []) or [None] * len(block.names)
                steps.append(block.steps)
        self.steps: Array = np.concatenate(steps)
        self.places: dict[Key, list[int]] = {}
        for place, name in enumerate(self.names):
            self.places.setdefault((name[0], name[1]), []).append(place)

    def numbers(self, kind: str, places: Array) -> Array:
        """The `statistics` or `counts` of some values, a row each."""
        order = np.argsort(places, kind="stable")
        edges = np.searchsorted(places[order], self._starts)
        rows = [np.empty((0, len(COLUMNS[kind])), np.float64 if kind == "statistics" else np.int64)]
        for number in np.flatnonzero(np.diff(edges)).tolist():
            own = places[order[edges[number] : edges[number + 1]]] - self._starts[number]
            rows.append(self._blocks[number].numbers(kind)[own])
        numbers = np.concatenate(rows)
        numbers[order] = numbers.copy()
        return numbers

    def _block(self, place: int) -> _Block:
        return self._blocks[int(np.searchsorted(self._starts, place, side="right")) - 1]

    def _number(self, name: str, place: int) -> Any:
        return self.column(name, np.array([place]))[0]

    def _kept_entry(self, place: int) -> tuple[LogFrame, Entry] | None:
        frame, (layer, variable) = self._block(place).frame, self.names[place][:2]
        entry = frame.entry(layer, variable, int(self._number("item", place))) if frame is not None else None
        return (frame, entry) if frame is not None and entry is not None else None

    def histogram(self, place: int) -> Array:
        """The histogram of a value; zeros if it has none. Raises ArchiveDamaged if it had one, and it is lost."""
        if not self.has_histogram(place):
            return np.zeros(BINS, np.int64)
        frame = self._block(place).frame
        packed = frame.entry(LAYER, "bins") if frame is not None else None
        if frame is None or packed is None:
            layer, variable = self.names[place][:2]
            raise ArchiveDamaged(f"the histogram of {layer!r} ({variable}) at step {self.steps[place]} is lost")
        return unpack_row(frame.archive.array(packed), int(self._number("binned", place)))

    def is_scalar(self, place: int) -> bool:
        """Whether a value is a cell of a row."""
        return self._block(place).frame is None

    def has_histogram(self, place: int) -> bool:
        """Whether a value has a histogram."""
        return bool(self._number("binned", place) >= 0)

    def keeps(self, place: int) -> bool:
        """Whether a value's array is there; a scalar is its own."""
        return self.is_scalar(place) or self._kept_entry(place) is not None

    def kept(self, place: int) -> Array:
        """A value's array, where `keeps` is true."""
        kept = self._kept_entry(place)
        return np.array(self._number("mean", place)) if kept is None else kept[0].archive.array(kept[1])

    def column(self, name: str, places: Array) -> Array:
        """One number of each value.

        `finite`: whether all of a value's numbers are, as far as they were checked.
        """
        kind = "statistics" if name in STATISTICS else "counts"
        numbers: Array = self.numbers(kind, places)[:, COLUMNS[kind].index(name)]
        if name == "finite":
            none_bad = self.column("nans", places) + self.column("infs", places) == 0
            return np.where(numbers < 0, none_bad, numbers > 0)
        return numbers

    def table(self, places: Array) -> Columns:
        """The values as plain columns."""
        names = [self.names[place] for place in places]
        columns: Columns = {"step": self.steps[places].tolist()}
        columns["layer"], columns["variable"] = [name[0] for name in names], [name[1] for name in names]
        for kind, known in COLUMNS.items():
            columns |= dict(zip(known, self.numbers(kind, places).T.tolist()))
        columns["finite"] = self.column("finite", places).tolist()
        del columns["binned"]
        columns["type"], columns["shape"] = [name[2] for name in names], [list(name[3]) for name in names]
        columns["device"] = [name[4] if len(name) > 4 else "cpu" for name in names]
        columns["message"] = [name[5] if len(name) > 5 else "" for name in names]
        return columns


class _Block:
    """Values that were logged together: those of a frame, or scalars."""

    def __init__(self, names: list[list[Any]], steps: Array, frame: LogFrame | None, **numbers: Array) -> None:
        self.names, self.steps, self.frame, self._numbers = names, steps, frame, numbers

    def numbers(self, kind: str) -> Array:
        if kind not in self._numbers and self.frame is not None:
            self._numbers[kind] = self.frame.numbers(kind)
        return self._numbers[kind]


def _scalars(rows: Rows, held: Held, seen: dict[str, int]) -> _Block:
    """The cells of rows that hold, row by row: each is its own minimum, mean and percentile."""
    present = np.array([block.present() for block in rows.cells.values()]).reshape(len(rows.cells), len(rows))
    counted = np.cumsum(present, axis=1) - 1 + np.array([[seen.get(name, 0)] for name in rows.cells]).reshape(-1, 1)
    for name, count in zip(rows.cells, present.sum(1).tolist()):
        seen[name] = seen.get(name, 0) + count
    at, column = np.nonzero((present & (rows.steps <= held.step)).T)
    values = np.array([block.as_floats() for block in rows.cells.values()]).reshape(len(rows.cells), len(rows))
    numbers = values[column, at]
    value, names = (
        np.where(np.isfinite(numbers), numbers, np.nan),
        [[name, METRICS, "float64", []] for name in rows.cells],
    )
    none, ones = np.full(len(at), -1), np.ones(len(at), np.int64)
    bad = {"zeros": numbers == 0, "nans": np.isnan(numbers), "infs": np.isinf(numbers)}
    known = {"seen": counted[column, at], "count": ones, "stride": ones, **bad}
    counts = np.stack([known.get(name, none) for name in COUNTS], 1).astype(np.int64)
    own = {"time_secs": rows.times[at], "std": value * 0.0}
    statistics = derive_again(np.stack([own.get(name, value) for name in STATISTICS], 1), counts)
    return _Block(
        [names[place] for place in column.tolist()], rows.steps[at], None, statistics=statistics, counts=counts
    )  # fmt: skip
