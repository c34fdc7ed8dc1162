"""Patterns in the difference of two arrays: a factor, a shift, another order, a mask, another activation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import erf, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.history.alignment.orders import arranged, is_reordered, orders_of, relative_error, squeezed
from torcheer.history.alignment.value_samples import positions, root_mean_square, unbounded

Array = NDArray[Any]
MOST = 2**22  # numbers beyond which no pattern is looked for


def describe_numbers(
    first: Array, second: Array, limit: float, sources: list[Array], vectors: dict[str, Array]
) -> Iterator[str]:
    """Yield what explains `second`, given `first` of the same shape, up to a relative error of `limit`.

    - `sources`: what `second` was made of; `vectors`: parameters that may be missing in one of them.
    """
    if first.dtype.kind in "biu" and second.dtype.kind in "biu":
        yield from _whole_numbers(first, second)
        return
    x, y = first.astype(np.float64), second.astype(np.float64)
    odd = unbounded(x) | unbounded(y)
    found = list(_odd_numbers(x, y))
    yield from found
    x, y = np.where(odd, 0.0, x), np.where(odd, 0.0, y)
    if x.size > MOST or x.size < 2 or odd.all():
        return
    if np.array_equal(x, y):
        if found:
            yield "equal elsewhere"
        return
    patterns: list[Callable[[], Iterator[str]]] = [
        lambda: _all_zero(x, y) if not odd.any() else iter(()),
        lambda: _factor(x, y, limit),
        lambda: describe_order(x, y, limit),
        lambda: _shift(x, y, limit, vectors),
        lambda: _factors(x, y, limit, vectors),
        lambda: _activation(x, y, limit, sources),
        lambda: _sums(x, y),
        lambda: _zeros(x, y, limit),
        lambda: _triangle(x, y, limit),
    ]
    for pattern in patterns:
        hint = next(pattern(), None)
        if hint:
            yield hint
            return


def describe_complex(x: Array, y: Array, limit: float) -> Iterator[str]:
    """Yield a complex factor, or that one is the conjugate of the other."""
    square = float(np.vdot(x, x).real)
    factor = np.vdot(x, y) / square if square else 0.0
    if not y.any():
        yield "the second is all zero"
    elif np.abs(y - x.conj()).max() <= limit * np.abs(y).max():
        yield "the complex conjugate of the first"
    elif np.abs(y - factor * x).max() <= limit * np.abs(y).max():
        yield f"{factor:.7g} times the first"


def _whole_numbers(first: Array, second: Array) -> Iterator[str]:
    """Yield how integers or truth values differ: in how many places, or by what all of them do."""
    if first.dtype.kind == second.dtype.kind == "b":
        yield f"true in {first.sum():,} of {first.size:,} places against {second.sum():,}"
        return
    x, y = first.astype(np.float64), second.astype(np.float64)
    gaps = y - x
    if gaps.size > 1 and not np.ptp(gaps):
        yield f"shifted by {gaps.flat[0]:.7g}"
        return
    patterns = (_all_zero(x, y), describe_order(x, y, 0.0) if 1 < x.size <= MOST else iter(()))
    hint = next((hint for pattern in patterns for hint in pattern), "")
    yield hint or f"{np.count_nonzero(gaps):,} of {gaps.size:,} whole numbers differ"


_ODD: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    ("NaN", np.isnan),
    ("+∞ or numbers as large", lambda x: unbounded(x) & (x > 0)),
    ("-∞ or numbers as large", lambda x: unbounded(x) & (x < 0)),  # what masks add
)


def _odd_numbers(x: Array, y: Array) -> Iterator[str]:
    """Yield NaN, infinity and masks that are in one where they are not in the other."""
    for name, test in _ODD:
        places = test(x), test(y)
        if not np.array_equal(*places):
            counts = [int(each.sum()) for each in places]
            yield f"{name} in {counts[0]:,} places against {counts[1]:,}{' others' if counts[0] == counts[1] else ''}"


def _all_zero(x: Array, y: Array) -> Iterator[str]:
    if x.any() != y.any():
        yield f"the {'second' if x.any() else 'first'} is all zero"


def turned_weight(first: Array, second: Array, sources: list[Array], weights: list[Array]) -> str:
    """Say that one of two products reads a square weight transposed, if so; both may have a bias."""
    for weight in weights:
        for source in sources:
            if weight.ndim == 2 and len(set(weight.shape)) == 1 and source.shape[-1:] == weight.shape[:1]:
                products = [(source.astype(np.float64) @ turn).reshape(-1, len(weight)) for turn in (weight, weight.T)]
                fits = [[_is_shifted(array, product) for product in products] for array in (first, second)]
                if fits[0] != fits[1] and any(fits[0]) and any(fits[1]):
                    return "the second multiplies by the transposed weight of the first"
    return ""


def _is_shifted(array: Array, product: Array) -> bool:
    """Whether an array is a product plus the same bias in each row."""
    if array.size != product.size or len(product) < 2:
        return False
    gap = array.reshape(product.shape) - product
    return root_mean_square(gap - gap.mean(0)) <= 1e-3 * root_mean_square(product)


def _explains(guess: Array, y: Array, limit: float) -> bool:
    return relative_error(np.asarray(guess).reshape(-1), y.reshape(-1)) <= limit


def _explains_change(x: Array, guess: Array, y: Array) -> bool:
    """Whether a guess takes away nearly all of the difference, which may itself be small."""
    return root_mean_square(y - guess) <= 0.1 * root_mean_square(y - x)


def _factor(x: Array, y: Array, limit: float) -> Iterator[str]:
    square = float(np.vdot(x, x))
    factor = float(np.vdot(x, y)) / square if square else 0.0
    if factor and _explains(x * factor, y, limit) and _explains_change(x, x * factor, y):
        yield "negated" if abs(factor + 1) < limit else f"{_number(factor)} times the first"


def _number(factor: float) -> str:
    text = f"{factor:.7g}"
    return text if text != "1" else f"(1 {'-' if factor < 1 else '+'} {abs(factor - 1):.2g})"


def describe_order(x: Array, y: Array, limit: float) -> Iterator[str]:
    """Yield in which order the second holds the numbers of the first."""
    for order in orders_of(squeezed(x).shape):
        if _explains(arranged(x, order), y, limit):
            yield f"the first with its axes exchanged to {order} (transposed)"
    for axis, length in enumerate(x.shape):
        if length > 1 and _explains(np.flip(x, axis), y, limit):
            yield f"the first, reversed along axis {axis}"
        for step in (1, -1):
            if length > 2 and _explains(np.roll(x, step, axis), y, limit):
                yield f"the first, moved by {step} along axis {axis}"
    if x.ndim == 2 and is_reordered(x, y, limit):
        for axis, name in enumerate(("rows", "columns")):
            if _explains(_sorted_along(x, axis), _sorted_along(y, axis), limit):
                yield f"the first with its {name} in another order"
    if is_reordered(x, y, limit):
        yield "the same numbers in another order"


def _sorted_along(x: Array, axis: int) -> Array:
    """Return a matrix with its rows, or columns, sorted."""
    turned = x if axis == 0 else x.T
    return turned[np.lexsort(turned.T[::-1])]


def _shift(x: Array, y: Array, limit: float, vectors: dict[str, Array]) -> Iterator[str]:
    gap = y - x
    scale = root_mean_square(gap)
    if not scale:
        return
    if root_mean_square(gap - gap.mean()) <= max(limit, 1e-3) * scale:
        yield f"shifted by {gap.mean():.6g}"
    for axis, length in enumerate(gap.shape):
        others = tuple(n for n in range(gap.ndim) if n != axis)
        if length < 2 or gap.size == length:
            continue
        mean = gap.mean(others, keepdims=True)
        if root_mean_square(gap - mean) <= 1e-2 * scale:
            names = [name for name, vector in vectors.items() if _is_vector(vector, mean.reshape(-1))]
            missing = (
                f": {names[0]}, {'left out' if _is_left_out(vectors[names[0]], mean) else 'added'}" if names else ""
            )
            yield f"shifted by a constant for each place of axis {axis}{missing}"


def _is_vector(vector: Array, gap: Array) -> bool:
    if vector.size != gap.size:
        return False
    return min(relative_error(vector, gap), relative_error(-vector.astype(np.float64), gap)) < 1e-2


def _is_left_out(vector: Array, gap: Array) -> bool:
    return float(np.vdot(vector.astype(np.float64), gap.reshape(-1))) < 0


def _factors(x: Array, y: Array, limit: float, vectors: dict[str, Array]) -> Iterator[str]:
    """Yield a factor for each place of one axis, or for each row; a bias may have been added to both."""
    biases = [vector for vector in vectors.values() if vector.shape == x.shape[-1:]]
    for bias in [np.zeros(1), *biases[:16]]:
        a, b = x - bias, y - bias
        for axes, name in [*_single_axes(x), (tuple(range(x.ndim - 1)), "row of the last axis")]:
            others = tuple(n for n in range(x.ndim) if n not in axes)
            if not axes or not others or not np.prod([x.shape[n] for n in others]) > 1:
                continue
            square = (a * a).sum(others, keepdims=True)
            factor = np.divide((a * b).sum(others, keepdims=True), square, out=np.zeros_like(square), where=square > 0)
            if _explains(a * factor, b, limit) and _explains_change(a, a * factor, b):
                yield _factors_text(factor.reshape(-1), name)


def _factors_text(factor: Array, name: str) -> str:
    low, high = f"{factor.min():.7g}", f"{factor.max():.7g}"
    zero = factor == 0
    if zero.all():
        return "the second is all zero, but for a bias"
    if zero.any() and np.ptp(factor[~zero]) <= 1e-6:
        rest = "equal" if abs(factor[~zero][0] - 1) <= 1e-6 else f"{factor[~zero][0]:.7g} times the first"
        return f"zero in {zero.sum()} of {zero.size}, {rest} in the others: by {name}"
    if low == high:
        return f"{low} times the first, beside what both add"
    return f"times a factor for each {name} ({low} to {high}), as another eps or scale gives"


def _single_axes(x: Array) -> list[tuple[tuple[int, ...], str]]:
    return [((axis,), f"place of axis {axis}") for axis in range(x.ndim) if x.shape[axis] > 1]


def _erf(x: Array) -> Array:
    return np.array([erf(number) for number in x])


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "the identity": lambda x: x,  # the first: of positive numbers, relu and others are it, too
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / sqrt(2))),
    "gelu (tanh)": lambda x: 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))),
    "quick gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "leaky relu (0.01)": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
}


def _activation(x: Array, y: Array, limit: float, sources: list[Array]) -> Iterator[str]:
    """Yield which activation of their common input each of the two is."""
    for source in sources:
        if source.size != y.size or source.dtype.kind != "f":
            continue
        places = positions(y.size)
        z, a, b = (array.reshape(-1)[places].astype(np.float64) for array in (source, x, y))
        with np.errstate(over="ignore"):
            names = [name for name, function in ACTIVATIONS.items() if _explains(function(z), b, limit)]
            firsts = [name for name, function in ACTIVATIONS.items() if _explains(function(z), a, limit)]
        if (names and firsts) or (names or firsts or ["the identity"])[0] != "the identity":
            known = firsts[0] if firsts else "another function"
            yield f"the first is {known} of its input, the second {names[0] if names else 'another function'}"


def _sums(x: Array, y: Array) -> Iterator[str]:
    """Yield along which axes the two sum to one."""
    ours, theirs = _unit_axes(x), _unit_axes(y)
    if ours != theirs and (ours or theirs):
        texts = [f"along axis {axes[0]}" if axes else "along no axis" for axes in (ours, theirs)]
        yield f"the first sums to 1 {texts[0]}, the second {texts[1]}"


def _unit_axes(x: Array) -> list[int]:
    if (x < 0).any():
        return []
    return [axis for axis in range(x.ndim) if x.shape[axis] > 1 and np.allclose(x.sum(axis), 1, atol=1e-3)]


def _zeros(x: Array, y: Array, limit: float) -> Iterator[str]:
    """Yield zeros in one where the other has none, and the factor elsewhere."""
    lost, kept = (y == 0) & (x != 0), (y != 0) & (x != 0)
    share = float(lost.mean())
    if 0.01 < share < 0.99 and kept.any():
        factor = float(np.vdot(x[kept], y[kept]) / np.vdot(x[kept], x[kept]))
        if _explains(x[kept] * factor, y[kept], limit):
            rest = "equal" if abs(factor - 1) <= 1e-6 else f"{factor:.4g} times the first"
            dropout = ", as dropout leaves it" if abs(factor * (1 - share) - 1) < 0.2 and factor > 1 + 1e-6 else ""
            yield f"zero in {share:.0%} of the places, {rest} elsewhere{dropout}"


def _triangle(x: Array, y: Array, limit: float) -> Iterator[str]:
    """Yield a difference that lies on one side of the diagonal only: a causal mask."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2] or unbounded(x).any() != unbounded(y).any():
        return
    upper = np.triu(np.ones(x.shape[-2:], bool), 1)
    zero = [not array[..., upper].any() for array in (x, y)]
    if zero[0] != zero[1]:
        which = "second" if zero[0] else "first"
        yield f"the {which} is not zero above the diagonal: no causal mask"
