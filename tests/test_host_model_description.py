"""A network from a model, when nobody names anything."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torcheer.host.follow.model_description import describe, network_of
from torcheer.host.follow.pass_observer import PassObserver
from torcheer.network.layer_choice import MOST_LAYERS
from torcheer.network.network_records import Network, Projection, full_name


def observed(model: nn.Module, *inputs: Any, grad: bool = True) -> Network:
    """The network that hooks see in one pass."""
    observation = PassObserver(model)
    observation.begin(inputs, {})
    with torch.set_grad_enabled(grad):
        model(*inputs)
    observation.end()
    network, choice = network_of(model, observation.observed)
    observed.notes = choice.notes  # type: ignore[attr-defined]
    return network


def shapes(network: Network) -> dict[str, tuple[int, ...]]:
    return {layer.name: layer.shape for layer in network.layers}


def views(network: Network) -> dict[str, str]:
    return {layer.name: layer.view for layer in network.layers}


def arrows(network: Network) -> set[tuple[str, str, str]]:
    return {(one.sender, one.receiver, one.type) for one in network.projections}


def conv() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Dropout(), nn.Flatten(), nn.Linear(16, 10), nn.Tanh(), nn.Linear(10, 3),
    )  # fmt: skip


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.hidden, self.out = nn.Conv2d(1, 4, 3), nn.Linear(144, 10), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.hidden(F.relu(self.conv(x)).flatten(1))))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.one, self.two = (nn.Linear(8, 8) for _ in range(3))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.stem(x))
        return self.relu(self.two(self.relu(self.one(x))) + x)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.join = nn.Linear(4, 3), nn.Linear(6, 3), nn.Linear(6, 2)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.join(torch.cat([self.left(a), self.right(b)], 1))


class Loop(nn.Module):
    def __init__(self, times: int) -> None:
        super().__init__()
        self.cell, self.out, self.times = nn.RNNCell(4, 6), nn.Linear(6, 2), times

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), 6)
        for time in range(self.times):
            h = self.cell(x[:, time], h)
        return self.out(h)


BOTH = pytest.mark.parametrize("look", [describe, observed])


@BOTH
def test_a_convolution_reads_as_maps_and_what_changes_no_number_is_no_layer(look: Any) -> None:
    network = look(conv(), torch.rand(5, 1, 8, 8))
    assert shapes(network) == {"Input": (1, 8, 8), "0": (4, 4, 4), "3": (4, 2, 2), "6": (10,), "8": (3,)}
    assert views(network) == {"Input": "maps", "0": "maps", "3": "maps", "6": "units", "8": "units"}
    assert {layer.name: layer.also for layer in network.layers if layer.also} == {
        "0": ("1", "2", "0.weight", "0.bias", "1.weight", "1.bias"), "6": ("7", "6.weight", "6.bias"),
        "8": ("8.weight", "8.bias"),
    }  # fmt: skip
    assert [full_name(one, network) for one in ("2", "net.7", "5", "")] == ["2", "7", "5", ""]
    assert network.projections[0] == Projection(
        "0.weight", "Input", "0", "conv", (4, 1, 3, 3), stride=(2, 2), padding=(1, 1), dilation=(1, 1)
    )
    assert network.projections[2] == Projection("6.weight", "3", "6", "linear", (10, 16))
    assert [variable.name for variable in network.variables] == ["Act", "Net", "Grad", "Wt"]


@BOTH
@pytest.mark.parametrize(
    ("model", "x", "found"),
    [
        (
            nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 8)),
            torch.rand(4),
            {"Input": (4,), "0": (4,), "2": (8,)},
        ),
        (nn.Sequential(nn.Conv2d(2, 4, 3)), torch.rand(2, 6, 6), {"Input": (2, 6, 6), "0": (4, 4, 4)}),
        (nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4)), torch.arange(4), {"Input": (1,), "0": (4,), "1": (4,)}),
    ],
    ids=["units", "maps", "a batch of words"],
)
def test_one_item_without_a_batch_is_shown_as_it_is(look: Any, model: nn.Module, x: Tensor, found: Any) -> None:
    network = look(model, x)
    assert shapes(network) == found
    assert network.projections[-1].kind in ("linear", "conv")


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (conv(), [torch.rand(5, 1, 8, 8)]),
        (Functional(), [torch.rand(2, 1, 8, 8)]),
        (Residual(), [torch.rand(3, 8)]),
        (Branches(), [torch.rand(3, 4), torch.rand(3, 6)]),
        (Loop(8), [torch.rand(3, 8, 4)]),
        (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), [torch.rand(3, 7, 16, requires_grad=True)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_hooks_see_in_a_training_pass_what_a_capture_sees(model: nn.Module, inputs: list[Tensor]) -> None:
    seen = observed(model, *inputs)
    assert seen == describe(model, tuple(inputs)) and len(seen.layers) > 2


def test_activations_between_layers_do_not_hide_who_feeds_whom() -> None:
    assert arrows(describe(Functional(), torch.rand(2, 1, 8, 8))) == {
        ("Input", "conv", "forward"), ("conv", "hidden", "forward"), ("hidden", "out", "forward"),
    }  # fmt: skip


@BOTH
def test_a_way_around_is_a_skip_and_a_module_called_twice_has_two_layers(look: Any) -> None:
    network = look(Residual(), torch.rand(3, 8))
    assert [layer.name for layer in network.layers] == ["Input", "stem", "one", "two", "relu:3"]
    assert arrows(network) == {
        ("Input", "stem", "forward"), ("stem", "one", "forward"), ("one", "two", "forward"),
        ("two", "relu:3", "forward"), ("stem", "relu:3", "skip"),
    }  # fmt: skip


@BOTH
def test_two_inputs_have_a_layer_each(look: Any) -> None:
    network = look(Branches(), torch.rand(3, 4), torch.rand(3, 6)) if look is observed else describe(
        Branches(), (torch.rand(3, 4), torch.rand(3, 6))
    )  # fmt: skip
    assert shapes(network)["Input"] == (4,) and shapes(network)["Input:2"] == (6,)
    assert {("Input", "left", "forward"), ("Input:2", "right", "forward")} <= arrows(network)
    assert {("left", "join", "skip"), ("right", "join", "forward")} <= arrows(network)


def test_a_long_loop_is_one_layer_that_feeds_itself_and_a_short_one_is_unrolled() -> None:
    network = observed(Loop(9), torch.rand(3, 9, 4))
    assert [layer.name for layer in network.layers] == ["Input", "cell", "out"]
    assert ("cell", "cell", "recurrent") in arrows(network) and ("Input", "out", "skip") not in arrows(network)
    assert "cell: called more than 4 times in a pass" in observed.notes[0]  # type: ignore[attr-defined]
    assert "cell:3" in shapes(observed(Loop(3), torch.rand(3, 3, 4)))


@BOTH
@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_reads_as_heads_wherever_the_batch_is(look: Any, batch_first: bool) -> None:
    model = nn.TransformerEncoderLayer(16, 4, 32, batch_first=batch_first)
    network = look(model, torch.rand(3, 7, 16) if batch_first else torch.rand(7, 3, 16))
    assert shapes(network)["self_attn"] == (7, 16) and shapes(network)["Input"] == (7, 16)
    assert shapes(network)["self_attn.weights"] == (4, 7, 7) and views(network)["self_attn.weights"] == "heads"
    assert views(network)["linear1"] == "plane"


def test_without_gradients_the_order_tells_what_the_graph_cannot() -> None:
    network = observed(Functional(), torch.rand(2, 1, 8, 8), grad=False)
    assert arrows(network) == arrows(describe(Functional(), torch.rand(2, 1, 8, 8)))


@pytest.mark.parametrize("count", [100, 1000])
def test_of_a_very_large_model_some_layers_are_chosen_and_it_is_said(count: int) -> None:
    flat = nn.Sequential(*(nn.Linear(4, 4) for _ in range(count)))
    network = observed(flat, torch.rand(2, 4))
    assert 10 < len(network.layers) <= MOST_LAYERS + 1
    assert network.layers[-1].name == str(count - 1) and "layers are shown" in observed.notes[0]  # type: ignore[attr-defined]
    nested = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4)) for _ in range(50)))
    network = observed(nested, torch.rand(2, 4))
    assert [layer.name for layer in network.layers] == ["Input", *map(str, range(50))]
    assert "the 50 modules at depth 1" in observed.notes[0]  # type: ignore[attr-defined]
    assert ("3", "4", "forward") in arrows(network)


def test_before_anything_ran_the_weights_tell_something() -> None:
    network = describe(conv())
    assert [layer.name for layer in network.layers] == ["Input", "0", "6", "8"]
    assert describe(nn.ReLU()).layers == ()


def test_describing_leaves_no_trace_in_the_model() -> None:
    model = conv().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    describe(model, torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(torch.rand(3), expected)  # no random number was taken
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair, self.none, self.flat = nn.LSTM(4, 5, batch_first=True), nn.Identity(), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        out, _ = self.pair(x)
        return {"y": self.flat(out.reshape(-1, 5)), "z": self.none(x)}


@BOTH
def test_tuples_dicts_and_sequences_laid_end_to_end_are_understood(look: Any) -> None:
    network = look(Odd(), torch.rand(3, 7, 4))
    assert shapes(network) == {"Input": (7, 4), "pair": (7, 5), "flat": (7, 2)}
    assert arrows(network) == {("Input", "pair", "forward"), ("pair", "pair", "recurrent"), ("pair", "flat", "forward")}


def test_names_are_unique_and_every_arrow_has_its_layers() -> None:
    for model, inputs in (
        (conv(), torch.rand(5, 1, 8, 8)),
        (Residual(), torch.rand(3, 8)),
        (Loop(3), torch.rand(2, 3, 4)),
    ):
        network = observed(model, inputs)
        names = [layer.name for layer in network.layers]
        assert len(set(names)) == len(names)
        assert len({one.name for one in network.projections}) == len(network.projections)
        assert all(one.sender in names and one.receiver in names for one in network.projections)
