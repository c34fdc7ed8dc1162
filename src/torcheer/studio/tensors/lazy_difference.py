"""The difference of two arrays as an array that is computed where it is read: a part of a mapped file at a time."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import real_numbers

Array = NDArray[Any]


class LazyDifference:
    """`second - first`; parts and other orders of axes are lazy too, `np.asarray` computes."""

    def __init__(self, first: Any, second: Any) -> None:
        """Two arrays, or parts of arrays, of the same shape."""
        self._first, self._second = first, second
        self.shape: tuple[int, ...] = tuple(first.shape)
        self.ndim, self.size = len(self.shape), prod(self.shape)
        self.dtype = np.result_type(*(_wide(array.dtype) for array in (first, second)))

    def __getitem__(self, key: Any) -> LazyDifference:
        return LazyDifference(self._first[key], self._second[key])

    def __len__(self) -> int:
        return self.shape[0]

    def reshape(self, *shape: Any) -> LazyDifference:
        """The same numbers in another shape."""
        return LazyDifference(self._first.reshape(*shape), self._second.reshape(*shape))

    def transpose(self, axes: Any) -> LazyDifference:
        """The same numbers in another order of axes."""
        return LazyDifference(self._first.transpose(axes), self._second.transpose(axes))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        first, second = (real_numbers(part).astype(self.dtype) for part in (self._first, self._second))
        with np.errstate(all="ignore"):  # of infinities
            numbers: Array = np.asarray(second - first)
        return numbers if dtype is None else numbers.astype(dtype)


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which a difference is taken: whole numbers of four bytes and more need float64."""
    is_wide = (dtype.kind in "iuc" and dtype.itemsize > 2) or (dtype.kind == "f" and dtype.itemsize == 8)
    return np.dtype(np.float64 if is_wide else np.float32)
