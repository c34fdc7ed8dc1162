"""What a writer of a run's log has buffered: rows, statistics and samples, as the parts of its next frames."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from torcheer.encoding import refusal, type_name
from torcheer.records import Sample
from torcheer.runlog.log_frames import COLUMNS, LAYER, METRICS, ROWS, with_derived
from torcheer.runlog.log_rows import encode_rows
from torcheer.runlog.volume.packed_histograms import pack_histograms
from torcheer.samples import Delivery
from torcheer.selection import matches_value
from torcheer.vocabulary.array_statistics import BINS, PERCENTILES, Statistics


class Buffer:
    """What becomes the next frame."""

    def __init__(self) -> None:
        self.heads: dict[str, Any] = {}
        self._cleared: list[str] = []
        self.network: dict[str, Any] | None = None
        self.count = self.bytes = self._elsewhere = 0
        self._own: list[tuple[Sample, dict[str, Any]]] = []  # with the record of each
        self._values: list[SampleRow] = []
        self._arrays: dict[tuple[str, str, int], Sample] = {}
        self._rows: dict[str, list[tuple[int, float, dict[str, Any]]]] = {}

    def fits(self, sample: Sample, keeps: bool) -> bool:
        """Whether a frame can hold the value, too: one step, each array once."""
        same_step = not self._values or self._values[0].step == sample.step
        return same_step and not (keeps and (sample.layer, sample.variable, sample.item) in self._arrays)

    def value(self, row: SampleRow, kept: Sample | None) -> None:
        self._values.append(row)
        self.count += 1
        if kept is not None:
            self._arrays[kept.layer, kept.variable, kept.item] = kept
            self.bytes += kept.array.nbytes

    def rows(self, rows: Iterable[tuple[str, int, float, dict[str, Any]]]) -> None:
        """Add rows: the table, the step, the time and the cells of each."""
        tables = self._rows
        for table, step, when, cells in rows:
            if cells.get("Step") == step:
                del cells["Step"]  # readers have it from the row's own step
            if table not in tables:
                tables[table] = []
            tables[table].append((step, when, cells))
            self.count += 1

    def count_elsewhere(self) -> None:
        self._elsewhere += 1
        self.count += 1

    def clear(self, table: str) -> None:
        self.count -= len(self._rows.pop(table, ()))
        self._cleared.append(table)

    def extend(self, later: Buffer) -> None:
        """Add what a later buffer of rows holds."""
        for table in later._cleared:
            self.clear(table)
        for table, rows in later._rows.items():
            self._rows.setdefault(table, []).extend(rows)
        self.heads |= later.heads
        self.network = later.network or self.network
        self.count += later.count

    def keep_facts(self, earlier: Buffer) -> None:
        """Add what an earlier buffer says of tables and the network, without its rows and values."""
        self.heads = earlier.heads | self.heads
        self._cleared = [*earlier._cleared, *self._cleared]
        self.network = self.network or earlier.network

    def metric(self, step: int, when: float, name: str, number: Any) -> None:
        """A cell of the step's last row, or of a new one if that has it."""
        rows = self._rows.setdefault(METRICS, [])
        if not rows or rows[-1][0] != step or name in rows[-1][2]:
            rows.append((step, when, {}))
        rows[-1][2][name] = abs(number) if np.iscomplexobj(number) else number
        self.count += 1

    def own_sample(self, sample: Sample, record: dict[str, Any]) -> None:
        self._own.append((sample, record))
        self.count += 1
        self.bytes += sample.array.nbytes

    def frames(self) -> Iterator[tuple[list[Sample], dict[str, Any], int]]:
        """Yield each frame's samples, metadata, and how many values it holds."""
        tables = {table: encode_rows(rows) for table, rows in self._rows.items()}
        if about := self._about({table: record for table, (record, _) in tables.items()}):
            steps = [self._values[0].step] if self._values else [rows[-1][0] for rows in self._rows.values()]
            step = max(steps, default=0)
            arrays = [Sample(step, ROWS, table, array=array) for table, (_, array) in tables.items()]
            yield [*arrays, *self._samples()], about, self.count - len(self._own)
        while self._own:
            step, keys, end = self._own[0][0].step, set[tuple[str, str, int]](), 0
            for sample, _ in self._own:
                key = (sample.layer, sample.variable, sample.item)
                if sample.step != step or key in keys:
                    break
                keys.add(key)
                end += 1
            part, self._own = self._own[:end], self._own[end:]
            yield [sample for sample, _ in part], {"samples": [record for _, record in part]}, end

    def _about(self, rows: dict[str, Any]) -> dict[str, Any]:
        """The first frame's metadata; empty if there is nothing to write."""
        parts = {
            "values": [row.name for row in self._values],
            "columns": COLUMNS if self._values else {},
            "hashes": [row.bits for row in self._values] if any(row.bits is not None for row in self._values) else [],
            "cleared": list(dict.fromkeys(self._cleared)),
            "rows": rows,
            "elsewhere": self._elsewhere,
            "heads": self.heads,
            "network": self.network,
        }
        return {name: part for name, part in parts.items() if part}

    def _samples(self) -> list[Sample]:
        return [*_pack(self._values), *self._arrays.values()] if self._values else []


