"""Rows of a log's tables by column: as a frame holds them, filtered, joined and merged, without a row being made.

A frame has a table's numbers as one array of int64 under layer `(rows)`, a line for each column: first the steps, then
the times, as the bits of float64; then the columns that `types` calls "int", "float" (bits) or "bool". A missing cell
is the least int64, or a NaN of its own. The cells of other columns, "text", are JSON in `texts`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torcheer.runlog.log_frames import decode_column, encode_column
from torcheer.runlog.table_cells import cell_of
from torcheer.runlog.tables.folded_cells import CellBlock, join_cells

Array = NDArray[Any]
_NO_FLOAT: Final = 0x7FF80000_6D697373  # the bits of a NaN that no computation gives
_NO_INT: Final = -(2**63)
_NUMBERS: Final = frozenset((int, float, bool, type(None)))


class Row(NamedTuple):
    """A row of a table."""

    step: int
    time_secs: float
    cells: dict[str, Any]


class Rows:
    """Rows of a table, by column."""

    __slots__ = ("cells", "steps", "times")

    def __init__(self, steps: Array, times: Array, cells: dict[str, CellBlock]) -> None:
        self.steps, self.times, self.cells = steps, times, cells

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Rows:
        """Take rows as they are written."""
        names = dict.fromkeys(name for row in rows for name in row.cells)
        steps, times = np.array([row.step for row in rows], np.int64), np.array([row.time_secs for row in rows], float)
        return cls(steps, times, {name: CellBlock.of([row.cells.get(name) for row in rows]) for name in names})

    def __len__(self) -> int:
        return len(self.steps)

    def take(self, places: Array) -> Rows:
        """The rows at these places, or where a mask is true."""
        if places.dtype == bool:
            if places.all():
                return self
            places = np.flatnonzero(places)
        cells = {name: block.take(places) for name, block in self.cells.items()}
        return Rows(self.steps[places], self.times[places], cells)

    def renamed(self, names: Mapping[str, str]) -> Rows:
        """The same, columns with other names."""
        return Rows(self.steps, self.times, {names.get(name, name): block for name, block in self.cells.items()})

    def __iter__(self) -> Iterator[Row]:
        """Yield each row, without the cells that it lacks."""
        columns = {name: block.tolist(0, len(self)) for name, block in self.cells.items()}
        for place, (step, when) in enumerate(zip(self.steps.tolist(), self.times.tolist())):
            cells = {name: cells[place] for name, cells in columns.items() if cells[place] is not None}
            yield Row(step, when, cells)

    def sorted(self) -> Rows:
        """By step, and by time within one."""
        return self.take(np.lexsort((self.times, self.steps)))

    def by_step(self) -> Rows:
        """Sorted by step; rows of one step that have no cell in common are one row."""
        if len(self) < 2 or (np.diff(self.steps) > 0).all():
            return self
        present = np.stack([block.present() for block in self.cells.values()], 1)
        last, target = dict[int, int](), np.empty(len(self), np.int64)  # of each step its last row, and what it has
        filled: list[Array] = []
        for place, step in enumerate(self.steps.tolist()):
            number = last.get(step)
            if number is None or (filled[number] & present[place]).any():
                number = last[step] = len(filled)
                filled.append(present[place].copy())
            else:
                filled[number] |= present[place]
            target[place] = number
        first = np.unique(target, return_index=True)[1]
        cells = {name: block.scattered(target, len(filled)) for name, block in self.cells.items()}
        merged = Rows(self.steps[first], self.times[first], cells)
        return merged.take(np.argsort(merged.steps, kind="stable"))


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Rows behind others."""
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part.cells)
    cells = {
        name: join_cells(*(part.cells[name] if name in part.cells else CellBlock.empty(len(part)) for part in parts))
        for name in names
    }
    return Rows(np.concatenate([part.steps for part in parts]), np.concatenate([part.times for part in parts]), cells)


def encode_rows(rows: Sequence[tuple[int, float, Mapping[str, Any]]]) -> tuple[dict[str, Any], Array]:
    """A frame's record of a table, and its array, of the step, time and cells of each row."""
    names = {str(name): name for _, _, cells in rows for name in cells}
    lines = [np.array([step for step, _, _ in rows], np.int64)]
    lines.append(np.array([when for _, when, _ in rows], np.float64).view(np.int64))
    record: dict[str, Any] = {"count": sum(len(cells) for _, _, cells in rows), "types": {}}
    for text, name in names.items():
        column = [cells.get(name) for _, _, cells in rows]
        if (numbers := _encoded(column)) is None:
            record["types"][text] = "text"
            record.setdefault("texts", {})[text] = encode_column(column)
        else:
            record["types"][text] = numbers[0]
            lines.append(numbers[1])
    return record, np.stack(lines)


def _encoded(column: list[Any]) -> tuple[str, Array] | None:
    """The type of a column of numbers, and their bits; None for other columns."""
    types = set(map(type, column))
    if not types <= _NUMBERS:
        column = [cell_of(cell) for cell in column]
        types = set(map(type, column))
    kinds = types - {type(None)}
    if kinds == {float}:
        bits = np.array([math.nan if cell is None else cell for cell in column], np.float64).view(np.int64)
        missing = _NO_FLOAT
        bits[bits == missing] += 1  # a NaN that nobody could tell from a missing one
    elif kinds in ({int}, {bool}):
        try:
            bits = np.array([_NO_INT if cell is None else cell for cell in column], np.int64)
        except OverflowError:
            return None
        missing = _NO_INT
    else:
        return None
    if type(None) in types:
        bits[[cell is None for cell in column]] = missing
    return kinds.pop().__name__, bits


def decode_rows(record: Mapping[str, Any], array: Array, names: Collection[str] | None = None) -> Rows | None:
    """The rows of a frame's table, or some of their columns; None if its array is not what the record says."""
    types, texts = record["types"], record.get("texts", {})
    lines = [name for name, kind in types.items() if kind != "text"]
    if array.dtype != np.int64 or array.ndim != 2 or len(array) != 2 + len(lines):
        return None
    if any(len(cells) != array.shape[1] for cells in texts.values()) or not np.isfinite(array[1].view(float)).all():
        return None
    bits, cells = dict(zip(lines, array[2:])), dict[str, CellBlock]()
    for name, kind in types.items():
        if names is None or name in names:
            cells[name] = CellBlock.of(decode_column(texts[name])) if kind == "text" else _decoded(kind, bits[name])
    return Rows(array[0], array[1].view(np.float64), cells)


def _decoded(kind: str, bits: Array) -> CellBlock:
    if kind == "float":
        return CellBlock.floats(bits.view(np.float64), bits == _NO_FLOAT)
    return CellBlock.integers(bits, bits == _NO_INT, is_bool=kind == "bool")


def last_numbers(record: Mapping[str, Any], array: Array) -> dict[str, float]:
    """The last number of each column of a frame's table that has one: of a thousand columns at once."""
    kinds = [(name, kind) for name, kind in record["types"].items() if kind != "text"]
    bits = array[2:]
    if not bits.size:
        return {}
    missing = np.array([_NO_FLOAT if kind == "float" else _NO_INT for _, kind in kinds])
    present = bits != missing[:, None]
    last = bits[np.arange(len(bits)), bits.shape[1] - 1 - present[:, ::-1].argmax(1)]
    floats = last.view(np.float64)
    return {
        name: float(floats[line] if kind == "float" else last[line])
        for line, (name, kind) in enumerate(kinds)
        if kind != "bool" and present[line].any()
    }
