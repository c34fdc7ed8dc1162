"""Which operations are passes of one layer."""

from __future__ import annotations

import time

import pytest
from fake_trace import FakeTrace
from hypothesis import given, settings
from hypothesis import strategies as st
from seams import AncestorSearch, assign_layers, layer_name, nodes_on_cycles


def labels(trace: FakeTrace) -> list[str]:
    layers = assign_layers(trace.list, trace.info())
    return [layers.label(index) for index in range(len(trace.list))]


def passes(trace: FakeTrace) -> dict[str, int]:
    layers = assign_layers(trace.list, trace.info())
    return {layer.short: len(layer.ops) for layer in layers.all}


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("conv2d", "conv2d"),
        ("max_pool2d", "maxpool2d"),
        ("__getitem__", "getitem"),
        ("relu_", "relu"),
        ("__iadd__", "iadd"),
        ("_", "op"),
    ],
)
def test_names_drop_their_underscores(name: str, label: str) -> None:
    assert layer_name(name) == label


def test_a_label_counts_layers_of_the_name_and_gives_the_position() -> None:
    trace = FakeTrace()
    x = trace.input()
    x = trace.add("relu", x)
    x = trace.add("max_pool2d", x)
    x = trace.add("relu_", x)
    trace.output(x)
    assert labels(trace) == ["input_1_0", "relu_1_1", "maxpool2d_1_2", "relu_2_3", "output_1_4"]


def test_a_linear_and_a_relu_in_a_loop_have_five_passes_each() -> None:
    trace = FakeTrace()
    x = trace.input()
    for _ in range(5):
        x = trace.add("relu", trace.linear("fc", x), line=7)
    trace.output(x)
    assert passes(trace) == {"input_1": 1, "linear_1": 5, "relu_1": 5, "output_1": 1}
    assert labels(trace)[5:7] == ["linear_1_1:3", "relu_1_2:3"]


def test_a_linear_after_a_relu_in_a_loop_counts_the_first_relu_too() -> None:
    trace = FakeTrace()
    x = trace.input()
    for _ in range(5):
        x = trace.linear("fc", trace.add("relu", x, line=7))
    assert passes(trace) == {"input_1": 1, "relu_1": 5, "linear_1": 5}


def test_a_recurrence_without_modules_is_rolled() -> None:
    trace = FakeTrace()
    x, h = trace.input(), trace.input()
    for _ in range(4):
        h = trace.add("tanh", trace.add("add", h, x, line=3), line=3)
    trace.output(h)
    assert passes(trace) == {"input_1": 1, "input_2": 1, "add_1": 4, "tanh_1": 4, "output_1": 1}


def test_a_recurrence_over_slices_of_a_sequence_is_rolled_but_the_slices_are_not() -> None:
    trace = FakeTrace()
    x, h = trace.input(), trace.input()
    for _ in range(4):
        step = trace.add("__getitem__", x, line=3)
        h = trace.add("tanh", trace.add("add", step, h, line=4), line=4)
    assert passes(trace) == {"input_1": 1, "input_2": 1} | {f"getitem_{k}": 1 for k in range(1, 5)} | {
        "add_1": 4,
        "tanh_1": 4,
    }


def test_a_recurrence_with_parameters_but_without_modules_is_rolled() -> None:
    trace = FakeTrace()
    trace.module("cell", "Cell", u=(3, 3), w=(3, 3))
    x, h = trace.input(), trace.input()
    for _ in range(4):
        step = trace.add("matmul", trace.add("__getitem__", x, line=3), stored=("cell.w",), line=3)
        h = trace.add(
            "tanh", trace.add("add", step, trace.add("matmul", h, stored=("cell.u",), line=4), line=4), line=5
        )
    found = passes(trace)
    assert (found["add_1"], found["tanh_1"], found["matmul_2"]) == (4, 4, 4)


