"""The weights of a clicked unit, against what torch computes with them."""

from __future__ import annotations

import itertools
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from seams import (
    Host,
    Layer,
    LayerProbes,
    LiveSource,
    Moment,
    MomentQueries,
    Network,
    Part,
    Projection,
    RecordedValue,
    Timeline,
    Wants,
    into,
    net_of,
    out_of,
)
from torch import nn
from waiting import wait_until

torch.manual_seed(0)


def check(
    projection: Projection, weight: torch.Tensor, sender: tuple[int, ...], receiver: tuple[int, ...], module: Any,
    bias: Any = None, count: int = 12,
) -> None:  # fmt: skip
    """Weights into a unit times what is sent, plus its bias, is what the unit computes; those out of a unit agree."""
    source, target = Layer("s", sender), Layer("r", receiver)
    part = Part(weight.detach().numpy(), True)
    x = torch.randn(1, *sender)
    with torch.no_grad():
        y = module(x).reshape(-1).numpy()
    sent = x.reshape(-1).numpy()
    units = np.random.default_rng(0).choice(prod(receiver), min(count, prod(receiver)), replace=False)
    for unit in units:
        row = into(projection, part, target, source, int(unit))
        assert row is not None and row.shape == (prod(sender),)
        there = ~np.isnan(row)
        add = 0.0 if bias is None else float(bias(int(unit)).detach())
        assert (row[there].astype(np.float64) @ sent[there]) + add == pytest.approx(y[unit], abs=2e-5)
        for other in np.random.default_rng(1).choice(prod(sender), min(8, prod(sender)), replace=False):
            column = out_of(projection, part, target, source, int(other))
            assert column is not None and column.shape == (prod(receiver),)
            assert np.array_equal(column[unit], row[other], equal_nan=True)


def test_a_matrix() -> None:
    layer = nn.Linear(12, 7)
    check(Projection("w", "s", "r", shape=(7, 12)), layer.weight, (12,), (7,), layer, lambda unit: layer.bias[unit])


def test_a_matrix_between_layers_of_rows_and_columns_and_pools() -> None:
    layer = nn.Linear(24, 16)
    module = nn.Sequential(nn.Flatten(), layer)
    for sender, receiver in [((2, 3, 4), (4, 4)), ((24,), (2, 2, 2, 2)), ((4, 6), (16,))]:
        check(
            Projection("w", "s", "r", shape=(16, 24)),
            layer.weight,
            sender,
            receiver,
            module,
            lambda unit: layer.bias[unit],
        )


def test_a_matrix_that_serves_every_token() -> None:
    layer = nn.Linear(6, 5)
    check(
        Projection("w", "s", "r", shape=(5, 6)), layer.weight, (4, 6), (4, 5), layer, lambda unit: layer.bias[unit % 5]
    )


CONVOLUTIONS = [
    (stride, padding, dilation, groups, kernel)
    for stride, padding, dilation, groups, kernel in itertools.product(
        (1, 2, 3), (0, 1, 2), (1, 2), (1, 2), ((3, 3), (1, 1), (2, 3))
    )
]


