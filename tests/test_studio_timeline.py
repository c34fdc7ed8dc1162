"""States in memory: how many stay, and which."""

from __future__ import annotations

import numpy as np
import pytest
from seams import Layer, Moment, MomentQueries, Network, Projection, RecordedValue, Timeline, Values, Variable, net_of

NET = net_of(
    Network(
        "net",
        (Layer("in", (4,)), Layer("out", (2, 3))),
        (Projection("w", "in", "out", shape=(6, 4)),),
        (Variable("Act"),),
    )
)


def state(number: int, units: int = 4, batch: int = 2) -> Values:
    values = np.arange(batch * units, dtype=np.float32).reshape(batch, units) + 100 * number
    return {("in", "Act"): RecordedValue(0, values)}


def filled(count: int, **bounds: int) -> tuple[Timeline, list[int]]:
    timeline, gone = Timeline(**bounds), list[int]()
    for number in range(count):
        gone += timeline.add(Moment(number, number * 10), state(number))
    return timeline, gone


def ids(timeline: Timeline) -> list[int]:
    return [moment.id for moment in timeline.moments]


def test_what_came_can_be_asked_for_as_it_came() -> None:
    timeline, gone = filled(3)
    assert ids(timeline) == [0, 1, 2] and gone == []
    value = timeline.value(1, "in", "Act")
    assert value is not None and value.array[1, 3] == 107 and value.array.dtype == np.float32
    assert timeline.value(1, "in", "Grad") is None and timeline.value(9, "in", "Act") is None


def test_no_more_states_stay_than_there_is_room_for_and_those_gone_are_named() -> None:
    timeline, gone = filled(1000, most_states=50)
    assert len(timeline) == 50
    assert sorted(gone + ids(timeline)) == list(range(1000))
    assert timeline.bytes == 50 * 32


def test_old_states_are_thinned_evenly_and_the_newest_are_dense() -> None:
    timeline, _ = filled(2000, most_states=100)
    found = ids(timeline)
    assert found == sorted(found) and found[0] == 0 and found[-20:] == list(range(1980, 2000))
    gaps = np.diff(found[:70])
    assert gaps.max() <= 4 * np.median(gaps)


def test_bytes_are_bounded_and_the_newest_state_always_stays() -> None:
    timeline = Timeline(most_bytes=1000)
    for number in range(100):
        timeline.add(Moment(number, number), state(number))
        assert timeline.bytes <= 1000 and ids(timeline)[-1] == number
    timeline.add(Moment(100, 100), state(100, units=10_000))
    assert ids(timeline) == [100]


def test_a_state_that_is_looked_at_never_goes() -> None:
    timeline = Timeline(most_states=20)
    for number in range(500):
        timeline.add(Moment(number, number), state(number))
        if number == 7:
            timeline.pin({7})
    assert 7 in ids(timeline)
    timeline.pin(set())
    for number in range(500, 1500):
        timeline.add(Moment(number, number), state(number))
    assert len(timeline) == 20 and 7 not in ids(timeline)


def test_when_everything_is_looked_at_everything_stays() -> None:
    timeline = Timeline(most_states=5)
    timeline.pin(set(range(30)))
    for number in range(30):
        assert timeline.add(Moment(number, number), state(number)) == []
    assert len(timeline) == 30


def test_memory_is_flat_over_ten_thousand_states() -> None:
    timeline, gone = filled(10_000, most_bytes=32 * 200)
    assert len(timeline) == 200 and len(gone) == 9800 and timeline.bytes == 32 * 200
    assert sum(len(timeline.values(number)) for number in range(10_000)) == 200


def test_clearing_names_all() -> None:
    timeline, _ = filled(5)
    assert timeline.clear() == [0, 1, 2, 3, 4] and timeline.moments == [] and timeline.bytes == 0


# -- what is answered ------------------------------------------------------------------------------------------------


def answers(timeline: Timeline) -> MomentQueries:
    return MomentQueries(timeline, lambda: NET)


def test_units_of_an_item_come_as_float32() -> None:
    timeline, _ = filled(3)
    found = answers(timeline).units(2, "in", "Act", 1)
    assert found is not None and found.dtype == np.float32 and found.tolist() == [204, 205, 206, 207]


def test_what_is_not_there_is_none() -> None:
    timeline, _ = filled(1)
    ask = answers(timeline)
    for moment, layer, variable, item in [
        (5, "in", "Act", 0), (0, "out", "Act", 0), (0, "ghost", "Act", 0), (0, "in", "Grad", 0), (0, "in", "Act", 2),
        (0, "in", "Act", -1), (0, "in", "r.Wt", 0),
    ]:  # fmt: skip
        assert ask.units(moment, layer, variable, item) is None
    assert ask.units(0, "in", "r.Wt", 0, ("ghost", 3)) is None


def test_a_part_of_the_batch_is_known_by_its_first_item() -> None:
    timeline = Timeline()
    timeline.add(Moment(0, 0), {("in", "Act"): RecordedValue(5, np.arange(8).reshape(2, 4))})
    ask = answers(timeline)
    assert ask.units(0, "in", "Act", 4) is None and ask.units(0, "in", "Act", 7) is None
    found = ask.units(0, "in", "Act", 6)
    assert found is not None and found.tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("shape", [(3, 2, 3), (3, 6), (3, 6, 1, 1)])
