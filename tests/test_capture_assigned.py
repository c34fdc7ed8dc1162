"""Buffers, parameters and other tensors of a model that its code exchanges while it runs."""

from copy import deepcopy

import pytest
import torch
from torch import nn

import torcheer as tl


class Holds(nn.Module):
    """Three buffers, whatever is done with them."""

    def __init__(self):
        super().__init__()
        for name in ("a", "b", "c"):
            self.register_buffer(name, torch.full((3,), float(ord(name))))


def passes(history):
    """How often each layer ran, by the name of its function."""
    found = {}
    for layer in history.layers:
        if layer.name not in ("input", "output"):
            found.setdefault(layer.name, []).append(len(layer.passes))
    return found


def names(history):
    """What each operation that read from the model read."""
    return [[stored.name for stored in op.stored] for op in history if op.stored]


# -- a loop begins from a buffer -------------------------------------------------------------------------------------


class Averages(Holds):
    def forward(self, x):
        for _ in range(5):
            self.a = 0.9 * self.a + x.mean(0)
        return x - self.a


def test_a_loop_over_an_assigned_buffer_is_one_layer_from_its_first_pass(tmp_path):
    history = tl.log_forward_pass(Averages(), torch.ones(2, 3))
    for read in (history, tl.load(history.save(tmp_path / "saved"))):
        assert passes(read)["mul"] == [5] and passes(read)["add"] == [5]
        assert names(read) == [["a"]] and read["mul_1:1"].stored[0].name == "a"
        assert read["mul_1:1"].tensor_contents.tolist() == pytest.approx([0.9 * ord("a")] * 3)
        assert tl.draw(read).svg() and str(read)
    assert history.validate()


class Twice(Holds):
    def forward(self, x):
        for _ in range(2):
            self.a = torch.tanh(self.a) + x
        return self.a


def test_a_loop_of_two_rounds_goes_on_in_the_next_call():
    model, x = Twice(), torch.ones(3)
    assert passes(tl.log_forward_pass(model, x)) == {"tanh": [2], "add": [2]}
    with tl.recording(model) as history:
        for _ in range(3):
            model(x)
    assert passes(history) == {"tanh": [6], "add": [6]}


class Projects(Holds):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        for _ in range(4):
            self.a = torch.tanh(self.linear(self.a) + x)
        return self.a


@pytest.mark.parametrize("calls", [1, 3])
def test_a_layer_whose_first_input_is_a_buffer_is_one_layer(calls):
    model, x = nn.Sequential(Projects()), torch.ones(3)
    with tl.recording(model) as history:
        for _ in range(calls):
            model(x)
    assert passes(history) == {"linear": [4 * calls], "add": [4 * calls], "tanh": [4 * calls]}


class Written(Holds):
    def forward(self, x):
        for _ in range(3):
            self.a.mul_(0.9).add_(x)
        return self.a


class Chooses(Holds):
    def forward(self, x):
        for _ in range(3):
            self.a = torch.where(self.a > self.b, self.a * self.b, x)
        return self.a


class BeginsFrom(Holds):
    def forward(self, x):
        h = self.a
        for step in range(3):
            h = torch.tanh(h + x[step])
        return h


LOOPS = {
    Written: {"mul_": [3], "add_": [3]},
    Chooses: {"gt": [3], "mul": [3], "where": [3]},
    BeginsFrom: {"__getitem__": [1, 1, 1], "add": [3], "tanh": [3]},
}


@pytest.mark.parametrize("kind", LOOPS)
def test_what_begins_from_a_buffer_is_one_layer_however_it_goes_on(kind):
    history = tl.log_forward_pass(kind(), torch.ones(3))
    assert passes(history) == LOOPS[kind]
    assert history.validate()


class Different(Holds):
    def forward(self, x):
        for name in ("a", "b", "c"):
            x = torch.relu(x * getattr(self, name))
        return x


class Overlapping(Holds):
    """The same instruction reads three buffers, and once a value."""

    def forward(self, x):
        for name in ("a", "b", "c"):
            x = torch.relu(self.scaled(x, getattr(self, name)))
        return self.scaled(x, x + 1)

    def scaled(self, x, by):
        return x * by


@pytest.mark.parametrize(("kind", "expected"), [(Different, [1] * 3), (Overlapping, [1] * 4)])
def test_different_buffers_in_a_loop_stay_different_layers(kind, expected):
    history = tl.log_forward_pass(kind(), torch.ones(3))
    assert passes(history)["mul"] == expected and passes(history)["relu"] == [1] * 3


def blend(buffer, x):
    buffer.mul_(0.9).add_(x)


class SideBySide(Holds):
    def forward(self, x):
        blend(self.a, x)
        blend(self.b, x)
        return x


