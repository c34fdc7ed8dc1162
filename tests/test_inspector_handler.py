"""The handler of PyTorch Inspector: what it sends, what it refuses, what it leaves behind."""

from __future__ import annotations

import json
import math
import os
import warnings
from pathlib import Path
from queue import Empty

import pytest
import torch
from fast_cases import fast_first
from torch import nn
from waiting import wait_until

from torcheer.errors import BadArgument, NotAModel
from torcheer.inspector import ParallelHandler, ParrallelHandler, ProcessInfoData

pytestmark = pytest.mark.usefixtures("no_handler_left")


def notes(path):
    """Callbacks that share an object in the child, and write what they got when it closes."""

    class Notes:
        def __init__(self):
            self.lines = []

        def run(self, unique_id, key, internal_message, message, input_data):
            if key == "bad" and message == "2":
                raise ValueError("no third frame")
            numbers = str(input_data.flatten().tolist())
            self.lines.append([unique_id, key, internal_message, message, list(input_data.shape), numbers])

        def close(self):
            with open(path, "a") as file:
                for line in self.lines:
                    file.write(json.dumps([*line, os.getpid()]) + "\n")

    return Notes()


def read(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def net(inplace):
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=inplace), nn.Linear(3, 2))


# One run with everything, looked at from many sides

VALUES = {
    "nan": torch.tensor([math.nan, math.inf, 1.0]),
    "bfloat16": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "float16": torch.tensor([0.5], dtype=torch.float16),
    "int64": torch.tensor([2**40, -1]),
    "bool": torch.tensor([True, False]),
    "complex": torch.tensor([1 + 2j]),
    "scalar": torch.tensor(3.0),
    "empty": torch.empty(0, 4),
    "strided": torch.arange(12.0).view(3, 4).t(),
    "tuple": (torch.tensor([7.0]), "more"),
    "dict": {"logits": torch.tensor([8.0])},
}


class Scene:
    """A run with everything, and what its children got."""

    def __init__(self, folder):
        path = folder / "notes.jsonl"
        made = notes(path)
        handler = ParallelHandler(made.run, made.close, frequency=2.0, timeout=60.0)
        self.model, plain = net(inplace=True), net(inplace=False)
        parrots = {name: nn.Identity() for name in VALUES}
        self.first = handler.track_model(-1, {"model": self.model, "part": self.model[0]})
        self.attached = handler.track_layer(0, {"grad0": self.model[0], "grad1": self.model[1]})
        handler.track_tensor(0, {"weight": self.model[2].weight})
        handler.track_model(0, {"norm": self.model}, callback_transform=lambda tensor: tensor.norm())
        handler.track_model(0, {"none": self.model}, callback_transform=lambda tensor: None)
        handler.track_model(0, {"list": self.model}, callback_transform=lambda tensor: [1, 2])
        handler.track_model(0, parrots)
        self.bad = nn.Identity()
        handler.track_model(0, {"bad": self.bad})
        self.shared = handler.track_model(
            77, {"a": nn.Identity(), "b": nn.Identity(), "c": nn.Identity()}, num_process=2
        )
        self.outputs, self.gradients, self.weights = [], [], []
        for step in range(7):
            handler.set_pass_to_process(step != 4)
            handler.set_internal_message(f"epoch:{step}")
            x = torch.full((1, 4), float(step + 1))
            output, expected = self.model(x), self._expected(plain, x)
            self.outputs.append(output.detach().clone())
            self.weights.append(self.model[2].weight.detach().clone())
            output.sum().backward()
            assert torch.equal(output, expected)
            with torch.no_grad():
                output.zero_()  # what was sent is a copy
                for parameter, other in zip(self.model.parameters(), plain.parameters()):
                    parameter.add_(0.1)
                    other.add_(0.1)
        handler.set_pass_to_process(True)
        for name, parrot in parrots.items():
            parrot(VALUES[name])
        with pytest.warns(
            RuntimeWarning, match="bad is no longer shown to the callback, which failed: ValueError: no th"
        ):
            for step in range(6):
                self.bad(torch.tensor([step]))
            handler.stop(True)
        self.got, self.handler = read(path), handler

    def _expected(self, plain, x):
        """The same model without in-place layers and without us."""
        first = plain[0](x)
        second = plain[1](first)
        output = plain[2](second)
        grads = torch.autograd.grad(output.sum(), [first, second])
        self.gradients.append(grads)
        return output

    def of(self, key):
        return [line for line in self.got if line[1] == key]


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    return Scene(tmp_path_factory.mktemp("scene"))


def test_every_second_call_is_sent_with_its_count_and_the_message(scene):
    assert [line[:4] for line in scene.of("model")] == [
        [0, "model", f"epoch:{step}", str(step)] for step in (0, 2, 6)
    ]  # 4 was not passed


