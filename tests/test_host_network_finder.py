"""A network from a model, when nobody names anything."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed
import torch.nn.functional as F
from seams import (
    MOST_LAYERS,
    Network,
    PassObserver,
    Projection,
    can_record,
    describe_pass,
    full_name,
    function_modes,
    network_finder,
    pass_of_weights,
    run_once,
)
from torch import Tensor, nn

import torcheer as tl


def named(ops: Any, model: nn.Module) -> Network:
    return describe_pass(ops, type(model).__name__).network


def observed(model: nn.Module, *inputs: Any, grad: bool = True) -> Network:
    """The network that hooks see in one pass."""
    observation = PassObserver(model)
    observation.begin(inputs, {})
    with torch.set_grad_enabled(grad):
        model(*inputs)
    observation.end()
    return named(observation.model_pass.ops, model)


def described(model: nn.Module, *inputs: Any) -> Network:
    """The network that an extra pass shows."""
    return named(run_once(model, tuple(inputs)).ops, model)


def shown_live(model: nn.Module, *inputs: Any) -> Network:
    """The network of a model's own first call."""
    with tl.live(model, open_server=False) as view:
        model(*inputs)
        assert view.host.network is not None and not model._forward_hooks and "forward" not in vars(model)
        return view.host.network


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


ALL = pytest.mark.parametrize("look", [described, observed, shown_live])


@ALL
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


@ALL
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


@ALL
def test_activations_between_layers_do_not_hide_who_feeds_whom(look: Any) -> None:
    assert arrows(look(Functional(), torch.rand(2, 1, 8, 8))) == {
        ("Input", "conv", "forward"), ("conv", "hidden", "forward"), ("hidden", "out", "forward"),
    }  # fmt: skip


@ALL
def test_a_way_around_is_a_skip_and_a_module_called_twice_has_two_layers(look: Any) -> None:
    network = look(Residual(), torch.rand(3, 8))
    assert [layer.name for layer in network.layers] == ["Input", "stem", "one", "two", "relu:3"]
    assert arrows(network) == {
        ("Input", "stem", "forward"), ("stem", "one", "forward"), ("one", "two", "forward"),
        ("two", "relu:3", "forward"), ("stem", "relu:3", "skip"),
    }  # fmt: skip


@ALL
def test_two_inputs_have_a_layer_each_with_the_name_of_their_parameter(look: Any) -> None:
    network = look(Branches(), torch.rand(3, 4), torch.rand(3, 6))
    assert shapes(network)["a"] == (4,) and shapes(network)["b"] == (6,)
    assert {("a", "left", "forward"), ("b", "right", "forward")} <= arrows(network)
    assert {("left", "join", "forward"), ("right", "join", "forward")} <= arrows(network)


@ALL
def test_a_long_loop_is_one_layer_that_feeds_itself_and_a_short_one_is_unrolled(look: Any) -> None:
    network = look(Loop(9), torch.rand(3, 9, 4))
    assert [layer.name for layer in network.layers] == ["Input", "cell", "out"]
    assert ("cell", "cell", "recurrent") in arrows(network) and ("Input", "out", "skip") not in arrows(network)
    assert "cell: called more than 4 times in a pass" in network.notes[0]
    assert "cell:3" in shapes(look(Loop(3), torch.rand(3, 3, 4)))


@ALL
@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_reads_as_heads_wherever_the_batch_is(look: Any, batch_first: bool) -> None:
    model = nn.TransformerEncoderLayer(16, 4, 32, batch_first=batch_first)
    network = look(model, torch.rand(3, 7, 16) if batch_first else torch.rand(7, 3, 16))
    assert shapes(network)["self_attn"] == (7, 16) and shapes(network)["Input"] == (7, 16)
    assert shapes(network)["self_attn.weights"] == (4, 7, 7) and views(network)["self_attn.weights"] == "heads"
    assert views(network)["linear1"] == "plane"


def test_without_gradients_the_order_tells_what_the_graph_cannot() -> None:
    network = observed(Functional(), torch.rand(2, 1, 8, 8), grad=False)
    assert arrows(network) == arrows(described(Functional(), torch.rand(2, 1, 8, 8)))


@ALL
def test_of_a_very_large_model_some_layers_are_chosen_and_it_is_said(look: Any) -> None:
    count = MOST_LAYERS + 50
    flat = nn.Sequential(*(nn.Linear(4, 4) for _ in range(count)))
    network = look(flat, torch.rand(2, 4))
    assert 10 < len(network.layers) <= MOST_LAYERS + 1
    assert network.layers[-1].name == str(count - 1) and "layers are shown" in network.notes[0]


