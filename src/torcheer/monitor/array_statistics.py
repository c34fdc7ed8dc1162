"""The numbers of an array: counts, moments, percentiles, and a histogram that adds up over steps.

Counts, least, greatest, mean, standard deviation and norm are of every number, summed in double precision. The
histogram is of at most `SUBSAMPLE_SIZE` numbers and the percentiles of at most `SORTED`, evenly strided through the
array: the same array always gives the same result. Of complex numbers the absolute values are taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.samples import BINS, LEAST_POWER, PERCENTILES, Delivery, Statistics

SUBSAMPLE_SIZE, SORTED = 1 << 16, 1 << 13
_MIDDLE = BINS // 2
_CHUNK = 1 << 16  # numbers at a time: they stay in the cache, and memory stays flat
_SAFE = 1e140  # numbers up to it can be squared, and a few billions of the squares added

Array = NDArray[Any]


def summarise(sent: Delivery) -> Statistics:
    """The numbers of a value; those that came with it, where it was summed up on its own device."""
    if sent.summary is None:
        return summary_of(sent.sample.array, sent.stride)
    if sent.summary.histogram or not sent.sample.array.size:
        return sent.summary
    some = as_floats(np.asarray(sent.sample.array).reshape(-1))  # a sample came along
    looked = some[np.isfinite(some)]
    return replace(sent.summary, percentiles=_percentiles(looked), histogram=_histogram(looked))


def summary_of(array: Any, stride: int = 1) -> Statistics:
    """The numbers of an array of any type that `torcheer.encoding` knows."""
    flat = np.asarray(array).reshape(-1)
    if flat.size == 1:
        return _of_one(flat, stride)
    moments = _Moments(flat)
    strided = as_floats(flat[:: even_stride(flat.size, SUBSAMPLE_SIZE)])
    looked = strided if moments.finite == flat.size else strided[np.isfinite(strided)]
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
        percentiles=_percentiles(looked),
        histogram=_histogram(looked),
        stride=stride,
    )


def _of_one(flat: Array, stride: int) -> Statistics:
    """The same for a single number, such as a loss: there are many of them, and little to do."""
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


def even_stride(size: int, most: int) -> int:
    """A step through an array that takes at most so many of its numbers, and some of every row, column and channel."""
    stride = -(-size // most) or 1
    while stride > 1 and math.gcd(stride, size) > 1:  # or it would meet only some of the channels
        stride += 1
    return stride


def as_floats(numbers: Array) -> Array:
    """Numbers as float32 where it holds them all, as float64 elsewhere; complex ones as their absolute values."""
    kind = numbers.dtype
    if kind.kind == "c":
        with np.errstate(all="ignore"):
            return np.abs(numbers.astype(np.complex128))  # two numbers that a float32 holds may make one it does not
    if kind == np.float32 or kind == np.float64:
        return numbers.astype(kind.newbyteorder("="), copy=False)
    wide = kind.kind in "iu" and kind.itemsize > 2
    return numbers.astype(np.float64 if wide else np.float32)


class _Moments:
    """What is known of an array after reading it once, a chunk at a time."""

    def __init__(self, flat: Array) -> None:
        self.finite = self.zeros = self.nans = self.infs = 0
        self.minimum, self.maximum = math.inf, -math.inf
        self.mean = self.std = self.norm = math.nan
        self._shift, self._sum, self._squares = 0.0, 0.0, 0.0  # of the numbers less `_shift`
        self._buffer = np.empty(min(flat.size, _CHUNK))
        for at in range(0, flat.size, _CHUNK):
            self._count(as_floats(flat[at : at + _CHUNK]), flat)
        if not self.finite:
            self.minimum = self.maximum = math.nan
            return
        greatest = max(abs(self.minimum), abs(self.maximum))
        if greatest > _SAFE or 0 < greatest < 1 / _SAFE:  # only float64 has such numbers
            self._finish_scaled(flat, greatest)
        else:
            self._finish()

    def _count(self, chunk: Array, flat: Array) -> None:
        least, greatest = float(chunk.min()), float(chunk.max())
        if not (math.isfinite(least) and math.isfinite(greatest)):  # NaN is both the least and the greatest
            chunk = self._only_finite(chunk)
            if not chunk.size:
                return
            least, greatest = float(chunk.min()), float(chunk.max())
        if not self.finite and -_SAFE < least and greatest < _SAFE:
            self._shift = float(chunk.mean(dtype=np.float64))  # little is lost where all lie far from zero
        self.minimum, self.maximum = min(self.minimum, least), max(self.maximum, greatest)
        self.finite += chunk.size
        if least <= 0 <= greatest:
            self.zeros += chunk.size - int(np.count_nonzero(chunk != 0))
        self._add(chunk)

    def _only_finite(self, chunk: Array) -> Array:
        nans = int(np.count_nonzero(np.isnan(chunk)))
        kept: Array = chunk[np.isfinite(chunk)]
        self.nans += nans
        self.infs += chunk.size - kept.size - nans
        return kept

    def _add(self, chunk: Array) -> None:
        buffer = self._buffer[: chunk.size]
        np.copyto(buffer, chunk)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            buffer -= self._shift
            self._sum += float(buffer.sum())
            buffer *= buffer
            self._squares += float(buffer.sum())

    def _finish(self) -> None:
        off = self._sum / self.finite  # by how much the mean differs from the shift
        self.mean = min(max(self._shift + off, self.minimum), self.maximum)  # rounding must not carry it outside
        one = self.minimum == self.maximum
        self.std = 0.0 if one else math.sqrt(max(self._squares / self.finite - off * off, 0.0))
        whole = self._squares + self._shift * (2 * self._sum + self._shift * self.finite)
        self.norm = math.sqrt(max(whole, 0.0))

    def _finish_scaled(self, flat: Array, scale: float) -> None:
        """The same for numbers whose squares would not be numbers: read once more, divided by the greatest."""
        self._shift = self._sum = self._squares = 0.0
        for chunk in _scaled(flat, scale):
            self._add(chunk)
        least, greatest = self.minimum, self.maximum
        self.minimum, self.maximum = least / scale, greatest / scale
        self._finish()
        self.minimum, self.maximum = least, greatest
        self.mean, self.std, self.norm = self.mean * scale, self.std * scale, self.norm * scale


def _scaled(flat: Array, scale: float) -> Iterator[Array]:
    for at in range(0, flat.size, _CHUNK):
        chunk = as_floats(flat[at : at + _CHUNK])
        yield chunk[np.isfinite(chunk)] / scale


def _percentiles(looked: Array) -> tuple[float, ...]:
    if not looked.size:
        return (math.nan,) * len(PERCENTILES)
    ordered = np.sort(looked[:: even_stride(looked.size, SORTED)])
    places = np.array(PERCENTILES) / 100 * (ordered.size - 1)
    before = places.astype(int)
    low, high = ordered[before].astype(float), ordered[np.minimum(before + 1, ordered.size - 1)].astype(float)
    part = places - before
    return tuple((low * (1 - part) + high * part).tolist())


def _histogram(looked: Array) -> tuple[int, ...]:
    """Counts by sign and power of two, which stand in the first bits of a number."""
    wide = looked.dtype.itemsize == 8
    bits: Array = np.ascontiguousarray(looked).view(np.uint64 if wide else np.uint32)
    counts = np.bincount((bits >> (52 if wide else 23)).astype(np.int64), minlength=len(_BIN64 if wide else _BIN32))
    return tuple(np.bincount(_BIN64 if wide else _BIN32, counts, BINS).astype(np.int64).tolist())


def _bin_of(exponent_bits: int) -> Array:
    """The bin of each combination of sign and exponent bits."""
    exponents = 1 << exponent_bits
    powers = np.arange(exponents) - (exponents // 2 - 1)
    away = np.clip(powers - LEAST_POWER + 1, 0, _MIDDLE)  # bins away from the middle
    return np.concatenate([_MIDDLE + away, _MIDDLE - away])


_BIN32, _BIN64 = _bin_of(8), _bin_of(11)