def test_a_loop_that_draws_noise_in_every_round_is_rolled_but_the_noise_is_not() -> None:
    trace = FakeTrace()
    x = trace.input()
    for _ in range(4):
        x = trace.add("add", x, trace.add("mul", trace.add("randn", line=3), line=3), line=3)
    found = passes(trace)
    assert found["add_1"] == 4
    assert [found[f"randn_{k}"] for k in range(1, 5)] == [1, 1, 1, 1]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_relus_between_different_convolutions_are_different_layers(count: int) -> None:
    for relu_first in (True, False):
        trace = FakeTrace()
        x = trace.input()
        for number in range(count):
            x = trace.add("relu", x, line=3) if relu_first else x
            x = trace.linear(f"layers.{number}", x)
            x = x if relu_first else trace.add("relu", x, line=3)
        assert set(passes(trace).values()) == {1}


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_relu_module_shared_between_different_convolutions_is_different_layers(count: int) -> None:
    trace = FakeTrace()
    trace.module("act", "ReLU")
    x = trace.input()
    for number in range(count):
        x = trace.linear(f"layers.{number}", x)
        with trace.inside("act"):
            x = trace.add("relu", x, line=55)
    assert set(passes(trace).values()) == {1}


def test_a_relu_over_a_list_of_parameters_is_different_layers() -> None:
    trace = FakeTrace()
    x = trace.input()
    for number in range(4):
        trace.module(f"p{number}", "ParameterList", w=(3, 3))
        x = trace.add("relu", trace.add("matmul", x, stored=(f"p{number}.w",), line=3), line=3)
    assert set(passes(trace).values()) == {1}


@pytest.mark.parametrize("rounds", [2, 3, 20])
def test_a_long_body_after_a_parameter_of_each_rounds_own_is_different_layers(rounds: int) -> None:
    trace = FakeTrace()
    x = trace.input()
    for number in range(rounds):
        trace.module(f"p{number}", "ParameterList", w=(3, 3))
        x = trace.add("matmul", x, stored=(f"p{number}.w",), line=0)
        for line in range(1, 60):
            x = trace.add("mul", x, *([x] if line % 2 else []), line=line)
    assert set(passes(trace).values()) == {1}


def test_parameters_the_model_does_not_hold_roll_nothing() -> None:
    trace = FakeTrace()
    trace.module("x", "X", w=(3, 3))
    trace.facts["stored"]["?"] = type(stored := trace.facts["stored"]["x.w"])(
        "?", "parameter", stored.shape, stored.dtype, stored.bytes, True
    )
    x = trace.input()
    for _ in range(4):
        x = trace.add("relu", trace.add("matmul", x, stored=("?",), line=3), line=3)
    assert set(passes(trace).values()) == {1}


def test_tensors_from_outside_in_a_loop_are_different_layers() -> None:
    trace = FakeTrace()
    x = trace.input()
    weights = [trace.input() for _ in range(4)]
    for weight in weights:
        x = trace.add("relu", trace.add("matmul", x, weight, line=3), line=3)
    assert set(passes(trace).values()) == {1}


@pytest.mark.parametrize("count", [2, 3])
def test_relus_between_different_layers_of_a_reused_block_are_different_layers(count: int) -> None:
    for act in ("block.act", "block"):
        trace = FakeTrace()
        x = trace.input()
        for _ in range(3):
            with trace.inside("block"):
                for number in range(count):
                    if act == "block":
                        x = trace.add("relu", x, line=3)
                    else:
                        with trace.inside(act):
                            x = trace.add("relu", x, line=55)
                    x = trace.linear(f"block.{number}", x)
        assert passes(trace) == {"input_1": 1} | {
            f"{name}_{k}": 3 for name in ("relu", "linear") for k in range(1, count + 1)
        }


def test_the_relus_of_a_reused_block_keep_their_places() -> None:
    trace = FakeTrace()
    trace.module("block", "Block")
    trace.module("block.act", "ReLU")
    x = trace.input()
    for _ in range(3):
        with trace.inside("block"):
            for part in "ab":
                x = trace.linear(f"block.{part}", x)
                with trace.inside("block.act"):
                    x = trace.add("relu", x, line=55)
    assert passes(trace) == {"input_1": 1, "linear_1": 3, "relu_1": 3, "linear_2": 3, "relu_2": 3}


def test_the_same_function_twice_in_a_reused_block_is_two_layers() -> None:
    trace = FakeTrace()
    trace.module("block", "Block", w=(3,))
    x = trace.input()
    for _ in range(2):
        with trace.inside("block"):
            x = trace.add("mul", x, stored=("block.w",), line=1)
            x = trace.add("relu", x, line=2)
            x = trace.add("relu", x, line=3)
    assert passes(trace) == {"input_1": 1, "mul_1": 2, "relu_1": 2, "relu_2": 2}


