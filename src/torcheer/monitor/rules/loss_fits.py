"""Which loss a gradient comes from: what the last layer gave and the gradient it got, compared with known losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_MOST_ROWS = 256  # that are compared
_LEAST_ROWS = 8  # of losses with one number a row
_EVEN_ROWS = 6  # from which one can say that they have the same weight
_LEAST_PART = 1e-3  # of the largest: rows that are nearly right have little but rounding
_CLOSE, _EXACT = 0.15, 0.02  # residuals: of a loss whose size is of interest, of one that is a mistake
_CLEARLY, _NOISE = 0.2, 5e-4  # a mistake leaves less than this part of what any right loss leaves, which is no rounding


@dataclass(frozen=True, slots=True)
class Fit:
    """A loss that a gradient may come from."""

    name: str
    scale: float  # how often the gradient has that of the loss, summed over all rows
    rows: int  # that the loss was taken of
    even: bool  # whether that is so for all rows of a class
    twice: str = ""  # what is wrong, where this loss is a mistake


@dataclass(frozen=True, slots=True)
class _Rows:
    """What was given to a loss and the gradient that came back, a row for each answer."""

    given: Array
    gradient: Array
    answer: Array  # which class is to become more; 0 or 1 where there is one number a row
    groups: Array  # rows that may have a weight of their own, by a number
    count: int  # of all rows, also of those that are not looked at

    def compared(self, known: Array, alike: bool = False) -> tuple[Array, float]:
        """By what a known gradient is to be multiplied, group by group, and how much of the real one is left over."""
        groups = np.zeros_like(self.groups) if alike else self.groups
        products = np.bincount(groups, (known * self.gradient).sum(axis=1))
        squares = np.maximum(np.bincount(groups, (known * known).sum(axis=1)), 1e-300)
        scales = (products / squares)[groups]
        left = self.gradient - scales[:, None] * known
        return scales, float(np.linalg.norm(left) / np.linalg.norm(self.gradient))

    def fit(
        self, name: str, known: Array, least: float = _CLOSE, twice: str = "", alike: bool = False
    ) -> Iterator[Fit]:
        """A known loss, where the gradient is a multiple of its."""
        scales, residual = self.compared(known, alike)
        if residual <= least and bool((scales > 0).all()):
            yield Fit(name, float(np.median(scales)), self.count, self._is_even(scales), twice)

    def mistake(
        self, name: str, known: Array, twice: str, right: Sequence[Array], alike: bool = False
    ) -> Iterator[Fit]:
        """A loss that nobody means, where the gradient is clearly its and of no right one."""
        left = min(self.compared(other, alike)[1] for other in right)
        yield from self.fit(
            name, known, min(_EXACT, _CLEARLY * left) if left > _NOISE / _CLEARLY else -1.0, twice, alike
        )

    def _is_even(self, scales: Array) -> bool:
        of_class = [scales[self.answer == one] for one in np.unique(self.answer)]
        if len(scales) - len(of_class) < _EVEN_ROWS:  # too few to tell one class from another
            of_class = [scales]
        return len(scales) >= _EVEN_ROWS and all(float(one.max()) <= 1.15 * float(one.min()) for one in of_class)


def fits_of(output: Array, gradient: Array, earlier: Sequence[Array] = ()) -> list[Fit]:
    """The losses on classes that a gradient fits, mistakes first; `earlier` is what the layers before have given."""
    if output.shape != gradient.shape or output.ndim < 1 or not np.any(gradient):
        return []
    found = [*_of_classes(output, gradient), *_of_yes_or_no(output, gradient, earlier)]
    return sorted(found, key=lambda fit: not fit.twice)


def _of_classes(output: Array, gradient: Array) -> Iterator[Fit]:
    """Cross entropy over the axis of the classes."""
    for axis in dict.fromkeys((output.ndim - 1, 1)) if output.ndim > 1 else ():
        rows = _rows_of(output, gradient, axis)
        if rows is None:
            continue
        given, target = rows.given, np.zeros_like(rows.given)
        target[np.arange(len(given)), rows.answer] = 1.0
        shares = _softmax(given)
        if given.min() >= 0 and np.allclose(given.sum(axis=1), 1, atol=0.01):
            logarithm = -target / np.maximum(given, 1e-12)  # of the shares, as nll_loss(log(shares)) has it
            yield from rows.mistake("cross entropy", shares - target, "softmax", [given - target, logarithm])
            yield from rows.mistake("negative shares", -target, "no log", [given - target, logarithm], alike=True)
        else:
            yield from rows.fit("cross entropy", shares - target)
            again = _softmax(shares) - target
            through = shares * (again - (shares * again).sum(axis=1, keepdims=True))
            yield from rows.mistake("cross entropy", through, "softmax", [shares - target])


def _rows_of(output: Array, gradient: Array, axis: int) -> _Rows | None:
    given, wanted = (np.moveaxis(one, axis, -1).reshape(-1, one.shape[axis]) for one in (output, gradient))
    used = np.flatnonzero(np.any(wanted != 0, axis=1))  # others are padding
    given, wanted = (one[used[:_MOST_ROWS]].astype(np.float64) for one in (given, wanted))
    given, wanted = _large(given, wanted)
    answer = wanted.argmin(axis=1)  # the only class that is to become more
    by_class = given.shape[1] == 2  # then each row has but one number to say
    if given.shape[1] < 2 or (by_class and len(given) < _LEAST_ROWS):
        return None
    return _Rows(given, wanted, answer, answer if by_class else np.arange(len(given)), len(used))


def _of_yes_or_no(output: Array, gradient: Array, earlier: Sequence[Array]) -> Iterator[Fit]:
    """Binary cross entropy, number by number."""
    given, wanted = _large(*(one.reshape(-1, 1)[: 16 * _MOST_ROWS].astype(np.float64) for one in (output, gradient)))
    answer = (wanted[:, 0] < 0).astype(np.int64)
    if min(np.bincount(answer, minlength=2)) < _LEAST_ROWS:
        return
    rows, target, share = (
        _Rows(given, wanted, answer, answer, int(np.count_nonzero(gradient))),
        answer[:, None],
        _sigmoid(given),
    )
    if any(one.shape == output.shape and np.allclose(_sigmoid(one), output, atol=1e-3) for one in earlier):
        right = [given - target, (given - target) / np.maximum(given * (1 - given), 1e-12)]
        yield from rows.mistake("binary cross entropy", share - target, "sigmoid", right)
    else:
        yield from rows.fit("binary cross entropy", share - target, _EXACT)
        again = share * (1 - share) * (_sigmoid(share) - target)
        yield from rows.mistake("binary cross entropy", again, "sigmoid", [share - target])


def _large(given: Array, wanted: Array) -> tuple[Array, Array]:
    """The rows whose gradients are more than rounding."""
    sizes = np.abs(wanted).max(axis=1)
    large = sizes >= _LEAST_PART * sizes.max(initial=0.0)
    return given[large], wanted[large]


def _softmax(rows: Array) -> Array:
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    found: Array = powers / powers.sum(axis=1, keepdims=True)
    return found


def _sigmoid(numbers: Array) -> Array:
    found: Array = 0.5 * (1 + np.tanh(0.5 * numbers.astype(np.float64)))
    return found
