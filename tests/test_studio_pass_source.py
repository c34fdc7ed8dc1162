"""A recorded forward pass as the studio shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import PassSource, open_source
from studio_runs import Digits, recorded
from torch import nn

import torcheer as tl
from torcheer.errors import TorcheerError


def passed(model: nn.Module, inputs: Any, folder: Path, **options: Any) -> PassSource:
    tl.log_forward_pass(model, inputs, **options).save(folder, parameters=True)
    return PassSource(folder)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[PassSource, Digits, torch.Tensor]:
    folder = tmp_path_factory.mktemp("history") / "pass"
    model, x = recorded(folder)
    return PassSource(folder), model, x


def test_a_recorded_pass_has_a_layer_for_what_each_module_returned(digits: Any) -> None:
    source, _, _ = digits
    shapes = {one.layer.name: one.layer.shape for one in source.net.layers}
    assert shapes == {
        "Input": (1, 8, 8), "conv1": (6, 8, 8), "conv2": (6, 8, 8), "pool": (6, 4, 4), "head": (10,), "again": (10,),
        "again:2": (10,),
    }  # fmt: skip
    kinds = {one.layer.name: one.layer.kind for one in source.net.layers}
    assert kinds["conv1"] == "Conv2d" and kinds["Input"] == "Input"
    assert source.state.batch == 4 and len(source.moments) == 1 and source.kind == "pass"


def test_its_facts_stand_in_the_form(digits: Any) -> None:
    source, model, _ = digits
    facts = {one.name: one.value for one in source.parameters}
    assert facts["model"] == "Digits" and facts["parameters"] == sum(one.numel() for one in model.parameters())
    assert facts["operations"] == 10 and not any(one.editable for one in source.parameters)


def test_its_projections_follow_the_graph(digits: Any) -> None:
    source, _, _ = digits
    found = {(one.sender, one.receiver): (one.kind, one.type) for one in source.net.projections}
    assert found == {
        ("Input", "conv1"): ("conv", "forward"), ("conv1", "conv2"): ("conv", "forward"),
        ("conv2", "pool"): ("", "forward"), ("conv1", "pool"): ("", "skip"), ("pool", "head"): ("linear", "forward"),
        ("head", "again"): ("linear", "forward"), ("again", "again:2"): ("linear", "forward"),
    }  # fmt: skip


def test_its_values_and_gradients_are_those_of_torch(digits: Any) -> None:
    source, model, x = digits
    with torch.no_grad():
        wanted = model(x)
        first = model.conv1(x)
    for item in range(4):
        assert np.allclose(source.units(0, "again:2", "Act", item), wanted[item].numpy(), atol=1e-6)
        assert np.allclose(source.units(0, "conv1", "Act", item), first[item].reshape(-1).numpy(), atol=1e-6)
    assert source.units(0, "again:2", "Grad", 2).tolist() == [1.0] * 10
    assert [one.name for one in source.net.variables][:2] == ["Act", "Grad"]


def test_weights_into_a_unit_times_what_was_sent_is_what_it_computed(digits: Any) -> None:
    source, model, _ = digits
    for layer, sender, module, unit, channel in [
        ("conv1", "Input", model.conv1, 200, 3), ("head", "pool", model.head, 7, 7),
        ("again", "head", model.again, 2, 2),
    ]:  # fmt: skip
        weights, sent = source.units(0, sender, "r.Wt", 0, (layer, unit)), source.units(0, sender, "Act", 1)
        there = ~np.isnan(weights)
        found = weights[there].astype(np.float64) @ sent[there] + float(module.bias[channel].detach())
        assert found == pytest.approx(float(source.units(0, layer, "Act", 1)[unit]), abs=1e-5), layer


def test_an_activation_is_part_of_its_layer_whose_net_is_what_it_read(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)), torch.rand(3, 4)
    source = passed(model, x, tmp_path / "pass")
    assert source.net is not None and [one.name for one in source.net.variables][:2] == ["Act", "Net"]
    with torch.no_grad():
        net = model[0](x)
    assert np.allclose(source.units(0, "0", "Net", 1), net[1].numpy(), atol=1e-6)  # type: ignore[arg-type]
    assert np.allclose(source.units(0, "0", "Act", 1), net.tanh()[1].numpy(), atol=1e-6)  # type: ignore[arg-type]
    assert source.why(0, "2", "Net") == "no activation follows it: what comes out of it is its Act"


def test_a_pass_saved_without_gradients_and_parameters_shows_what_it_has(tmp_path: Path) -> None:
    recorded(tmp_path / "pass", gradients=False, parameters=False)
    source = PassSource(tmp_path / "pass")
    assert source.net is not None and [one.name for one in source.net.variables] == ["Act"]
    assert source.units(0, "conv1", "Act", 0) is not None and source.units(0, "Input", "r.Wt", 0, ("conv1", 3)) is None
    assert {one.kind for one in source.net.projections} == {""}


def test_a_recorded_pass_can_be_kept_as_a_recording(digits: Any, tmp_path: Path) -> None:
    source, _, _ = digits
    source.home = tmp_path
    source.save("kept")
    opened = open_source(tmp_path / "kept")
    assert opened.net == source.net
    for layer in source.net.layers:
        for variable in ("Act", "Grad"):
            one, other = source.units(0, layer.layer.name, variable, 3), opened.units(0, layer.layer.name, variable, 3)
            assert (one is None and other is None) or np.array_equal(one, other, equal_nan=True)


# -- attention ---------------------------------------------------------------------------------------------------------


class Attending(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.after, self.options = nn.Linear(8, 3), options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.attention(x, x, x, **self.options)[0])


MASK = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)


@pytest.mark.parametrize(
    "options", [{}, {"need_weights": False}, {"need_weights": False, "attn_mask": MASK}, {"attn_mask": MASK}]
)
def test_an_attention_shows_where_each_head_looked(tmp_path: Path, options: dict[str, Any]) -> None:
    model, x = Attending(**options), torch.randn(3, 5, 8)
    source = passed(model, x, tmp_path / "pass")
    layers = {one.layer.name: one for one in source.net.layers}  # type: ignore[union-attr]
    heads = layers["attention.weights"]
    assert (heads.layer.shape, heads.layer.view, heads.grid) == ((2, 5, 5), "heads", (1, 2, 5, 5))
    assert heads.place[1] == layers["attention"].place[1] and heads.place[0] > layers["attention"].place[0]
    with torch.no_grad():
        wanted = model.attention(x, x, x, attn_mask=options.get("attn_mask"), average_attn_weights=False)[1]
    for item in range(3):
        found = source.units(0, "attention.weights", "Act", item)
        assert np.allclose(found, wanted[item].reshape(-1).numpy(), atol=1e-5)


def test_a_causal_attention_outside_of_a_module_of_torch(tmp_path: Path) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.all = nn.Linear(8, 24)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            query, key, value = (one.reshape(*x.shape[:2], 2, 4).transpose(1, 2) for one in self.all(x).split(8, -1))
            return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = Own()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attn(x).sum(1)

    source = passed(Block(), torch.randn(2, 6, 8), tmp_path / "pass")
    found = source.units(0, "attn.weights", "Act", 1)
    assert found is not None
    table = found.reshape(2, 6, 6)
    assert np.allclose(table.sum(-1), 1, atol=1e-6) and np.array_equal(table, np.tril(table))
    views = {one.layer.name: one.layer.view for one in source.net.layers}  # type: ignore[union-attr]
    assert views == {"Input": "plane", "attn.all": "plane", "attn.weights": "heads"}


def test_weights_inside_an_attention_are_not_taken_for_those_of_what_it_was_given(tmp_path: Path) -> None:
    source = passed(Attending(), torch.randn(3, 5, 8), tmp_path / "pass")
    found = {(one.sender, one.receiver): one.kind for one in source.net.projections}  # type: ignore[union-attr]
    assert found["Input", "attention"] == "" and found["attention", "after"] == "linear"
    weights, sent = source.units(0, "attention", "r.Wt", 0, ("after", 4)), source.units(0, "attention", "Act", 2)
    assert weights is not None and sent is not None and np.isnan(weights).sum() == 4 * 8  # its own token alone


# -- oddities ----------------------------------------------------------------------------------------------------------


def test_a_deep_network_shows_what_its_modules_returned(tmp_path: Path) -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(150))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.relu(layer(x)) + 1
            return x

    source = passed(Deep(), torch.randn(2, 4), tmp_path / "pass")
    assert source.net is not None
    assert [one.layer.name for one in source.net.layers] == ["Input", *(f"layers.{number}" for number in range(150))]
    assert {one.kind for one in source.net.projections} == {"linear"}  # though relu and + 1 lie between


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.Identity(), torch.randn(2, 3)),
        (nn.Flatten(), torch.randn(2, 3, 4)),
        (nn.Embedding(9, 4), torch.randint(0, 9, (2, 5))),
        (nn.LSTM(4, 6), torch.randn(5, 2, 4)),
        (nn.Linear(3, 2), torch.randn(3)),
        (nn.Conv2d(1, 2, 3), torch.randn(1, 6, 6)),
        (nn.Linear(3, 2), torch.zeros(0, 3)),
        (nn.Linear(3, 2).to(torch.bfloat16), torch.randn(2, 3).to(torch.bfloat16)),
        (nn.Linear(3, 2).to(torch.complex64), torch.randn(2, 3).to(torch.complex64)),
    ],
)
def test_any_pass_can_be_opened_and_every_layer_asked(tmp_path: Path, model: nn.Module, x: torch.Tensor) -> None:
    source = passed(model, x, tmp_path / "pass")
    assert source.net is not None
    for one in source.net.layers:
        for variable in ("Act", "Grad", "r.Wt", "s.DWt"):
            found = source.units(0, one.layer.name, variable, 0, (source.net.layers[-1].layer.name, 0))
            assert found is None or found.shape == (one.units,)
    assert not source.poll().problems


@pytest.mark.parametrize(
    ("model", "x", "shapes"),
    [
        (nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)), torch.rand(4), [(4,), (5,), (2,)]),
        (
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(0), nn.Linear(72, 2)),
            torch.rand(1, 8, 8),
            [(1, 8, 8), (2, 6, 6), (2,)],
        ),
    ],
)
def test_one_item_without_a_batch_is_shown_as_it_is(
    tmp_path: Path, model: nn.Module, x: torch.Tensor, shapes: list[tuple[int, ...]]
) -> None:
    source = passed(model, x, tmp_path / "pass")
    assert source.net is not None and [one.layer.shape for one in source.net.layers] == shapes
    found = source.units(0, source.net.layers[-1].layer.name, "Act")
    assert found is not None and np.allclose(found, model(x).detach().numpy(), atol=1e-6)


def test_a_value_that_is_damaged_is_told_and_the_rest_is_shown(tmp_path: Path) -> None:
    recorded(tmp_path / "pass")
    data = tmp_path / "pass" / "000000.data"
    raw = bytearray(data.read_bytes())
    raw[10] ^= 1
    data.write_bytes(raw)
    source = open_source(tmp_path / "pass")
    assert source.units(0, "Input", "Act", 0) is None and source.units(0, "conv1", "Act", 0) is not None
    assert "not what was written" in source.poll().problems[0] and not source.poll()
    (tmp_path / "pass" / "000000.index").write_bytes(b"")
    with pytest.raises(TorcheerError, match=str(tmp_path / "pass")):
        open_source(tmp_path / "pass")
