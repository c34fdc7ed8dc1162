"""The values of a watch with their statistics, as columns: read from the frames of its log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.archive import Archive, Entry
from torcheer.archive.format.archive_reader import ArchiveStream
from torcheer.errors import ArchiveDamaged, TorcheerError
from torcheer.runlog.log_frames import (
    COLUMNS,
    COUNTS,
    LAYER,
    METRICS,
    STATISTICS,
    Frame,
    are_described,
    derive_again,
    number_columns,
    with_derived,
)
from torcheer.runlog.log_openings import Held, Row, rows_of
from torcheer.runlog.volume.packed_histograms import unpack_histograms, unpack_row
from torcheer.samples import Key
from torcheer.vocabulary.array_statistics import BINS, PERCENTILES

Array = NDArray[Any]
Columns = dict[str, list[Any]]
NO_ROWS: dict[str, Any] = {"step": [], "time": [], "cells": {}}


class WatchedValues:
    """Every value with statistics as columns, scalars among them."""

    def __init__(self, openings: Iterable[tuple[Held, list[tuple[Archive, Frame]]]], problems: list[str]) -> None:
        self.names: list[list[Any]] = []  # layer, variable, type, shape; optionally device and message
        self.bits: list[int | None] = []  # hashes of their numbers, of weights that other ranks have, too
        self._where: list[tuple[Archive, Frame] | None] = []  # None for a scalar
        self._seen: Counter[str] = Counter()  # values of each metric
        self._problems, self._steps = problems, list[int]()
        self._numbers, self._counts = (
            [np.empty((0, len(STATISTICS)))],
            [np.empty((0, len(COUNTS)), np.int64)],
        )
        self._scalars: list[tuple[float, float, int]] = []  # value, time_secs, seen; not yet among the numbers
        for held, frames in openings:
            for archive, frame in frames:
                rows = rows_of(frame["about"].get("rows", {}).get(METRICS, NO_ROWS))
                step = frame["step"] if "values" in frame["about"] else None
                self._add_scalars([row for row in rows if step is None or row.step < step], held)
                if step is not None:
                    self._add_statistics(archive, frame, held)
                    self._add_scalars([row for row in rows if row.step >= step], held)
        self._flush()
        self.steps = np.array(self._steps, np.int64)
        self.statistics, self.counts = np.concatenate(self._numbers), np.concatenate(self._counts)
        self.places: dict[Key, list[int]] = {}
        for place, name in enumerate(self.names):
            self.places.setdefault((name[0], name[1]), []).append(place)

    def _add_scalars(self, rows: list[Row], held: Held) -> None:
        for row in rows:
            for name, cell in row.cells.items():
                if held.has(row.step):
                    self._steps.append(row.step)
                    self.names.append([name, METRICS, "float64", []])
                    self.bits.append(None)
                    self._where.append(None)
                    self._scalars.append((float(cell), row.time_secs, self._seen[name]))
                self._seen[name] += 1

    def _add_statistics(self, archive: Archive, frame: Frame, held: Held) -> None:
        read = read_statistics(archive, frame, self._problems) if held.has(frame["step"]) else None
        if read is None:
            return
        names, numbers, counts = read
        self._flush()
        self._steps += [frame["step"]] * len(names)
        self.names += names
        self.bits += hashes_of(frame) or [None] * len(names)
        self._where += [(archive, frame)] * len(names)
        self._numbers.append(numbers)
        self._counts.append(counts)

    def _flush(self) -> None:
        """Move the scalars among the numbers: each is its own minimum, mean and percentile."""
        if not self._scalars:
            return
        numbers, times, seen = (np.array(column) for column in zip(*self._scalars))
        self._scalars = []
        value = np.where(np.isfinite(numbers), numbers, np.nan)
        none, ones = np.full(len(value), -1), np.ones(len(value), np.int64)
        statistics = [times, value, value, value, value * 0.0, *[value] * len(PERCENTILES)]
        counts = [none, seen, ones, numbers == 0, np.isnan(numbers), np.isinf(numbers), ones, none, none]
        self._counts.append(np.stack([column.astype(np.int64) for column in counts], 1))
        self._numbers.append(with_derived(np.stack(statistics, 1), self._counts[-1]))

    def _entry(self, place: int, layer: str, variable: str, item: int) -> tuple[Archive, Entry] | None:
        where, wanted = self._where[place], (layer, variable, item)
        if where is None:
            return None
        entries: list[Entry] = where[1]["entries"]
        same = (entry for entry in entries if (entry.layer, entry.variable, entry.item) == wanted)
        return next(((where[0], entry) for entry in same), None)

    def _kept_entry(self, place: int) -> tuple[Archive, Entry] | None:
        layer, variable = self.names[place][:2]
        return self._entry(place, layer, variable, int(self.counts[place, COUNTS.index("item")]))

    def histogram(self, place: int) -> Array:
        """The histogram of a value; zeros if it has none. Raises ArchiveDamaged if it had one, and it is lost."""
        binned = int(self.counts[place, COUNTS.index("binned")])
        if binned < 0:
            return np.zeros(BINS, np.int64)
        packed = self._entry(place, LAYER, "bins", -1)
        if packed is None:
            layer, variable = self.names[place][:2]
            raise ArchiveDamaged(f"the histogram of {layer!r} ({variable}) at step {self.steps[place]} is lost")
        return unpack_row(packed[0].array(packed[1]), binned)

    def is_scalar(self, place: int) -> bool:
        """Whether a value is a cell of a row."""
        return self._where[place] is None

    def has_histogram(self, place: int) -> bool:
        """Whether a value has a histogram."""
        return bool(self.counts[place, COUNTS.index("binned")] >= 0)

    def keeps(self, place: int) -> bool:
        """Whether a value's array is there; a scalar is its own."""
        return self.is_scalar(place) or self._kept_entry(place) is not None

    def kept(self, place: int) -> Array:
        """A value's array, where `keeps` is true."""
        entry = self._kept_entry(place)
        if entry is None:
            return np.array(self.statistics[place, STATISTICS.index("mean")])
        return entry[0].array(entry[1])

    def column(self, name: str, places: Array) -> Array:
        """One number of each value.

        `finite`: whether all of a value's numbers are, as far as they were checked.
        """
        if name in STATISTICS:
            statistics: Array = self.statistics[places, STATISTICS.index(name)]
            return statistics
        counts: Array = self.counts[places, COUNTS.index(name)]
        if name == "finite":
            none_bad = self.column("nans", places) + self.column("infs", places) == 0
            return np.where(counts < 0, none_bad, counts > 0)
        return counts

    def table(self, places: Array) -> Columns:
        """The values as plain columns."""
        names = [self.names[place] for place in places]
        columns: Columns = {"step": self.steps[places].tolist()}
        columns["layer"], columns["variable"] = [name[0] for name in names], [name[1] for name in names]
        columns |= {name: self.column(name, places).tolist() for name in (*STATISTICS, *COUNTS[:-1])}
        columns["type"], columns["shape"] = [name[2] for name in names], [list(name[3]) for name in names]
        columns["device"] = [name[4] if len(name) > 4 else "cpu" for name in names]
        columns["message"] = [name[5] if len(name) > 5 else "" for name in names]
        return columns


