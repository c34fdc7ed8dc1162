"""Outputs are changed while the model runs, the history says so, and replay holds."""

import pytest
import torch
from models import TanhLoop, relu_net
from torch import nn

import torcheer as tl
from torcheer.errors import BadArgument, UnknownLayer

X = torch.rand(3, 4)


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (tl.edits.zero(), lambda x: x * 0),
        (tl.edits.scale(3), lambda x: x * 3),
        (tl.edits.replace(torch.full((3, 4), 2.0)), lambda x: x * 0 + 2),
        (tl.edits.replace(1.5), lambda x: x * 0 + 1.5),
        (tl.edits.steer(torch.tensor([1.0, 0, 0, 0]), 2), lambda x: x + torch.tensor([2.0, 0, 0, 0])),
        (tl.edits.clamp(high=0.1), lambda x: x.clamp(max=0.1)),
        (tl.edits.mean(), lambda x: x.mean(0, keepdim=True).expand_as(x)),
        (lambda x: x + 1, lambda x: x + 1),
    ],
)
@pytest.mark.parametrize("key", ["relu_1", "relu_1_2", "1", 2, "relu_*"])
@pytest.mark.parametrize("inplace", [False, True])
def test_an_edit_changes_the_layer_and_everything_after_it(edit, expected, key, inplace):
    model = relu_net(inplace)
    history = tl.log_forward_pass(model, X, edits={key: edit})
    hidden = expected(model[0](X).relu())
    assert torch.allclose(history["relu_1"].tensor_contents, hidden)
    assert torch.allclose(history["output_1"].tensor_contents, model[2](hidden))
    assert history["relu_1"].edited and "Edited" in str(history["relu_1"])
    assert [op.edited for op in history if op.name == "linear"] == ["", ""]
    assert history.validate()


def test_noise_is_replayed_from_its_own_random_state():
    history = tl.log_forward_pass(relu_net(), X, edits={"relu_1": tl.edits.noise(0.5)})
    assert history.validate()
    assert not torch.equal(history["relu_1"].tensor_contents, relu_net()[0](X).relu())


def test_a_layer_is_patched_in_from_another_history():
    donor = tl.log_forward_pass(relu_net(), X + 1)
    for edit in (tl.edits.patch(donor), tl.edits.patch(donor, "relu_1")):
        history = tl.log_forward_pass(relu_net(), X, edits={"relu_1": edit})
        assert torch.equal(history["output_1"].tensor_contents, donor["output_1"].tensor_contents)
        assert not torch.equal(history["linear_1"].tensor_contents, donor["linear_1"].tensor_contents)


def test_a_module_output_that_was_read_before_the_edit_keeps_its_old_readers():
    class Block(nn.Module):
        def forward(self, x):
            y = x * 2
            self.seen = y + 1
            return y

    model = nn.Sequential(Block())
    history = tl.log_forward_pass(model, X, edits={"0": tl.edits.zero()})
    assert torch.equal(model[0].seen, X * 2 + 1)
    assert history["output_1"].tensor_contents.abs().sum() == 0
    assert history.validate()


def test_gradients_flow_through_edits():
    model = relu_net()
    history = tl.log_forward_pass(model, X, edits={"relu_1": tl.edits.scale(0.0)}, save_gradients=True)
    history.backward()
    assert model[0].weight.grad.abs().sum() == 0


def test_edits_also_work_while_recording_and_for_one_pass():
    linear = nn.Linear(4, 4)
    with tl.recording(linear, edits={"linear_1:2": tl.edits.zero()}) as history:
        y = X
        for _ in range(2):
            y = linear(y)
    assert y.abs().sum() == 0
    assert [op.edited for op in history if op.name == "linear"] == ["", "zeroed"]


def test_inputs_and_outputs_can_be_edited_too():
    model = relu_net()
    history = tl.log_forward_pass(model, X, edits={"input_1": tl.edits.zero()})
    assert torch.equal(history["output_1"].tensor_contents, model(X * 0))
    assert history.validate()
    history = tl.log_forward_pass(model, X, edits={"output_1": tl.edits.scale(2)})
    assert torch.equal(history["output_1"].tensor_contents, model(X) * 2)
    assert history.validate()


def test_several_edits_of_one_layer_apply_in_turn():
    history = tl.log_forward_pass(relu_net(), X, edits={"relu_1": lambda x: x + 1, "1": tl.edits.scale(3)})
    assert torch.allclose(history["relu_1"].tensor_contents, (relu_net()[0](X).relu() + 1) * 3)
    assert "then scaled by 3" in history["relu_1"].edited
    assert history.validate()


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(4):
            x = torch.relu(self.linear(x) + 1)
        return x


