"""Which layers of a model can be tracked, and their names as text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import first_tensor, read_names
from torch import nn

from torcheer.errors import BadArgument, NotAModel, TorcheerError, UnknownLayer
from torcheer.inspector import discover, find_layers, load_layers, save_layers

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from alexnet import AlexNet


class Branches(nn.Module):
    """One layer that trains, one that is frozen, one that is cut off, one that never runs, one that gives no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.trained, self.frozen, self.cut, self.idle = (nn.Linear(3, 3) for _ in range(4))
        self.text = Text()
        for parameter in self.frozen.parameters():
            parameter.requires_grad = False

    def forward(self, x):
        self.text(x)
        return self.trained(self.frozen(x)) + self.cut(x).detach()


class Text(nn.Module):
    def forward(self, x):
        return "no tensor"


def test_without_inputs_every_layer_without_children_is_found():
    layers = discover(Branches())
    assert list(layers) == ["trained", "frozen", "cut", "idle", "text"]


def test_with_inputs_only_layers_that_run_and_give_a_tensor_are_found():
    model = Branches()
    layers = discover(model, torch.rand(2, 3))
    assert list(layers) == ["trained", "frozen", "cut"]
    assert layers["cut"] is model.cut


def test_with_gradients_only_layers_that_get_one_are_found():
    assert list(discover(Branches(), torch.rand(2, 3), gradients=True)) == ["trained"]


def test_layers_that_work_in_place_are_found_too():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 3))
    assert list(discover(model, torch.rand(2, 3), gradients=True)) == ["0", "1", "2"]


def test_the_alexnet_of_the_seed_is_found_whole():
    layers = discover(AlexNet(10).eval(), torch.rand(1, 3, 224, 224), gradients=True)
    assert len(layers) == 21
    assert {"features.1", "avgpool", "classifier.6"} < set(layers)


def test_attention_that_never_calls_its_child_is_found_itself():
    layers = discover(nn.TransformerEncoderLayer(8, 2, batch_first=True), torch.rand(1, 4, 8), gradients=True)
    assert "self_attn" in layers
    assert "self_attn.out_proj" not in layers


def test_a_model_without_parts_goes_by_its_type():
    assert list(discover(nn.Linear(3, 3), torch.rand(2, 3))) == ["Linear"]


def test_a_recurrent_layer_counts_by_the_first_of_its_outputs():
    assert list(discover(nn.LSTM(3, 4), torch.rand(5, 1, 3), gradients=True)) == ["LSTM"]


def test_inputs_may_be_a_list_or_named():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(4, 3)

        def forward(self, x, y):
            return {"sum": self.first(x) + self.second(y)}

    x, y = torch.rand(2, 3), torch.rand(2, 4)
    assert list(discover(Two(), [x, y], gradients=True)) == ["first", "second"]
    assert list(discover(Two(), {"x": x, "y": y}, gradients=True)) == ["first", "second"]


def test_pick_says_where_the_gradient_starts():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.one(x), self.other(x)

    assert list(discover(Heads(), torch.rand(2, 3), gradients=True, pick=lambda output: output[1])) == ["other"]


def test_a_run_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout())
    model(torch.rand(4, 3)).sum().backward()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    random = torch.get_rng_state()
    discover(model, torch.rand(4, 3, generator=torch.Generator()), gradients=True)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    assert all(torch.equal(mine, parameter.grad) for mine, parameter in zip(gradients, model.parameters()))
    assert torch.equal(random, torch.get_rng_state())
    assert not any(module._forward_hooks for module in model.modules())


def test_a_run_that_fails_leaves_no_hooks():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(4))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        discover(model, torch.rand(2, 5))
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("match", "found"),
    [("features.1?", 3), ("Conv2d", 5), (["Conv2d", "classifier.6"], 6), ("*", 21), ([], 21)],
)
def test_patterns_choose_by_name_or_type(match, found):
    assert len(discover(AlexNet(10), match=match)) == found


# As text


def test_names_survive_a_text_file(tmp_path):
    model = Branches()
    save_layers(discover(model), tmp_path / "layers.txt")
    again = load_layers(tmp_path / "layers.txt", model)
    assert list(again) == ["trained", "frozen", "cut", "idle", "text"]
    assert again["idle"] is model.idle


def test_comments_and_empty_lines_are_passed_over(tmp_path):
    (tmp_path / "layers.txt").write_text("# mine\n\n  cut  \r\n#idle\ntrained\n")
    assert read_names(tmp_path / "layers.txt") == ["cut", "trained"]


def test_an_unknown_name_in_a_file_names_the_nearest_and_the_file(tmp_path):
    (tmp_path / "layers.txt").write_text("trained\nfrozn\n")
    with pytest.raises(
        UnknownLayer, match=r"Branches has no layer 'frozn' that .*layers.txt asks for. Did you mean 'fro"
    ):
        load_layers(tmp_path / "layers.txt", Branches())


def test_a_file_without_names_is_refused(tmp_path):
    (tmp_path / "layers.txt").write_text("# nothing\n")
    with pytest.raises(BadArgument, match="names no layer"):
        load_layers(tmp_path / "layers.txt", Branches())


def test_names_that_a_line_cannot_hold_are_refused(tmp_path):
    for name in ("# no", "a\nb", "", " a"):
        with pytest.raises(BadArgument, match="cannot stand on a line"):
            save_layers([name], tmp_path / "layers.txt")
    assert not (tmp_path / "layers.txt").exists()


def test_a_file_of_pytorch_inspector_is_understood(tmp_path):
    model = AlexNet(10)
    (tmp_path / "layers.txt").write_text("AlexNet.Sequential.features.0\nAlexNet.avgpool\n")
    assert list(load_layers(tmp_path / "layers.txt", model).values()) == [model.features[0], model.avgpool]


def test_the_first_tensor_is_found_in_what_models_return():
    x = torch.rand(2)
    packed = nn.utils.rnn.pack_sequence([torch.rand(3, 2)])
    assert first_tensor((None, {"logits": [x]})) is x
    assert first_tensor(packed) is packed.data
    assert first_tensor("text") is None
    assert first_tensor((x, x.clone().requires_grad_()), requires_grad=True) is not x


# What is refused

REFUSED = {
    "a pattern that fits nothing names the nearest": (
        lambda: discover(Branches(), match="traned"),
        UnknownLayer,
        r"no layer or module named 'traned' .* Did you mean 'trained'\?",
    ),
    "gradients without inputs are refused": (
        lambda: discover(Branches(), gradients=True),
        BadArgument,
        "give inputs too",
    ),
    "an output without a gradient is refused": (
        lambda: discover(Branches().requires_grad_(False), torch.rand(2, 3), gradients=True),
        BadArgument,
        "no tensor with a gradient; try pick=",
    ),
    "something else than a model is refused": (lambda: discover({"a": 1}), NotAModel, "this is a dict"),
    "layers found by name are errors of ours when missing": (
        lambda: find_layers(Branches(), ["nothing"]),
        TorcheerError,
        "no layer 'nothing'",
    ),
}


@pytest.mark.parametrize(("call", "error", "says"), REFUSED.values(), ids=REFUSED)
def test_discovery_refuses_and_says_why(call: Callable[..., Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
