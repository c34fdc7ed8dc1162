"""The inspector's slices: numpy's indexing is the oracle, for every type and shape; memory stays bounded."""

from __future__ import annotations

import tracemalloc
from math import ceil, prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seams import PIECE, Window, as_sent, cut, describe_numbers

from torcheer.errors import BadArgument

TYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32",
         "float64", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]  # fmt: skip
STRANGE = (np.nan, np.inf, -np.inf, 0.0)


@st.composite
def arrays(draw: Any, most: int = 6) -> np.ndarray[Any, Any]:
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=most)))
    kind = np.dtype(draw(st.sampled_from(TYPES)))
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    if kind.kind == "b":
        return np.asarray(random.random(shape) < 0.5)
    if kind.kind in "iu":
        return random.integers(0, 256, (*shape, kind.itemsize), np.uint8).view(kind).reshape(shape)
    numbers = np.asarray(random.normal(size=shape) * 10.0)
    if numbers.size:
        numbers.reshape(-1)[random.integers(numbers.size)] = STRANGE[random.integers(4)]
    return numbers.astype(kind)


@st.composite
def cuts(draw: Any) -> tuple[np.ndarray[Any, Any], list[Window], list[int], int]:
    array = draw(arrays())
    axes = draw(st.permutations(range(array.ndim)))[:3]
    axes = [*axes, -1, -1, -1][:3]
    draw(st.randoms()).shuffle(axes)
    windows = [
        Window(axis, draw(st.integers(0, 4)) if axis >= 0 else 0, draw(st.sampled_from([-1, 1, 2, 5]))) for axis in axes
    ]
    index = [draw(st.integers(0, max(length - 1, 0))) for length in array.shape]
    return array, windows, index, draw(st.sampled_from([1, 4, 9, 64, 4096]))


def by_numpy(array: Any, windows: list[Window], index: list[int]) -> Any:
    """The same part by numpy's own indexing, as (tiles, rows, columns)."""
    shown = [window for window in windows if window.axis >= 0]
    key: list[Any] = list(index)
    for window in shown:
        first = min(window.first, max(array.shape[window.axis] - 1, 0))
        key[window.axis] = slice(first, None if window.count < 0 else first + window.count)
    part = np.moveaxis(array[tuple(key)], *_moves([window.axis for window in shown]))
    return part.reshape([part.shape[shown.index(window)] if window in shown else 1 for window in windows])


def _moves(axes: list[int]) -> tuple[list[int], list[int]]:
    kept = sorted(axes)
    return [kept.index(axis) for axis in axes], list(range(len(axes)))


def is_cuttable(array: Any, windows: list[Window]) -> bool:
    """Positions on the other axes exist."""
    shown = {window.axis for window in windows}
    return all(length for axis, length in enumerate(array.shape) if axis not in shown)


@settings(max_examples=200, deadline=None)
@given(cuts())
def test_a_slice_has_the_numbers_that_numpys_indexing_gives(case: Any) -> None:
    array, windows, index, _ = case
    if not is_cuttable(array, windows):
        with pytest.raises(BadArgument, match="there is no 0"):
            cut(array, windows, index, 1 << 18)
        return
    block, wanted = cut(array, windows, index, 1 << 18), by_numpy(array, windows, index)
    assert (block.down, block.across) == (1, 1) and block.cells.shape == wanted.shape
    if array.dtype.kind in "iu":
        assert block.cells.tolist() == wanted.tolist()  # no digit is lost, in 64 bits either
    else:
        np.testing.assert_array_equal(block.cells.astype(np.float64), wanted.astype(np.float64))


@settings(max_examples=200, deadline=None)
@given(cuts())
def test_a_slice_that_is_too_large_has_the_number_of_each_block_that_is_farthest_from_zero(case: Any) -> None:
    array, windows, index, most = case
    if not is_cuttable(array, windows):
        return
    block = cut(array, windows, index, most)
    assert block.cells.size <= max(most, 1)
    tiles, rows, columns = block.cells.shape
    whole = by_numpy(array, windows, index)[:tiles]
    assert (rows, columns) == (ceil(whole.shape[1] / block.down), ceil(whole.shape[2] / block.across))
    for tile, row, column in np.ndindex(tiles, rows, columns):
        top, left = row * block.down, column * block.across
        part = as_sent(np.asarray(whole[tile, top : top + block.down, left : left + block.across])).reshape(-1).tolist()
        cell = block.cells[tile, row, column].item()
        assert (cell != cell) == any(number != number for number in part)  # one NaN marks its block
        assert cell != cell or (cell in part and abs(cell) == max(map(abs, part)))


