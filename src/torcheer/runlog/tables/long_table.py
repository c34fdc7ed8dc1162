"""A table that may grow for ever in bounded memory: its last rows as they came, older ones as pairs of extremes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.runlog.table_records import Column, TableHead, TableRows
from torcheer.runlog.tables.folded_cells import CellBlock, fold_cells, join_cells, plain_cell, shape_of

MOST_ROWS: Final = 100_000
_LEAST_ROWS: Final = 100
_MOST_CHANGES: Final = 64
_RECENT: Final = 250  # rows at the end that are never folded; up to twice as many are there

Array = NDArray[Any]
Describe = Callable[[str, set[type], tuple[int, ...]], Column]  # of a column's name, the types and shape of its cells


class LongTable:
    """Rows by step, at most about `most_rows` of them, however many were put.

    Beyond that older rows are folded: of every 4, 8, 16, … two are left, whose cells are each column's smallest and
    largest value, in the order they had. So a spike stays as high as it was, and NaN stays NaN; the x of a pair is that
    of the first and the last row it stands for. Text and columns that are not plotted have those rows' cells, too.

    What was read of it stays true until `restarts` changes (all rows are void) or `changes` does: then `intact_rows`.
    """

    def __init__(
        self, head: TableHead, describe: Describe, *, most_rows: int = MOST_ROWS, merges: bool = False,
        tensors_every: int = 1,
    ) -> None:  # fmt: skip
        """`merges`: rows of one step that have no cell in common are one row, and rows are sorted by step.

        `tensors_every`: of the rows that are not recent, how many have one that keeps its tensors. The columns of the
        head are there without a row.
        """
        self._facts, self._describe, self._merges, self._tensors_every = head, describe, merges, tensors_every
        self._most, self._shapes = most_rows, dict[str, tuple[int, ...]]()
        self._types: dict[str, set[type]] = {name: set() for name in (column.name for column in head.columns)}
        self._layout: tuple[Any, ...] = ()  # the columns and types of the last row
        self.restarts = self.changes = 0
        self._changed: list[tuple[int, int]] = []  # the number of a change, and the first row that it concerns
        self._empty()
        self._make_head()

    def _empty(self) -> None:
        self._pairs: dict[str, CellBlock] = {}  # the oldest rows: an even number of them
        self._open: dict[str, CellBlock] = {}  # the next pair, which does not stand for enough rows yet
        self._rows_a_pair, self._open_rows = 2, 0  # rows that a pair stands for, and the open one
        self._recent: list[tuple[int, dict[str, Any]]] = []

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many rows there are."""
        return _length(self._pairs) + _length(self._open) + len(self._recent)

    @property
    def columns(self) -> dict[str, ColumnCells]:
        """The cells of each column."""
        return {name: ColumnCells(self, name) for name in self._types}

    def cells(self, name: str, start: int, end: int) -> list[Any]:
        """Some cells of a column, None where a row has none."""
        cells: list[Any] = []
        for blocks in (self._pairs, self._open):
            count = _length(blocks)
            if start < count and end > 0:
                cells += _block(blocks, name).tolist(max(start, 0), min(end, count))
            start, end = start - count, end - count
        recent = islice(self._recent, max(start, 0), max(end, 0))
        return cells + [plain_cell(row.get(name)) for _, row in recent]

    def intact_rows(self, since: int) -> int:
        """How many of the first rows are as they were when there were `since` changes."""
        return min((row for number, row in self._changed if number > since), default=self.count)

    @property
    def numbers_a_row(self) -> int:
        """How many numbers a row holds, those of tensors included."""
        return sum(int(np.prod(self._shapes.get(name, ()))) for name in self._types)

    # -- writing -----------------------------------------------------------------------------------------------------

    def put(self, rows: Iterable[tuple[int, dict[str, Any]]]) -> None:
        """Add rows with their steps; they are its own from now on."""
        changed = False
        for step, cells in rows:
            changed = self._note(cells) or changed
            if not self._merges or not self._sort_in(step, cells):
                self._recent.append((step, cells))
        if changed:
            self._make_head()
        recent = min(_RECENT, self._most // 8 * 2)
        while len(self._recent) >= 2 * recent:
            self._fold_oldest(recent)

    def put_columns(self, steps: Array, cells: Mapping[str, CellBlock]) -> None:
        """Add rows by column; those that would be folded at once are never rows."""
        recent = min(_RECENT, self._most // 8 * 2)
        is_sorted = not self._merges or (
            bool((np.diff(steps) > 0).all()) and (not self._recent or self._recent[-1][0] < steps[0])
        )
        if len(steps) < 2 * recent or not is_sorted or not cells:
            columns = zip(*(block.tolist(0, len(steps)) for block in cells.values())) if cells else [()] * len(steps)
            self.put((step, _without_missing(cells, row)) for step, row in zip(steps.tolist(), columns))
            return
        if self._note_columns(cells):
            self._make_head()
        before = {name: CellBlock.of([row.get(name) for _, row in self._recent]) for name in self._types}
        every = _joined(before, cells) if self._recent else dict(cells)
        all_steps = [*(step for step, _ in self._recent), *steps.tolist()]
        place = 0
        while len(all_steps) - place >= 2 * recent:
            self._fold(_part(every, place, place + recent))
            place += recent
        columns = zip(*(every[name].tolist(place, len(all_steps)) for name in every))
        self._recent = [(step, _without_missing(every, row)) for step, row in zip(all_steps[place:], columns)]

    def amend(self, step: int, cells: dict[str, Any]) -> bool:
        """Put other cells in place of those of a step's row; False if it is none of the recent ones."""
        place = next((place for place in range(len(self._recent) - 1, -1, -1) if self._recent[place][0] <= step), -1)
        if place < 0 or self._recent[place][0] != step:
            return False
        self._recent[place] = (step, cells)
        if self._note(cells):
            self._make_head()
        self._rewind(self.count - len(self._recent) + place)
        return True

    def clear(self) -> None:
        """Remove all rows; the columns stay."""
        self._empty()
        self._restart()

    def limit(self, most_rows: int) -> None:
        """Change how many rows are held at most."""
        self._most = min(max(most_rows, _LEAST_ROWS), MOST_ROWS)

    def rename(self, old: str, new: str) -> None:
        """Rename a column."""
        named: list[dict[str, Any]] = [self._types, self._shapes, self._pairs, self._open]
        for cells in [*named, *(cells for _, cells in self._recent)]:
            if old in cells:
                cells[new] = cells.pop(old)
        self._layout = ()
        self._make_head()

    def set_head(self, head: TableHead) -> None:
        """Change the title and axes, and what is said of columns."""
        if head != self._facts:
            self._facts = head
            for column in head.columns:
                self._types.setdefault(column.name, set())
            self._make_head()

    # -- parts -------------------------------------------------------------------------------------------------------

    def _note(self, cells: dict[str, Any]) -> bool:
        """Note the types of a row's cells; True if they change what is said of columns."""
        layout = (*cells, *map(type, cells.values()))
        if layout == self._layout:  # the common case
            return False
        self._layout, changed = layout, False
        for name, cell in cells.items():
            types = self._types.get(name)
            if types is None:
                types, changed = self._types.setdefault(name, set()), True
            if type(cell) not in types and cell is not None:
                types.add(type(cell))
                changed = True
                if isinstance(cell, list | np.ndarray):
                    self._shapes.setdefault(name, shape_of(cell))
        return changed

    def _note_columns(self, cells: Mapping[str, CellBlock]) -> bool:
        """Note the types of columns; True if they change what is said of them."""
        self._layout, changed = (), False
        for name, block in cells.items():
            known, types = self._types.setdefault(name, set()), block.types()
            changed = changed or not types <= known or not known
            known |= types
            if list in types:
                self._shapes.setdefault(name, block.tensor_shape())
        return changed

    def _make_head(self) -> None:
        facts, names = self._facts, self._types
        described = {column.name: column for column in facts.columns}
        columns = [
            described.get(name) or self._describe(name, types, self._shapes.get(name, ()))
            for name, types in names.items()
        ]
        x = facts.x if facts.x in ("", *names) or "Step" not in names else "Step"
        self.head = replace(facts, x=x, columns=tuple(columns))
        self._by_place = {column.name for column in columns if not column.plotted or facts.legend} | {x}

    def _sort_in(self, step: int, cells: dict[str, Any]) -> bool:
        """Put a row where its step belongs among the recent ones; False if that is their end."""
        place = len(self._recent)
        while place and self._recent[place - 1][0] > step:
            place -= 1
        if place and self._recent[place - 1][0] == step:
            before = self._recent[place - 1][1]
            if all(name not in before or _same(before[name], cell) for name, cell in cells.items()):
                before.update(cells)
                self._rewind(self.count - len(self._recent) + place - 1)
                return True
        if not place or place == len(self._recent):  # before all of them: what is older is folded
            return False
        self._rewind(self.count - len(self._recent) + place)
        self._recent.insert(place, (step, cells))
        return True

    def _fold_oldest(self, count: int) -> None:
        """Move the oldest of the recent rows to the pairs."""
        moved, self._recent = [cells for _, cells in self._recent[:count]], self._recent[count:]
        self._fold({name: CellBlock.of([cells.get(name) for cells in moved]) for name in self._types})

    def _fold(self, rows: dict[str, CellBlock]) -> None:
        """Move rows, an even number of them, to the pairs."""
        count = _length(rows)
        if self._rows_a_pair == 2:
            self._extend_pairs(rows)
        else:
            self._rewind(_length(self._pairs))
            missing = self._rows_a_pair - self._open_rows
            whole = missing + (count - missing) // self._rows_a_pair * self._rows_a_pair
            self._add_to_open(_part(rows, 0, missing))
            if count > missing:
                self._extend_pairs(self._folded(_part(rows, missing, whole), self._rows_a_pair))
                self._add_to_open(_part(rows, whole, count))
        if _length(self._pairs) > self._most // 2:
            self._halve()

    def _add_to_open(self, rows: dict[str, CellBlock]) -> None:
        """Let the open pair stand for more rows, at most as many as it lacks."""
        self._open_rows += _length(rows)
        joined = _joined(self._open, rows)
        self._open = self._folded(joined, _length(joined))
        if self._open_rows == self._rows_a_pair:
            pair, self._open, self._open_rows = self._open, {}, 0
            self._extend_pairs(pair)

    def _extend_pairs(self, rows: dict[str, CellBlock]) -> None:
        before = _length(self._pairs)
        self._pairs = _joined(self._pairs, rows)
        self._drop_tensors(before)

    def _drop_tensors(self, start: int) -> None:
        for name in self._shapes.keys() & self._pairs.keys() if self._tensors_every > 1 else ():
            self._pairs[name].drop_tensors(self._tensors_every, start)

    def _halve(self) -> None:
        """Fold every two pairs into one; an odd one becomes the open pair."""
        count, last = _length(self._pairs), _length(self._pairs) // 4 * 4
        rest, opened, self._open = _part(self._pairs, last, count), self._open, {}
        self._pairs = self._folded(_part(self._pairs, 0, last), 4)
        self._rows_a_pair *= 2
        if count > last:
            self._open, self._open_rows = rest, self._open_rows + self._rows_a_pair // 2
        joined = _joined(self._open, opened)
        self._open = self._folded(joined, _length(joined))
        self._drop_tensors(0)
        self._restart()

    def _folded(self, rows: dict[str, CellBlock], size: int) -> dict[str, CellBlock]:
        return {name: fold_cells(block, size, by_place=name in self._by_place) for name, block in rows.items()}

    def _rewind(self, row: int) -> None:
        """Note that rows from this one on are others."""
        self.changes += 1
        self._changed.append((self.changes, row))
        if len(self._changed) > _MOST_CHANGES:  # the older half as one
            half, rest = self._changed[: _MOST_CHANGES // 2], self._changed[_MOST_CHANGES // 2 :]
            self._changed = [(half[-1][0], min(row for _, row in half)), *rest]

    def _restart(self) -> None:
        self.restarts, self._changed = self.restarts + 1, []


class ColumnCells:
    """The cells of a column, read like a list."""

    def __init__(self, table: LongTable, name: str) -> None:
        self._table, self._name = table, name

    def __len__(self) -> int:
        return self._table.count

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            start, end, stride = place.indices(len(self))
            return self._table.cells(self._name, start, end)[::stride] if stride > 0 else list(self)[place]
        number = place + len(self) if place < 0 else place
        if not 0 <= number < len(self):
            raise IndexError(f"row {place} of {self._name}, which has {len(self)}")
        return self._table.cells(self._name, number, number + 1)[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | ColumnCells) and self[:] == other[:]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self[:])


def _same(before: Any, cell: Any) -> bool:
    """Whether a row may have this cell in place of another: it has none, or the same; NaN equals NaN."""
    return before is None or before is cell or before == cell or (before != before and cell != cell)


def _without_missing(names: Iterable[str], row: Iterable[Any]) -> dict[str, Any]:
    return {name: cell for name, cell in zip(names, row) if cell is not None}


def _length(blocks: Mapping[str, CellBlock]) -> int:
    return len(next(iter(blocks.values()))) if blocks else 0


def _block(blocks: Mapping[str, CellBlock], name: str) -> CellBlock:
    """A column's cells; missing ones where it is newer."""
    return blocks[name] if name in blocks else CellBlock.empty(_length(blocks))


def _part(blocks: Mapping[str, CellBlock], start: int, end: int) -> dict[str, CellBlock]:
    return {name: block.part(start, end) for name, block in blocks.items()}


def _joined(first: Mapping[str, CellBlock], second: Mapping[str, CellBlock]) -> dict[str, CellBlock]:
    names = dict.fromkeys([*first, *second])
    return {name: join_cells(_block(first, name), _block(second, name)) for name in names}


ShownTable = TableRows | LongTable  # what a page is sent
