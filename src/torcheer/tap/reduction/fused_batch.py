"""Values of one GPU that are summed up with few launches and sent as one record."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torcheer.encoding import MemoryCopy
from torcheer.samples import PARTS, SUMS, BatchRow, Key, SampleBatch, aligned
from torcheer.tap.reduction import fused_kernels
from torcheer.tap.reduction.noted_values import Layout
from torcheer.tap.reduction.reduction_batch import WIDTH, raw_stream, sample_stride, stream_of
from torcheer.vocabulary.array_statistics import NONFINITE

_ROWS = 64
_SAMPLE_BYTES = 1 << 20  # of a batch: sending one must be short beside a step


Moment = tuple[float, int, int]  # when a value was taken: the time in seconds, values of its key before it, the step


class FusedValue(NamedTuple):
    """A value to be summed up."""

    tensor: Tensor
    layout: Layout
    row: BatchRow
    moment: Moment
    minus: Tensor | None = None  # flat, subtracted from the numbers that are summed up


def row_of(
    tensor: Tensor, key: Key, layout: Layout, flags: tuple[str, ...] = (), keep_all: bool = False
) -> BatchRow | None:
    """The row of a key's value; None where it cannot be part of a batch. `keep_all`: not only a sample is kept."""
    rows, kind = layout.rows, (keep_all, flags)
    if kind not in rows:
        rows[kind] = _row(key, layout, flags, keep_all) if _can_fuse(tensor, layout) else None
    return rows[kind]


def _row(key: Key, layout: Layout, flags: tuple[str, ...], keep_all: bool) -> BatchRow:
    header, count = layout.header, layout.count
    return BatchRow.of(
        key, type=header["type"], device=header.get("device", "cpu"), whole=header["whole"], stride=layout.stride,
        numbers=count, sampled=1 if keep_all else sample_stride(count, math.prod(header["whole"])), flags=flags,
    )  # fmt: skip


def _can_fuse(tensor: Tensor, layout: Layout) -> bool:
    return layout.is_flat and 0 < layout.count <= WIDTH and fused_kernels.can_fuse(tensor.device, tensor.dtype)


class FusedBatch:
    """Sums and samples of up to 64 values, in the order they were taken; on one device, made by one stream."""

    def __init__(self, device: torch.device, message: str) -> None:
        self.device, self.message = device, message
        self.stream, self.raw = stream_of(device), raw_stream(device)
        self._sums = torch.zeros((_ROWS, PARTS, SUMS), dtype=torch.float64, device=device)
        self._samples = torch.empty(_SAMPLE_BYTES, dtype=torch.uint8, device=device)
        self.rows: list[BatchRow] = []
        self._moments, self._sample_bytes = array("d"), 0

    def fits(self, device: torch.device, message: str) -> bool:
        """Whether values of a device, with what the user wants to see beside them, belong here."""
        return self.device == device and self.message == message and raw_stream(device) == self.raw

    def add(self, values: Sequence[FusedValue]) -> int:
        """Sum up as many of the values as there is room for; returns how many."""
        tables: dict[torch.dtype, tuple[list[int], list[int]]] = {}  # entries, and counts of numbers to be checked
        added = 0
        for tensor, layout, row, moment, minus in values[: _ROWS - len(self.rows)]:
            if self._sample_bytes + row.batch_bytes > _SAMPLE_BYTES:
                break
            kind = tensor.dtype
            entries, checked = tables.get(kind) or tables.setdefault(kind, ([], []))
            checked.append(layout.whole_count if minus is None and layout.stride > 1 else 0)
            entries += (
                tensor.data_ptr(), 0 if minus is None else minus.data_ptr(), layout.count, layout.stride, row.sampled,
                row.kept, self._sample_bytes // layout.number_bytes, checked[-1], len(self.rows),
            )  # fmt: skip
            self.rows.append(row)
            self._moments.extend(moment)
            self._sample_bytes += row.batch_bytes
            added += 1
        for kind, (entries, checked) in tables.items():
            table = fused_kernels.table_on(self.device, entries)
            fused_kernels.sum_rows(table, self._sums, self._samples.view(kind), max(checked))
        return added

    @property
    def is_full(self) -> bool:
        """Whether it has no room for another value."""
        return len(self.rows) >= _ROWS

    def results(self) -> list[Tensor]:
        """What has to be fetched: `record` is made of it."""
        return [self._sums[: len(self.rows)], self._samples[: self._sample_bytes]]

    @staticmethod
    def is_finite(sums: Tensor) -> bool:
        """Whether all numbers of the values are finite, once the results are on the host."""
        return not bool(sums[..., NONFINITE:].any())

    def record(self, sums: Tensor, samples: Tensor) -> SampleBatch:
        """The record, once the results are on the host."""
        copies = [MemoryCopy(part, part.data_ptr(), part.nbytes) for part in (sums, samples)]
        address, count = self._moments.buffer_info()
        return SampleBatch(self.rows, self.message, MemoryCopy(self._moments, address, 8 * count), *copies)


def snapshots(tensors: Sequence[Tensor], layouts: Sequence[Layout]) -> list[Tensor]:
    """Copy the numbers that are summed up of each tensor, flat; all of one device and type."""
    device, kind, entries, place = tensors[0].device, tensors[0].dtype, list[int](), 0
    places = []
    for row, (tensor, layout) in enumerate(zip(tensors, layouts)):
        entries += (tensor.data_ptr(), 0, layout.count, layout.stride, 1, layout.count, place, 0, row)
        places.append(place)
        place += aligned(layout.count * tensor.element_size()) // tensor.element_size()
    copies = torch.empty(place, dtype=kind, device=device)
    sums = torch.zeros((len(tensors), PARTS, SUMS), dtype=torch.float64, device=device)
    fused_kernels.sum_rows(fused_kernels.table_on(device, entries), sums, copies, 0)
    return [torch.as_strided(copies, (layout.count,), (1,), place) for place, layout in zip(places, layouts)]