def test_a_loop_inside_a_reused_module_is_one_layer_with_all_its_passes() -> None:
    trace = FakeTrace()
    trace.module("cell", "Cell", w=(3,))
    x = trace.input()
    for _ in range(2):
        with trace.inside("cell"):
            for _ in range(5):
                x = trace.add("tanh", trace.add("mul", x, stored=("cell.w",), line=1), line=1)
    assert passes(trace) == {"input_1": 1, "mul_1": 10, "tanh_1": 10}


def test_a_siamese_pair_has_two_passes_of_the_shared_module() -> None:
    trace = FakeTrace()
    a, b = trace.input(), trace.input()
    a = trace.add("relu", trace.linear("fc", a), line=3)
    b = trace.add("relu", trace.linear("fc", b), line=4)
    trace.add("sub", a, b)
    assert passes(trace) == {"input_1": 1, "input_2": 1, "linear_1": 2, "relu_1": 1, "relu_2": 1, "sub_1": 1}


def test_the_same_work_twice_without_feeding_itself_is_not_a_loop() -> None:
    trace = FakeTrace()
    e = trace.linear("enc", trace.input())
    for _ in range(3):
        trace.linear("enc", trace.add("tanh", trace.add("relu", e, line=3), line=3))
    found = passes(trace)
    assert found["linear_1"] == 4
    assert {name: n for name, n in found.items() if name.startswith(("relu", "tanh"))} == {
        f"{name}_{k}": 1 for name in ("relu", "tanh") for k in (1, 2, 3)
    }


def test_a_loop_over_two_modules_inside_a_loop_has_two_relus() -> None:
    trace = FakeTrace()
    x = trace.input()
    for _ in range(3):
        for part in "ab":
            x = trace.add("relu", trace.linear(part, x), line=3)
    assert passes(trace) == {"input_1": 1, "linear_1": 3, "relu_1": 3, "linear_2": 3, "relu_2": 3}


def test_a_chain_that_is_interrupted_goes_on_as_another_layer() -> None:
    trace = FakeTrace()
    x = trace.input()
    for step in range(8):
        x = trace.add("relu", x, line=3)
        if step == 3:
            x = trace.add("neg", x, line=4)
    assert passes(trace) == {"input_1": 1, "relu_1": 4, "neg_1": 1, "relu_2": 4}


def test_a_loop_run_twice_from_the_same_start_is_two_layers() -> None:
    trace = FakeTrace()
    start = trace.input()
    for _ in range(2):
        x = start
        for _ in range(3):
            x = trace.add("relu", x, line=3)
    assert passes(trace) == {"input_1": 1, "relu_1": 3, "relu_2": 3}


def test_an_inner_loop_is_one_layer_in_all_rounds_that_start_alike() -> None:
    trace = FakeTrace()
    x = trace.input()
    for _ in range(4):
        for _ in range(3):
            x = trace.add("sin", x, line=3)
        x = trace.add("cos", x, line=4)
    assert passes(trace) == {"input_1": 1, "sin_1": 3, "cos_1": 4, "sin_2": 9}  # the first round starts from the input


def test_repeats_that_do_not_lead_back_are_not_a_loop() -> None:
    """As inside attention, whose ops all seem to come from one line: transpose, then three views, each transposed."""
    trace = FakeTrace()
    x = trace.add("transpose", trace.input(), line=3)
    for part in [trace.add("__getitem__", x, line=3) for _ in range(3)]:
        trace.add("transpose", trace.add("view", part, line=3), line=3)
    assert set(passes(trace).values()) == {1}


def test_what_stands_side_by_side_in_each_round_of_a_loop_is_a_layer_each() -> None:
    trace = FakeTrace()
    x, levels = trace.input(), trace.add("split", trace.input())
    for _ in range(4):
        sampled = [trace.add("grid_sample", levels, x, line=3) for _ in range(3)]
        x = trace.add("cat", *sampled, line=4)
    assert passes(trace) == {"input_1": 1, "input_2": 1, "split_1": 1, "cat_1": 4} | {
        f"gridsample_{level}": 4 for level in (1, 2, 3)
    }


def test_what_stands_beside_a_loop_but_leads_nowhere_is_a_layer_each_time() -> None:
    trace = FakeTrace()
    x = trace.input()
    for _ in range(3):
        x = trace.linear("fc", x)
        x, _unused = [trace.add("sin", x, line=3) for _ in range(2)]
    assert passes(trace) == {"input_1": 1, "linear_1": 3, "sin_1": 3, "sin_2": 1, "sin_3": 1, "sin_4": 1}