def read_statistics(
    archive: ArchiveStream, frame: Frame, problems: list[str]
) -> tuple[list[list[Any]], Array, Array] | None:
    """A frame's values: their names, statistics and counts, a row each; None, and a problem, if they are damaged."""
    entries = {entry.variable: entry for entry in frame["entries"] if entry.layer == LAYER}
    names, step = frame["about"]["values"], frame["step"]
    problem = f"step {step}: its statistics are of another version of torcheer"
    try:
        numbers, counts = (number_columns(frame, name, archive.array(entries[name])) for name in COLUMNS)
        is_whole = numbers is not None and counts is not None and len(numbers) == len(counts) == len(names)
        if numbers is not None and counts is not None and is_whole and are_described(names):
            if frame["about"]["columns"] != COLUMNS:
                numbers = derive_again(np.array(numbers), counts)
            return names, numbers, counts
    except (KeyError, TorcheerError) as error:
        problem = f"step {step}: its statistics cannot be read: {error}"
    if problem not in problems:
        problems.append(problem)
    return None


def hashes_of(frame: Frame) -> list[int | None]:
    """The hashes of a frame's values; empty where there are none."""
    hashes = frame["about"].get("hashes", [])
    return hashes if len(hashes) == len(frame["about"].get("values", ())) else []


def histograms_of(archive: ArchiveStream, frame: Frame) -> Array | None:
    """The histograms of a frame's values, a row each; None if they are damaged, or there are none."""
    entries = {entry.variable: entry for entry in frame["entries"] if entry.layer == LAYER}
    try:
        return unpack_histograms(archive.array(entries["bins"])) if "bins" in entries else None
    except (TorcheerError, IndexError, ValueError):
        return None
