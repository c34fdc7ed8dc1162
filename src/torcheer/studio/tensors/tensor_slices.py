"""Cuts a block of cells out of an array of any shape: exact where it fits, else a number for each block of cells.

A cell that stands for several has the number of these that is farthest from zero; NaN, if there is one among them. The
array is read piece by piece, so that a mapped file of any size takes a few megabytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, isqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import real_numbers, type_name
from torcheer.errors import BadArgument
from torcheer.studio.tensors.lazy_difference import LazyDifference

Array = NDArray[Any]
MOST_TILES: Final = 1024
PIECE: Final = 1 << 18  # numbers that are converted at a time


@dataclass(frozen=True, slots=True)
class Window:
    """Some positions along an axis: from `first` on, `count` of them."""

    axis: int  # -1: the array has no such axis, and the window is one position
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Block:
    """Cells by tile, row and column."""

    cells: Array  # in the type that `as_sent` gives
    windows: tuple[Window, Window, Window]  # of the tiles, the rows and the columns
    down: int  # rows and columns that a cell stands for; the last cell may stand for fewer
    across: int


def cut(array: Array, windows: Sequence[Window], index: Sequence[int], most_cells: int) -> Block:
    """Cut along three axes, tiles, rows and columns; `index` has the position on each of the other axes.

    Windows reach at most to the end of their axis; a count below 0 means all the rest.
    """
    tiles, rows, columns = (_clamped(array, window) for window in windows)
    tiles = Window(tiles.axis, tiles.first, min(tiles.count, MOST_TILES, max(most_cells, 1)))
    view = _view(array, (tiles, rows, columns), index)
    down, across = _blocks(view.shape, most_cells)
    cells = _copied(view) if down == across == 1 else _reduced(view, down, across)
    return Block(cells, (tiles, rows, columns), down, across)


def as_sent(array: Array) -> Array:
    """The same numbers in a type that a page reads: none loses a digit, except that complex ones become magnitudes."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind == "b":
        return array.astype(np.uint8)
    if kind in "iu":
        return array.astype("<i4" if size < 3 else f"<{kind}{max(size, 4)}")
    numbers = real_numbers(array)
    return numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)


def dtype_of(array: Array) -> str:
    """The name of an array's type, as torch has it."""
    return type_name(array.dtype)


def pieces(array: Array, most: int = PIECE) -> Iterator[Array]:
    """The numbers of an array in its order, some at a time."""
    flat = array.reshape(-1)  # a view: values are stored contiguously
    for first in range(0, flat.size, most):
        yield flat[first : first + most]


# -- the view ----------------------------------------------------------------------------------------------------------


def _clamped(array: Array, window: Window) -> Window:
    if window.axis < 0:
        return Window(-1, 0, 1)
    if window.axis >= array.ndim:
        raise BadArgument(f"there is no axis {window.axis}: the shape is {tuple(array.shape)}")
    length = array.shape[window.axis]
    first = min(max(window.first, 0), max(length - 1, 0))
    rest = length - first
    return Window(window.axis, first, rest if window.count < 0 else min(window.count, rest))


def _view(array: Array, windows: tuple[Window, Window, Window], index: Sequence[int]) -> Array:
    """The chosen part as (tiles, rows, columns), without a copy."""
    shown = [window.axis for window in windows if window.axis >= 0]
    if len(set(shown)) < len(shown):
        raise BadArgument(f"tiles, rows and columns are axes {shown}: each axis can be one of them")
    if len(index) != array.ndim:
        raise BadArgument(f"a position has {len(index)} numbers, and the shape {tuple(array.shape)} {array.ndim}")
    key: list[Any] = [_position(array, axis, position, shown) for axis, position in enumerate(index)]
    for window in windows:
        if window.axis >= 0:
            key[window.axis] = slice(window.first, window.first + window.count)
    part: Any = array[tuple(key)]
    part = part if isinstance(part, LazyDifference) else np.asarray(part)
    kept = sorted(shown)  # the axes of `part`
    ordered: Array = part.transpose([kept.index(axis) for axis in shown])
    lengths = iter(ordered.shape)
    return ordered.reshape([next(lengths) if window.axis >= 0 else 1 for window in windows])


def _position(array: Array, axis: int, position: int, shown: list[int]) -> int:
    if axis not in shown and not 0 <= position < array.shape[axis]:
        raise BadArgument(f"axis {axis} has positions 0 to {array.shape[axis] - 1}; there is no {position}")
    return position


# -- blocks ------------------------------------------------------------------------------------------------------------


def _blocks(shape: tuple[int, ...], most_cells: int) -> tuple[int, int]:
    """How many rows and columns a cell stands for, so that there are at most `most_cells`."""
    tiles, rows, columns = shape
    room = max(most_cells // max(tiles, 1), 1)
    side = isqrt(room)
    if rows <= side:
        most_rows, most_columns = max(rows, 1), room // max(rows, 1)
    elif columns <= side:
        most_rows, most_columns = room // max(columns, 1), max(columns, 1)
    else:
        most_rows = most_columns = side
    return max(ceil(rows / most_rows), 1), max(ceil(columns / most_columns), 1)


def _copied(view: Array) -> Array:
    return np.ascontiguousarray(as_sent(view)).reshape(view.shape)  # numpy makes a scalar of no axes to one


def _reduced(view: Array, down: int, across: int) -> Array:
    tiles, rows, columns = view.shape
    cells = np.empty((tiles, ceil(rows / down), ceil(columns / across)), as_sent(view[:0]).dtype)
    wide = max(PIECE // (down * across), 1) * across
    tall = max(PIECE // (down * min(wide, max(columns, 1))), 1) * down
    for tile in range(tiles):
        for top in range(0, rows, tall):
            for left in range(0, columns, wide):
                part = _farthest(as_sent(view[tile, top : top + tall, left : left + wide]), down, across)
                row, column = top // down, left // across
                cells[tile, row : row + part.shape[0], column : column + part.shape[1]] = part
    return cells


def _farthest(part: Array, down: int, across: int) -> Array:
    """The number of each block that is farthest from zero; NaN where there is one."""
    tops, lefts = np.arange(0, part.shape[0], down), np.arange(0, part.shape[1], across)
    least = np.minimum.reduceat(np.minimum.reduceat(part, tops, axis=0), lefts, axis=1)
    most = np.maximum.reduceat(np.maximum.reduceat(part, tops, axis=0), lefts, axis=1)
    if part.dtype.kind == "u":
        return most
    is_least = ~least >= most if part.dtype.kind == "i" else -least > most  # the least whole number has no opposite
    return np.where(is_least, least, most)
