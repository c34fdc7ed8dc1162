"""Where the layers of a network stand."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seams import Layer, Net, Network, PlacedLayer, Projection, Variable, net_of

from torcheer.errors import BadArgument


def placed(*layers: Layer, projections: tuple[Projection, ...] = ()) -> Net:
    return net_of(Network("net", layers, projections))


def chain(*names: str) -> tuple[Projection, ...]:
    return tuple(Projection(f"{a}>{b}", a, b) for a, b in pairwise(names))


def touch(a: PlacedLayer, b: PlacedLayer) -> bool:
    return (
        abs(a.place[1] - b.place[1]) < 0.5
        and abs(a.place[0] - b.place[0]) < (a.size[0] + b.size[0]) / 2
        and abs(a.place[2] - b.place[2]) < (a.size[1] + b.size[1]) / 2
    )


def assert_nothing_overlaps(net: Net) -> None:
    for a, b in combinations(net.layers, 2):
        assert not touch(a, b), (a.layer.name, a.place, a.size, b.layer.name, b.place, b.size)


def by_name(net: Net) -> dict[str, PlacedLayer]:
    return {one.layer.name: one for one in net.layers}


def test_layers_are_stacked_with_the_input_at_the_bottom() -> None:
    net = placed(Layer("in", (25,)), Layer("hidden", (35,)), Layer("out", (25,)))
    heights = [one.place[1] for one in net.layers]
    assert heights[0] == 0 and heights == sorted(set(heights))
    assert {(one.place[0], one.place[2]) for one in net.layers} == {(0.0, 0.0)}


def test_a_large_convolution_and_ten_outputs_both_read_well() -> None:
    net = placed(Layer("conv", (512, 13, 13)), Layer("out", (10,)))
    conv, out = net.layers
    assert conv.size[0] > out.size[0] * 0.9
    assert min(out.size) > 0.6 and max(out.size) > 3
    assert out.size[0] / 10 > 20 * conv.size[0] / (32 * 14)  # a unit of the output is much larger than a pixel


def test_all_sizes_have_a_bound() -> None:
    shapes = [(1,), (), (0,), (100_000,), (2000, 4), (4, 2000), (1, 1), (3, 1000, 1000), (1, 300)]
    for one in placed(*(Layer(str(number), shape) for number, shape in enumerate(shapes))).layers:
        assert 0.5 <= min(one.size) and max(one.size) <= 16.01


def test_a_single_unit_is_not_as_large_as_a_layer() -> None:
    hidden, out = placed(Layer("hidden", (5, 7)), Layer("out", (1,))).layers
    assert out.size == (2.0, 2.0) and hidden.size[0] > 9


def test_a_layer_stands_where_it_says() -> None:
    net = placed(Layer("a", (9,)), Layer("b", (9,), place=(30.0, 2.0, -7.0)), Layer("c", (9,)))
    assert by_name(net)["b"].place == (30.0, 2.0, -7.0)
    assert by_name(net)["c"].place[1] > by_name(net)["a"].place[1]


@pytest.mark.parametrize(
    ("relation", "axis", "sign"),
    [("right", 0, 1), ("left", 0, -1), ("above", 1, 1), ("below", 1, -1), ("behind", 2, -1), ("front", 2, 1)],
)
def test_a_layer_stands_beside_another(relation: str, axis: int, sign: int) -> None:
    net = placed(Layer("a", (25,)), Layer("b", (5, 40), relation=relation, other="a"))
    a, b = net.layers
    assert (b.place[axis] - a.place[axis]) * sign > 0
    assert all(b.place[other] == a.place[other] for other in range(3) if other != axis)
    assert_nothing_overlaps(net)


def test_two_layers_on_the_same_side_stand_one_behind_the_other() -> None:
    net = placed(
        Layer("a", (25,)),
        Layer("b", (25,), relation="right", other="a"),
        Layer("c", (25,), relation="right", other="a"),
    )
    assert_nothing_overlaps(net)
    assert by_name(net)["c"].place[0] > by_name(net)["b"].place[0]


def test_a_layer_beside_a_long_stack_stays_next_to_its_own() -> None:
    layers = [Layer(str(number), (9,)) for number in range(40)]
    layers += [
        Layer("weights", (9,), relation="right", other="3"),
        Layer("more", (9,), relation="right", other="weights"),
    ]
    net = placed(*layers)
    found = by_name(net)
    assert found["3"].place[0] < found["weights"].place[0] < found["more"].place[0] < found["39"].place[0]
    assert found["3"].place[0] == found["2"].place[0]  # and nothing is pushed off the axis
    assert_nothing_overlaps(net)


def test_relations_in_a_circle_or_to_nobody_are_stacked() -> None:
    net = placed(
        Layer("a", (4,), relation="right", other="b"), Layer("b", (4,), relation="left", other="a"),
        Layer("c", (4,), relation="right", other="nobody"), Layer("d", (4,), relation="nowhere", other="a"),
    )  # fmt: skip
    assert len({one.place for one in net.layers}) == 4
    assert_nothing_overlaps(net)


def test_branches_stand_side_by_side() -> None:
    projections = (*chain("in", "left", "out"), *chain("in", "right", "out"))
    net = by_name(placed(*(Layer(name, (9,)) for name in ("in", "left", "right", "out")), projections=projections))
    assert net["left"].place[1] == net["right"].place[1]
    assert net["left"].place[0] < net["in"].place[0] < net["right"].place[0]
    assert net["out"].place[1] > net["left"].place[1] > net["in"].place[1]


def test_a_skip_connection_does_not_move_a_layer_aside() -> None:
    projections = (*chain("in", "a", "b", "out"), Projection("skip", "in", "out", type="skip"))
    net = placed(*(Layer(name, (9,)) for name in ("in", "a", "b", "out")), projections=projections)
    assert len({one.place[0] for one in net.layers}) == 1 and len({one.place[1] for one in net.layers}) == 4


def test_a_recurrent_connection_does_not_turn_the_stack_around() -> None:
    projections = (*chain("in", "hidden", "out"), Projection("back", "out", "hidden"), Projection("self", "in", "in"))
    net = placed(*(Layer(name, (9,)) for name in ("in", "hidden", "out")), projections=projections)
    assert [one.place[1] for one in net.layers] == sorted(one.place[1] for one in net.layers)


def test_a_second_input_stands_just_below_what_it_feeds() -> None:
    projections = (*chain("in", "a", "b", "c"), Projection("label", "label", "c"))
    net = by_name(placed(*(Layer(name, (9,)) for name in ("in", "a", "b", "label", "c")), projections=projections))
    assert net["label"].place[1] == net["b"].place[1] != net["in"].place[1]


def test_a_layer_that_no_projection_mentions_stands_between_its_neighbours() -> None:
    net = placed(*(Layer(name, (9,)) for name in ("in", "relu", "out")), projections=chain("in", "out"))
    assert [one.place[1] for one in net.layers] == [0.0, 4.0, 8.0]


@pytest.mark.parametrize("count", [15, 50, 152, 1000])
def test_a_long_network_is_no_needle(count: int) -> None:
    net = placed(*(Layer(str(number), (64, 8, 8)) for number in range(count)))
    wide = max(one.place[0] + one.size[0] / 2 for one in net.layers) - min(
        one.place[0] - one.size[0] / 2 for one in net.layers
    )
    high = max(one.place[1] for one in net.layers)
    assert 1 / 3 < wide / high < 3
    if count < 200:
        assert_nothing_overlaps(net)


def test_eighty_branches_do_not_make_a_wall() -> None:
    names = [f"head{number}" for number in range(80)]
    projections = tuple(one for name in names for one in chain("in", name, "out"))
    net = placed(*(Layer(name, (9,)) for name in ("in", *names, "out")), projections=projections)
    assert_nothing_overlaps(net)
    assert max(one.place[0] for one in net.layers) < 60


def test_weights_are_shown_as_those_of_the_selected_unit() -> None:
    variables = (Variable("Act"), Variable("Wt", "weight"))
    network = Network("n", (Layer("a", (2,)), Layer("b", (3,))), chain("a", "b"), variables)
    assert [one.name for one in net_of(network).variables] == ["Act", "r.Wt", "s.Wt", "r.DWt", "s.DWt"]
    without = Network("n", network.layers, (Projection("p", "a", "b", kind=""),), variables)
    assert [one.name for one in net_of(without).variables] == ["Act"]


def test_a_projection_of_a_layer_that_is_not_there_is_left_out_and_a_name_counts_once() -> None:
    net = placed(Layer("a", (2,)), Layer("a", (5,)), projections=chain("a", "ghost"))
    assert [one.units for one in net.layers] == [2] and net.projections == ()


def test_absurd_layers_are_refused() -> None:
    for shape in ((-3,), (1 << 20, 1 << 20)):
        with pytest.raises(BadArgument, match="layer 'a' has the shape"):
            placed(Layer("a", shape))


def test_no_layers_at_all_are_no_problem() -> None:
    assert placed().layers == ()


RELATIONS = st.sampled_from(["", "", "", "right", "above", "behind", "left"])
SHAPES = st.lists(st.integers(0, 30), max_size=4).map(tuple)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_the_graph_no_two_layers_overlap(data: st.DataObject) -> None:
    names = [f"l{number}" for number in range(data.draw(st.integers(1, 24)))]
    some = st.sampled_from(names)
    layers = [
        Layer(
            name, data.draw(SHAPES), relation=data.draw(RELATIONS), other=data.draw(some),
        )
        for name in names
    ]  # fmt: skip
    edges = data.draw(st.lists(st.tuples(some, some), max_size=30))
    net = placed(*layers, projections=tuple(Projection(f"p{n}", a, b) for n, (a, b) in enumerate(edges)))
    assert len(net.layers) == len(names)
    assert_nothing_overlaps(net)