def test_the_child_gets_the_output_as_it_was_when_it_was_made(scene):
    assert [line[5] for line in scene.of("model")] == [str(scene.outputs[step][0].tolist()) for step in (0, 2, 6)]


def test_only_the_modules_given_are_sent(scene):
    assert {line[1] for line in scene.got if line[0] == 0} == {
        "model", "part", "grad0", "grad1", "weight", "norm", "list", "bad", *VALUES,
    }  # fmt: skip


@pytest.mark.parametrize(("key", "place"), [("grad0", 0), ("grad1", 1)])
def test_layers_send_the_gradient_of_their_output_also_where_the_next_works_in_place(scene, key, place):
    expected = [str(scene.gradients[step][place][0].tolist()) for step in (0, 2, 6)]
    assert [line[5] for line in scene.of(key)] == expected


def test_tensors_send_their_value_when_the_gradient_arrives(scene):
    expected = [str(scene.weights[step].flatten().tolist()) for step in (0, 2, 6)]
    assert [line[5] for line in scene.of("weight")] == expected


def test_a_number_in_use_attaches_to_its_child_and_records_for_good(scene):
    assert scene.attached[0] == scene.first[0] == 0
    assert scene.attached[3] == scene.first[3]
    assert len(scene.of("grad0")) == 3
    assert len({line[-1] for line in scene.got if line[0] == 0}) == 1  # one process


def test_a_transform_replaces_what_is_sent(scene):
    assert [line[4] for line in scene.of("norm")] == [[], [], []]
    assert float(scene.of("norm")[0][5].strip("[]")) == pytest.approx(scene.outputs[0].norm().item())
    assert scene.of("list")[0][5] == "[1, 2]"


def test_a_transform_that_returns_nothing_sends_nothing(scene):
    assert scene.of("none") == []


@pytest.mark.parametrize("name", VALUES)
def test_whatever_a_module_returns_arrives(scene, name):
    value = VALUES[name]
    tensor = value[0] if name == "tuple" else value["logits"] if name == "dict" else value
    (line,) = scene.of(name)
    assert (line[4], line[5]) == (list(tensor.shape), str(tensor.flatten().tolist()))


def test_a_callback_that_fails_ends_its_own_name_only(scene):
    assert [line[3] for line in scene.of("bad")] == ["0"]
    assert len(scene.of("model")) == 3


def test_an_unknown_number_starts_a_new_child_with_the_next_number(scene):
    assert scene.first[0] == 0
    assert scene.shared[0] == 2  # of two new ones, the last
    assert len(scene.shared[3]) == 2
    assert len({process.pid for process in [*scene.shared[3], *scene.first[3]]}) == 3


def test_nothing_stays_on_the_model(scene):
    modules = [*scene.model.modules(), scene.bad]
    assert not any(module._forward_hooks or module._backward_hooks for module in modules)
    assert not any(parameter._backward_hooks for parameter in scene.model.parameters())


def test_all_children_end_and_all_values_are_accounted_for(scene):
    assert not scene.handler.is_alive()
    for account in scene.handler.accounts.values():
        assert account.offered == account.handled
        assert not account.dropped


# There is one


def test_calling_it_again_returns_the_first():
    first = ParrallelHandler(None, None, 20.0, 30.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ParrallelHandler() is first
        assert ParallelHandler(callback_onrun=None, callback_onclosing=None, frequency=20, max_elapsed_time=30) is first


def test_calling_it_again_with_something_else_returns_the_first_and_says_so():
    first = ParallelHandler(None, frequency=20.0)
    with pytest.warns(RuntimeWarning, match=r"the first one stays, with its own frequency, timeout; stop\(\) it"):
        assert ParallelHandler(None, None, 5.0, 1.0) is first
    assert first.frequency == 20


def test_without_a_first_one_it_cannot_be_asked_for():
    with pytest.raises(BadArgument, match="there is no ParallelHandler yet; make the first one with its callbacks"):
        ParallelHandler()


def test_after_a_stop_another_can_be_made():
    first = ParallelHandler(None, frequency=20.0)
    first.stop(True)
    second = ParallelHandler(None, frequency=5.0)
    assert second is not first
    first.stop(True)  # twice does no harm
    assert ParallelHandler() is second


@pytest.mark.parametrize("frequency", [0, -1, 0.0, math.nan, math.inf, 2.5, "often", None, 1j])
def test_a_frequency_that_means_nothing_is_refused_at_once(frequency):
    with pytest.raises(BadArgument, match="frequency is "):
        ParallelHandler(None, None, frequency, 30.0)
    with pytest.raises(BadArgument, match="there is no"):
        ParallelHandler()
    handler = ParallelHandler(None)
    with pytest.raises(BadArgument, match="frequency is "):
        handler.frequency = frequency


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"callback_onrun": 3}, "callback_onrun is 3, which cannot be called"),
        ({"callback_onclosing": "x"}, "callback_onclosing is 'x'"),
        ({"timeout": None}, "timeout is None, and must be a number"),
        ({"max_queue_size": "many"}, "max_queue_size is 'many'"),
        ({"target_method": "threads"}, "no target_method 'threads'; a child is always a fresh process"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, text):
    with pytest.raises(BadArgument, match=text):
        ParallelHandler(**{"callback_onrun": None, **settings})