def test_a_function_in_a_loop_is_edited_by_layer_and_by_pass():
    history = tl.log_forward_pass(Loop(), X, edits={"relu_1:2": tl.edits.zero()})
    assert [op.edited for op in history if op.name == "relu"] == ["", "zeroed", "", ""]
    history = tl.log_forward_pass(Loop(), X, edits={"relu_1": tl.edits.zero()})
    assert [op.edited for op in history if op.name == "relu"] == ["zeroed"] * 4
    assert history.validate()


def test_a_patch_finds_each_operation_in_the_other_history():
    donor = tl.log_forward_pass(Loop(), X + 1)
    for key in ("relu_1", "relu_*", lambda op: op.name == "relu"):
        history = tl.log_forward_pass(Loop(), X, edits={key: tl.edits.patch(donor)})
        for number in (1, 4):
            value = history[f"relu_1:{number}"].tensor_contents
            assert torch.equal(value, donor[f"relu_1:{number}"].tensor_contents)


def test_another_output_than_the_first_is_edited_and_patched():
    model = nn.LSTM(4, 3)
    x = torch.rand(5, 1, 4)
    history = tl.log_forward_pass(model, x, edits={"lstm_1": tl.edits.of_output(1, tl.edits.zero())})
    assert history["lstm_1"].tensor_contents[1].abs().sum() == 0
    assert history["lstm_1"].tensor_contents[0].abs().sum() > 0
    donor = tl.log_forward_pass(model, x + 1)
    history = tl.log_forward_pass(model, x, edits={"lstm_1": tl.edits.patch(donor)})
    assert torch.equal(history["lstm_1"].tensor_contents[0], donor["lstm_1"].tensor_contents[0])
    with pytest.raises(BadArgument, match="output 7"):
        tl.log_forward_pass(model, x, edits={"lstm_1": tl.edits.of_output(7, tl.edits.zero())})


def test_the_printed_history_names_what_was_edited():
    assert "Edited: relu_1_2 (zeroed)." in str(tl.log_forward_pass(relu_net(), X, edits={"relu_1": tl.edits.zero()}))


def test_an_edit_of_a_module_that_only_passes_a_value_on_leaves_its_maker_alone():
    class Passes(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.identity = nn.Identity()

        def forward(self, x):
            y = self.linear(x)
            z = self.identity(y)
            return y * 1 + z

    model = Passes()
    history = tl.log_forward_pass(model, X, edits={"identity": tl.edits.zero()})
    assert torch.equal(history["output_1"].tensor_contents, model.linear(X))
    assert not history["linear_1"].edited and history.validate()


def test_gradients_flow_through_the_edit_of_an_operation_in_place():
    class AddsInPlace(nn.Module):
        def forward(self, x):
            return (x * 2).add_(1) * 3

    x = X.clone().requires_grad_()
    history = tl.log_forward_pass(AddsInPlace(), x, edits={"add_1": tl.edits.scale(10)}, save_gradients=True)
    history.backward()
    assert torch.equal(x.grad, torch.full_like(X, 60.0))


@pytest.mark.parametrize("key", ["relu_1", "1", 2])
def test_gradients_flow_through_the_edit_of_a_module_that_works_in_place(key):
    found = []
    for inplace in (False, True):
        model = relu_net(inplace)
        history = tl.log_forward_pass(model, X, edits={key: tl.edits.scale(3)}, save_gradients=True)
        assert history.validate()
        history.backward()
        found.append(model[0].weight.grad)
    assert torch.allclose(found[0], found[1])


# What is refused

REFUSED = {
    "an edit that changes the shape": (relu_net, {"relu_1": lambda x: x[:1]}, BadArgument, r"\(3, 4\)"),
    "a value of another shape": (relu_net, {"relu_1": tl.edits.replace(torch.rand(5))}, BadArgument, r"\(5,\)"),
    "a layer that is not there": (relu_net, {"relu_7": tl.edits.zero()}, UnknownLayer, "relu_1"),
    "an edit that is no function": (relu_net, {"relu_1": 0}, BadArgument, "function"),
    "edits that are no dict": (relu_net, [tl.edits.zero()], BadArgument, "dict"),
    "an operation counted from the end": (relu_net, {-1: tl.edits.zero()}, BadArgument, "from the end"),
    "a loop that cannot be numbered on the way": (
        TanhLoop,
        {"add_1": tl.edits.zero()},
        BadArgument,
        "numbered when the run is over",
    ),
}


@pytest.mark.parametrize(("model", "edits", "error", "says"), REFUSED.values(), ids=REFUSED)
def test_edits_are_refused_and_it_says_why(model, edits, error, says):
    with pytest.raises(error, match=says):
        tl.log_forward_pass(model(), X, edits=edits)
