"""An array as a frame: colours, shapes, types, text."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from children import run_python
from hypothesis import example, given, settings
from hypothesis import strategies as some
from seams import (
    CALM,
    DTYPES,
    MODES,
    MOST_NUMBERS,
    Caption,
    Room,
    Running,
    Scale,
    draw,
    frame_plots,
    frame_text,
    label,
    numbers,
    palette,
    project,
    round_up,
)
from seams import kind_of_frame as kind_of

from torcheer.errors import BadArgument, TorcheerError

PLAIN = (100, 100)  # a frame this small has no text: one pixel of margin, then the picture
RANDOM = np.random.default_rng(0)


def cells(frame: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The colours in the middle of a heat map's cells, on a frame without text."""
    room = Room(1, 1, frame.shape[1] - 1, frame.shape[0] - 1)
    side = frame_plots.matrix_side((rows, columns), room)
    top, left = frame_plots.even(1 + (room.height - side[0]) // 2), frame_plots.even(1 + (room.width - side[1]) // 2)
    y = top + ((np.arange(rows) + 0.5) * side[0] / rows).astype(int)
    x = left + ((np.arange(columns) + 0.5) * side[1] / columns).astype(int)
    return frame[y[:, None], x]


def numbers_in(colours: np.ndarray, scale: Scale) -> np.ndarray:
    """The numbers that colours stand for: the nearest place in the table."""
    table = palette.table(scale.signed)[: palette.STEPS].astype(int)
    place = ((colours[..., None, :].astype(int) - table) ** 2).sum(-1).argmin(-1)
    return scale.low + place / (palette.STEPS - 1) * (scale.high - scale.low)


def ink(frame: np.ndarray) -> np.ndarray:
    """Where a frame is not paper."""
    return (frame != 255).any(-1)


def lightness(colours: np.ndarray) -> np.ndarray:
    """How light colours are to any eye: CIE L*, near enough."""
    linear = (colours / 255.0) ** 2.2
    return np.cbrt(linear @ np.array([0.2126, 0.7152, 0.0722]))


# Colours


def test_the_colours_of_nonnegative_numbers_grow_lighter_so_that_any_eye_can_order_them() -> None:
    assert (np.diff(lightness(palette.table(False)[: palette.STEPS])) > 0).all()


def test_the_colours_of_signed_numbers_are_lightest_at_zero_and_fall_alike_on_both_sides() -> None:
    light = lightness(palette.table(True)[: palette.STEPS])
    middle = palette.STEPS // 2
    assert light.argmax() == middle
    assert (np.diff(light[:middle]) > 0).all() and (np.diff(light[middle:]) < 0).all()
    assert np.abs(light - light[::-1]).max() < 0.06


def test_cold_and_warm_stay_apart_for_those_who_see_no_red_or_no_green() -> None:
    table = palette.table(True).astype(float)
    ends = np.array([table[20], table[palette.STEPS - 21]])
    blue_minus_yellow = ends[:, 2] - ends[:, :2].mean(1)  # what they do see
    assert blue_minus_yellow[0] > 60 and blue_minus_yellow[1] < -20


@pytest.mark.parametrize("signed", [False, True])
def test_what_is_not_finite_has_a_colour_of_no_number(signed: bool) -> None:
    table = palette.table(signed)[: palette.STEPS].astype(int)
    for colour in (palette.NAN, palette.INFINITE):
        assert np.abs(table - np.array(colour)).sum(1).min() > 90


def test_zero_is_the_middle_colour_and_not_a_number_is_pink_and_infinity_black() -> None:
    matrix = np.array([[-2.0, 0.0], [np.nan, np.inf]])
    found = cells(draw(matrix, size=PLAIN), 2, 2)
    table = palette.table(True)
    assert (found[0, 0] == table[0]).all()
    assert (found[0, 1] == table[palette.STEPS // 2]).all()
    assert tuple(found[1, 0]) == palette.NAN and tuple(found[1, 1]) == palette.INFINITE


def test_every_cell_of_a_heat_map_has_the_colour_of_its_number() -> None:
    matrix, running = RANDOM.normal(size=(12, 9)), Running()
    frame = draw(matrix, size=PLAIN, running=running)
    scale = running.values
    assert np.abs(numbers_in(cells(frame, 12, 9), scale) - matrix).max() <= (scale.high - scale.low) / palette.STEPS


def test_one_times_width_times_height_is_drawn_as_the_matrix_it_is() -> None:
    matrix = RANDOM.normal(size=(5, 7))
    assert (draw(matrix[None], size=PLAIN) == draw(matrix, size=PLAIN)).all()


@pytest.mark.parametrize("place", [(0, 0), (499, 699), (123, 456), (250, 1)])
@pytest.mark.parametrize("mark", [np.nan, np.inf, -np.inf])
def test_a_reduced_matrix_never_hides_what_is_not_finite(place: tuple[int, int], mark: float) -> None:
    matrix = RANDOM.normal(size=(500, 700))
    matrix[place] = mark
    colour = palette.NAN if np.isnan(mark) else palette.INFINITE
    assert (draw(matrix, size=PLAIN) == np.array(colour)).all(-1).any()


@pytest.mark.parametrize("shape", [(1, 1000), (1000, 3), (3, 1000), (2, 2), (640, 480), (479, 641), (5000, 7)])
def test_a_matrix_of_any_form_fills_at_least_a_quarter_of_the_room_each_way(shape: tuple[int, int]) -> None:
    room = Room(0, 0, 500, 400)
    high, wide = frame_plots.matrix_side(shape, room)
    assert 100 <= high <= 400 and 125 <= wide <= 500


# Tiles


def test_every_tile_is_a_map_of_the_first_item() -> None:
    maps = np.arange(24.0)[None, :, None, None] * np.ones((3, 1, 6, 6))
    maps[1:] = -77  # other items are not shown
    running = Running()
    frame = draw(maps, size=(150, 110), running=running)
    columns, rows, (below, beside), (high, wide) = frame_plots.grid(24, (6, 6), Room(1, 1, 149, 109))
    top = frame_plots.even(1 + (108 - (rows * (high + below) - below)) // 2)
    left = frame_plots.even(1 + (148 - (columns * (wide + beside) - beside)) // 2)
    for index in range(24):
        y, x = top + index // columns * (high + below), left + index % columns * (wide + beside)
        tile = frame[y : y + high, x : x + wide]
        assert (tile == tile[0, 0]).all()
        assert abs(numbers_in(tile[0, 0], running.values) - index) < 0.1


def test_the_place_after_the_last_map_is_blank() -> None:
    frame = np.full((100, 150, 3), 255, np.uint8)
    frame_plots.tiles(frame, Room(0, 0, 150, 100), np.ones((5, 4, 4)), Scale(0, 1))
    assert ink(frame[10:40, 110:140]).all() and not ink(frame[62:84, 110:130]).any()


def test_maps_that_do_not_fit_are_counted() -> None:
    frame, room = np.full((480, 640, 3), 255, np.uint8), Room(0, 0, 500, 400)
    assert frame_plots.tiles(frame, room, RANDOM.normal(size=(96, 27, 27)), Scale(-3, 3, True)) == "96 maps"
    note = frame_plots.tiles(frame, room, RANDOM.normal(size=(5000, 7, 7)), Scale(-3, 3, True))
    assert note.endswith(" of 5000 maps") and 500 < int(note.split()[0]) < 2000
    assert "300×400 shown as" in frame_plots.tiles(frame, room, RANDOM.normal(size=(6, 300, 400)), Scale(-3, 3, True))


@given(some.integers(1, 3000), some.integers(1, 300), some.integers(1, 300), some.integers(60, 640))
@settings(max_examples=100, deadline=None)
def test_tiles_of_any_size_stay_inside_their_room(many: int, high: int, wide: int, room: int) -> None:
    columns, rows, gap, side = frame_plots.grid(many, (high, wide), Room(0, 0, room, room * 3 // 4))
    assert 1 <= columns <= many and rows >= 1
    for count, length, between, most in zip((rows, columns), side, gap, (room * 3 // 4, room)):
        assert count * (length + between) - between <= most
        assert count == 1 or (length + between) % 2 == 0  # each begins at an even pixel


# Histograms, points, numbers


def test_a_histograms_bars_are_the_shares_of_the_numbers() -> None:
    shares = frame_plots.shares(np.array([0.1, 0.1, 0.6, 0.9, np.nan, np.inf]), Scale(0, 1), 4)
    assert shares.tolist() == [0.5, 0, 0.25, 0.25]


@pytest.mark.parametrize(("low", "high"), [(0, 3), (-7, 7), (0, 60), (100, 140)])
def test_whole_numbers_get_a_bar_each(low: int, high: int) -> None:
    values = np.arange(low, high + 1, dtype=np.float64)
    assert (frame_plots.shares(values, Scale(low, high), high - low + 1) == 1 / len(values)).all()


def test_a_share_too_small_for_a_pixel_is_still_seen() -> None:
    frame = np.full((50, 100, 3), 255, np.uint8)
    frame_plots.bars(frame, Room(0, 0, 100, 50), np.array([1.0, 1e-9, 0.0, 0.5]))
    assert ink(frame).sum(0)[[10, 35, 60, 85]].tolist() == [50, 1, 0, 25]


def test_a_projection_keeps_groups_apart_and_does_not_turn_over_between_frames() -> None:
    centre = RANDOM.normal(size=20) * 10
    rows = RANDOM.normal(size=(40, 20)) + np.where(np.arange(40) < 20, 1, -1)[:, None] * centre
    placed, axes, parts = project(rows, None)
    assert (placed[:20, 0].max() < placed[20:, 0].min()) or (placed[20:, 0].max() < placed[:20, 0].min())
    assert parts[0] > 0.9
    turned, _, _ = project(rows, -axes)
    assert np.allclose(turned, -placed)


def test_a_single_number_draws_how_it_went() -> None:
    running = Running()
    for value in (3.0, 2.0, np.nan, 1.0, 0.5):
        frame = draw(np.float32(value), running=running)
    assert list(running.past)[-2:] == [1.0, 0.5]
    assert (frame == np.array(palette.ACCENT)).all(-1).sum() > 100


# Types and shapes


@pytest.mark.parametrize("name", [name for name, row in DTYPES.items() if row.numbers == 1])
def test_every_type_has_a_picture(name: str) -> None:
    import ml_dtypes

    kind = np.dtype(getattr(ml_dtypes, name, name))
    matrix = np.array([[1, 2], [4, 0.5 if kind.kind in "V" else 1]]).astype(kind)
    running = Running()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = draw(matrix, size=PLAIN, running=running)
    wanted = np.abs(matrix).astype(np.float64)
    scale = running.values
    assert np.abs(numbers_in(cells(frame, 2, 2), scale) - wanted).max() <= (scale.high - scale.low) / palette.STEPS


def test_of_complex_numbers_the_magnitude_is_drawn() -> None:
    assert (draw(np.array([[3 + 4j, -1j]]), size=PLAIN) == draw(np.array([[5.0, 1.0]]), size=PLAIN)).all()


@pytest.mark.parametrize(
    "array",
    [
        np.array([[1e308, -1e308]]), np.array([[5e-324, 1e-323], [0, 0]]), np.full((3, 3), np.nan), np.zeros((4, 4)),
        np.full((2, 2), -np.inf), np.array([[2**64 - 1, 0]], np.uint64), np.array([[-(2**63), 2**63 - 1]]),
        np.array([[1e300 + 1e300j, 1j]]), np.float64(np.nan), np.array(True), np.full((3, 3), 7), np.zeros((0, 4)),
        np.array([[np.finfo(np.float16).max, np.nan]], np.float16), np.array([[1, np.inf]], np.complex64),
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("mode", MODES)
def test_no_number_is_too_odd(array: np.ndarray, mode: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (PLAIN, (320, 240)):
            assert draw(array, size=size, mode=mode).shape == (size[1], size[0], 3)


@pytest.mark.parametrize("size", [3.4e38, 3e38, 1e30, 1.0, 1e-30, 1e-37, 1e-44])
def test_a_number_of_any_size_has_its_colour_and_its_bar(size: float) -> None:
    values = np.array([[-size, -size / 2, 0, size / 2, size]], np.float32)  # a mask often has the smallest of all
    scale = Scale()
    scale.follow(float(values.min()), float(values.max()))
    part = (values.astype(np.float64) - scale.low) / (scale.high - scale.low)
    assert abs(palette.places(values, scale.low, scale.high) - part * (palette.STEPS - 1)).max() <= 0.6
    bars = np.bincount(np.minimum(part[0] * 7, 6).astype(int), minlength=7) / 5
    assert (frame_plots.shares(values, scale, 7) == bars).all()


def test_two_floats_that_make_a_magnitude_no_float_holds_are_not_infinite() -> None:
    _, facts = numbers(np.full((2, 2), 3e38 + 3e38j, np.complex64))
    assert facts.infs == 0 and facts.maximum == pytest.approx(3e38 * 2**0.5)


@given(some.lists(some.integers(0, 9), max_size=6), some.sampled_from(MODES), some.booleans())
@settings(max_examples=150, deadline=None)
def test_every_shape_has_a_picture_in_every_mode(shape: list[int], mode: str, batch: bool) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 5
    frame = draw(array, size=(200, 150), mode=mode, batch=batch)
    assert frame.shape == (150, 200, 3) and frame.dtype == np.uint8 and frame.flags.writeable


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((8, 8), "heat"), ((1, 8, 8), "heat"), ((1, 1, 8, 8), "heat"), ((64, 512, 1, 1), "heat"), ((3, 8, 8), "tiles"),
        ((4, 3, 8, 8), "tiles"), ((9,), "histogram"), ((1, 9), "histogram"), ((9, 1), "histogram"), ((), "number"),
        ((1,), "number"), ((2, 3, 4, 5, 6), "histogram"), ((0, 3), "empty"), ((3, 0, 5), "empty"),
    ],
)  # fmt: skip
def test_the_shape_decides_what_is_drawn(shape: tuple[int, ...], kind: str) -> None:
    assert kind_of(shape) == kind


def test_an_unknown_mode_is_refused_with_those_there_are() -> None:
    with pytest.raises(BadArgument, match="no mode of pictures named 'heatmap'; known are auto, heat, tiles"):
        draw(np.zeros(3), mode="heatmap")


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(BadArgument, match="has no picture; numbers have"):
        draw(np.array(["a", "b"]))


def test_a_huge_array_is_reduced_and_says_so() -> None:
    huge = np.zeros((1, 2**26), np.int8)  # 64 MiB; as float64 it would take half a gigabyte
    values, facts = numbers(huge)
    assert values.size <= MOST_NUMBERS and facts.every == 8 and facts.shape == huge.shape
    with_note, without = (draw(array) for array in (huge, np.zeros((1, 2**12), np.int8)))
    assert ink(with_note)[:60].sum() > ink(without)[:60].sum() + 100  # "every 8th number"


def test_a_huge_matrix_keeps_its_form() -> None:
    values, facts = numbers(np.zeros((8000, 4000), np.int8))
    assert values.shape == (4000, 2000) and facts.every == 4


def test_torch_tensors_are_drawn_without_importing_torch_here() -> None:
    import torch

    matrix = torch.randn(6, 6)
    wanted = draw(matrix.numpy(), size=PLAIN)
    for tensor in (matrix, torch.nn.Parameter(matrix), matrix.to_sparse(), matrix.T.contiguous().T):
        assert (draw(tensor, size=PLAIN) == wanted).all()
    for kind in (torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool, torch.complex64):
        assert draw(matrix.to(kind), size=PLAIN).shape == (100, 100, 3)
    assert draw(matrix.to(torch.complex64).conj(), size=PLAIN).shape == (100, 100, 3)


def test_the_pictures_need_no_torch() -> None:
    code = """
import sys, numpy
from torcheer.video import array_frames as pictures, videos as video
from torcheer.inspector import data_recorder as recorder
pictures.draw(numpy.eye(3), pictures.Caption("a", "b", "c"))
print("torch" in sys.modules, "av" in sys.modules)
"""
    found = run_python("-c", code)
    assert found.stdout.split() == ["False", "False"]


# Text


def test_another_step_changes_the_title_line_and_nothing_else() -> None:
    matrix = RANDOM.normal(size=(8, 8))
    first, second = (draw(matrix, Caption("conv", f"step {step}", "epoch:3")) for step in (1, 2))
    changed = np.argwhere((first != second).any(-1))
    assert len(changed) and changed[:, 0].max() < 35 and changed[:, 1].min() > 320


def test_messages_and_counts_are_drawn() -> None:
    matrix = RANDOM.normal(size=(8, 8))
    plain = draw(matrix, Caption("conv", "step 1"))
    assert ink(draw(matrix, Caption("conv", "step 1", "epoch:3")))[30:55].sum() > ink(plain)[30:55].sum()
    matrix[0, 0] = np.nan
    assert ink(draw(matrix, Caption("conv", "step 1")))[30:55].sum() > ink(plain)[30:55].sum()


@pytest.mark.parametrize("size", [(640, 480), (320, 240), (160, 120), (1280, 200), (200, 1000)])
def test_long_names_are_cut_before_the_edge(size: tuple[int, int]) -> None:
    long = "module.backbone.stage.block." * 40
    frame = draw(RANDOM.normal(size=(8, 8)), Caption(long + "a\nb", "step " + "9" * 200, long), size=size)
    filled = ink(frame)
    assert not filled[:, :4].any() and not filled[:, -4:].any() and not filled[:3].any() and not filled[-2:].any()


def test_a_text_that_is_cut_says_so_and_one_that_fits_is_left_alone() -> None:
    assert frame_text.fit("features.3", 12, 500) == "features.3"
    cut = frame_text.fit("features.3.weight_grad", 12, 80)
    assert cut.endswith("…") and cut.startswith("feat") and frame_text.width(cut, 12) <= 80
    assert frame_text.fit("features", 12, 3) == ""
    assert frame_text.plain("a\nb\x00c\u202e") == "a b c "


def test_there_is_text_on_a_machine_without_our_font(monkeypatch: pytest.MonkeyPatch) -> None:
    frame_text.font.cache_clear()
    monkeypatch.setattr(frame_text, "FONTS", Path("/nowhere"))
    assert ink(draw(np.zeros((0,)), Caption("conv · output", "step 1")))[:40].sum() > 200
    frame_text.font.cache_clear()


def test_without_pillow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    frame_text.font.cache_clear()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(TorcheerError, match=r"pip install 'torcheer\[all\]'"):
        draw(np.eye(3), Caption("conv", "step 1"))


@pytest.mark.parametrize("size", [(16, 16), (17, 300), (159, 119), (160, 120), (161, 121), (641, 481), (1920, 1080)])
@pytest.mark.parametrize("shape", [(40, 60), (9, 30, 30), (1000,), ()])
def test_frames_of_any_size_hold_a_picture(size: tuple[int, int], shape: tuple[int, ...]) -> None:
    running = Running()
    for _ in range(2):
        frame = draw(RANDOM.normal(size=shape), size=size, running=running)
    assert frame.shape == (size[1], size[0], 3)
    assert ink(frame).any() or shape == ()


# Ranges


def test_a_range_grows_at_once_to_a_round_number_and_then_stays() -> None:
    scale = Scale()
    scale.follow(-0.37, 0.2)
    assert (scale.low, scale.high) == (-0.4, 0.4)
    for _ in range(100):
        scale.follow(-0.2, 0.39)
    assert (scale.low, scale.high) == (-0.4, 0.4)
    scale.follow(0, 0.41)
    assert (scale.low, scale.high) == (-0.5, 0.5)


def test_a_range_shrinks_only_when_many_frames_need_far_less() -> None:
    scale = Scale()
    scale.follow(0, 100)
    for _ in range(CALM - 1):
        scale.follow(0, 1)
    assert scale.high == 100
    scale.follow(0, 1.9)
    assert scale.high == 2.0
    scale.follow(0, 100)
    for _ in range(3 * CALM):
        scale.follow(0, 1)
        scale.follow(0, 60)
    assert scale.high == 100


def test_numbers_far_from_zero_get_a_range_of_their_own() -> None:
    scale = Scale()
    scale.follow(0.99, 1.02)
    assert 0.9 < scale.low <= 0.99 and 1.02 <= scale.high < 1.1


def test_a_first_frame_of_zeros_leaves_the_range_to_the_next() -> None:
    scale = Scale()
    scale.follow(0, 0)
    scale.follow(0, 0.013)
    assert scale.high == 0.015


ends = some.floats(allow_nan=False, allow_infinity=False)


@given(some.lists(some.tuples(ends, ends), min_size=1, max_size=60))
@example([(0.0, 5e-324)])
@settings(max_examples=200, deadline=None)
def test_a_range_holds_every_frame_and_zero_is_in_the_middle_of_a_signed_one(frames: list[tuple[float, float]]) -> None:
    scale = Scale()
    for frame in frames:
        scale.follow(min(frame), max(frame))
        assert scale.low <= min(frame) and max(frame) <= scale.high
        assert not scale.signed or scale.low == -scale.high


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (1, "1"), (-1.5, "−1.5"), (1234, "1234"), (123456, "1.23e5"), (-1e-7, "−1e-7"), (0.1 + 0.2, "0.3")],
)
def test_labels_are_short(number: float, text: str) -> None:
    assert label(number) == text


@given(some.floats(min_value=1e-300, max_value=1e300))
def test_a_round_number_is_not_smaller_and_at_most_half_as_large_again(number: float) -> None:
    assert number <= round_up(number) <= number * 1.5001


def test_two_frames_of_one_video_give_a_number_the_same_colour() -> None:
    running = Running()
    first = np.array([[1.0, 0.0], [-0.3, 0.2]])
    second = np.array([[0.5, 0.0], [-0.3, 0.2]])
    one, two = (cells(draw(matrix, size=PLAIN, running=running), 2, 2) for matrix in (first, second))
    assert (one[1] == two[1]).all() and (one[0, 0] != two[0, 0]).any()