class KeptKeys:
    """Which values' arrays are kept."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns, self._known = tuple(patterns), dict[tuple[str, str], bool]()

    def match(self, sent: Delivery) -> bool:
        """True if a value's array is to be kept, and can be stored."""
        matches = self._known.get(sent.key)
        if matches is None:
            matches = any(matches_value(pattern, *sent.key) for pattern in self._patterns)
            matches = self._known[sent.key] = matches and sent.key[0] != LAYER
        return matches and sent.sample.array.size > 0 and not refusal(sent.sample.array)


class SampleRow(NamedTuple):
    """A value buffered for the next frame."""

    step: int
    name: list[Any]  # layer, variable, type, shape; device and message, if not the default
    measured: list[float]  # statistics that follow from no others
    counts: list[int]
    histogram: tuple[int, ...]
    bits: int | None = None  # a hash of its numbers, where other ranks have the same


def sample_row(sent: Delivery, summary: Statistics, bits: int | None = None) -> SampleRow:
    sample, missing = sent.sample, [math.nan] * len(PERCENTILES)
    extras = [sent.device, sent.message] if sent.message else [sent.device] if sent.device != "cpu" else []
    kind = sent.type or type_name(sample.array.dtype)
    name = [sample.layer, sample.variable, kind, list(sent.whole or sample.array.shape)]
    percentiles = summary.percentiles if len(summary.percentiles) == len(PERCENTILES) else missing
    numbers = [sent.time_secs, summary.minimum, summary.maximum, summary.mean, summary.std, *percentiles]
    finite = -1 if sent.finite is None else int(sent.finite)
    counts = [sample.item, sent.count, summary.count, summary.zeros, summary.nans, summary.infs, summary.stride, finite]
    histogram = summary.histogram if len(summary.histogram) == BINS and summary.count > 1 else ()
    return SampleRow(sample.step, name + extras, numbers, counts, histogram, bits)


def _pack(rows: list[SampleRow]) -> list[Sample]:
    """Pack the numbers of all rows into three arrays."""
    binned = iter(range(len(rows)))
    counts = np.array([[*row.counts, next(binned) if row.histogram else -1] for row in rows], np.int64)
    bins = chain.from_iterable(row.histogram for row in rows)  # a third of the cost of an array of tuples
    histograms = np.fromiter(bins, np.int64).reshape(-1, BINS)
    arrays = {
        "statistics": with_derived(np.array([row.measured for row in rows], np.float64), counts),
        "counts": counts,
        "bins": pack_histograms(histograms),
    }
    return [Sample(rows[0].step, LAYER, name, array=array) for name, array in arrays.items()]
