"""Identify the loss of a gradient: compare the last layer's output and gradient with known losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import real_numbers
from torcheer.monitor.rules.rule import Observation, array_of
from torcheer.samples import Delivery

Array = NDArray[Any]
_MOST_NUMBERS = 1 << 18  # of an output that is kept until its gradient arrives
_OUTPUTS = 4  # kept, of the last layers
_MOST_ROWS = 256  # rows that are compared
_LEAST_ROWS = 8  # for losses with one number per row
_EVEN_ROWS = 6  # needed to decide whether all rows have the same weight
_LEAST_PART = 1e-3  # of the largest: smaller gradients are mostly rounding
_CLOSE, _EXACT = 0.15, 0.02  # largest residuals: for judging a loss's scale, for reporting a mistake
_CLEARLY, _NOISE = 0.2, 5e-4  # a mistake's residual is below this part of a right loss's, which exceeds noise


class LossGradient:
    """Pairs the last layer's output with its gradient, the first one of a step; for all rules together."""

    def __init__(self) -> None:
        self._step, self._done = -1, False
        self._outputs: dict[str, NDArray[Any]] = {}
        self._seen: Delivery | None = None  # the newest value, and what it fits
        self._fits: list[Fit] | None = None

    def fits(self, value: Observation, delivery: Delivery, step: int) -> list[Fit] | None:
        """Keep an output; for the first gradient, return the losses that it fits. None: it cannot be decided."""
        if delivery is not self._seen:
            self._fits, self._seen = self._take(value, delivery, step), delivery
        return self._fits

    def _take(self, value: Observation, delivery: Delivery, step: int) -> list[Fit] | None:
        if step != self._step:
            self._step, self._done = step, False
            self._outputs.clear()
        array = array_of(delivery)
        if value.variable == "output":
            self._outputs.pop(value.layer, None)
            if delivery.stride == 1 and 2 <= array.size <= _MOST_NUMBERS and array.dtype.kind in "fV":
                self._outputs[value.layer] = array
            for name in list(self._outputs)[:-_OUTPUTS]:
                del self._outputs[name]
            return None
        first, self._done = not self._done, True
        output = self._outputs.get(value.layer)
        if not first or output is None or delivery.stride != 1 or array.shape != output.shape:
            return None
        earlier = [
            real_numbers(earlier_output) for name, earlier_output in self._outputs.items() if name != value.layer
        ]
        return fits_of(real_numbers(output), real_numbers(array), earlier)


@dataclass(frozen=True, slots=True)
class Fit:
    """A known loss that a gradient fits."""

    name: str
    scale: float  # factor between the gradient and that of the loss summed over all rows
    rows: int  # number of rows of the loss
    even: bool  # whether the factor is the same for all rows of a class
    twice: str = ""  # the activation applied twice, where this loss is a mistake
    classes: int = 2

    @property
    def factor(self) -> float:
        """The factor of a mean, where `scale` is that of a sum."""
        return self.scale * self.rows

    @property
    def chance(self) -> float:
        """The loss of one who knows the classes and nothing else: ln of their number, for a mean or what is more."""
        return math.log(self.classes) * max(1.0, self.factor)


@dataclass(frozen=True)
class _Rows:
    """The input of a loss and its gradient, one row per answer."""

    output: Array
    gradient: Array
    answer: Array  # index of the target class; 0 or 1 where there is one number per row
    groups: Array  # group number of each row; each group may have its own weight
    count: int  # of all rows, also those that are not compared

    @cached_property
    def _norm(self) -> float:
        return float(np.linalg.norm(self.gradient))

    def compare(self, known: Array, one_group: bool = False) -> tuple[Array, float]:
        """Fit a known gradient to the real one, group by group: the factors, and the relative residual."""
        groups = np.zeros_like(self.groups) if one_group else self.groups
        products = np.bincount(groups, (known * self.gradient).sum(axis=1))
        squares = np.maximum(np.bincount(groups, (known * known).sum(axis=1)), 1e-300)
        scales = (products / squares)[groups]
        residue = self.gradient - scales[:, None] * known
        return scales, float(np.linalg.norm(residue) / self._norm)

    def fit(
        self, name: str, known: Array, least: float = _CLOSE, twice: str = "", one_group: bool = False
    ) -> Iterator[Fit]:
        """Yield a known loss if the gradient is a multiple of its gradient."""
        yield from self._fit(name, self.compare(known, one_group), least, twice)

    def _fit(self, name: str, compared: tuple[Array, float], least: float = _CLOSE, twice: str = "") -> Iterator[Fit]:
        scales, residual = compared
        if residual <= least and bool((scales > 0).all()):
            ordered, half = np.sort(scales), len(scales) // 2  # as `np.median` has it
            median = float(ordered[half] if len(scales) % 2 else (ordered[half - 1] + ordered[half]) / 2)
            yield Fit(name, median, self.count, self._is_even(scales), twice, max(self.output.shape[1], 2))

    def right_or_mistake(
        self, name: str, right: Array, least: float, known: Callable[[], Array], twice: str
    ) -> Iterator[Fit]:
        """Yield a loss if the gradient fits it, and a mistaken one if it clearly fits that instead."""
        compared = self.compare(right)
        yield from self._fit(name, compared, least)
        if compared[1] > _NOISE / _CLEARLY:  # else it is the right one, and the mistaken one need not be computed
            yield from self.fit(name, known(), min(_EXACT, _CLEARLY * compared[1]), twice)

    def mistake(
        self, name: str, known: Array, twice: str, right: Sequence[Array], one_group: bool = False
    ) -> Iterator[Fit]:
        """Yield a mistaken loss if the gradient clearly fits it and no right one."""
        residual = min(self.compare(gradient, one_group)[1] for gradient in right)
        if residual > _NOISE / _CLEARLY:
            yield from self.fit(name, known, min(_EXACT, _CLEARLY * residual), twice, one_group)

    def _is_even(self, scales: Array) -> bool:
        if len(scales) < _EVEN_ROWS:
            return False
        order = np.argsort(self.answer)
        by_class, answers = scales[order], self.answer[order]
        starts = np.concatenate(([0], np.flatnonzero(answers[1:] != answers[:-1]) + 1))
        if len(scales) - len(starts) < _EVEN_ROWS:  # too few to separate the classes
            starts = starts[:1]
        return bool(np.all(np.maximum.reduceat(by_class, starts) <= 1.15 * np.minimum.reduceat(by_class, starts)))


