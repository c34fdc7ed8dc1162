"""Tables that grow for ever: their last rows exact, older ones folded so that no spike is lost, in bounded memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from seams import CellBlock, LongTable, TableHead, column_for, fold_cells, join_cells


def table(most_rows: int = 1000, **options: Any) -> LongTable:
    return LongTable(TableHead("t", "T", "Step"), column_for, most_rows=most_rows, **options)


def filled(count: int, most_rows: int = 1000, **cells: Any) -> LongTable:
    rows = table(most_rows)
    for step in range(count):
        rows.put([(step, {"Step": step} | {name: cell(step) for name, cell in cells.items()})])
    return rows


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 999, 1000])
def test_rows_are_as_they_came_while_they_fit(count: int) -> None:
    rows = filled(count, most_rows=2000, loss=float)
    assert rows.count == count and rows.restarts == rows.changes == 0
    if count:
        assert rows.columns == {"Step": list(range(count)), "loss": [float(step) for step in range(count)]}


@pytest.mark.parametrize("count", [1001, 2500, 5001, 20_000, 100_003])
def test_of_very_many_rows_the_last_are_exact_and_x_never_goes_back(count: int) -> None:
    rows = filled(count, loss=lambda step: step / 2)
    steps = rows.columns["Step"][:]
    assert rows.count <= 1000 and rows.restarts > 0
    assert steps == sorted(steps) and steps[0] == 0 and steps[-250:] == list(range(count - 250, count))
    assert rows.columns["loss"] == [step / 2 for step in steps]  # monotone: its extremes are the first and the last
    gaps = np.diff(steps[: rows.count - 500])
    assert gaps.max() <= 4 * max(1, count // 250)  # evenly spaced, however often it was folded


@pytest.mark.parametrize("at", [0, 1, 17, 5_000, 9_999, 19_000])
@pytest.mark.parametrize("spike", [1e9, -1e9, math.inf, -math.inf, math.nan])
def test_a_spike_stays_as_high_as_it_was(at: int, spike: float) -> None:
    rows = filled(20_000, loss=lambda step: spike if step == at else math.sin(step))
    cells, steps = rows.columns["loss"][:], rows.columns["Step"][:]
    (place,) = [place for place, cell in enumerate(cells) if cell == spike or cell != cell]
    assert abs(steps[place] - at) <= 128  # its pair stands for so many rows


def test_text_missing_cells_and_columns_that_come_late() -> None:
    rows = table()
    for step in range(5000):
        late = {"acc": 1} if step >= 4000 else {}
        rows.put([(step, {"Step": step, "name": f"n{step}", "loss": None if step % 2 else 0.5, **late})])
    places = rows.columns["Step"][:]
    assert rows.columns["name"] == [f"n{step}" for step in places]
    assert set(rows.columns["loss"][:]) <= {0.5, None} and rows.columns["loss"][0] == 0.5
    assert rows.columns["acc"][0] is None and rows.columns["acc"][-1] == 1
    kinds = {column.name: column.type for column in rows.head.columns}
    assert kinds == {"Step": "int", "name": "text", "loss": "float", "acc": "int"}


def test_a_reader_who_applies_the_changes_has_the_same_rows() -> None:
    rows, read, seen = table(400, merges=True), list[Any](), (0, 0)
    draw = np.random.default_rng(0)
    for step in range(6000):
        rows.put([(step, {"Step": step, "loss": float(step)})])
        if step % 3 == 0:
            rows.put([(max(0, step - int(draw.integers(3))), {"late": step})])
        if draw.random() < 0.05:
            restarts, changes = seen
            intact = min(len(read), rows.intact_rows(changes)) if restarts == rows.restarts else 0
            read = read[:intact] + list(zip(*(cells[intact:] for cells in rows.columns.values())))
            seen = (rows.restarts, rows.changes)
            assert read == list(zip(*rows.columns.values()))


def test_what_it_holds_is_bounded_in_objects_too() -> None:
    sizes = [sum(len(block) for block in filled(count, loss=float)._pairs.values()) for count in (10_000, 80_000)]
    assert max(sizes) <= 2 * 500
    rows = table(merges=True)
    for step in range(10_000):
        rows.put([(step, {"Step": step, "a": 1}), (step, {"Step": step, "b": 2})])
    assert len(rows._changed) <= 64 and len(rows._recent) < 500


def test_rows_of_one_step_are_one_unless_a_cell_came_twice() -> None:
    rows = table(merges=True)
    rows.put([(0, {"Step": 0, "loss": 1.0}), (1, {"Step": 1, "loss": 2.0}), (0, {"Step": 0, "wait": 0.1})])
    assert rows.columns == {"Step": [0, 1], "loss": [1.0, 2.0], "wait": [0.1, None]}
    rows.put([(1, {"Step": 1, "loss": 3.0})])
    assert rows.columns["loss"] == [1.0, 2.0, 3.0]


def test_cells_come_back_as_they_were_given() -> None:
    for cells in ([1, 2], [1.5, math.inf], [True, None], [2**60, 1], ["a", None], [[1.0, 2.0], None], [[1], [2, 3]]):
        assert CellBlock.of(cells).tolist(0, 2) == cells
        joined = join_cells(CellBlock.of([7]), CellBlock.of(cells))
        assert joined.tolist(0, 3) == [7, *cells]
        assert [type(cell) for cell in joined.tolist(1, 3)] == [type(cell) for cell in cells]


def test_a_fold_leaves_the_smallest_and_the_largest_in_their_order() -> None:
    block = CellBlock.of([3.0, 9.0, -1.0, 4.0, None, 2.0, None, 5.0, None, None, None, None])
    assert fold_cells(block, 4, by_place=False).tolist(0, 6) == [9.0, -1.0, 2.0, 5.0, None, None]
    assert fold_cells(block, 4, by_place=True).tolist(0, 6) == [3.0, 4.0, 2.0, 5.0, None, None]
    assert fold_cells(block, 2, by_place=False) is block