# What can be tracked


@pytest.mark.parametrize(
    ("verb", "items", "text"),
    [
        ("track_model", {"x": torch.ones(1)}, "'x' is a Tensor; track_model and track_layer take nn.Modules"),
        ("track_layer", {"x": 3}, "'x' is a int"),
        ("track_tensor", {"x": nn.ReLU()}, "'x' is a ReLU; track_tensor takes tensors"),
        (
            "track_tensor",
            {"x": torch.ones(1)},
            r"'x' gets no gradient, at which it would be sent; call requires_grad_\(",
        ),
        ("track_model", nn.ReLU(), r"are a dict, such as \{'model': model\}, not ReLU"),
        ("track_model", {0: nn.ReLU()}, "goes by a name, and 0 is none"),
    ],
)
def test_what_cannot_be_tracked_is_refused_and_starts_nothing(verb, items, text):
    handler = ParallelHandler(None)
    with pytest.raises((BadArgument, NotAModel), match=text):
        getattr(handler, verb)(-1, items)
    assert handler.get_last_key() is None
    assert handler.get_internal_unique_id() == -1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (({"a": nn.ReLU()},), "not None; the number of a child stands before it, -1 for a new one"),
        (([1], {"a": nn.ReLU()}), r"unique_id is \[1\]; it is the number of a child"),
        ((-1, {"a": nn.ReLU()}, 3), "callback_transform is 3, which cannot be called"),
    ],
)
def test_arguments_in_the_wrong_place_are_refused_and_start_nothing(arguments, text):
    handler = ParallelHandler(None)
    with pytest.raises(BadArgument, match=text):
        handler.track_model(*arguments)
    assert handler.get_last_key() is None


def test_tracking_never_asks_for_a_gradient_itself():
    handler, tensor = ParallelHandler(None), torch.ones(2)
    with pytest.raises(BadArgument):
        handler.track_tensor(-1, {"x": tensor})
    handler.track_layer(-1, {"frozen": nn.Linear(2, 2).requires_grad_(False)})
    assert not tensor.requires_grad


def test_an_argument_nobody_knows_is_refused():
    with pytest.raises(BadArgument, match="no argument 'list_modles'; there are unique_id, items"):
        ParallelHandler(None).track_model(-1, list_modles={"a": nn.ReLU()})


def test_a_handler_that_is_not_enabled_tracks_nothing():
    handler, model = ParallelHandler(None), nn.ReLU()
    handler.enabled = False
    assert handler.track_model(-1, {"model": model}) == (None, None, None, None)
    assert not model._forward_hooks
    assert not handler.is_alive()


def test_tracking_nothing_says_so():
    with pytest.warns(RuntimeWarning, match="nothing to track was given"):
        assert ParallelHandler(None).track_layer(-1, {}) == (None, None, None, None)


@pytest.mark.parametrize("kind", fast_first([torch.float8_e4m3fn, torch.float8_e5m2]))
def test_eight_bits_arrive_as_they_were(kind, tmp_path):
    def note(input_data, **values):
        (tmp_path / "notes").write_text(f"{input_data.dtype} {input_data.float().tolist()}")

    handler, model = ParallelHandler(note), nn.Identity()
    handler.track_model(-1, {"model": model})
    model(torch.tensor([[0.5, -1.5], [3.0, 0.0]]).to(kind))
    handler.stop(True)
    assert (tmp_path / "notes").read_text() == f"{kind} [[0.5, -1.5], [3.0, 0.0]]"


# The queues


def test_a_value_can_be_put_into_the_queue_by_hand():
    handler = ParallelHandler(None)
    _, queue_to, queue_from, _ = handler.track_model(-1, {"model": nn.ReLU()})
    queue_to.put(ProcessInfoData("mine", "a line", "7", torch.ones(2)))
    queue_to.put_nowait(ProcessInfoData("mine", "a line", "in words", torch.ones(2)))
    with pytest.raises(BadArgument, match="queue_to takes a ProcessInfoData with a tensor"):
        queue_to.put([1, 2])
    with pytest.raises(BadArgument, match="only the child reads queue_to"):
        queue_to.get()
    with pytest.raises(BadArgument, match="only the child writes to queue_from"):
        queue_from.put(1)
    with pytest.raises(Empty):
        queue_from.get(timeout=0.05)
    wait_until(queue_to.empty)
    handler.stop(True)
    assert queue_from.get_nowait()["kind"] == "done"
    assert handler.accounts[0].handled == 2
