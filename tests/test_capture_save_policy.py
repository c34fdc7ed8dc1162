"""Only what is asked for stays, in the form that was asked for, and never changed."""

import gc
import weakref

import pytest
import torch
from models import TanhLoop
from torch import nn

import torcheer as tl
from torcheer.errors import BadArgument, UnknownLayer, ValueUnavailable


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def saved(history):
    return [op.label for op in history if history.trace.is_saved(op.index, 0)]


X = torch.rand(3, 4)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("all", ["input_1_0", "linear_1_1", "relu_1_2", "linear_2_3", "relu_2_4", "linear_3_5", "output_1_6"]),
        ("none", []),
        (["relu_2"], ["relu_2_4"]),
        (["relu_2_4"], ["relu_2_4"]),
        (["relu_2:1"], ["relu_2_4"]),
        (["2"], ["linear_2_3"]),
        ([3], ["linear_2_3"]),
        ([-2], ["linear_3_5"]),
        ([-1, 0], ["input_1_0", "output_1_6"]),
        (["relu_*"], ["relu_1_2", "relu_2_4"]),
        (["linear_?_3"], ["linear_2_3"]),
        ("relu_1", ["relu_1_2"]),
        ([lambda op: op.name == "linear" and op.outputs[0].shape == (3, 2)], ["linear_3_5"]),
        (["relu_1", "4", -1], ["relu_1_2", "linear_3_5", "output_1_6"]),
    ],
)
def test_layers_to_save_takes_names_paths_positions_patterns_and_functions(layers, expected):
    model = net()
    history = tl.log_forward_pass(model, X, layers_to_save=layers)
    assert saved(history) == expected
    full = tl.log_forward_pass(model, X)
    assert [op.label for op in history] == [op.label for op in full]
    assert [op.record.parents for op in history] == [op.record.parents for op in full]
    for label in expected:
        assert torch.equal(history[label].tensor_contents, full[label].tensor_contents)


def test_a_value_that_was_not_asked_for_says_so():
    history = tl.log_forward_pass(net(), X, layers_to_save=["relu_1"])
    with pytest.raises(ValueUnavailable, match="layers_to_save"):
        _ = history["relu_2"].tensor_contents


def test_what_is_not_asked_for_is_free_while_the_model_still_runs():
    alive = []

    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(64, 64)

        def forward(self, x):
            seen = []
            for _ in range(10):
                x = self.linear(x)
                seen.append(weakref.ref(x))
            alive.append(sum(reference() is not None for reference in seen))
            return x

    gc.disable()
    try:
        with torch.no_grad():
            tl.log_forward_pass(Counts(), torch.rand(2, 64), layers_to_save=["linear_1:3"])
    finally:
        gc.enable()
    assert alive[0] <= 2, "the third pass and the current value, nothing else"


def test_loops_are_saved_by_layer_and_by_pass():
    history = tl.log_forward_pass(TanhLoop(), X, layers_to_save=["tanh_1"])
    assert saved(history) == [f"tanh_1_2:{number}" for number in (1, 2, 3, 4)]
    history = tl.log_forward_pass(TanhLoop(), X, layers_to_save=["tanh_1:3"])
    assert saved(history) == ["tanh_1_2:3"]
    history = tl.log_forward_pass(TanhLoop(), X, layers_to_save=["tanh_1:[12]"])
    assert saved(history) == ["tanh_1_2:1", "tanh_1_2:2"]


def test_an_unknown_layer_is_refused_with_the_nearest_names():
    with pytest.raises(UnknownLayer, match=r"relu_2") as caught:
        tl.log_forward_pass(net(), X, layers_to_save=["relu_22"])
    assert len(caught.value.history) == 7
    with pytest.raises(KeyError, match="'lin'"):
        tl.log_forward_pass(net(), X, layers_to_save=["lin"])
    with pytest.raises(BadArgument, match="names no layer"):
        tl.log_forward_pass(net(), X, layers_to_save=[3.5])


