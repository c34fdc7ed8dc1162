"""Compute the statistics of an array: counts, moments, percentiles, and a histogram that adds up over steps.

Counts, minimum, maximum, mean, standard deviation and norm are of every number, summed in double precision. The
histogram is of at most `SUBSAMPLE_SIZE` numbers and the percentiles of at most `SORTED`, evenly strided through the
array: the same array always gives the same result. Of complex numbers the absolute values are taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import crc32
from torcheer.samples import BINS, LEAST_POWER, PERCENTILES, Delivery, Statistics

SUBSAMPLE_SIZE, SORTED = 1 << 16, 1 << 13
_MIDDLE = BINS // 2
_CHUNK = 1 << 16  # numbers at a time: fits the cache, and memory stays flat
_SMALL = 1 << 12  # numbers, up to which arrays are summed up together
_SAFE = 1e140  # squares of numbers up to this, a few billions of them, can be summed

Array = NDArray[Any]


def summarise(delivery: Delivery) -> Statistics:
    """The statistics of a value; those sent with it, where it was reduced on its device."""
    if delivery.summary is None:
        return summary_of(delivery.sample.array, delivery.stride)
    if delivery.summary.histogram or not delivery.sample.array.size:
        return delivery.summary
    numbers = as_floats(np.asarray(delivery.sample.array).reshape(-1))  # a sample was sent along
    finite = numbers[np.isfinite(numbers)]
    return replace(delivery.summary, percentiles=_percentiles(finite), histogram=_histogram(finite))


def summary_of(array: Any, stride: int = 1) -> Statistics:
    """The statistics of an array of any type that `torcheer.encoding` supports."""
    flat = np.asarray(array).reshape(-1)
    if flat.size == 1:
        return _scalar_statistics(flat, stride)
    moments = _Moments(flat)
    strided = as_floats(flat[:: even_stride(flat.size, SUBSAMPLE_SIZE)])
    finite = strided if moments.finite == flat.size else strided[np.isfinite(strided)]
    return Statistics(
        count=flat.size,
        minimum=moments.minimum,
        maximum=moments.maximum,
        mean=moments.mean,
        std=moments.std,
        norm=moments.norm,
        zeros=moments.zeros,
        nans=moments.nans,
        infs=moments.infs,
        percentiles=_percentiles(finite),
        histogram=_histogram(finite),
        stride=stride,
    )


def summarise_together(deliveries: Sequence[Delivery]) -> list[Statistics]:
    """The statistics of many values, bit for bit as `summarise` gives them, with few operations for all small ones."""
    together = [
        place
        for place, delivery in enumerate(deliveries)
        if delivery.summary is None and 1 < delivery.sample.array.size <= _SMALL
    ]
    together.sort(key=lambda place: deliveries[place].sample.array.size)
    found: dict[int, Statistics | None] = {}
    if len(together) > 1:
        rows = _RowStatistics([as_floats(deliveries[place].sample.array.reshape(-1)) for place in together])
        found = dict(zip(together, rows.statistics([deliveries[place].stride for place in together])))
    return [found.get(place) or summarise(delivery) for place, delivery in enumerate(deliveries)]


def _scalar_statistics(flat: Array, stride: int) -> Statistics:
    """The statistics of a single number, such as a loss: a fast path, as they are frequent."""
    number = as_floats(flat)
    value = float(number[0])
    if not math.isfinite(value):
        none = math.nan
        nan = math.isnan(value)
        return Statistics(1, none, none, none, none, none, 0, int(nan), int(not nan), (none,) * len(PERCENTILES),
                       (0,) * BINS, stride)  # fmt: skip
    percentiles = (value,) * len(PERCENTILES)
    return Statistics(1, value, value, value, 0.0, abs(value), int(value == 0), 0, 0, percentiles, _histogram(number),
                   stride)  # fmt: skip


def bits_hash(array: Any, stride: int) -> int:
    """A checksum of an array's bits, every `stride`-th number of a tensor; the stride stands above its 32 bits."""
    return crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8)) | stride << 32