@pytest.mark.parametrize("settings", CONVOLUTIONS, ids=lambda one: "s{}p{}d{}g{}k{}".format(*one).replace(" ", ""))
def test_a_convolution_of_any_stride_padding_dilation_and_groups(settings: Any) -> None:
    stride, padding, dilation, groups, kernel = settings
    layer = nn.Conv2d(4, 6, kernel, stride, padding, dilation, groups)
    sender = (4, 8, 9)
    receiver = tuple(layer(torch.zeros(1, *sender)).shape[1:])
    projection = Projection(
        "w",
        "s",
        "r",
        "conv",
        tuple(layer.weight.shape),
        layer.stride,
        layer.padding,
        layer.dilation,
        groups,  # type: ignore[arg-type]
    )
    per_map = prod(receiver[1:])
    check(projection, layer.weight, sender, receiver, layer, lambda unit: layer.bias[unit // per_map], count=6)


@pytest.mark.parametrize(
    ("layer", "sender"),
    [
        (nn.Conv1d(3, 5, 4, stride=2, padding=3), (3, 17)),
        (nn.Conv3d(2, 4, (3, 2, 1), stride=(1, 2, 3), padding=(1, 0, 2)), (2, 4, 5, 6)),
        (nn.Conv2d(6, 6, 3, padding=1, groups=6), (6, 5, 5)),
        (nn.Conv2d(2, 3, (2, 4), padding="same"), (2, 6, 7)),
        (nn.Conv2d(2, 3, 5, stride=4, padding=(2, 0), dilation=(1, 2)), (2, 11, 23)),
    ],
)
def test_convolutions_of_other_kinds(layer: Any, sender: tuple[int, ...]) -> None:
    receiver = tuple(layer(torch.zeros(1, *sender)).shape[1:])
    padding = layer.padding
    if padding == "same":
        padding = tuple(by * (length - 1) // 2 for by, length in zip(layer.dilation, layer.kernel_size))
    projection = Projection(
        "w", "s", "r", "conv", tuple(layer.weight.shape), layer.stride, padding, layer.dilation, layer.groups
    )
    per_map = prod(receiver[1:])
    check(projection, layer.weight, sender, receiver, layer, lambda unit: layer.bias[unit // per_map], count=20)


def test_one_number_for_stride_stands_for_all_and_none_for_the_usual() -> None:
    layer = nn.Conv2d(2, 3, 3)
    projection = Projection("w", "s", "r", "conv", (3, 2, 3, 3), (1,), (), ())
    check(projection, layer.weight, (2, 6, 6), (3, 4, 4), layer, lambda unit: layer.bias[unit // 16])


def test_a_row_or_column_that_was_sent_alone_gives_the_same() -> None:
    linear = torch.randn(5, 6).numpy()
    projection, s, r = Projection("w", "s", "r", shape=(5, 6)), Layer("s", (6,)), Layer("r", (5,))
    whole = Part(linear, True)
    for unit in range(5):
        assert np.array_equal(
            into(projection, Part(linear[unit], False), r, s, unit), into(projection, whole, r, s, unit)
        )  # type: ignore[arg-type]
    for unit in range(6):
        alone = out_of(projection, Part(linear[:, unit], False), r, s, unit)
        assert np.array_equal(alone, out_of(projection, whole, r, s, unit))  # type: ignore[arg-type]


@pytest.mark.parametrize("all_maps", [True, False])
def test_the_same_for_a_convolution_with_groups(all_maps: bool) -> None:
    weight = torch.randn(6, 2, 3, 3).numpy()
    projection = Projection("w", "s", "r", "conv", (6, 2, 3, 3), (2, 2), (1, 1), (1, 1), 2)
    s, r, whole = Layer("s", (4, 7, 7)), Layer("r", (6, 4, 4)), Part(weight, True)
    for unit in (0, 40, 95):
        alone = into(projection, Part(weight[unit // 16], False), r, s, unit)
        assert np.array_equal(alone, into(projection, whole, r, s, unit), equal_nan=True)  # type: ignore[arg-type]
    for unit in (0, 60, 195):
        channel = unit // 49
        maps = slice(None) if all_maps else slice(channel // 2 * 3, channel // 2 * 3 + 3)
        alone = out_of(projection, Part(weight[maps, channel % 2], False), r, s, unit)
        assert np.array_equal(alone, out_of(projection, whole, r, s, unit), equal_nan=True)  # type: ignore[arg-type]


def test_weights_that_do_not_fit_the_layers_are_none() -> None:
    s, r = Layer("s", (6,)), Layer("r", (5,))
    linear, conv = Projection("w", "s", "r", shape=(5, 6)), Projection("w", "s", "r", "conv", (5, 6, 3, 3))
    for projection, array, unit in [
        (linear, np.zeros((5, 7)), 0), (linear, np.zeros((4, 6)), 0), (linear, np.zeros(6), 0),
        (linear, np.zeros(()), 0),
        (linear, np.zeros((0, 6)), 0), (linear, np.zeros((5, 6)), 5), (linear, np.zeros((5, 6)), -1),
        (conv, np.zeros((5, 6, 3, 3)), 0),
    ]:  # fmt: skip
        assert into(projection, Part(array, True), r, s, unit) is None
    maps, pooled = Layer("s", (6, 8, 8)), Layer("r", (5, 3, 3))  # 6×6 come out; half of that after a pooling
    assert into(conv, Part(np.zeros((5, 6, 3, 3)), True), pooled, maps, 0) is None
    bad = Projection("w", "s", "r", "conv", (5, 6, 3, 3), (0, 0), (), (), 0)
    assert out_of(bad, Part(np.zeros((5, 6, 3, 3)), True), Layer("r", (5, 6, 6)), maps, 0) is None


# -- as a source answers ---------------------------------------------------------------------------------------------


def source(*weights: Any, name: str = "Wt", projections: Any = None) -> MomentQueries:
    projections = projections or (Projection("w", "s", "r", shape=(3, 4)),)
    net = net_of(Network("n", (Layer("s", (4,)), Layer("r", (3,))), projections))
    timeline = Timeline()
    for number, weight in enumerate(weights):
        timeline.add(Moment(number, number), {} if weight is None else {("w", name): RecordedValue(-1, weight)})
    return MomentQueries(timeline, lambda: net)


def test_weights_are_shown_on_the_layer_at_the_other_end() -> None:
    weight = np.arange(12.0).reshape(3, 4)
    ask = source(weight)
    assert ask.units(0, "s", "r.Wt", 0, ("r", 2)).tolist() == [8, 9, 10, 11]  # type: ignore[union-attr]
    assert ask.units(0, "r", "s.Wt", 0, ("s", 1)).tolist() == [1, 5, 9]  # type: ignore[union-attr]
    assert ask.units(0, "r", "r.Wt", 0, ("r", 2)) is None and ask.units(0, "s", "s.Wt", 0, ("s", 1)) is None


def test_a_change_is_the_difference_to_the_state_before_that_has_weights() -> None:
    first, second = np.arange(12.0).reshape(3, 4), np.arange(12.0).reshape(3, 4) ** 2
    ask = source(first, None, second)
    assert ask.units(0, "s", "r.DWt", 0, ("r", 2)) is None and ask.units(1, "s", "r.DWt", 0, ("r", 2)) is None
    assert ask.units(2, "s", "r.DWt", 0, ("r", 2)).tolist() == [56, 72, 90, 110]  # type: ignore[union-attr]
    assert ask.units(2, "r", "s.DWt", 0, ("s", 3)).tolist() == [6, 42, 110]  # type: ignore[union-attr]


def test_a_row_alone_changes_too_and_only_that_unit_has_weights() -> None:
    ask = source(np.array([1.0, 2, 3, 4]), np.array([2.0, 2, 2, 2]), name="Wt[in:2]")
    assert ask.units(1, "s", "r.Wt", 0, ("r", 2)).tolist() == [2, 2, 2, 2]  # type: ignore[union-attr]
    assert ask.units(1, "s", "r.DWt", 0, ("r", 2)).tolist() == [1, 0, -1, -2]  # type: ignore[union-attr]
    assert ask.units(1, "s", "r.Wt", 0, ("r", 1)) is None


def test_recurrent_weights_are_shown_on_the_layer_itself() -> None:
    ask = source(np.arange(9.0).reshape(3, 3), projections=(Projection("w", "r", "r", shape=(3, 3)),))
    assert ask.units(0, "r", "r.Wt", 0, ("r", 1)).tolist() == [3, 4, 5]  # type: ignore[union-attr]
    assert ask.units(0, "r", "s.Wt", 0, ("r", 1)).tolist() == [1, 4, 7]  # type: ignore[union-attr]


def test_what_a_real_model_sends_while_it_trains_fits_together() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, padding="same", groups=2), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    bias = {name: getattr(model[int(name)], "bias").detach().clone() for name in ("0", "2", "6")}  # noqa: B009
    x = torch.randn(4, 1, 8, 8)
    with Host(None) as host:
        probing, source = LayerProbes(model, host), LiveSource(host.path or "")
        probing.begin(0, {})
        model(x)
        probing.finish()
        source.wants(Wants(("Act", "Net"), weights=True))
        wait_until(lambda: source.net is not None and host.wants.weights, poll=source.poll)
        assert probing.begin(1, {})
        model(x)
        probing.finish()
        wait_until(lambda: source.moments, poll=source.poll)
        source.close()
        probing.close()
    (moment,) = source.moments
    known = [one for one in source.net.projections if one.kind]  # type: ignore[union-attr]
    assert [one.receiver for one in known] == ["0", "2", "6"]
    for one in known:
        net = source.units(moment.id, one.receiver, "Net", 3)
        net = source.units(moment.id, one.receiver, "Act", 3) if net is None else net
        sent = source.units(moment.id, one.sender, "Act", 3)
        assert net is not None and sent is not None
        for unit in range(0, len(net), 3):
            row = source.units(moment.id, one.sender, "r.Wt", 3, (one.receiver, unit))
            assert row is not None
            own = float(bias[one.receiver][unit * len(bias[one.receiver]) // len(net)])
            assert np.nansum(row.astype(np.float64) * sent) + own == pytest.approx(net[unit], abs=1e-5)
