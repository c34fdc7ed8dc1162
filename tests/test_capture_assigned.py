"""Buffers, parameters and other tensors of a model that its code exchanges while it runs."""

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