@ALL
def test_a_deep_model_is_folded_by_its_modules(look: Any) -> None:
    nested = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4)) for _ in range(700)))
    network = look(nested, torch.rand(2, 4))
    assert [layer.name for layer in network.layers] == ["Input", *map(str, range(700))]
    assert "the 700 modules at depth 1" in network.notes[0] and ("3", "4", "forward") in arrows(network)
    first, *others = (node for node in network.modules if node.parent == "")
    assert first.repeats == 700 and {node.repeats for node in others} == {0}
    assert {node.parent for node in network.modules} == {""}, "what lies deeper than the layers is not sent"


def test_before_anything_ran_the_weights_tell_something() -> None:
    network = named(pass_of_weights(conv()).ops, conv())
    assert [layer.name for layer in network.layers] == ["Input", "0", "6", "8"]
    assert named(pass_of_weights(nn.ReLU()).ops, nn.ReLU()).layers == ()


def test_describing_leaves_no_trace_in_the_model() -> None:
    model = conv().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    described(model, torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(1)))
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


@ALL
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


# -- where a call cannot be recorded -----------------------------------------------------------------------------------


def test_a_compiled_model_is_the_network_of_its_eager_program_and_says_so() -> None:
    model = torch.compile(conv(), backend="eager")
    x = torch.rand(5, 1, 8, 8)
    with tl.live(model, open_server=False) as view:  # type: ignore[arg-type]
        for _ in range(2):
            model(x)
        network = view.host.network
    assert network is not None and network.notes == (network_finder.COMPILED_PASS,)
    assert network.layers == described(conv(), x).layers


class Counting(nn.Module):
    """Does everything in its forward that a second pass could leave behind."""

    calls: int
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=0.5), nn.Dropout(0.5)
        self.calls, self.seen, self.last = 0, [], {}  # type: int, list[float], dict[str, Tensor]
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(random.random() + np.random.rand())
        self.total = self.total + x.detach().sum(0)
        self.steps += 1
        self.last["x"] = x
        self.made = x
        return torch.rand(4) + self.drop(self.norm(self.fc(x)))


def state_of(model: Counting) -> list[object]:
    """What a pass changes, and the next random numbers."""
    values = {name: value.tolist() for name, value in model.state_dict().items()}
    held = [model.calls, list(model.seen), list(model.last), hasattr(model, "made"), model.training, model.fc.training]
    return [values, *held, random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()]


@pytest.mark.parametrize("is_training", [True, False])
def test_an_extra_pass_leaves_no_trace_in_the_model_nor_in_random_state(is_training: bool) -> None:
    torch.manual_seed(0)
    model, x = Counting().train(is_training), torch.rand(3, 4)
    model(x)
    total, before = model.total, state_of(model)
    assert run_once(model, x).ops
    assert state_of(model) == before and model.total is total and model._buffers["total"] is total


def test_an_extra_pass_gives_lazy_modules_their_shapes_for_good() -> None:
    model, x = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.ReLU()), torch.rand(3, 5)
    assert run_once(model, x).ops and all(module.training for module in model.modules())
    assert model(x).shape == (3, 4) and type(model[0]) is nn.Linear


def test_a_compiled_model_that_is_followed_computes_the_same_bits() -> None:
    def run(watched: bool) -> list[object]:
        torch.manual_seed(0)
        torch._dynamo.reset()
        net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
        model, x = torch.compile(net, backend="eager"), torch.rand(3, 4)
        view = tl.live(model, open_server=False) if watched else None  # type: ignore[arg-type]
        outputs = [model(x).tolist() for _ in range(3)]
        if view is not None:
            assert view.host.network is not None and view.host.network.notes == (network_finder.COMPILED_PASS,)
            view.finish()
        return [outputs, [value.tolist() for value in net.state_dict().values()], torch.random.get_rng_state().tolist()]

    assert run(True) == run(False)


def test_a_model_with_a_scripted_part_is_observed_by_hooks_and_says_so() -> None:
    model = conv()
    model[0] = torch.jit.script(model[0])
    with tl.live(model, open_server=False) as view:
        model(torch.rand(5, 1, 8, 8))
        network = view.host.network
    assert network is not None and network_finder.SEEN_BY_HOOKS in network.notes
    assert {"Input", "3", "6", "8"} <= shapes(network).keys()