@settings(max_examples=200, deadline=None)
@given(arrays())
def test_statistics_are_those_of_numpy(array: Any) -> None:
    facts, numbers = describe_numbers(array, -1), array.astype(np.float64).reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    assert facts.count == array.size and facts.nans == np.isnan(numbers).sum()
    assert (facts.plus_infs, facts.minus_infs) == (np.isposinf(numbers).sum(), np.isneginf(numbers).sum())
    assert facts.zeros == (finite == 0).sum() and sum(facts.counts) == finite.size
    if finite.size:
        measured = dict(facts.measured)
        assert (measured["min"], measured["max"]) == (finite.min(), finite.max())
        size = max(abs(finite).max(), 1e-300)
        assert measured["mean"] == pytest.approx(finite.mean(), rel=1e-9, abs=1e-12 * size)
        assert measured["std"] == pytest.approx(finite.std(), rel=1e-6, abs=1e-7 * size)


@settings(max_examples=200, deadline=None)
@given(arrays(), st.integers(0, 5))
def test_a_dead_unit_is_zero_at_every_other_position(array: Any, axis: int) -> None:
    if axis >= array.ndim:
        return
    array = np.array(array)
    array[(slice(None),) * axis + (slice(0, 1),)] = 0
    facts = describe_numbers(array, axis)
    others = tuple(each for each in range(array.ndim) if each != axis)
    dead = np.flatnonzero(~(array != 0).any(axis=others)) if array.size else []
    assert facts.dead_units == tuple(dead) and facts.dead == len(dead)


@pytest.mark.parametrize("shape", [(1, 2000, 4000), (2, 4_000_000)])
def test_a_tensor_of_eight_million_numbers_is_cut_and_summarised_in_a_few_megabytes(shape: tuple[int, ...]) -> None:
    array = np.broadcast_to(np.float16(1), shape).copy()  # 16 MB, which exist already: a mapped file
    array[(-1,) * len(shape)] = -3
    rows, columns = len(shape) - 2, len(shape) - 1
    windows = [Window(-1, 0, 1), Window(rows, 0, -1), Window(columns, 0, -1)]
    tracemalloc.start()
    try:
        block = cut(array, windows, [0] * len(shape), 1 << 16)
        facts = describe_numbers(array, columns)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert block.cells[0, -1, -1] == -3 and block.cells[0, 0, 0] == 1 and block.cells.size <= 1 << 16
    assert facts.count == prod(shape) and dict(facts.measured)["min"] == -3
    assert peak < 60 * PIECE  # bytes: several float64 copies of a piece, and a flag for each unit


def test_a_whole_number_of_64_bits_stays_what_it_is() -> None:
    array = np.array([2**63 - 1, -(2**63), 2**53 + 1])
    block = cut(array, [Window(-1, 0, 1), Window(-1, 0, 1), Window(0, 0, -1)], [0], 64)
    assert block.cells.dtype == np.int64 and block.cells.reshape(-1).tolist() == array.tolist()
    one = cut(array, [Window(-1, 0, 1), Window(-1, 0, 1), Window(0, 0, -1)], [0], 1)
    assert one.cells.item() == -(2**63)  # which has no opposite among its kind


@pytest.mark.parametrize(
    ("windows", "index", "text"),
    [
        ([Window(0, 0, -1), Window(0, 0, -1), Window(1, 0, -1)], [0, 0], "each axis can be one of them"),
        ([Window(-1, 0, 1), Window(0, 0, -1), Window(2, 0, -1)], [0, 0], "there is no axis 2"),
        ([Window(-1, 0, 1), Window(-1, 0, 1), Window(1, 0, -1)], [3, 0], "positions 0 to 2; there is no 3"),
        ([Window(-1, 0, 1), Window(0, 0, -1), Window(1, 0, -1)], [0], "has 1 numbers"),
    ],
)
def test_a_slice_that_does_not_exist_is_refused_in_words(windows: list[Window], index: list[int], text: str) -> None:
    with pytest.raises(BadArgument, match=text):
        cut(np.zeros((3, 4)), windows, index, 64)