def test_operations_on_different_lines_are_different_layers() -> None:
    trace = FakeTrace()
    x = trace.input()
    for line in range(5):
        x = trace.add("relu", x, line=line)
    assert set(passes(trace).values()) == {1}


def test_a_growing_list_of_inputs_is_not_a_loop() -> None:
    trace = FakeTrace()
    found = [trace.input()]
    for _ in range(4):
        found.append(trace.add("cat", *found, line=3))
    assert set(passes(trace).values()) == {1}


def test_an_empty_history_has_no_layers() -> None:
    assert assign_layers([], FakeTrace().info()).all == []


MANY = [20_000, pytest.param(100_000, marks=pytest.mark.slow)]


@pytest.mark.timing
@pytest.mark.parametrize("body", [1, 10, 1000])
@pytest.mark.parametrize("many", MANY)
def test_many_operations_in_a_loop_take_a_few_seconds(body: int, many: int) -> None:
    trace = FakeTrace()
    x = h = trace.input()
    while len(trace.list) < many:
        for line in range(body):
            h = trace.add("add" if line % 3 else "tanh", h, *([x] if line % 3 else []), line=line)
    started = time.process_time()
    found = passes(trace)
    assert time.process_time() - started < 8 * many / 100_000
    assert len(found) == body + 1


@pytest.mark.timing
@pytest.mark.parametrize("many", MANY)
def test_many_operations_that_never_repeat_take_a_few_seconds(many: int) -> None:
    trace = FakeTrace()
    x = trace.input()
    number = 0
    while len(trace.list) < many:
        number += 1
        x = trace.add("relu", trace.linear(f"layers.{number}", x), line=3)
    started = time.process_time()
    assert len(passes(trace)) == len(trace.list)
    assert time.process_time() - started < 8 * many / 100_000


@st.composite
def programs(draw: st.DrawFn) -> FakeTrace:
    """Random straight-line programs over few functions and few lines, so that much looks alike."""
    trace = FakeTrace()
    trace.input()
    for _ in range(draw(st.integers(0, 25))):
        parents = draw(st.lists(st.integers(max(0, len(trace.list) - 4), len(trace.list) - 1), min_size=1, max_size=2))
        if draw(st.booleans()):
            trace.linear(draw(st.sampled_from("ab")), parents[0])
        else:
            trace.add(draw(st.sampled_from(["sin", "add"])), *parents, line=draw(st.integers(1, 2)))
    return trace


@settings(max_examples=300, deadline=None)
@given(programs())
def test_passes_of_a_layer_always_agree_in_function_parameters_and_modules(trace: FakeTrace) -> None:
    layers = assign_layers(trace.list, trace.info())
    assert sorted(index for layer in layers.all for index in layer.ops) == list(range(len(trace.list)))
    assert len({layer.label for layer in layers.all}) == len(layers.all)
    parents = [[edge.parent for edge in op.parents] for op in trace.list]
    for layer in layers.all:
        alike = {
            (op.name, op.site, tuple(s.name for s in op.stored), tuple(c.address for c in op.modules))
            for op in (trace.list[index] for index in layer.ops)
        }
        assert len(alike) == 1
        if len(layer.ops) > 1 and not trace.list[layer.ops[0]].modules:  # a loop: the second pass comes from the first
            assert descends(parents, layer.ops[1], layer.ops[0])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_cycles_are_found_as_by_trying_every_path(edges: list[tuple[int, int]]) -> None:
    reach = {node: {end for start, end in edges if start == node} for node in range(8)}
    for _ in range(8):
        reach = {node: ends | {far for end in ends for far in reach[end]} for node, ends in reach.items()}
    assert nodes_on_cycles(edges, 8) == {node for node in range(8) if node in reach[node]}


def test_a_descent_is_found_and_a_missing_one_is_not() -> None:
    parents = [(), (), (0,), (2,), (1,), (3, 4)]
    descent = AncestorSearch(parents)
    assert descent.reaches(5, 0)
    assert not descent.reaches(4, 2)
    assert [descends(parents, 5, node) for node in range(5)] == [True] * 5


def descends(parents: list[list[int]] | list[tuple[int, ...]], node: int, ancestor: int) -> bool:
    return any(parent == ancestor or descends(parents, parent, ancestor) for parent in parents[node])