def test_values_can_be_stored_elsewhere_and_otherwise():
    history = tl.log_forward_pass(net(), X, layers_to_save=tl.Save(["relu_1"], dtype=torch.float64, detach=True))
    assert history["relu_1"].tensor_contents.dtype is torch.float64
    assert not history["relu_1"].tensor_contents.requires_grad
    history = tl.log_forward_pass(net(), X, layers_to_save=tl.Save("all", transform=lambda x: x.mean(0)))
    assert history["relu_1"].tensor_contents.shape == (4,)
    assert "another form" in str(history.validate())
    history = tl.log_forward_pass(net(), X, layers_to_save=tl.Save("all", device="meta"))
    assert history["relu_1"].tensor_contents.device.type == "meta"


def test_detached_values_let_the_graph_go():
    history = tl.log_forward_pass(net(), X, layers_to_save=tl.Save("all", detach=True))
    assert all(not op.tensor_contents.requires_grad for op in history)
    assert history["linear_1"].grad_fn == "AddmmBackward0"


def test_stopping_early_runs_no_further_than_needed():
    ran = []

    class Tail(nn.Module):
        def forward(self, x):
            ran.append(True)
            return x

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Tail())
    history = tl.log_forward_pass(model, X, layers_to_save=tl.Save(["1"], stop_early=True))
    assert not ran and "stopped early" in history.info.stopped
    assert torch.equal(history["relu_1"].tensor_contents, model[1](model[0](X)))


def test_a_value_is_copied_only_when_torch_is_about_to_write_to_it():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
    history = tl.log_forward_pass(model, X)
    assert (history["linear_1"].tensor_contents < 0).any()
    assert (history["relu_1"].tensor_contents >= 0).all()
    assert set(history.trace.recorder.memory.copies) == {1 << 20}


def test_copy_on_write_also_protects_under_inference_mode():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    with torch.inference_mode():
        history = tl.log_forward_pass(model, torch.rand(8, 4))
        assert history.validate()
    assert (history["linear_1"].tensor_contents < 0).any()


def test_selected_values_are_protected_too():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
    for save in (["linear_1"], tl.Save(["linear_1"], detach=True), tl.Save(["linear_1"], guard="clone")):
        history = tl.log_forward_pass(model, torch.rand(8, 4) - 0.5, layers_to_save=save)
        assert (history["linear_1"].tensor_contents < 0).any()


def test_a_value_written_after_the_pass_raises_instead_of_lying():
    history = tl.log_forward_pass(net(), X)
    history["relu_1"].tensor_contents.detach().add_(1)
    with pytest.raises(ValueUnavailable, match="written in place"):
        _ = history["relu_1"].tensor_contents
    history = tl.log_forward_pass(net(), X, layers_to_save=tl.Save("all", guard="clone"))
    assert torch.equal(history["output_1"].tensor_contents, net()(X))


def test_parameters_that_change_during_the_pass_are_snapshotted():
    class Updates(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            y = self.linear(x)
            with torch.no_grad():
                self.linear.weight.mul_(2)
            return self.linear(x) + y

    history = tl.log_forward_pass(Updates(), X)
    assert history.validate()
    first, second = history["linear_1:1"], history["linear_1:2"]
    assert not torch.equal(first.tensor_contents, second.tensor_contents)


@pytest.mark.parametrize("save", [tl.Save(guard="clone"), tl.Save(dtype=torch.float64), tl.Save(detach=True)])
@pytest.mark.parametrize("inplace", [True, False])
def test_the_copy_of_an_edited_value_is_of_the_edited_one(save, inplace):
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace)), nn.Linear(4, 4))
    with torch.no_grad():
        history = tl.log_forward_pass(model, X, layers_to_save=save, edits={"0": tl.edits.zero()})
    assert not history["relu_1"].tensor_contents.any() and history["relu_1"].edited
    assert not history.validate().failures


def test_bad_options_are_refused():
    with pytest.raises(BadArgument, match="guard"):
        tl.Save(guard="no")
    with pytest.raises(BadArgument, match="stop_early"):
        tl.Save("all", stop_early=True)