def test_one_instruction_that_writes_two_buffers_is_a_layer_for_each():
    model, x = SideBySide(), torch.ones(3)
    with tl.recording(model) as history:
        for _ in range(3):
            model(x)
    assert passes(history) == {"mul_": [3, 3], "add_": [3, 3]}
    read = [{stored.name for op in layer.passes for stored in op.stored} for layer in history.layers[1:]]
    assert read == [{"a"}, {"a"}, {"b"}, {"b"}]


# -- parameters that are exchanged -----------------------------------------------------------------------------------


class Decays(nn.Module):
    def __init__(self, rounds=1):
        super().__init__()
        self.w, self.rounds = nn.Parameter(torch.full((3,), 2.0)), rounds

    def forward(self, x):
        for _ in range(self.rounds):
            self.w = nn.Parameter(self.w * 0.5)
            x = x * self.w
        return x


@pytest.mark.parametrize("layers", ["all", "none", ["output_1"]])
def test_a_parameter_that_is_assigned_has_its_name_when_it_is_read(layers):
    history = tl.log_forward_pass(Decays(), torch.ones(3), layers_to_save=layers)
    assert names(history) == [["w"], ["w"]] and list(history.parameters) == ["w"]
    assert {stored.kind for op in history for stored in op.stored} == {"parameter"}
    assert history.parameters["w"].tensor_contents.tolist() == [2, 2, 2]


def test_what_an_assigned_parameter_was_computed_from_feeds_those_who_read_it():
    history = tl.log_forward_pass(Decays(), torch.ones(3))
    first, second = (op for op in history if op.stored)
    alias = second.parents[-1]
    assert alias.kind == "alias" and [op.index for op in alias.parents] == [first.index]
    assert alias.tensor_contents.tolist() == [1, 1, 1] and "test_capture_assigned.py" in alias.source.file
    assert history.validate()


def test_a_loop_that_assigns_a_parameter_is_one_layer():
    history = tl.log_forward_pass(Decays(4), torch.ones(3))
    assert passes(history) == {"mul": [4, 4], "alias": [4]}
    assert list(history.parameters) == ["w"] and history.validate()


def test_a_parameter_assigned_in_each_call_has_one_name(tmp_path):
    model, x = nn.Sequential(Decays(), nn.Linear(3, 3)), torch.ones(3)
    with tl.recording(model) as history:
        for _ in range(3):
            model(x)
    for read in (history, tl.load(history.save(tmp_path / "saved", parameters=True))):
        assert set(read.parameters) == {"0.w", "1.weight", "1.bias"}
        assert passes(read) == {"mul": [3, 3], "alias": [3], "linear": [3]}
        assert read.parameters["0.w"].tensor_contents.tolist() == [2, 2, 2]


def test_a_parameter_assigned_by_a_hook_or_from_outside_has_the_name_of_its_module():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            self.linear.bias = nn.Parameter(self.linear.bias + 1)
            return self.linear(x)

    def halve(module, args):
        module.weight = nn.Parameter(module.weight * 0.5)

    model = Outer()
    model.linear.register_forward_pre_hook(halve)
    history = tl.log_forward_pass(model, torch.ones(3))
    assert names(history) == [["linear.bias"], ["linear.weight"], ["linear.weight", "linear.bias"]]
    assert set(history.parameters) == {"linear.weight", "linear.bias"} and history.validate()


def test_a_parameter_that_came_from_elsewhere_has_the_name_it_takes():
    class Loads(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.other = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))

        def forward(self, x):
            y, before = x * self.w, self.w
            self.register_parameter("w", self.other)
            z = y + self.w
            self.w = before
            return z * self.w

    history = tl.log_forward_pass(Loads(), torch.ones(3))
    assert names(history) == [["w"], ["other"], ["w"]]
    assert not history.find(lambda op: op.kind == "alias") and history.validate()


def test_the_gradient_of_an_assigned_parameter_is_that_of_its_own_leaf():
    model = Decays()
    history = tl.log_forward_pass(model, torch.full((3,), 3.0), save_gradients=True)
    history.backward()
    assert model.w.grad.tolist() == [3, 3, 3]
    alias = history.find(lambda op: op.kind == "alias")[0]
    assert alias.grad_contents.tolist() == [3, 3, 3]
    assert history["mul_1"].gradients == []  # torch detaches what a parameter is made of


