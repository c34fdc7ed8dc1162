"""Which parameter of one model is which of the other, by their numbers."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from torcheer.history.alignment.orders import orders_of, sample_distances, sample_in_order, squeezed
from torcheer.history.alignment.value_samples import positions

if TYPE_CHECKING:
    from torcheer.history.alignment.value_samples import Array, HistoryValues

SAME = 0.02  # weights kept in bfloat16 differ by less


def pair_parameters(values: HistoryValues, others: HistoryValues) -> dict[str, str]:
    """Return the name of the other model's parameter for each that has one with the same numbers, be it transposed."""
    named_samples: dict[int, list[tuple[str, Array]]] = defaultdict(list)
    for name, array in _parameters(others).items():
        named_samples[array.size] += [(name, sample) for sample in _samples(array)]
    by_size = {
        size: ([name for name, _ in rows], np.stack([row for _, row in rows])) for size, rows in named_samples.items()
    }
    pairs: dict[str, str] = {}
    for name, array in _parameters(values).items():
        if array.size in by_size:
            names, samples = by_size[array.size]
            near = np.flatnonzero(sample_distances(_samples(array)[0], samples) <= SAME)
            same = list(dict.fromkeys(names[n] for n in near))
            if same:
                taken = set(pairs.values())
                pairs[name] = name if name in same else next((n for n in same if n not in taken), same[0])
    return pairs


def _samples(array: Array) -> list[Array]:
    """Return a sample of a parameter as it is, then with exchanged axes."""
    flat = array.reshape(-1)[positions(array.size)].astype(np.float64)
    orders = orders_of(squeezed(array).shape) if array.ndim <= 4 else []
    return [flat, *(sample_in_order(array, order) for order in orders)]


def _parameters(values: HistoryValues) -> dict[str, Array]:
    """Return what operations read; without the ones and zeros of an untrained norm, which equal each other."""
    names = dict.fromkeys(stored.name for op in values.ops for stored in op.stored)
    arrays = {name: values.parameter(name) for name in names}
    return {name: array for name, array in arrays.items() if array is not None and array.size > 1 and np.ptp(array) > 0}
