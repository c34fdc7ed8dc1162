"""Cells of a column in little memory, and the fold that leaves two of many: the smallest and the largest."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_MISSING, _INT, _FLOAT, _BOOL = range(4)
_EXACT: Final = 2**53  # integers below it are exact as float64


class CellBlock:
    """Cells of one column: numbers as arrays; where there is text, a tensor or a huge integer, objects."""

    __slots__ = ("kinds", "numbers", "objects")

    def __init__(self, numbers: Array, kinds: Array, objects: Array | None = None) -> None:
        self.numbers, self.kinds, self.objects = numbers, kinds, objects

    @classmethod
    def of(cls, cells: list[Any]) -> CellBlock:
        """Take cells as rows have them; None is a missing one."""
        types = set(map(type, cells))
        if types == {float}:  # the common case
            return cls(np.array(cells, np.float64), np.full(len(cells), _FLOAT, np.uint8))
        kinds = [_kind(cell) for cell in cells]
        if None in kinds:
            objects: Array = np.empty(len(cells), object)
            for place, cell in enumerate(cells):
                objects[place] = _compact(cell)
            return cls(np.empty(0), np.empty(0, np.uint8), objects)
        return cls(np.array([0.0 if cell is None else cell for cell in cells], np.float64), np.array(kinds, np.uint8))

    @classmethod
    def empty(cls, count: int) -> CellBlock:
        """Take missing cells."""
        return cls(np.zeros(count), np.zeros(count, np.uint8))

    @classmethod
    def floats(cls, numbers: Array, missing: Array) -> CellBlock:
        """Take float64; those at `missing` are none."""
        return cls(numbers, np.where(missing, _MISSING, _FLOAT).astype(np.uint8))

    @classmethod
    def integers(cls, numbers: Array, missing: Array | None = None, *, is_bool: bool = False) -> CellBlock:
        """Take int64; those at `missing` are none."""
        missing = np.zeros(len(numbers), bool) if missing is None else missing
        kept = np.where(missing, 0, numbers)
        if len(kept) and (kept.max() >= _EXACT or kept.min() <= -_EXACT):
            return cls.of([None if gone else number for number, gone in zip(kept.tolist(), missing.tolist())])
        return cls(kept.astype(np.float64), np.where(missing, _MISSING, _BOOL if is_bool else _INT).astype(np.uint8))

    def __len__(self) -> int:
        return len(self.kinds) if self.objects is None else len(self.objects)

    def present(self) -> Array:
        """Which cells are not missing."""
        if self.objects is not None:
            return np.array([cell is not None for cell in self.objects], bool)
        present: Array = self.kinds != _MISSING
        return present

    def as_floats(self) -> Array:
        """The cells as float64; of numbers and missing ones, which are NaN."""
        if self.objects is not None:
            return np.array([np.nan if cell is None else cell for cell in self.objects], np.float64)
        return np.where(self.kinds == _MISSING, np.nan, self.numbers)

    def types(self) -> set[type]:
        """The types of the cells that are not missing; `list` for tensors."""
        if self.objects is not None:
            return {list if isinstance(cell, np.ndarray) else type(cell) for cell in self.objects} - {type(None)}
        return {_TYPES[kind] for kind in np.unique(self.kinds).tolist() if kind != _MISSING}

    def tensor_shape(self) -> tuple[int, ...]:
        """The shape of its first tensor; of lists of different lengths, that of their list."""
        objects = self.objects if self.objects is not None else ()
        first = next((cell for cell in objects if isinstance(cell, list | np.ndarray)), None)
        return () if first is None else shape_of(first)

    def scattered(self, target: Array, count: int) -> CellBlock:
        """Cells put where `target` says, of so many; missing ones leave their place to others."""
        present = self.present()
        places = np.full(count, len(self), np.int64)
        places[target[present]] = np.flatnonzero(present)
        return join_cells(self, CellBlock.empty(1)).take(places)

    def part(self, start: int, end: int) -> CellBlock:
        """Take some of the cells."""
        if self.objects is not None:
            return CellBlock(self.numbers, self.kinds, self.objects[start:end].copy())
        return CellBlock(self.numbers[start:end].copy(), self.kinds[start:end].copy())

    def as_objects(self) -> Array:
        """The cells as objects."""
        if self.objects is not None:
            return self.objects
        objects: Array = np.empty(len(self), object)
        objects[:] = self.tolist(0, len(self))
        return objects

    def tolist(self, start: int, end: int) -> list[Any]:
        """Return some of the cells as they were given."""
        if self.objects is not None:
            return [plain_cell(cell) for cell in self.objects[start:end]]
        numbers, kinds = self.numbers[start:end], self.kinds[start:end]
        if (kinds == _FLOAT).all():
            return list(numbers.tolist())
        if (kinds == _INT).all():
            return list(numbers.astype(np.int64).tolist())
        cells: list[Any] = numbers.tolist()
        for kind in (_MISSING, _INT, _BOOL):
            for place in np.flatnonzero(kinds == kind).tolist():
                cells[place] = None if kind == _MISSING else _TYPES[kind](cells[place])
        return cells

    def take(self, places: Array) -> CellBlock:
        """Take the cells at these places."""
        if self.objects is not None:
            return CellBlock(self.numbers, self.kinds, self.objects[places])
        return CellBlock(self.numbers[places], self.kinds[places])

    def drop_tensors(self, every: int, start: int) -> None:
        """From a place on, drop the tensors in all but every n-th cell."""
        if (objects := self.objects) is not None:
            for place in range(start, len(objects)):
                if place % every and isinstance(objects[place], np.ndarray):
                    objects[place] = None


def join_cells(*blocks: CellBlock) -> CellBlock:
    """Put cells behind others."""
    if all(block.objects is None for block in blocks):
        numbers, kinds = zip(*((block.numbers, block.kinds) for block in blocks))
        return CellBlock(np.concatenate(numbers), np.concatenate(kinds))
    objects = np.concatenate([block.as_objects() for block in blocks])
    return CellBlock(np.empty(0), np.empty(0, np.uint8), objects)


def fold_cells(block: CellBlock, size: int, *, by_place: bool) -> CellBlock:
    """Leave two cells of every `size`: the smallest and the largest, in the order they have; NaN counts as largest.

    `by_place`, and of text and tensors: the first and the last that is not missing.
    """
    if size <= 2:
        return block
    if by_place or block.objects is not None:
        objects, kinds = block.objects, block.kinds
        there = kinds != _MISSING if objects is None else np.array([cell is not None for cell in objects], bool)
        there = there.reshape(-1, size)
        first, second = there.argmax(1), size - 1 - there[:, ::-1].argmax(1)
    else:
        first, second = _extremes(block.numbers.reshape(-1, size), block.kinds.reshape(-1, size))
    starts = np.arange(len(first)) * size
    return block.take(np.stack([starts + first, starts + second], 1).reshape(-1))


def _extremes(numbers: Array, kinds: Array) -> tuple[Array, Array]:
    """The places of the smallest and the largest number of each row, the earlier place first."""
    missing, score = kinds == _MISSING, np.where(np.isnan(numbers), np.inf, numbers)
    low = np.where(missing, np.inf, score).argmin(1)
    high = np.where(missing, -np.inf, score).argmax(1)
    rows = np.arange(len(numbers))
    nan = np.isnan(numbers) & ~missing
    high = np.where(nan.any(1), nan.argmax(1), high)
    low, high = np.where(missing[rows, low], high, low), np.where(missing[rows, high], low, high)
    return np.minimum(low, high), np.maximum(low, high)


def plain_cell(cell: Any) -> Any:
    """A cell as a page is sent it: a tensor as lists."""
    return cell.tolist() if isinstance(cell, np.ndarray) else cell


def _compact(cell: Any) -> Any:
    """A tensor as an array, if it is one."""
    if not isinstance(cell, list):
        return cell
    try:
        array = np.array(cell)
    except ValueError:  # lists of different lengths
        return cell
    return array if array.dtype.kind in "biuf" else cell


def _kind(cell: Any) -> int | None:
    """How a cell is stored; None for an object."""
    if cell is None:
        return _MISSING
    if type(cell) is int:
        return _INT if -_EXACT < cell < _EXACT else None
    return {float: _FLOAT, bool: _BOOL}.get(type(cell))


def shape_of(cell: Any) -> tuple[int, ...]:
    """The shape of a tensor; of lists of different lengths, that of their list."""
    try:
        return np.shape(cell)
    except ValueError:
        return (len(cell),)


_TYPES: Final[tuple[type, ...]] = (type(None), int, float, bool)
