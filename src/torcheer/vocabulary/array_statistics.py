"""Statistics of arrays: what each is called and means, and the one way to compute, merge and show them.

Counts, minimum, maximum, mean and standard deviation are of every number, summed up in double precision; what can be
computed from those is a formula in `TABLE`. The histogram is of at most `SUBSAMPLE_SIZE` numbers and the percentiles of
at most `SORTED`, evenly strided through the array: the same array always gives the same result. Of complex numbers the
magnitudes are taken; whole numbers beyond 2⁵³ are rounded to doubles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import real_numbers

Array = NDArray[Any]

PERCENTILES: Final = (1, 5, 25, 50, 75, 95, 99)
LEAST_POWER, _GREATEST_POWER = -36, 20  # of two: 1.5e-11 and 1.0e6
_POSITIVE = [2.0**power for power in range(LEAST_POWER, _GREATEST_POWER + 1)]
# The outermost bins are unbounded; the middle one holds zero. A power of two belongs to the bin away from zero.
EDGES: tuple[float, ...] = (-math.inf, *(-edge for edge in reversed(_POSITIVE)), *_POSITIVE, math.inf)
BINS: Final = len(EDGES) - 1
_MIDDLE: Final = BINS // 2

SUBSAMPLE_SIZE, SORTED = 1 << 16, 1 << 13
_PART: Final = 1 << 16  # numbers that are summed up at a time, the last up to twice as many: they fit the cache
_SMALL: Final = 1 << 12  # numbers, up to which arrays are summed up together
_SAFE: Final = 1e100  # squares of numbers up to this, and of what they differ by, neither overflow nor vanish
_CLOSE: Final = 2.0**-26  # deviations that are so much smaller than the mean feel that it was rounded
_MOST_ROWS: Final = 4096  # of parts, until they are merged

# A row of numbers from which all statistics follow: what parts, devices and processes hand on.
SUMMED: Final = ("count", "zeros", "minimum", "maximum", "mean", "std", "nans", "infs")
NONFINITE: Final = 6  # from here on all are zero where every number is finite
_COUNTS: Final = [0, 1, 6, 7]


# -- the table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Statistic:
    """A row of `TABLE`."""

    name: str  # an attribute of `Statistics`, a column of a log, a key of every answer
    title: str  # of a table's column, and on the page
    unit: str  # "numbers" of a count, "values" of what is measured as the array is
    meaning: str
    formula: Callable[[Any], Any] | None = None  # of `Statistics` whose numbers may be arrays; None: it is in SUMMED
    is_plotted: bool = False  # before anybody chooses

    @property
    def is_count(self) -> bool:
        """Whether it is a whole number."""
        return self.unit == "numbers"


def _norm(sums: Any) -> Any:
    return np.sqrt(sums.finite) * np.hypot(sums.mean, sums.std)


def _rms(sums: Any) -> Any:
    return np.hypot(sums.mean, sums.std)


TABLE: Final = (
    Statistic("count", "Numbers", "numbers", "how many numbers it has"),
    Statistic("minimum", "Min", "values", "the smallest finite number", is_plotted=True),
    Statistic("maximum", "Max", "values", "the largest finite number", is_plotted=True),
    Statistic("mean", "Mean", "values", "the mean of the finite numbers", is_plotted=True),
    Statistic("std", "Std", "values", "their standard deviation, of all numbers, not of a sample"),
    Statistic("norm", "Norm", "values", "their Euclidean norm, the root of the sum of squares", _norm),
    Statistic("rms", "RMS", "values", "the root of their mean square: the norm, whatever the size of the array", _rms),
    Statistic("zeros", "Zeros", "numbers", "how many are exactly zero"),
    Statistic("nans", "NaN", "numbers", "how many are NaN"),
    Statistic("infs", "Infinite", "numbers", "how many are infinite"),
)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of one array: of its finite numbers, except for the counts. NaN where there are none."""

    count: int  # of all numbers
    zeros: int
    minimum: float
    maximum: float
    mean: float
    std: float  # of the population
    nans: int = 0
    infs: int = 0
    percentiles: tuple[float, ...] = ()  # at PERCENTILES
    histogram: tuple[int, ...] = ()  # in the bins of EDGES, which do not depend on the data
    stride: int = 1  # computed over every n-th number

    @classmethod
    def of_row(cls, row: Sequence[float], stride: int = 1, sample: Array | None = None) -> Statistics:
        """Make it of a row of SUMMED; percentiles and histogram of a sample of its numbers, real ones."""
        count, zeros, minimum, maximum, mean, std, nans, infs = row
        shape = ((), ()) if sample is None else _shape_of(sample, bool(nans or infs))
        return cls(int(count), int(zeros), minimum, maximum, mean, std, int(nans), int(infs), *shape, stride)

    def with_sample(self, sample: Array) -> Statistics:
        """Add percentiles and histogram of some of its numbers, real ones."""
        percentiles, histogram = _shape_of(sample, bool(self.nans or self.infs))
        return replace(self, percentiles=percentiles, histogram=histogram)

    @property
    def finite(self) -> int:
        """How many numbers are finite."""
        return self.count - self.nans - self.infs

    @property
    def norm(self) -> float:
        """Euclidean."""
        with np.errstate(all="ignore"):
            return float(_norm(self))

    @property
    def rms(self) -> float:
        """The root of the mean square."""
        with np.errstate(all="ignore"):
            return float(_rms(self))

    def facts(self) -> dict[str, Any]:
        """Every statistic of `TABLE` by name; None where there is no finite number."""
        facts = {row.name: getattr(self, row.name) for row in TABLE}
        return {name: None if number != number else number for name, number in facts.items()}


