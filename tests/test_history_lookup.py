"""Looking things up in a history."""

from __future__ import annotations

import numpy as np
import pytest
from fake_trace import FakeTrace, recurrent_network, small_network
from seams import LayerView, OpList, OpView

from torcheer.errors import AmbiguousLayer, UnknownLayer


@pytest.mark.parametrize("key", ["linear_2_3", "linear_2", "linear_2_3:1", "linear_2:1", "body.2", "body.2:1", 3, -4])
def test_every_key_of_a_layer_finds_it(key: str | int) -> None:
    history = small_network().history()
    assert history[key] == history[3]
    assert history[key].label == "linear_2_3"
    assert key in history


def test_numpy_integers_are_positions() -> None:
    assert small_network().history()[np.int64(3)].label == "linear_2_3"


def test_the_lookup_keys_of_an_operation_all_find_it() -> None:
    for trace in (small_network(), recurrent_network()):
        history = trace.history()
        for op in history:
            assert all(history[key] == op for key in op.lookup_keys), op.label


def test_a_container_module_finds_the_last_operation_in_it() -> None:
    assert small_network().history()["body"].label == "relu_2_4"


def test_a_layer_with_passes_is_a_view_that_names_them() -> None:
    layer = recurrent_network().history()["linear_1"]
    assert isinstance(layer, LayerView)
    assert layer.passes.labels == [f"linear_1_1:{k}" for k in range(1, 6)]
    with pytest.raises(AmbiguousLayer) as caught:
        _ = layer.tensor_contents
    assert str(caught.value) == (
        "'linear_1' ran 5 times, so it has no single tensor_contents. "
        "Ask for one pass, 'linear_1:1' … 'linear_1:5', or go through .passes."
    )
    with pytest.raises(LookupError, match="no single grad_contents"):
        _ = layer.grad_contents


def test_a_reused_module_is_asked_by_call() -> None:
    history = recurrent_network().history()
    assert history["fc:3"] == history["linear_1:3"] == history[5]
    assert history["fc"] == history["linear_1"]
    assert [op.index for op in history["fc"]] == [1, 3, 5, 7, 9]


def test_a_shared_module_at_different_places_shows_one_layer_per_call() -> None:
    trace = FakeTrace()
    trace.module("act", "ReLU")
    x = trace.input()
    for name in "ab":
        x = trace.linear(name, x)
        with trace.inside("act"):
            x = trace.add("relu", x, line=55)
    history = trace.history()
    assert history["act"].passes.labels == ["relu_1_2", "relu_2_4"]
    assert history["act"].label == "act"
    with pytest.raises(AmbiguousLayer, match=r"'act' ran 2 times.*'act:1' … 'act:2'"):
        _ = history["act"].tensor_contents


def test_a_name_that_is_both_a_layer_and_a_module_is_refused() -> None:
    trace = FakeTrace()
    x = trace.linear("first", trace.input())
    trace.linear("linear_1", x)
    with pytest.raises(AmbiguousLayer) as caught:
        trace.history()["linear_1"]
    assert str(caught.value) == (
        "'linear_1' is both the layer 'linear_1_1' and the output 'linear_2_2' of the module 'linear_1'. "
        "Ask for one of those."
    )


def test_a_module_with_two_outputs_names_them() -> None:
    trace = FakeTrace()
    x = trace.input()
    with trace.inside("pair"):
        first = trace.add("sin", x)
        trace.add("cos", x)
    trace.change(first, output_of=trace.list[-1].output_of)
    with pytest.raises(AmbiguousLayer, match=r"'pair' returned several tensors: 'sin_1_1', 'cos_1_2'\. Ask for one"):
        trace.history()["pair"]
    assert "pair" in trace.history()


def test_slices_are_lists_of_operations() -> None:
    history = small_network().history()
    assert history[1:4].labels == ["linear_1_1", "relu_1_2", "linear_2_3"]
    assert isinstance(history[::2], OpList)
    assert repr(history[-2:]) == "2 operations\n  5: linear_3_5 (6, 6)\n  6: output_1_6 (6, 6)"


@pytest.mark.parametrize(
    ("pattern", "labels"),
    [
        ("body.*", ["linear_1_1", "relu_1_2", "linear_2_3", "relu_2_4"]),
        ("linear_*", ["linear_1_1", "linear_2_3", "linear_3_5"]),
        ("relu_[2-9]", ["relu_2_4"]),
        ("nothing*", []),
        ("head", ["linear_3_5"]),
        (-1, ["output_1_6"]),
        (slice(1, 3), ["linear_1_1", "relu_1_2"]),
        (lambda op: op.name == "relu" and op.pass_number == 1, ["relu_1_2", "relu_2_4"]),
    ],
)
def test_find_takes_patterns_functions_and_keys(pattern: object, labels: list[str]) -> None:
    assert small_network().history().find(pattern).labels == labels  # type: ignore[arg-type]


