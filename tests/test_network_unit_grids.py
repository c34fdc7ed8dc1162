"""How a layer's units lie on its plane."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seams import Layer, grid_of, is_picture, plane_cells


@pytest.mark.parametrize(
    ("shape", "grid"),
    [
        ((35,), (1, 1, 5, 7)),
        ((25,), (1, 1, 5, 5)),
        ((10,), (1, 1, 1, 10)),
        ((4096,), (1, 1, 64, 64)),
        ((1000,), (1, 1, 25, 40)),
        ((5, 7), (1, 1, 5, 7)),
        ((512, 13, 13), (16, 32, 13, 13)),
        ((64, 55, 55), (8, 8, 55, 55)),
        ((3, 224, 224), (1, 3, 224, 224)),
        ((256, 1, 1), (1, 1, 16, 16)),
        ((4, 5, 2, 3), (4, 5, 2, 3)),
    ],
)
def test_a_shape_reads_as_what_it_is(shape: tuple[int, ...], grid: tuple[int, ...]) -> None:
    assert grid_of(Layer("a", shape)) == grid


@pytest.mark.parametrize(
    ("view", "shape", "grid"),
    [
        ("units", (5, 7), (1, 1, 5, 7)),
        ("units", (4, 4, 4), (1, 1, 8, 8)),
        ("plane", (100,), (1, 1, 1, 100)),
        ("plane", (2, 3, 4), (1, 1, 6, 4)),
        ("maps", (7, 9), (1, 1, 7, 9)),
        ("heads", (12, 64, 64), (3, 4, 64, 64)),
        ("pools", (2, 3, 4, 5), (2, 3, 4, 5)),
        ("pools", (6, 5, 5), (2, 3, 5, 5)),
        ("picture", (3, 20, 30), (2, 2, 20, 30)),
        ("picture", (20, 30, 3), (1, 1, 20, 90)),
        ("nonsense", (35,), (1, 1, 5, 7)),
    ],
)
def test_a_view_that_is_asked_for_is_given(view: str, shape: tuple[int, ...], grid: tuple[int, ...]) -> None:
    assert grid_of(Layer("a", shape, view=view)) == grid


@pytest.mark.parametrize("shape", [(3, 32, 48), (32, 48, 3)])
def test_the_plane_of_a_picture_has_its_aspect(shape: tuple[int, ...]) -> None:
    layer = Layer("a", shape, view="picture")
    wide, deep = plane_cells(layer, grid_of(layer))
    assert wide / deep == pytest.approx(1.5, rel=0.02)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((3, 32, 32), True),
        ((64, 48, 3), True),
        ((1, 28, 28), False),
        ((4, 32, 32), False),
        ((3, 4, 32), False),
        ((3, 32), False),
    ],
)
def test_three_planes_large_enough_are_a_picture(shape: tuple[int, ...], expected: bool) -> None:
    assert is_picture(shape) is expected


def test_a_single_number_is_one_cell_and_an_empty_layer_none() -> None:
    assert grid_of(Layer("a", ())) == (1, 1, 1, 1)
    assert grid_of(Layer("a", (0,))) == (1, 1, 0, 0)
    assert grid_of(Layer("a", (3, 0, 5))) == (1, 1, 0, 0)


def test_a_prime_number_of_units_leaves_few_cells_empty() -> None:
    for count in (13, 97, 997, 104_729):
        _, _, rows, columns = grid_of(Layer("a", (count,)))
        assert count <= rows * columns < count + columns
        assert rows <= columns <= 4 * rows


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, 40), max_size=6).map(tuple),
    st.sampled_from(["auto", "units", "plane", "maps", "heads", "pools", "picture"]),
)
def test_every_unit_has_a_cell_and_no_row_of_tiles_is_empty(shape: tuple[int, ...], view: str) -> None:
    tile_rows, tile_columns, rows, columns = grid_of(Layer("a", shape, view=view))
    cells = rows * columns
    assert tile_rows * tile_columns * cells >= prod(shape)
    if prod(shape):
        assert (tile_rows - 1) * tile_columns * cells < prod(shape)