class StatisticColumns:
    """What type checkers know of an object that has a column for each row of `TABLE`."""

    count: Array
    minimum: Array
    maximum: Array
    mean: Array
    std: Array
    norm: Array
    rms: Array
    zeros: Array
    nans: Array
    infs: Array


def derived_columns(summed: Mapping[str, Array]) -> dict[str, Array]:
    """The columns that follow from those of SUMMED, by their formulas in `TABLE`."""
    columns: Any = Statistics(**summed)  # type: ignore[arg-type]
    with np.errstate(all="ignore"):  # some are infinite, of numbers as large as doubles get
        return {row.name: row.formula(columns) for row in TABLE if row.formula is not None}


# -- computing and merging ---------------------------------------------------------------------------------------------


class Summation:
    """Statistics of numbers that come in parts: `add` arrays, `merge` another summation, `finish`.

    Each part is summed up about its own mean, in units of its largest number where squares would overflow or vanish:
    sums of squares cancel where numbers lie far from zero.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[float, ...]] = []  # of SUMMED and what the mean lost, one for each part
        self._buffer = np.empty(0)

    def add(self, array: Any) -> None:
        """Add numbers of any type and shape."""
        flat = np.asarray(array).reshape(-1)
        if self._buffer.size < min(flat.size, 2 * _PART):
            self._buffer = np.empty(min(flat.size, 2 * _PART))
        start = 0
        while start < flat.size:
            end = flat.size if flat.size - start < 2 * _PART else start + _PART
            self._rows.append(_sum_up(real_numbers(flat[start:end]), self._buffer))
            start = end
        self._compact()

    @property
    def has_nonfinite(self) -> bool:
        """Whether any number so far was NaN or infinite."""
        return any(row[6] or row[7] for row in self._rows)

    def merge(self, other: Summation) -> None:
        """Add what another has summed up."""
        self._rows += other._rows
        self._compact()

    def finish(self, stride: int = 1, sample: Array | None = None) -> Statistics:
        """The statistics so far; `stride`: every n-th number was added; percentiles and histogram of a `sample`."""
        rows = self._rows
        row = rows[0] if len(rows) == 1 else merge_rows(np.array(rows).reshape(-1, len(SUMMED) + 1)).tolist()
        return Statistics.of_row(row[:-1], stride, sample)

    def _compact(self) -> None:
        if len(self._rows) > _MOST_ROWS:
            self._rows = [tuple(merge_rows(np.array(self._rows)).tolist())]


def statistics_of(array: Any, stride: int = 1) -> Statistics:
    """The statistics of an array of any type that `torcheer.encoding` supports; `stride`: it is every n-th number."""
    flat = np.asarray(array).reshape(-1)
    if flat.size == 1:
        return _statistics_of_number(real_numbers(flat), stride)
    summation = Summation()
    summation.add(flat)
    return summation.finish(stride, real_numbers(flat[:: even_stride(flat.size, SUBSAMPLE_SIZE)]))


def facts_of(array: Any) -> dict[str, Any]:
    """Every statistic of `TABLE` of an array, by name; None where there is no finite number."""
    summation = Summation()
    summation.add(array)
    return summation.finish().facts()


def statistics_of_each(arrays: Sequence[Array], strides: Sequence[int]) -> list[Statistics]:
    """The statistics of many arrays, bit for bit as `statistics_of` gives them, with few operations for small ones."""
    together = [place for place, array in enumerate(arrays) if 1 < array.size <= _SMALL]
    together.sort(key=lambda place: arrays[place].size)
    known: dict[int, Statistics | None] = {}
    if len(together) > 1:
        rows = _SmallArrays([real_numbers(arrays[place].reshape(-1)) for place in together])
        known = dict(zip(together, rows.statistics([strides[place] for place in together])))
    return [
        known.get(place) or statistics_of(array, stride) for place, (array, stride) in enumerate(zip(arrays, strides))
    ]


def merge_rows(rows: Array) -> Array:
    """Merge rows of SUMMED, (…, parts, 8), to (…, 8): as if all numbers of a group had been summed up together.

    A ninth column is what the means lost when they were rounded: of doubles, neighbours differ by as much.
    """
    counts, finite = rows[..., _COUNTS].sum(-2), rows[..., 0] - rows[..., 6] - rows[..., 7]
    total = finite.sum(-1)
    weight, is_known = finite / np.maximum(total, 1.0)[..., None], finite > 0
    means, deviations = np.where(is_known, rows[..., 4], 0.0), np.where(is_known, rows[..., 5], 0.0)
    least, greatest = np.where(is_known, rows[..., 2], np.nan), np.where(is_known, rows[..., 3], np.nan)
    minimum, maximum = np.fmin.reduce(least, -1, initial=np.nan), np.fmax.reduce(greatest, -1, initial=np.nan)
    mean = (weight * means).sum(-1)
    lost = rows[..., 8] if rows.shape[-1] > len(SUMMED) else 0.0
    shifts = means / 2 - mean[..., None] / 2 + lost / 2  # halves: the ends of doubles lie far apart
    shifts = np.where(is_known, shifts, 0.0)
    unit = np.maximum(np.abs(shifts), deviations / 2).max(-1, initial=0.0)
    unit = np.where(unit > 0, unit, 1.0)[..., None]  # squares neither overflow nor vanish
    rest = (weight * shifts).sum(-1)  # the mean is rounded
    squares = (deviations / 2 / unit) ** 2 + (shifts / unit) ** 2
    variance = np.maximum((weight * squares).sum(-1) - (rest / unit[..., 0]) ** 2, 0.0)
    rounded = mean + 2 * rest
    still_lost = 2 * rest - (rounded - mean)
    mean = np.minimum(np.maximum(rounded, minimum), maximum)  # NaN without a finite number
    std = np.where(minimum < maximum, 2 * unit[..., 0] * np.sqrt(variance), np.where(total > 0, 0.0, np.nan))
    merged = [counts[..., 0], counts[..., 1], minimum, maximum, mean, std, counts[..., 2], counts[..., 3], still_lost]
    return np.stack(merged[: rows.shape[-1]], -1)


def _sum_up(numbers: Array, buffer: Array) -> tuple[float, ...]:
    """A row of SUMMED, and what the mean lost, of real numbers; `buffer` has room for as many doubles."""
    finite, least, greatest, nans, infs = finite_part(numbers)
    if not finite.size:
        return (numbers.size, 0, math.nan, math.nan, math.nan, math.nan, nans, infs, 0.0)
    zeros = finite.size - int(np.count_nonzero(finite != 0)) if least <= 0 <= greatest else 0
    mean, std, lost = _mean_and_std(finite, buffer[: finite.size], least, greatest)
    return (numbers.size, zeros, least, greatest, mean, std, nans, infs, lost)


def finite_part(numbers: Array) -> tuple[Array, float, float, int, int]:
    """The finite ones of real numbers, the smallest and largest of them, and how many are NaN and infinite."""
    ends = (float(numbers.min()), float(numbers.max())) if numbers.size else (math.nan, math.nan)
    if math.isfinite(ends[0]) and math.isfinite(ends[1]):  # NaN propagates to both
        return numbers, *ends, 0, 0
    finite, nans = numbers[np.isfinite(numbers)], int(np.count_nonzero(np.isnan(numbers)))
    ends = (float(finite.min()), float(finite.max())) if finite.size else (math.nan, math.nan)
    return finite, *ends, nans, numbers.size - finite.size - nans


def _mean_and_std(numbers: Array, buffer: Array, least: float, greatest: float) -> tuple[float, float, float]:
    """The mean, the deviation, and what the mean lost when it was rounded."""
    if least == greatest:
        return least, 0.0, 0.0
    largest, size, lost = max(-least, greatest), numbers.size, 0.0
    unit = 1.0 if 1 / _SAFE <= largest <= _SAFE else math.ldexp(1.0, math.frexp(largest)[1] - 1)  # a power of two
    numbers = numbers if unit == 1.0 else numbers / unit
    wide = _widened(numbers, buffer)
    mean = float(wide.sum()) / size
    centred = np.subtract(wide, mean, out=buffer)
    centred *= centred
    variance = float(centred.sum()) / size
    if variance < (mean * _CLOSE) ** 2:
        rest = float(np.subtract(_widened(numbers, buffer), mean, out=buffer).sum()) / size
        rounded = mean + rest
        variance, mean, lost = max(variance - rest * rest, 0.0), rounded, rest - (rounded - mean)
    return min(max(mean * unit, least), greatest), math.sqrt(variance) * unit, lost * unit  # rounding stays in range


def _widened(numbers: Array, buffer: Array) -> Array:
    """The numbers as doubles, in the buffer where they are none."""
    if numbers.dtype != np.float64:
        np.copyto(buffer, numbers)
        return buffer
    return numbers


class _SmallArrays:
    """`_sum_up` of many small arrays at once, ordered by size: those of a size are the rows of one array."""

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
            is_safe = (least == greatest) | (largest <= _SAFE) & (largest >= 1 / _SAFE)
            is_safe &= np.isfinite(largest)
            means, stds = self._means_and_stds(least, greatest)
            zeros = np.add.reduceat(numbers == 0, starts, dtype=np.int64)
            percentiles, histograms = self._percentiles(), self._histograms()
        columns = (zeros, least, greatest, means, stds, percentiles, histograms)
        rows = zip(is_safe.tolist(), sizes.tolist(), strides, *(column.tolist() for column in columns))
        return [
            Statistics(count, zero, low, high, mean, std, 0, 0, tuple(percents), tuple(bins), stride) if safe else None
            for safe, count, stride, zero, low, high, mean, std, percents, bins in rows
        ]

    def _means_and_stds(self, least: Array, greatest: Array) -> tuple[Array, Array]:
        sizes = self._sizes
        means = self._sums(self._numbers) / sizes
        centred = self._numbers - np.repeat(means, sizes)
        centred *= centred
        variances = self._sums(centred) / sizes
        if (is_close := variances < (means * _CLOSE) ** 2).any():
            rest = np.where(is_close, self._sums(self._numbers - np.repeat(means, sizes)) / sizes, 0.0)
            variances, means = np.maximum(variances - rest * rest, 0.0), means + rest
        stds = np.where(least < greatest, np.sqrt(variances), 0.0)
        return np.minimum(np.maximum(means, least), greatest), stds

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


def _statistics_of_number(number: Array, stride: int) -> Statistics:
    """The statistics of a single number, such as a loss: a fast path, as they are frequent."""
    value = float(number[0])
    if not math.isfinite(value):
        none, is_nan = math.nan, math.isnan(value)
        return Statistics(1, 0, none, none, none, none, int(is_nan), int(not is_nan), (none,) * len(PERCENTILES),
                          (0,) * BINS, stride)  # fmt: skip
    percentiles = (value,) * len(PERCENTILES)
    return Statistics(1, int(value == 0), value, value, value, 0.0, 0, 0, percentiles, _histogram(number), stride)


# -- samples of an array -----------------------------------------------------------------------------------------------


def even_stride(size: int, most: int) -> int:
    """A stride through an array that takes at most `most` numbers, and some of every row, column and channel."""
    stride = -(-size // most) or 1
    while stride > 1 and math.gcd(stride, size) > 1:  # else it would hit only some of the channels
        stride += 1
    return stride


def _shape_of(numbers: Array, has_nonfinite: bool) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Percentiles and histogram."""
    finite = numbers[np.isfinite(numbers)] if has_nonfinite else numbers
    return _percentiles(finite), _histogram(finite)


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