def test_find_gives_every_pass_of_a_layer() -> None:
    history = recurrent_network().history()
    assert history.find("fc").labels == history.find("linear_1").labels == [f"linear_1_1:{k}" for k in range(1, 6)]
    assert history.indices("relu*") == [2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("linaer_2", "no layer or module named 'linaer_2' among 7 layers and 6 modules. Did you mean 'linear_2'"),
        ("body.9", "no layer or module named 'body.9' among 7 layers and 6 modules. Did you mean 'body.3'"),
        ("", "no layer or module named '' among 7 layers and 6 modules. history.layer_labels names them all."),
        (7, "no operation at position 7: there are 7, from -7 to 6."),
        (-8, "no operation at position -8: there are 7, from -7 to 6."),
        ("linear_2:2", "no pass 2 of 'linear_2': it ran 1 time, 'linear_2:1' … 'linear_2:1'."),
        ("head:4", "no call 4 of the module 'head' returned a tensor; 'head:1' did."),
        (1.5, "a history is asked by label, module path, position or slice, not by 1.5 of type float."),
        (None, "a history is asked by label, module path, position or slice, not by None of type NoneType."),
    ],
)
def test_an_unknown_key_says_what_is_there(key: object, text: str) -> None:
    history = small_network().history()
    with pytest.raises(KeyError) as caught:
        history[key]  # type: ignore[call-overload]
    assert isinstance(caught.value, UnknownLayer)
    assert str(caught.value).startswith(text)
    assert key not in history


def test_a_module_that_returned_nothing_is_told_apart_from_an_unknown_one() -> None:
    trace = small_network()
    trace.module("blocks", "ModuleList")
    with pytest.raises(UnknownLayer) as caught:
        trace.history()["blocks"]
    assert str(caught.value) == (
        "the module 'blocks' returned no tensor of its own here (0 operations ran inside it). "
        "history.modules['blocks'] shows it."
    )


def test_indices_of_nothing_are_an_error() -> None:
    with pytest.raises(UnknownLayer, match=r"nothing among 7 operations matches 'conv\*'"):
        small_network().history().indices("conv*")


def test_an_empty_history_can_be_asked() -> None:
    history = FakeTrace().history()
    assert len(history) == 0
    assert list(history) == []
    assert history.layer_labels == []
    assert "Log of Fake" in str(history)
    with pytest.raises(UnknownLayer, match="there are 0"):
        history[0]


def test_iterating_gives_every_operation_with_its_label() -> None:
    history = recurrent_network(2).history()
    assert [op.label for op in history] == [
        "input_1_0",
        "linear_1_1:1",
        "relu_1_2:1",
        "linear_1_1:2",
        "relu_1_2:2",
        "output_1_5",
    ]
    assert history.layer_labels == ["input_1_0", "linear_1_1", "relu_1_2", "output_1_5"]
    assert [len(layer) for layer in history.layers] == [1, 2, 2, 1]
    assert all(isinstance(op, OpView) and op in history for op in history)


# Modules and parameters


def test_a_module_view_sums_what_ran_inside() -> None:
    body = small_network().history().modules["body"]
    assert body.type == "Sequential"
    assert body.ops.labels == ["linear_1_1", "relu_1_2", "linear_2_3", "relu_2_4"]
    assert [view.address for view in body.submodules] == ["body.0", "body.1", "body.2", "body.3"]
    assert (body.parameter_count, body.trainable_count, body.calls) == (24, 24, 1)
    assert body.bytes == sum(op.bytes for op in body.ops)
    assert body.elapsed_secs == pytest.approx(0.0005)
    assert body.output.label == "relu_2_4"
    assert repr(body) == (
        "Module body: Sequential, called 1 time\n"
        "\tParams: 24 in 4 tensors\n"
        "\tOperations: 4 (480 FLOPs, 336 B, 5.000E-04s)\n"
        "\tSubmodules: body.0, body.1, body.2, body.3"
    )


def test_modules_are_a_mapping_and_the_empty_address_is_the_model() -> None:
    modules = small_network().history().modules
    assert list(modules) == ["body", "body.0", "body.1", "body.2", "body.3", "head"]
    assert len(modules) == 6
    assert modules[""].type == "Small"
    assert modules[""].parameter_count == 36
    with pytest.raises(UnknownLayer, match="no module at 'bodi'"):
        modules["bodi"]


def test_parameters_know_who_used_them_and_their_gradients() -> None:
    history = recurrent_network().history()
    assert list(history.parameters) == ["fc.weight", "fc.bias"]
    weight = history.parameters["fc.weight"]
    assert (weight.shape, weight.count, weight.trainable) == ((3, 3), 9, True)
    assert len(weight.used_by) == 5
    assert weight.grad_contents.tolist() == [1.0, 1.0]
    assert history.parameters["fc.bias"].grad_contents is None
    assert history.buffers == {}


def test_a_tied_parameter_counts_in_both_modules() -> None:
    trace = small_network()
    info = trace.facts["modules"]["body.1"]
    trace.facts["modules"]["body.1"] = type(info)("body.1", "Tied", ("head.weight",))
    modules = trace.history().modules
    assert modules["body.1"].parameter_count == modules["head"].parameter_count - 3 == 9
    assert modules[""].parameter_count == 36
