"""How a weight differs from the one that should stand there: in which part, and what the numbers there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from torcheer.history.alignment.number_patterns import describe_numbers
from torcheer.history.alignment.value_samples import root_mean_square
from torcheer.terminal import human_shape

if TYPE_CHECKING:
    from torcheer.history.alignment.value_samples import Array

_COARSE = 0.02  # of a number: what a coarser type changes
_LEAST = 4  # numbers of which a pattern is said


def describe_change(first: Array, second: Array, *, either_way: bool) -> str | None:
    """Return in what one weight differs from another; None if in nothing but rounding, "" if in every number.

    - `either_way`: whether the layers may keep it the other way round, as `linear` and `matmul` do
    """
    ways = [second] if first.shape == second.shape else []
    if first.ndim == second.ndim == 2 and first.shape == second.shape[::-1] and (either_way or not ways):
        ways.append(second.T)
    if not ways:
        return None if either_way else f": {human_shape(second.shape)} against {human_shape(first.shape)}"
    differs, second = min(((_differing(first, way), way) for way in ways), key=lambda pair: int(pair[0].sum()))
    if not differs.any():
        return None
    block = _block(differs)
    names = _part_names(block, differs)
    part = f" in {', '.join(names)}" if names else ""
    ours, theirs = first[np.ix_(*block)], second[np.ix_(*block)]
    if ours.any() and not theirs.any():
        return f"{part}: all zero"
    pattern = next(describe_numbers(ours, theirs, 1e-5, [], {}), "") if ours.size >= _LEAST else ""
    if pattern:
        return f"{part}: {pattern}"
    if differs.all():
        return ""
    return f" in {differs.sum():,} of {differs.size:,} numbers"


def _differing(first: Array, second: Array) -> NDArray[np.bool_]:
    """Return where two arrays differ; by more than a coarser type explains, if they do nearly everywhere."""
    x, y = first.astype(np.float64), second.astype(np.float64)
    differs = ~((x == y) | (np.isnan(x) & np.isnan(y)))
    if differs.mean() < 0.9:
        return np.asarray(differs)
    finite = np.where(np.isfinite(x), x, 0.0)
    with np.errstate(invalid="ignore"):
        near = np.abs(y - x) <= _COARSE * np.maximum(np.abs(finite), root_mean_square(finite))
    return np.asarray(differs if near.mean() < 0.5 else differs & ~near)


def _block(differs: NDArray[np.bool_]) -> list[NDArray[np.intp]]:
    """Return along each axis the places where anything differs."""
    axes = range(differs.ndim)
    return [np.flatnonzero(differs.any(tuple(other for other in axes if other != axis))) for axis in axes]


def _part_names(block: list[NDArray[np.intp]], differs: NDArray[np.bool_]) -> list[str]:
    """Say which rows and columns a block has, if not all: "columns 0 to 31 of 96 (part 1 of 3)"."""
    names = ("row", "column") if differs.ndim == 2 else tuple(f"place of axis {axis}" for axis in range(differs.ndim))
    return [
        _part_name(places, length, name)
        for places, length, name in zip(block, differs.shape, names, strict=True)
        if len(places) < length
    ]


def _part_name(places: NDArray[np.intp], length: int, name: str) -> str:
    count, start = len(places), int(places[0])
    plural = name.replace("place", "places", 1) if name.startswith("place") else f"{name}s"
    if count == 1:
        return f"{name} {start} of {length}"
    if int(places[-1]) - start + 1 > count:
        return f"{count} of {length} {plural}"
    part = f" (part {start // count + 1} of {length // count})" if length % count == start % count == 0 else ""
    return f"{plural} {start} to {start + count - 1} of {length}{part}"
