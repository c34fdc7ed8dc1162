"""A layer's values as bytes."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from seams import (
    GAP,
    LEAST,
    MINUS,
    MOST_CELLS,
    NAN,
    PLUS,
    FrameHead,
    Grid,
    Layer,
    LayerFrames,
    Look,
    Network,
    Variable,
    grid_of,
    is_gap,
    message_of,
    net_of,
    parse_frame,
    picture_of,
    wants_of,
)
from seams import (
    MOST_LEVEL as MOST,
)
from studio_stage import Stage

STEPS = MOST - LEAST
NAMES = {"look": 3, "moment": 7, "layer": "conv", "variable": "Act"}


def frame(values: np.ndarray, grid: Grid, **names: Any) -> bytes:
    return message_of(picture_of(values, grid), raster=False, **{"item": 0, **names})


def raster_frame(values: np.ndarray, **names: Any) -> bytes:
    return message_of(picture_of(values, (1, 1, *values.shape), across=False), raster=True, **{"item": 0, **names})


def sent(values: np.ndarray, grid: Grid | None = None) -> tuple[FrameHead, np.ndarray]:
    return parse_frame(frame(values, grid=grid or grid_of(Layer("a", values.shape)), **NAMES))


def shown(head: FrameHead, payload: np.ndarray) -> np.ndarray:
    """The values, as the page makes them again."""
    found = head.lo + (payload.astype(np.float64) - LEAST) / STEPS * (head.hi - head.lo)
    found = np.where(payload > MOST, np.take([np.nan, np.inf, -np.inf], payload.astype(int) - NAN, mode="clip"), found)
    return np.where(payload == 0, np.nan, found)


def test_a_message_has_magic_a_header_and_an_aligned_payload() -> None:
    message = frame(np.arange(6.0), grid=(1, 1, 2, 3), item=2, **NAMES)
    assert message[:4] == b"TCHF"
    length = int.from_bytes(message[4:8], "little")
    header = json.loads(message[8 : 8 + length])
    assert (header["layer"], header["item"], header["count"], header["raster"]) == ("conv", 2, 6, False)
    start = -(-(8 + length) // 8) * 8
    assert message[8 + length : start] == bytes(start - 8 - length)
    assert len(message) == start + 6
    assert list(message[start:]) == [1, 51, 101, 151, 201, 251]


def test_a_name_of_any_letters_keeps_the_payload_in_place() -> None:
    for name in ("", "ж", "🦊" * 5, '"<img onerror=x>', "a\ud800"):
        head, payload = parse_frame(
            frame(np.arange(3.0), grid=(1, 1, 1, 3), look=1, moment=1, layer=name, variable=name)
        )
        assert head.layer == name and list(payload) == [1, 126, 251]


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(np.float64, st.integers(1, 60), elements=st.floats(width=64)))
@example(np.array([5e-324, 0]))
def test_whatever_the_numbers_ends_are_exact_and_the_rest_is_near(values: np.ndarray) -> None:
    head, payload = sent(values)
    payload = payload[: len(values)]
    finite = np.isfinite(values)
    assert 0 not in payload and (payload == NAN).tolist() == np.isnan(values).tolist()
    assert (payload == PLUS).tolist() == (values == np.inf).tolist()
    assert (payload == MINUS).tolist() == (values == -np.inf).tolist()
    assert head.nans == np.isnan(values).sum() and head.infs == np.isinf(values).sum()
    assert head.negative_infs == (values == -np.inf).sum()
    if not finite.any():
        assert (head.lo, head.hi) == (0, 0)
        return
    assert (head.lo, head.hi) == (values[finite].min(), values[finite].max())
    if head.lo == head.hi:
        return
    assert set(payload[values == head.lo]) == {LEAST} and set(payload[values == head.hi]) == {MOST}
    step = (head.hi / 2 - head.lo / 2) / STEPS * 2
    found = head.lo / 2 + (payload[finite].astype(np.float64) - LEAST) / STEPS * (head.hi / 2 - head.lo / 2)
    assert np.all(np.abs(found - values[finite] / 2) <= step * 0.26 + 5e-324)


@pytest.mark.parametrize("scale", [1e-45, 1e-38, 1e-20, 1.0, 1e20, 3e38])
def test_float32_of_any_size_reaches_both_ends(scale: float) -> None:
    values = (np.linspace(-1, 1, 255) * scale).astype(np.float32)
    head, payload = sent(values)
    assert (head.lo, head.hi) == (float(values.min()), float(values.max()))
    assert payload[0] == LEAST and payload[254] == MOST
    assert np.all(np.diff(payload[:255].astype(int)) >= 0)


def test_a_small_range_far_from_zero_is_still_told_apart() -> None:
    values = np.array([1e6, 1e6 + 1, 1e6 + 2], np.float32)
    assert list(sent(values)[1][:3]) == [1, 126, 251]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([True, False, True]), [1.0, 0.0, 1.0]),
        (np.array([0, 5, -5], np.int8), [0, 5, -5]),
        (np.array([0, 2**40, 2**41]), [0, 2**40, 2**41]),
        (np.array([3 + 4j, 0, 0]), [5, 0, 0]),
        (np.array([0, 1, 2], np.float16), [0, 1, 2]),
        (np.array([0, 1, 2], ml_dtypes.bfloat16), [0, 1, 2]),
        (np.array([0, 1, 2], ml_dtypes.float8_e4m3fn), [0, 1, 2]),
    ],
)
def test_numbers_of_any_type_can_be_shown(values: np.ndarray, expected: list[float]) -> None:
    head, payload = sent(values)
    assert np.allclose(shown(head, payload)[:3], expected, rtol=0.01)


def test_constant_empty_and_missing_values() -> None:
    head, payload = sent(np.full(12, 3.5, np.float32))
    assert head.lo == head.hi == 3.5 and 0 not in payload
    head, payload = sent(np.full(12, np.nan, np.float32))
    assert (head.lo, head.hi, head.nans) == (0, 0, 12) and set(payload) == {NAN}
    head, payload = sent(np.array([np.inf, -np.inf, np.nan]))
    assert (head.infs, head.nans, list(payload[:3])) == (2, 1, [PLUS, MINUS, NAN])
    head, payload = sent(np.zeros(0, np.float32))
    assert (head.count, len(payload)) == (0, 0)


def test_cells_without_a_unit_are_empty() -> None:
    head, payload = sent(np.ones(13, np.float32))
    assert head.grid == (1, 1, 4, 4) and list(payload[13:]) == [0, 0, 0] and payload[12] == 1


def test_gaps_are_not_counted_as_bad_numbers() -> None:
    values = np.array([GAP, 1.0, 2.0, np.nan], np.float32)
    head, payload = parse_frame(frame(values, grid=(1, 1, 1, 4), **NAMES))
    assert head.nans == 1 and (head.lo, head.hi) == (1, 2) and list(payload) == [0, LEAST, MOST, NAN]
    head, payload = parse_frame(frame(values[:3], grid=(1, 1, 1, 3), **NAMES))
    assert head.nans == 0 and list(payload) == [0, LEAST, MOST]
    head, _ = parse_frame(raster_frame(np.array([[GAP, np.nan], [1, np.inf]], np.float32), **NAMES))
    assert (head.nans, head.infs) == (1, 1)


def test_what_is_no_data_stays_so_in_blocks_and_of_any_type() -> None:
    values = np.full(1500 * 1501, GAP, np.float32)
    values[0], values[-1] = 1, np.inf
    head, payload = sent(values, (1, 1, 1500, 1501))
    assert head.block != (1, 1) and (head.nans, head.infs, head.negative_infs) == (0, 1, 0)
    assert payload[0] in (LEAST, MOST) and payload[-1] == PLUS and not payload[1:-1].any()
    head, payload = sent(np.array([np.nan, 1.0, -np.inf]), (1, 1, 2, 2))  # float64: its NaN is none of ours
    assert list(payload[:4]) == [NAN, LEAST, MINUS, 0] and (head.lo, head.hi) == (1, 1)


def test_nothing_that_is_computed_is_taken_for_a_gap() -> None:
    zero, most = np.float32(0), np.float32(np.inf)
    with np.errstate(all="ignore"):
        made = np.array(
            [zero / zero, most - most, zero * most, np.sqrt(-np.float32(1)), np.log(-np.float32(1)), np.nan]
        )
    assert np.isnan(made).all() and not is_gap(made.astype(np.float32)).any() and not is_gap(made).any()
    assert is_gap(np.full((2, 3), GAP, np.float32)[:, ::2].reshape(-1).copy()).all()


def test_of_a_large_layer_the_extreme_of_each_block_is_sent() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 1500, 1301)).astype(np.float32)
    values[0, 700, 700], values[1, 1499, 1300], values[0, 3, 3] = -99, 98, np.nan
    head, payload = sent(values.reshape(-1), (1, 2, 1500, 1301))
    down, across = head.block
    assert head.count <= MOST_CELLS and head.nans == 1
    assert head.grid == (1, 2, -(-1500 // down), -(-1301 // across))
    cells = shown(head, payload).reshape(2, *head.grid[2:])
    step = (head.hi - head.lo) / STEPS
    assert (payload == NAN).sum() == 1 and np.isnan(cells[0, 3 // down, 3 // across]), "one among four million is seen"
    for tile, row, column in [(0, 9, 9), (0, 700 // down, 700 // across), (1, -1, -1), (1, 5, 9)]:
        row, column = row % head.grid[2], column % head.grid[3]
        block = values[tile, row * down : (row + 1) * down, column * across : (column + 1) * across].reshape(-1)
        block = block[~np.isnan(block)]
        assert abs(cells[tile, row, column] - block[np.abs(block).argmax()]) <= step * 0.51
    assert (head.lo, head.hi) == (-99, 98)


def test_more_tiles_than_cells_can_be_sent_become_one_plane() -> None:
    values = np.zeros((600_000, 2, 2), np.float32)
    values[599_999, 1, 1] = -5
    grid = grid_of(Layer("a", values.shape))
    head, payload = sent(values.reshape(-1), grid)
    assert head.grid[:2] == (1, 1) and head.count <= MOST_CELLS and head.lo == -5
    assert (payload == 1).sum() == 1


@pytest.mark.timing
@pytest.mark.parametrize("shape", [(5_000_000,), (1024, 70, 70), (5000, 1000), (3, 1300, 1300), (1, 5_000_000)])
def test_five_million_units_make_a_bounded_message_in_a_moment(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    grid = grid_of(Layer("a", shape))
    began = time.process_time()
    message = frame(values, grid=grid, **NAMES)
    assert time.process_time() - began < 0.3
    assert len(message) < 1_100_000
    head, _ = parse_frame(message)
    assert (head.lo, head.hi) == (float(values.min()), float(values.max()))


def test_a_raster_has_a_row_per_unit_and_a_column_per_moment() -> None:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    values[2, 1] = GAP
    head, payload = parse_frame(raster_frame(values, **NAMES))
    assert head.raster and head.grid == (1, 1, 4, 3) and head.nans == 0
    assert payload.reshape(4, 3)[2, 1] == 0 and payload[0] == 1 and payload[-1] == MOST
    long = np.zeros((20_000, 200), np.float32)
    long[19_999, 199] = 7
    head, payload = parse_frame(raster_frame(long, **NAMES))
    assert head.count <= MOST_CELLS and payload[-1] == MOST
    assert head.block == (4, 1) and head.grid[3] == 200, "a column stays a moment"


@pytest.mark.parametrize(("variable", "of"), [("Act", {}), ("r.Wt", {"layer": "Output", "unit": 3})])
def test_a_raster_ends_at_the_moment_looked_at_for_all_layers(variable: str, of: dict[str, Any]) -> None:
    source = Stage(paused=True, states=30)
    assert source.net is not None
    look = Look(1, variable, moment=12, raster=5, **of)
    sent = dict(LayerFrames().messages(source, source.net, look, 12))
    assert all(message is not None and parse_frame(message)[0].raster for message in sent.values())
    head, payload = parse_frame(sent["Hidden2"] or b"")
    found = shown(head, payload).reshape(35, 5)
    clicked = ("Output", 3) if of else None
    for column, moment in enumerate(range(8, 13)):
        said = source.units(moment, "Hidden2", variable, 0, clicked)
        assert np.allclose(found[:, column], said, atol=(head.hi - head.lo) / 250)


def test_every_item_that_somebody_looks_at_is_asked_for() -> None:
    wanted = wants_of([Look(number, "Act", item=item) for number, item in enumerate((3, 5, 3))], None)
    assert (wanted.item, wanted.items) == (3, (3, 5))
    assert wants_of([Look(1, "", item=3)], None).items == (), "a tab that is hidden wants nothing"


@pytest.mark.parametrize(("count", "asked"), [(200, ()), (201, ("1", "2", "3"))], ids=["few layers", "many layers"])
def test_of_a_large_network_only_what_some_page_has_open_is_asked_for(count: int, asked: tuple[str, ...]) -> None:
    net = net_of(Network("n", tuple(Layer(str(number), (2,)) for number in range(count)), variables=(Variable("Act"),)))
    looks = [Look(1, "Act", layers=("1", "2")), Look(2, "Act", layers=("2", "3"))]
    assert wants_of(looks, net).layers == asked
    assert wants_of([*looks, Look(3, "Act")], net).layers == (), "a page without folding shows all"


def test_a_page_is_sent_the_layers_that_it_has_open() -> None:
    source = Stage(paused=True, states=30)
    assert source.net is not None
    name = source.net.layers[1].layer.name
    sent = LayerFrames().messages(source, source.net, Look(1, "Act", layers=(name,)), 12)
    assert [layer for layer, _ in sent] == [name]


def test_a_page_that_shows_small_pictures_is_sent_small_frames_and_others_keep_theirs() -> None:
    source, frames = Stage(paused=True, states=1), LayerFrames()
    look = Look(1, "Act", layers=("Conv",))
    sizes, moment = [], source.moments[-1].id
    assert source.net is not None
    for asked in (look, replace(look, most_cells=64), look):
        ((_, message),) = frames.messages(source, source.net, asked, moment)
        assert message is not None
        sizes.append(parse_frame(message)[1].size)
    assert sizes == [8 * 36, 8 * 6, 8 * 36]