def fits_of(output: Array, gradient: Array, earlier: Sequence[Array] = ()) -> list[Fit]:
    """The classification losses that a gradient fits, mistakes first; `earlier` are outputs of previous layers."""
    if output.shape != gradient.shape or output.ndim < 1 or not np.any(gradient):
        return []
    fits = [*_class_fits(output, gradient), *_binary_fits(output, gradient, earlier)]
    return sorted(fits, key=lambda fit: not fit.twice)


def _class_fits(output: Array, gradient: Array) -> Iterator[Fit]:
    """Fits of cross entropy over the class axis."""
    for axis in dict.fromkeys((output.ndim - 1, 1)) if output.ndim > 1 else ():
        rows = _rows_of(output, gradient, axis)
        if rows is None:
            continue
        outputs, target = rows.output, np.zeros_like(rows.output)
        target[np.arange(len(outputs)), rows.answer] = 1.0
        shares = _softmax(outputs)
        if outputs.min() >= 0 and np.allclose(outputs.sum(axis=1), 1, atol=0.01):
            logarithm = -target / np.maximum(outputs, 1e-12)  # the gradient of nll_loss(log(shares))
            yield from rows.mistake("cross entropy", shares - target, "softmax", [outputs - target, logarithm])
            yield from rows.mistake("negative shares", -target, "no log", [outputs - target, logarithm], one_group=True)
        else:
            through = partial(_through_softmax, shares, target)
            yield from rows.right_or_mistake("cross entropy", shares - target, _CLOSE, through, "softmax")


def _through_softmax(shares: Array, target: Array) -> Array:
    """The gradient of cross entropy for numbers whose softmax it was given."""
    again = _softmax(shares) - target
    through: Array = shares * (again - (shares * again).sum(axis=1, keepdims=True))
    return through


def _rows_of(output: Array, gradient: Array, axis: int) -> _Rows | None:
    outputs, gradients = (np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis]) for array in (output, gradient))
    used = np.flatnonzero((gradients != 0).any(axis=1))  # the others are padding
    outputs, gradients = (array[used[:_MOST_ROWS]].astype(np.float64) for array in (outputs, gradients))
    outputs, gradients = _drop_small(outputs, gradients)
    answer = gradients.argmin(axis=1)  # the only class with a negative gradient is the target
    by_class = outputs.shape[1] == 2  # then each row has only one degree of freedom
    if outputs.shape[1] < 2 or (by_class and len(outputs) < _LEAST_ROWS):
        return None
    return _Rows(outputs, gradients, answer, answer if by_class else np.arange(len(outputs)), len(used))


def _binary_fits(output: Array, gradient: Array, earlier: Sequence[Array]) -> Iterator[Fit]:
    """Fits of binary cross entropy, number by number."""
    outputs, gradients = _drop_small(
        *(array.reshape(-1, 1)[: 16 * _MOST_ROWS].astype(np.float64) for array in (output, gradient))
    )
    answer = (gradients[:, 0] < 0).astype(np.int64)
    if min(np.bincount(answer, minlength=2)) < _LEAST_ROWS:
        return
    rows, target, share = (
        _Rows(outputs, gradients, answer, answer, int(np.count_nonzero(gradient))),
        answer[:, None],
        _sigmoid(outputs),
    )
    if any(array.shape == output.shape and np.allclose(_sigmoid(array), output, atol=1e-3) for array in earlier):
        right = [outputs - target, (outputs - target) / np.maximum(outputs * (1 - outputs), 1e-12)]
        yield from rows.mistake("binary cross entropy", share - target, "sigmoid", right)
    else:

        def through_sigmoid() -> Array:
            through: Array = share * (1 - share) * (_sigmoid(share) - target)
            return through

        yield from rows.right_or_mistake("binary cross entropy", share - target, _EXACT, through_sigmoid, "sigmoid")


def _drop_small(outputs: Array, gradients: Array) -> tuple[Array, Array]:
    """The rows whose gradients exceed rounding."""
    sizes = np.abs(gradients).max(axis=1)
    is_large = sizes >= _LEAST_PART * sizes.max(initial=0.0)
    return outputs[is_large], gradients[is_large]


def _softmax(rows: Array) -> Array:
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    shares: Array = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _sigmoid(numbers: Array) -> Array:
    shares: Array = 0.5 * (1 + np.tanh(0.5 * numbers.astype(np.float64)))
    return shares