def test_a_model_that_calls_a_compiled_function_is_not_recorded_as_its_numbers_would_change() -> None:
    model = Functional()
    assert can_record(model)
    model.function = torch.compile(torch.sin, backend="eager")  # type: ignore[assignment]
    assert not can_record(model)
    with tl.live(model, open_server=False) as view:
        model(torch.rand(2, 1, 8, 8))
        assert view.host.network is not None and network_finder.SEEN_BY_HOOKS in view.host.network.notes


def test_of_a_scripted_model_the_weights_are_shown() -> None:
    with tl.live(torch.jit.script(conv()), open_server=False) as view:
        network = view.host.network
    assert network is not None and network.notes == (network_finder.GUESSED,)
    assert [layer.name for layer in network.layers] == ["Input", "0", "6", "8"]


@pytest.fixture
def group(tmp_path: Any) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_a_sharded_model_is_observed_by_hooks_and_has_the_same_layers() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    expected, model = described(conv(), torch.rand(5, 1, 8, 8)), conv()
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    with tl.live(model, open_server=False) as view:
        model(torch.rand(5, 1, 8, 8)).sum().backward()
        network = view.host.network
    assert network is not None and network_finder.SEEN_BY_HOOKS in network.notes
    assert shapes(network) == shapes(expected) and arrows(network) == arrows(expected)


# -- the recorded call ------------------------------------------------------------------------------------------------


class Stops(nn.Module):
    """Fails as long as it is told to."""

    def __init__(self, error: BaseException | None) -> None:
        super().__init__()
        self.first, self.error = nn.Linear(4, 3), error

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.first(x)
        if self.error is not None:
            raise self.error
        return torch.relu(y)


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
def test_a_first_call_that_fails_leaves_nothing_behind_and_the_next_is_recorded(error: BaseException) -> None:
    model, call = Stops(error), nn.Module._call_impl
    with tl.live(model, open_server=False) as view:
        with pytest.raises(type(error)) as caught:
            model(torch.rand(2, 4))
        assert caught.value is error and not hasattr(error, "history") and not hasattr(error, "__notes__")
        assert not function_modes() and nn.Module._call_impl is call and view.host.network is None
        model.error = None
        model(torch.rand(2, 4))
        assert view.host.network is not None and list(shapes(view.host.network)) == ["Input", "first"]
    assert not model._forward_pre_hooks and "forward" not in vars(model) and nn.Module._call_impl is call


def test_a_recorded_call_keeps_no_value_alive() -> None:
    made: list[weakref.ref[Tensor]] = []

    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.one(x)
            made.append(weakref.ref(y))
            return self.two(torch.relu(y))

    model = Keeps()
    gc.disable()
    try:
        with tl.live(model, open_server=False):
            model(torch.rand(3, 4))
            assert made[0]() is None
    finally:
        gc.enable()


class Restless(nn.Module):
    """Draws random numbers and writes buffers as it runs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.drop = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.4)
        self.block = nn.TransformerEncoderLayer(36, 4, 16, dropout=0.2, batch_first=True)
        self.out = nn.Linear(36, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(F.relu_(self.norm(self.conv(x)))).flatten(2)
        return self.out(self.block(x + 0.01 * torch.randn_like(x)).mean(1))


@pytest.mark.usefixtures("one_thread")
def test_a_training_step_is_bit_equal_with_and_without_the_recorded_call() -> None:
    def train(model: nn.Module) -> list[Tensor]:
        torch.manual_seed(7)
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.rand(5, 1, 8, 8)).square().mean().backward()
            optimizer.step()
        return [*(value.clone() for value in model.state_dict().values()), torch.get_rng_state()]

    expected, model = train(Restless()), Restless()
    with tl.live(model, open_server=False) as view:
        found = train(model)
        assert view.host.network is not None and view.host.network.notes == () and not view.problems
    assert all(map(torch.equal, found, expected))


def test_an_encoder_that_runs_fused_is_recorded_with_its_inside_and_its_numbers_stay() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2).eval()
    x = torch.rand(3, 7, 16)
    with torch.no_grad():
        expected = model(x)
        with tl.live(model, open_server=False) as view:
            found = model(x)
            network = view.host.network
    assert torch.equal(found, expected) and network is not None
    assert len(network.layers) == 13 and ("layers.0.norm2", "layers.1.self_attn", "forward") in arrows(network)
