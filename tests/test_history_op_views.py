"""One operation or layer, read and printed."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_trace import FakeTrace, recurrent_network, small_network
from seams import OpList, excerpt

from torcheer.errors import AmbiguousLayer, ValueUnavailable
from torcheer.records import Op, TensorMeta

LINEAR = """\
Layer linear_2_3, operation 4/7:
\tOutput tensor: shape=(4, 6), dtype=torch.float32, size=96 B
\t\ttensor([[-1.0000, -0.9130, -0.8261, -0.7391, -0.6522],
        [-0.4783, -0.3913, -0.3043, -0.2174, -0.1304],
        [ 0.0435,  0.1304,  0.2174,  0.3043,  0.3913],
        [ 0.5652,  0.6522,  0.7391,  0.8261,  0.9130]])...
\tParams: Computed from params with shape (3,), (3, 3); 12 params total (48 B)
\tParent Layers: relu_1_2
\tChild Layers: relu_2_4
\tFunction: linear (gradfunc=AddmmBackward0)
\tComputed inside module: body.2
\tTime elapsed:  0.000E+00s
\tOutput of modules: body.2
\tOutput of bottom-level module: body.2
\tLookup keys: -4, 3, linear_2_3, linear_2_3:1, body.2, body.2:1"""

RELU = """\
\tParams: no params used
\tParent Layers: linear_2_3
\tChild Layers: linear_3_5
\tFunction: relu (gradfunc=None)
\tComputed inside module: body.3
\tTime elapsed:  2.500E-04s
\tOutput of modules: body, body.3
\tOutput of bottom-level module: body.3
\tLookup keys: -3, 4, relu_2_4, relu_2_4:1, body, body:1, body.3, body.3:1"""

INPUT = """\
Layer input_1_0, operation 1/7:
\tOutput tensor: shape=(1, 6), dtype=torch.float32, size=24 B
\t\ttensor([[-1.0, -0.6, -0.2,  0.2,  0.6]])...
\tParams: no params used
\tParent Layers: no parent layers
\tChild Layers: linear_1_1
\tFunction: none, an input of the model
\tComputed inside module: none
\tTime elapsed:  0.000E+00s
\tOutput of modules: none
\tLookup keys: -7, 0, input_1_0, input_1_0:1"""


def test_a_layer_prints_as_torchlens_users_know_it() -> None:
    history = small_network().history()
    assert str(history["linear_2_3"]) == LINEAR
    assert str(history["relu_2"]).endswith(RELU)
    assert repr(history[0]) == INPUT


def test_a_pass_says_which_it_is() -> None:
    history = recurrent_network(3).history()
    lines = str(history["linear_1:2"]).splitlines()
    assert lines[0] == "Layer linear_1_1 (pass 2/3), operation 4/8:"
    assert "\tComputed inside module: fc:2" in lines
    assert "\tOutput of modules: fc:2" in lines
    assert lines[-1] == "\tLookup keys: -5, 3, linear_1_1:2, fc:2"


def test_a_layer_with_passes_prints_them() -> None:
    assert str(recurrent_network(2).history()["linear_1"]) == (
        "Layer linear_1_1, 2 passes:\n"
        "\tParams: Computed from params with shape (3,), (3, 3); 12 params total (48 B)\n"
        "\tlinear_1:1  operation 2/6  (2, 3)\n"
        "\tlinear_1:2  operation 4/6  (2, 3)"
    )
    assert len(str(recurrent_network(500).history()["linear_1"]).splitlines()) == 40


def test_values_that_were_not_saved_say_so() -> None:
    trace = small_network()
    del trace.values[3, 0]
    op = trace.history()["linear_2"]
    assert "\t\t(not saved: it was not among layers_to_save)" in str(op).splitlines()
    assert not op.is_saved
    with pytest.raises(ValueUnavailable) as caught:
        _ = op.tensor_contents
    assert str(caught.value) == "the value of linear_2_3 cannot be had: it was not among layers_to_save"


def test_edits_and_notes_are_printed() -> None:
    trace = small_network()
    trace.change(2, edited="scaled by 2", note="fused path opened")
    lines = str(trace.history()[2]).splitlines()
    assert lines[-3:-1] == ["\tEdited: scaled by 2", "\tNote: fused path opened"]


def test_an_operation_with_several_outputs_gives_and_prints_all() -> None:
    trace = FakeTrace()
    metas = (TensorMeta((2,), "torch.float32", "cpu", 8), TensorMeta((), "torch.int64", "cpu", 8))
    index = trace.add("max", trace.input(), outputs=metas)
    trace.values |= {(index, 0): np.ones(2, np.float32), (index, 1): np.array(3)}
    trace.grads[index, 0] = [np.zeros(2), np.ones(2)]
    op = trace.history()["max_1"]
    assert [value.tolist() for value in op.tensor_contents] == [[1.0, 1.0], 3]
    assert "Output tensor 2 of 2: shape=(), dtype=torch.int64, size=8 B\n\t\ttensor(3)" in str(op)
    assert [second for _, second in op.gradients] == [None, None]
    assert op.grad_contents[0].tolist() == [1.0, 1.0]


def test_an_operation_without_outputs_has_no_contents() -> None:
    trace = FakeTrace()
    trace.add("backward", trace.input(), outputs=())
    op = trace.history()[1]
    assert (op.shape, op.dtype, op.device, op.bytes, op.is_saved) == ((), "", "", 0, False)
    assert op.gradients == []
    assert op.grad_contents is None
    with pytest.raises(ValueUnavailable, match="backward_1_1 returned no tensor"):
        _ = op.tensor_contents


def test_an_operation_reads_like_its_record() -> None:
    op = small_network().history()["linear_2"]
    assert (op.name, op.kind, op.index, op.function) == ("linear", "op", 3, "torch.linear")
    assert [stored.name for stored in op.stored] == ["body.2.weight", "body.2.bias"]
    assert op.edges == op.record.parents
    assert (op.parent_layers, op.child_layers) == (["relu_1_2"], ["relu_2_4"])
    assert op.parents[0].children[0] == op
    assert op.layer.passes == [op]
    assert op.layer.tensor_contents is op.tensor_contents
    assert {"name", "label", "outputs"} <= set(dir(op))
    with pytest.raises(AttributeError):
        _ = op.nonsense
    with pytest.raises(AttributeError):
        op._repr_mimebundle_()


def test_an_operation_can_be_copied() -> None:
    history = small_network().history()
    assert copy.copy(history[3]) == history[3]
    assert copy.copy(history.parameters["head.bias"]).name == "head.bias"


def test_a_gradient_is_none_before_any_backward() -> None:
    trace = small_network()
    trace.grads[3, 0] = [np.zeros(2), np.ones(2)]
    history = trace.history()
    assert history[2].gradients == []
    assert history[2].grad_contents is None
    assert history[3].grad_contents.tolist() == [1.0, 1.0]


def test_a_parent_read_twice_is_named_once() -> None:
    trace = FakeTrace()
    x = trace.input()
    trace.add("mul", x, x)
    history = trace.history()
    assert history[1].parent_layers == ["input_1_0"]
    assert history[0].child_layers == ["mul_1_1"]
    assert len(history[1].edges) == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(1.5).reshape(()), "tensor(1.5)"),
        (np.arange(3), "tensor([0, 1, 2])"),
        (np.arange(9), "tensor([0, 1, 2, 3, 4])..."),
        (np.zeros((0, 3)), "tensor([])"),
        (np.zeros((2, 1, 1)), "tensor([[0.]])..."),
        (np.array([True, False]), "tensor([ True, False])"),
        (np.array([np.nan, np.inf]), "tensor([nan, inf])"),
    ],
)
def test_an_excerpt_shows_a_corner_and_whether_there_is_more(value: np.ndarray, text: str) -> None:
    assert excerpt(value) == text


def test_a_value_that_cannot_be_cut_is_named_rather_than_raised() -> None:
    class Odd:
        shape = (2, 2)

        def __getitem__(self, key: object) -> None:
            raise NotImplementedError("no slicing here")

    assert excerpt(Odd()) == "(cannot be shown: no slicing here)"


# The same attributes, whether a layer ran once or often

ONCE, OFTEN = small_network().history()["linear_2"], recurrent_network(3).history()["linear_1"]
ATTRIBUTES = sorted(name for name in {*dir(ONCE), *dir(OFTEN)} if not name.startswith("_"))
PER_PASS = {
    "below", "child_layers", "children", "elapsed_secs", "grad_contents", "gradients", "index", "inputs", "lookup_keys",
    "modules", "output_of", "parent_layers", "parents", "pass_number", "record", "tensor_contents", "written_contents",
    "edges", "variables",
}  # fmt: skip


def test_a_layer_that_ran_once_and_one_that_ran_often_list_the_same_attributes() -> None:
    assert {name for name in dir(ONCE) if name[0] != "_"} == {name for name in dir(OFTEN) if name[0] != "_"}
    assert {"passes", "num_passes", "tensor_contents", "shape", "function", "settings", "layer"} <= set(ATTRIBUTES)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_every_attribute_is_there_for_one_pass_and_for_several(name: str) -> None:
    getattr(ONCE, name)
    if name in PER_PASS:
        with pytest.raises(AmbiguousLayer) as caught:
            getattr(OFTEN, name)
        assert str(caught.value) == (
            f"'linear_1' ran 3 times, so it has no single {name}. "
            "Ask for one pass, 'linear_1:1' … 'linear_1:3', or go through .passes."
        )
    else:
        getattr(OFTEN, name)


@pytest.mark.parametrize("name", [*sorted(Op.__slots__), "shape", "dtype", "device", "bytes", "flops", "layer_label"])
def test_a_fact_that_all_passes_share_is_the_layers(name: str) -> None:
    if name not in PER_PASS:
        assert getattr(OFTEN, name) == getattr(OFTEN.passes[1], name)


def test_a_fact_in_which_passes_differ_has_no_single_value() -> None:
    trace = recurrent_network(3)
    op = trace.list[3]
    trace.change(3, outputs=(replace(op.outputs[0], shape=(7, 7), bytes=196),))
    layer = trace.history()["linear_1"]
    assert layer.dtype == "torch.float32" and layer.passes[1].shape == (7, 7)
    for name in ("shape", "bytes", "outputs"):
        with pytest.raises(AmbiguousLayer, match=f"has no single {name}.*'linear_1:1' … 'linear_1:3'"):
            getattr(layer, name)


def test_settings_that_hold_arrays_are_compared_without_failing() -> None:
    trace = recurrent_network(2)
    for place in (1, 3):
        trace.change(place, settings=(((0,), np.arange(3)),))
    with pytest.raises(AmbiguousLayer, match="no single settings"):
        _ = trace.history()["linear_1"].settings


@pytest.mark.parametrize(("layer", "count"), [(ONCE, 1), (OFTEN, 3), (OFTEN.passes[2], 1)])
def test_a_layer_is_a_sequence_of_its_passes(layer: Any, count: int) -> None:
    assert layer.num_passes == len(layer) == len(layer.passes) == len(layer.numbers) == count
    assert list(layer) == layer.passes == [layer[place] for place in range(count)] and layer[-1] == layer.passes[-1]
    assert isinstance(layer.passes, OpList) and layer[:1].labels == [layer[0].label]
    with pytest.raises(IndexError):
        layer[count]
    history = layer.history
    assert [history[f"{layer.key}:{number}"] for number in layer.numbers] == layer.passes


def test_a_layer_of_the_list_of_layers_that_ran_once_has_all_values_of_its_pass() -> None:
    layer = small_network().history().layers[3]
    assert layer.num_passes == 1 and layer.index == 3 and layer.record.name == "linear"
    assert np.array_equal(layer.tensor_contents, layer[0].tensor_contents) and layer.grad_contents is None


@pytest.mark.parametrize("layer", [ONCE, OFTEN])
def test_an_attribute_that_no_layer_has_is_an_attribute_error(layer: Any) -> None:
    assert not hasattr(layer, "tensor_content") and not hasattr(layer, "_private")
    assert copy.copy(layer) == layer and copy.deepcopy(layer.label) == layer.label
