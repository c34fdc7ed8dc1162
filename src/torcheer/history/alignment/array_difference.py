"""How far two arrays lie apart, measured piece by piece: of arrays of any size a few megabytes are converted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.history.value_arrays import bits_equal

Array = NDArray[Any]
NAN: Final = float("nan")
UNWRITTEN: Final = "uninitialised memory"  # the status of what nothing has written: its numbers are no difference
_PIECE: Final = 1 << 20  # numbers that are converted at a time


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of one output of one operation between two runs, or of two tensors."""

    label: str  # in the first run; "max_1_3[1]" is the second output
    status: str  # "equal", "different", "other shape", "not saved", "uninitialised memory", …
    max_abs: float = NAN
    mean_abs: float = NAN
    relative: float = NAN  # largest difference divided by largest absolute value
    cosine: float = NAN
    nan_mismatches: int = 0  # elements where one value is NaN or infinite and the other differs
    other: str = ""  # its counterpart in the second run
    error: float = NAN  # root mean square of the difference, relative
    expected: float = NAN  # what rounding explains of `error`, estimated
    agrees: bool = True  # whether it is within rounding


def difference(label: str, first: Array, second: Array, *, same_type: bool = True) -> Difference:
    """Measure the difference of two arrays of the same size."""
    if same_type and bits_equal(first, second):
        return _equal(label)
    return measure(label, _pieces(first, second), same_type=False)


def measure(label: str, pieces: Iterable[tuple[Array, Array]], *, same_type: bool = True) -> Difference:
    """Measure the difference of two tensors of which the same parts come one after the other."""
    gaps = _Gaps(is_equal=same_type)
    for first, second in pieces:
        gaps.add(first, second)
    if gaps.is_equal:
        return _equal(label)
    return Difference(
        label=label,
        status="different" if gaps.differs else "equal values, other bits or type",
        max_abs=gaps.most,
        mean_abs=gaps.total / gaps.count if gaps.count else 0.0,
        relative=gaps.relative,
        cosine=gaps.cosine,
        nan_mismatches=gaps.mismatches,
    )


def _equal(label: str) -> Difference:
    return Difference(label, "equal", 0.0, 0.0, 0.0, 1.0)


def _pieces(first: Array, second: Array) -> Iterator[tuple[Array, Array]]:
    flat, other = first.reshape(-1), second.reshape(-1)
    for start in range(0, flat.size, _PIECE):
        yield flat[start : start + _PIECE], other[start : start + _PIECE]


@dataclass(slots=True)
class _Gaps:
    """What the parts so far say."""

    is_equal: bool  # in all bits
    differs: bool = False  # in a number
    most: float = 0.0  # the largest difference of finite numbers
    total: float = 0.0
    count: int = 0  # of numbers that are finite in both
    largest: float = 0.0  # absolute number of the first
    mismatches: int = 0
    product: float = 0.0  # and the squares: for the angle between them
    square: float = 0.0
    other_square: float = 0.0

    def add(self, first: Array, second: Array) -> None:
        self.is_equal = self.is_equal and bits_equal(first, second)
        wide = np.complex128 if np.iscomplexobj(first) or np.iscomplexobj(second) else np.float64
        a, b = first.astype(wide).reshape(-1), second.astype(wide).reshape(-1)
        if self.is_equal:
            self._add_finite(a[np.isfinite(a)], None)
            return
        gaps = _gaps(first.reshape(-1), second.reshape(-1), a, b)
        same = (gaps == 0) | (a == b) & ~np.isfinite(a) | (np.isnan(a) & np.isnan(b))
        finite = np.isfinite(a) & np.isfinite(b)
        self.differs = self.differs or not bool(same.all())
        self.mismatches += int((~same & ~finite).sum())
        self._add_finite(a[finite], b[finite], gaps[finite])

    def _add_finite(self, a: Array, b: Array | None, gaps: Array | None = None) -> None:
        """Add finite numbers; without `b` both have the same."""
        self.largest = max(self.largest, float(np.max(np.abs(a), initial=0.0)))
        self.count += a.size
        square = float(np.real(np.vdot(a, a)))
        self.square += square
        self.other_square += square if b is None else float(np.real(np.vdot(b, b)))
        self.product += square if b is None else float(np.real(np.vdot(a, b)))
        if gaps is not None:
            self.most, self.total = max(self.most, float(np.max(gaps, initial=0.0))), self.total + float(gaps.sum())

    @property
    def relative(self) -> float:
        return self.most / self.largest if self.largest else (0.0 if self.most == 0 else float("inf"))

    @property
    def cosine(self) -> float:
        lengths = sqrt(self.square) * sqrt(self.other_square)
        return min(1.0, max(-1.0, self.product / lengths)) if lengths else NAN


def _gaps(first: Array, second: Array, a: Array, b: Array) -> Array:
    """Return how far each number lies from the other; `a` and `b` are the same in float64, where 2**53 + 1 is 2**53."""
    if first.dtype == second.dtype and first.dtype.kind in "iu":
        return (np.maximum(first, second) - np.minimum(first, second)).astype(f"u{first.itemsize}").astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        return np.asarray(np.abs(a - b))