class Converts(nn.Module):
    """A model that runs its layer in float64, and then as it was."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        with torch.no_grad():
            self.linear.to(torch.float64)
            y = self.linear(x.double())
        self.linear.to(torch.float32)
        return self.linear(x) + y.float()


@pytest.fixture
def swapped_conversions():
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(before)


@pytest.mark.parametrize("layers", ["all", "none", ["linear"]])
def test_a_model_that_swaps_its_parameters_to_convert_them_is_recorded(swapped_conversions, layers):
    model, x = Converts(), torch.rand(2, 3)
    expected = deepcopy(model)(x)
    history = tl.log_forward_pass(model, x, layers_to_save=layers)
    assert model.linear.weight.dtype == torch.float32 and names(history)[-1] == ["linear.weight", "linear.bias"]
    if layers == "all":
        assert torch.equal(history["output_1"].tensor_contents, expected)
        assert [op.tensor_contents.dtype for op in history.find("to_*")] == [torch.float64] * 2 + [torch.float32] * 2
        assert history.validate()


def test_the_gradient_of_a_converted_parameter_is_that_of_what_the_model_holds(swapped_conversions):
    model = Converts()
    history = tl.log_forward_pass(model, torch.rand(2, 3), save_gradients=True).backward()
    assert torch.equal(history.parameters["linear.weight"].gradients[0], model.linear.weight.grad)


def test_a_converted_parameter_that_was_swapped_comes_from_its_conversion(swapped_conversions):
    history = tl.log_forward_pass(Converts(), torch.rand(2, 3))
    weight = history["linear_1:2"].parents[1]
    assert weight.kind == "alias" and weight.parents[0].name == "to"


@pytest.mark.parametrize("width", [3, 5])
def test_a_parameter_that_is_given_data_of_another_shape_still_learns(width):
    class Grows(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 4))

        def forward(self, x):
            with torch.no_grad():
                x @ self.weight
            self.weight.data = torch.ones(3, width)
            return x @ self.weight

    model = Grows()
    with tl.recording(model) as history:
        out = model(torch.ones(2, 3))
    out.sum().backward()
    assert model.weight.grad.tolist() == [[2.0] * width] * 3 and history.validate()


def test_nothing_of_ours_hears_of_parameters_after_a_capture():
    from torch.nn.modules.module import _global_parameter_registration_hooks as hooks

    before = dict(hooks)
    with tl.recording():
        assert len(hooks) == len(before) + 1
    assert dict(hooks) == before
    with pytest.raises(RuntimeError):
        tl.log_forward_pass(nn.Linear(3, 3), torch.ones(2))
    assert dict(hooks) == before


def test_modules_made_and_filled_inside_a_capture_are_recorded_as_before():
    class Builds(nn.Module):
        def forward(self, x):
            self.linear = nn.Linear(3, 3)
            return self.linear(x)

    history = tl.log_forward_pass(Builds(), torch.ones(3))
    assert not history.find(lambda op: op.kind == "alias")
    assert [stored.name for stored in history["linear_1"].stored] == ["linear.weight", "linear.bias"]


def test_parameters_without_memory_can_be_assigned():
    class Waits(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x):
            y, before = x * self.w, self.w
            self.w = nn.UninitializedParameter()
            self.w = nn.Parameter(torch.empty(3, device="meta"))
            self.w = before
            return y

    assert names(tl.log_forward_pass(Waits(), torch.ones(3))) == [["w"]]


# -- tensors that a model merely holds -------------------------------------------------------------------------------


class Remembers(nn.Module):
    def __init__(self, rounds=1):
        super().__init__()
        self.linear, self.rounds = nn.Linear(3, 3), rounds
        self.state, self.cache = torch.zeros(3), [torch.zeros(1, 3)]

    def forward(self, x):
        for _ in range(self.rounds):
            self.state = torch.tanh(self.linear(self.state) + x)
            self.cache.append(self.state[None])
        return torch.cat(self.cache)


@pytest.mark.parametrize(("rounds", "calls"), [(4, 1), (1, 4), (2, 2)])
def test_attributes_that_are_no_buffers_begin_from_one_unseen_value_each(rounds, calls):
    model, x = nn.Sequential(Remembers(rounds)), torch.ones(3)
    with tl.recording(model) as history:
        for _ in range(calls):
            model(x)
    counts = passes(history)
    assert counts["linear"] == counts["add"] == counts["tanh"] == [4] and counts["unseen"] == [1, 1]
    assert len([op for op in history if op.name == "cat"][-1].edges) == 5  # what was there before, and four states
    assert history.validate()


class Registers(nn.Module):
    def forward(self, x):
        if not hasattr(self, "places"):
            self.register_buffer("places", torch.arange(3.0) * 2)
        return x + self.places


def test_a_buffer_registered_while_the_model_runs_has_its_name_and_its_maker():
    model, x = Registers(), torch.ones(3)
    with tl.recording(model) as history:
        model(x)
        model(x)
    assert names(history) == [["places"], ["places"]]
    assert {op.parents[-1].name for op in history if op.name == "add"} == {"mul"}