def even_stride(size: int, most: int) -> int:
    """A stride through an array that takes at most `most` numbers, and some of every row, column and channel."""
    stride = -(-size // most) or 1
    while stride > 1 and math.gcd(stride, size) > 1:  # else it would hit only some of the channels
        stride += 1
    return stride


def as_floats(numbers: Array) -> Array:
    """Convert numbers to float32 where that is exact, else to float64; complex ones to absolute values."""
    kind = numbers.dtype
    if kind.kind == "c":
        with np.errstate(all="ignore"):
            return np.abs(numbers.astype(np.complex128))  # the magnitude may overflow float32
    if kind.char in "fd":
        return numbers if kind.isnative else numbers.astype(kind.newbyteorder("="))
    is_wide = kind.kind in "iu" and kind.itemsize > 2
    return numbers.astype(np.float64 if is_wide else np.float32)


class _Moments:
    """Counts and moments of an array, computed in one pass, chunk by chunk."""

    def __init__(self, flat: Array) -> None:
        self.finite = self.zeros = self.nans = self.infs = 0
        self.minimum, self.maximum = math.inf, -math.inf
        self.mean = self.std = self.norm = math.nan
        self._added, self._mean, self._squares = 0, 0.0, 0.0  # numbers; squares of what they differ from the mean by
        self._buffer = np.empty(min(flat.size, _CHUNK))
        for at in range(0, flat.size, _CHUNK):
            self._count(as_floats(flat[at : at + _CHUNK]), flat)
        if not self.finite:
            self.minimum = self.maximum = math.nan
            return
        greatest = max(abs(self.minimum), abs(self.maximum))
        if greatest > _SAFE or 0 < greatest < 1 / _SAFE:  # only in float64
            self._finish_scaled(flat, greatest)
        else:
            self._finish()

    def _count(self, chunk: Array, flat: Array) -> None:
        least, greatest = float(chunk.min()), float(chunk.max())
        if not (math.isfinite(least) and math.isfinite(greatest)):  # NaN propagates to both
            chunk = self._only_finite(chunk)
            if not chunk.size:
                return
            least, greatest = float(chunk.min()), float(chunk.max())
        self.minimum, self.maximum = min(self.minimum, least), max(self.maximum, greatest)
        self.finite += chunk.size
        if least <= 0 <= greatest:
            self.zeros += chunk.size - int(np.count_nonzero(chunk != 0))
        self._add(chunk)

    def _only_finite(self, chunk: Array) -> Array:
        nans = int(np.count_nonzero(np.isnan(chunk)))
        finite: Array = chunk[np.isfinite(chunk)]
        self.nans += nans
        self.infs += chunk.size - finite.size - nans
        return finite

    def _add(self, chunk: Array) -> None:
        """Join a chunk by the difference of its mean, as Chan and others do: sums of squares cancel far from zero."""
        buffer = self._buffer[: chunk.size]
        np.copyto(buffer, chunk)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            mean = float(buffer.sum()) / chunk.size
            buffer -= mean
            buffer *= buffer
            shift, total = mean - self._mean, self._added + chunk.size
            self._squares += float(buffer.sum()) + shift * shift * self._added * chunk.size / total
            self._mean += shift * (chunk.size / total)  # of the first chunk its mean, to the bit
            self._added = total

    def _finish(self) -> None:
        mean = self._mean
        self.mean = min(max(mean, self.minimum), self.maximum)  # rounding must not move it out of range
        self.std = 0.0 if self.minimum == self.maximum else math.sqrt(self._squares / self.finite)
        self.norm = math.sqrt(self._squares + self.finite * mean * mean)

    def _finish_scaled(self, flat: Array, scale: float) -> None:
        """The same for numbers whose squares would overflow: a second pass, divided by the largest."""
        self._added, self._mean, self._squares = 0, 0.0, 0.0
        for chunk in _scaled(flat, scale):
            self._add(chunk)
        least, greatest = self.minimum, self.maximum
        self.minimum, self.maximum = least / scale, greatest / scale
        self._finish()
        self.minimum, self.maximum = least, greatest
        self.mean, self.std, self.norm = self.mean * scale, self.std * scale, self.norm * scale


class _RowStatistics:
    """The same as `_Moments` of many small arrays, ordered by size: those of a size are the rows of one array."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        sizes = np.array([array.size for array in arrays])
        self._numbers = np.concatenate(arrays, dtype=np.float64)
        self._sizes, self._starts = sizes, np.cumsum(sizes) - sizes
        self._groups: list[tuple[slice, slice, int]] = []  # of rows, of numbers, and how many numbers a row has
        first = 0
        for size, count in zip(*np.unique(sizes, return_counts=True)):
            begin, rows = int(self._starts[first]), slice(first, first + int(count))
            self._groups.append((rows, slice(begin, begin + int(count * size)), int(size)))
            first = rows.stop

    def statistics(self, strides: Sequence[int]) -> list[Statistics | None]:
        """One for each array; None where it has numbers that are not finite, or whose squares are not."""
        numbers, sizes, starts = self._numbers, self._sizes, self._starts
        least, greatest = np.minimum.reduceat(numbers, starts), np.maximum.reduceat(numbers, starts)
        with np.errstate(all="ignore"):
            largest = np.maximum(np.abs(least), np.abs(greatest))
            is_safe = (largest <= _SAFE) & ((largest == 0) | (largest >= 1 / _SAFE))  # False for NaN
            means, stds, norms = self._moments(least, greatest)
            zeros = np.add.reduceat(numbers == 0, starts, dtype=np.int64)
            percentiles, histograms = self._percentiles(), self._histograms()
        columns = (least, greatest, means, stds, norms, zeros, percentiles, histograms)
        rows = zip(is_safe.tolist(), sizes.tolist(), strides, *(column.tolist() for column in columns))
        return [
            Statistics(count, low, high, mean, std, norm, zero, 0, 0, tuple(percents), tuple(bins), stride)
            if safe
            else None
            for safe, count, stride, low, high, mean, std, norm, zero, percents, bins in rows
        ]

    def _moments(self, least: Array, greatest: Array) -> tuple[Array, Array, Array]:
        counts = self._sizes
        means = self._sums(self._numbers) / counts
        centred = self._numbers - np.repeat(means, counts)
        centred *= centred
        squares = self._sums(centred)
        variances = np.where(least == greatest, 0.0, squares / counts)
        norms = squares + counts * means * means
        return np.minimum(np.maximum(means, least), greatest), np.sqrt(variances), np.sqrt(norms)

    def _sums(self, numbers: Array) -> Array:
        sums = np.empty(len(self._sizes))
        for rows, part, size in self._groups:
            numbers[part].reshape(-1, size).sum(1, out=sums[rows])
        return sums

    def _percentiles(self) -> Array:
        percentiles = np.empty((len(self._sizes), len(PERCENTILES)))
        for rows, part, size in self._groups:
            ordered, (low, high, fraction) = np.sort(self._numbers[part].reshape(-1, size)), _positions(size)
            percentiles[rows] = ordered[:, low] * (1 - fraction) + ordered[:, high] * fraction
        return percentiles

    def _histograms(self) -> Array:
        rows = np.repeat(np.arange(len(self._sizes)) * BINS, self._sizes)
        places = rows + _BIN64[(self._numbers.view(np.uint64) >> 52).astype(np.int64)]
        return np.bincount(places, minlength=len(self._sizes) * BINS).reshape(-1, BINS)


def _scaled(flat: Array, scale: float) -> Iterator[Array]:
    for at in range(0, flat.size, _CHUNK):
        chunk = as_floats(flat[at : at + _CHUNK])
        yield chunk[np.isfinite(chunk)] / scale


def _percentiles(finite: Array) -> tuple[float, ...]:
    if not finite.size:
        return (math.nan,) * len(PERCENTILES)
    ordered = np.sort(finite[:: even_stride(finite.size, SORTED)])
    low, high, fraction = _positions(ordered.size)
    return tuple((ordered[low].astype(float) * (1 - fraction) + ordered[high].astype(float) * fraction).tolist())


@lru_cache(1024)
def _positions(size: int) -> tuple[Array, Array, Array]:
    """Between which two of so many ordered numbers each percentile lies, and how far behind the first."""
    positions = np.array(PERCENTILES) / 100 * (size - 1)
    indices = positions.astype(int)
    return indices, np.minimum(indices + 1, size - 1), positions - indices


def _histogram(finite: Array) -> tuple[int, ...]:
    """Counts by sign and power of two, read from the first bits of each number."""
    is_double = finite.dtype.itemsize == 8
    bits: Array = np.ascontiguousarray(finite).view(np.uint64 if is_double else np.uint32)
    if bits.size == 1:  # such as a loss: without counting thousands of exponents
        place = int((_BIN64 if is_double else _BIN32)[int(bits[0]) >> (52 if is_double else 23)])
        return (0,) * place + (1,) + (0,) * (BINS - 1 - place)
    counts = np.bincount(
        (bits >> (52 if is_double else 23)).astype(np.int64), minlength=len(_BIN64 if is_double else _BIN32)
    )
    return tuple(np.bincount(_BIN64 if is_double else _BIN32, counts, BINS).astype(np.int64).tolist())


def _bin_of(exponent_bits: int) -> Array:
    """The bin of each combination of sign and exponent bits."""
    exponents = 1 << exponent_bits
    powers = np.arange(exponents) - (exponents // 2 - 1)
    distance = np.clip(powers - LEAST_POWER + 1, 0, _MIDDLE)  # in bins from the middle one
    return np.concatenate([_MIDDLE + distance, _MIDDLE - distance])


_BIN32, _BIN64 = _bin_of(8), _bin_of(11)
