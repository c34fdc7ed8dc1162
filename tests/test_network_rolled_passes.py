"""Rolled loops: what hangs on a loop is one item, and nothing else is."""

from __future__ import annotations

import random

import pytest
import torch
from fake_trace import FakeTrace, recurrent_network
from seams import rolled_passes
from torch import nn

import torcheer as tl
from torcheer.history import ModelHistory
from torcheer.records import Edge


def rolled(history: ModelHistory) -> dict[str, int]:
    """How many passes each item has, by the label of its first operation."""
    layers = history.facts.layers
    return {layers.all[layers.of[ops[0]]].short: len(ops) for ops in rolled_passes(history.facts)}


def test_slices_of_a_sequence_roll_with_the_loop_that_reads_them() -> None:
    trace = FakeTrace()
    x, h = trace.input(), trace.input()
    for _ in range(4):
        step = trace.add("__getitem__", x, line=3)
        h = trace.add("tanh", trace.add("add", step, h, line=4), line=4)
    assert rolled(trace.history()) == {"input_1": 1, "input_2": 1, "getitem_1": 4, "add_1": 4, "tanh_1": 4}


def test_slices_that_were_made_before_the_loop_roll_too() -> None:
    trace = FakeTrace()
    x, h = trace.input(), trace.input()
    for step in [trace.add("__getitem__", x, line=3) for _ in range(4)]:
        h = trace.add("tanh", trace.add("add", step, h, line=4), line=4)
    assert rolled(trace.history())["getitem_1"] == 4


def test_layers_labels_and_passes_of_the_history_stay_as_they_are() -> None:
    trace = FakeTrace()
    x, h = trace.input(), trace.input()
    for _ in range(4):
        h = trace.add("add", trace.add("__getitem__", x, line=3), h, line=4)
    history = trace.history()
    before = history.layer_labels
    rolled_passes(history.facts)
    assert history.layer_labels == before and history["getitem_3"].num_passes == 1


def test_noise_that_is_drawn_and_scaled_in_every_round_rolls() -> None:
    trace = FakeTrace()
    x = trace.input()
    for _ in range(4):
        x = trace.add("add", x, trace.add("mul", trace.add("randn", line=3), line=3), line=3)
    assert rolled(trace.history()) == {"input_1": 1, "randn_1": 4, "mul_1": 4, "add_1": 4}


def test_what_is_collected_in_every_round_rolls() -> None:
    trace = FakeTrace()
    x = trace.input()
    kept = []
    for _ in range(4):
        x = trace.linear("fc", x)
        kept.append(trace.add("sum", trace.add("mul", x, line=3), line=4))
    trace.add("stack", *kept, line=5)
    assert rolled(trace.history()) == {"input_1": 1, "linear_1": 4, "mul_1": 4, "sum_1": 4, "stack_1": 1}


def test_a_list_that_grows_in_every_round_is_one_item() -> None:
    trace = FakeTrace()
    x = trace.input()
    kept = [x]
    for _ in range(4):
        parents = tuple(Edge(parent, 0, (0, place)) for place, parent in enumerate(kept))
        seen = trace.add("mean", trace.add("stack", parents=parents, line=3), line=4)
        x = trace.linear("fc", trace.add("add", seen, x, line=5))
        kept.append(x)
    assert rolled(trace.history()) == {"input_1": 1, "stack_1": 4, "mean_1": 4, "add_1": 4, "linear_1": 4}


def test_the_first_condition_of_a_while_joins_the_others() -> None:
    class Halving(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            while x.norm() > 0.1:
                x = x * 0.5
            return x

    assert rolled(tl.log_forward_pass(Halving(), torch.ones(4))) == {
        "input_1": 1, "norm_1": 6, "gt_1": 6, "mul_1": 5, "output_1": 1,
    }  # fmt: skip


def test_two_of_a_kind_in_each_round_are_two_items() -> None:
    trace = FakeTrace()
    x, h = trace.input(), trace.input()
    for _ in range(4):
        both = [trace.add("__getitem__", x, line=3) for _ in range(2)]
        h = trace.add("add", both[0], trace.add("mul", both[1], h, line=4), line=4)
    assert rolled(trace.history()) == {
        "input_1": 1, "input_2": 1, "getitem_1": 4, "getitem_2": 4, "mul_1": 4, "add_1": 4,
    }  # fmt: skip


def test_a_last_round_that_reads_a_final_value_rolls_with_the_others() -> None:
    trace = FakeTrace()
    x, table = trace.input(), trace.input()
    for round in range(5):
        scale = trace.add("__getitem__", table, line=3) if round < 4 else trace.add("ones", line=3)
        x = trace.add("add", x, trace.add("sqrt", scale, line=4), line=5)
    assert rolled(trace.history()) == {"input_1": 1, "input_2": 1, "getitem_1": 4, "sqrt_1": 5, "add_1": 5, "ones_1": 1}


@pytest.mark.parametrize("beside", [False, True])
def test_relus_of_different_layers_stay_apart_beside_a_loop_too(beside: bool) -> None:
    trace = FakeTrace()
    x, h = trace.input(), trace.input()
    for place in range(4):
        read = trace.add("relu", trace.linear(f"fc.{place}", h if beside else x), line=3)
        h = trace.linear("cell", h)
        trace.add("add", read, h, line=4)
    found = rolled(trace.history())
    assert found["linear_2"] == 4 and [found[f"relu_{k}"] for k in range(1, 5)] == [1, 1, 1, 1]
    assert [found[f"add_{k}"] for k in range(1, 5)] == [1, 1, 1, 1]


def test_repeats_that_do_not_touch_a_loop_stay_apart() -> None:
    trace = recurrent_network()
    x = trace.input()
    for _ in range(4):
        trace.add("sin", x, line=3)
    found = rolled(trace.history())
    assert [found[f"sin_{k}"] for k in range(1, 5)] == [1, 1, 1, 1]


def test_parameters_the_model_does_not_hold_roll_nothing() -> None:
    class Loose(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                x = torch.tanh(x + nn.Parameter(torch.ones(2)) * 2)
            return x

    found = rolled(tl.log_forward_pass(Loose(), torch.rand(2)))
    assert sum(count for label, count in found.items() if label.startswith("mul")) == 3


def test_without_a_loop_every_layer_is_an_item() -> None:
    history = tl.log_forward_pass(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), torch.rand(2))
    assert rolled_passes(history.facts) == [(op.index,) for op in history.ops]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_ran_each_operation_is_in_one_item_and_items_agree(seed: int) -> None:
    trace, dice = FakeTrace(), random.Random(seed)
    values = [trace.input(), trace.input()]
    for _ in range(dice.randint(2, 6)):
        for line in range(dice.randint(1, 8)):
            parents = [dice.choice(values[-6:]) for _ in range(dice.randint(0, 2))]
            if dice.random() < 0.3:
                values.append(trace.linear(f"fc.{dice.randint(0, 1)}", dice.choice(values)))
            else:
                values.append(trace.add(dice.choice(("sin", "add")), *parents, line=line))
    history = trace.history()
    items = rolled_passes(history.facts)
    assert sorted(index for ops in items for index in ops) == list(range(len(history)))
    assert [ops[0] for ops in items] == sorted(ops[0] for ops in items) and all(list(o) == sorted(o) for o in items)
    item_of = {index: number for number, ops in enumerate(items) for index in ops}
    for layer in history.facts.layers.all:  # a layer is never torn apart
        assert len({item_of[index] for index in layer.ops}) == 1
    for ops in items:
        assert len({(history.ops[n].name, len(history.ops[n].modules), history.ops[n].kind) for n in ops}) == 1