def test_units_are_in_c_order_whatever_the_shape_they_came_in(shape: tuple[int, ...]) -> None:
    timeline = Timeline()
    timeline.add(Moment(0, 0), {("out", "Act"): RecordedValue(0, np.arange(18).reshape(shape))})
    found = answers(timeline).units(0, "out", "Act", 2)
    assert found is not None and found.tolist() == [12, 13, 14, 15, 16, 17]


def test_a_value_without_a_batch_is_that_of_every_item() -> None:
    timeline = Timeline()
    timeline.add(Moment(0, 0), {("out", "Act"): RecordedValue(0, np.arange(6).reshape(2, 3))})
    found = answers(timeline).units(0, "out", "Act", 9)
    assert found is not None and found.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_batch_of_fewer_or_more_units_than_the_layer_is_filled_up_or_cut() -> None:
    timeline = Timeline()
    timeline.add(Moment(0, 0), {("in", "Act"): RecordedValue(0, np.array([[1.0, 2.0]]))})
    timeline.add(Moment(1, 1), {("in", "Act"): RecordedValue(0, np.arange(9.0)[None])})
    short, long = answers(timeline).units(0, "in", "Act"), answers(timeline).units(1, "in", "Act")
    assert short is not None and short[:2].tolist() == [1, 2] and np.isnan(short[2:]).all() and len(short) == 4
    assert long is not None and long.tolist() == [0, 1, 2, 3]


def test_a_smaller_or_larger_picture_than_the_layer_keeps_its_rows_and_columns() -> None:
    timeline = Timeline()
    timeline.add(Moment(0, 0), {("out", "Act"): RecordedValue(0, np.array([[[1.0], [2.0]]]))})  # 2×1
    timeline.add(Moment(1, 1), {("out", "Act"): RecordedValue(0, np.arange(20.0).reshape(1, 4, 5))})
    timeline.add(Moment(2, 2), {("out", "Act"): RecordedValue(0, np.arange(5.0)[None])})  # of another network
    small, large = answers(timeline).units(0, "out", "Act"), answers(timeline).units(1, "out", "Act")
    assert small is not None and np.array_equal(small, [1, np.nan, np.nan, 2, np.nan, np.nan], equal_nan=True)
    assert large is not None and large.tolist() == [0, 1, 2, 5, 6, 7]
    assert answers(timeline).units(2, "out", "Act") is None


def test_a_raster_has_the_last_moments_and_gaps_where_one_has_nothing() -> None:
    timeline, _ = filled(5)
    timeline.add(Moment(5, 50), {})
    found = answers(timeline).raster("in", "Act", 1, 3)
    assert found is not None and found.shape == (4, 3)
    assert found[:, 0].tolist() == [304, 305, 306, 307] and np.isnan(found[:, 2]).all()
    assert answers(timeline).raster("out", "Act", 0, 3) is None
    whole = answers(timeline).raster("in", "Act", 0, 100)
    assert whole is not None and whole.shape == (4, 6)
    earlier = answers(timeline).raster("in", "Act", 1, 2, None, 3)
    assert earlier is not None and earlier[0].tolist() == [204, 304], "it ends at the moment that is looked at"


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([[0, 2**53 + 1, 0, 0]]), 2**53 + 1),
        (np.array([[0, 0.1, 0, 0]]), 0.1),
        (np.array([[0, 3 + 4j, 0, 0]], np.complex64), 5.0),
        (np.array([[0, 1.5, 0, 0]], np.float16), 1.5),
        (np.array([[0, 1.5]]), None),  # of another network
    ],
)
def test_an_exact_value_is_the_number_that_came(array: np.ndarray, expected: object) -> None:
    timeline = Timeline()
    timeline.add(Moment(0, 0), {("in", "Act"): RecordedValue(0, array)})
    ask = answers(timeline)
    assert ask.exact(0, "in", "Act", 0, 1) == expected
    assert (
        ask.exact(0, "in", "Act", 0, 4) is ask.exact(0, "in", "Act", 1, 1) is ask.exact(0, "in", "r.Wt", 0, 1) is None
    )
    assert ask.exact(1, "in", "Act", 0, 1) is ask.exact(0, "ghost", "Act", 0, 1) is None


def test_a_trace_follows_a_unit_over_all_moments() -> None:
    timeline, _ = filled(3)
    timeline.add(Moment(3, 30), {("in", "Act"): RecordedValue(0, np.full((2, 4), np.nan, np.float32))})
    found = answers(timeline).trace("in", 2, ("Act", "Grad"), 1)
    assert (found["moments"], found["steps"]) == ([0, 1, 2, 3], [0, 10, 20, 30])
    assert str(found["values"]) == "{'Act': [6.0, 106.0, 206.0, nan], 'Grad': [None, None, None, None]}"
    assert answers(timeline).trace("in", 99, ("Act",))["values"] == {"Act": [None] * 4}
    assert answers(timeline).trace("ghost", 0, ("Act",))["values"] == {"Act": [None] * 4}


def test_with_no_network_there_is_nothing() -> None:
    timeline, _ = filled(1)
    ask = MomentQueries(timeline, lambda: None)
    assert ask.units(0, "in", "Act") is None and ask.raster("in", "Act", 0, 5) is None
