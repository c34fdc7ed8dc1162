"""How models lie on ranks, and which layers are recomputed: what the options mean, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from seams import Layout, read_layout, recompute
from torch import nn

from torcheer.errors import BadArgument
from torcheer.training import EpochsCompleted, Loader, Options, Session, Stage


def test_a_layout_is_read() -> None:
    assert read_layout(None) == Layout()
    plan = {"*.up": "colwise", "*.down": "rowwise"}
    settings = {"shard": ["blocks.*"], "tensor": {"size": 2, "plan": plan}}
    assert read_layout(settings) == Layout(["blocks.*"], 2, plan)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shrad": True}, r"parallel: there is no 'shrad'.*Did you mean 'shard'\?"),
        ({"tensor": {"size": 2}}, "parallel.tensor: there is no plan"),
        ({"tensor": {"plan": {"0": "colwize"}}}, r"'0' is 'colwize', and may be colwise or rowwise.*'colwise'\?"),
        ("fsdp", "parallel: a table of settings is needed, not 'fsdp'"),
    ],
)
def test_a_layout_that_is_none_is_refused(settings: Any, message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        read_layout(settings)


class Counted(nn.Linear):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x)


def test_layers_are_computed_again_for_gradients_and_only_for_them() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Counted(4, 4), nn.ReLU(), Counted(4, 4)), torch.rand(2, 4)
    plain = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    names = list(model.state_dict())
    recompute({"net": model}, ["0"])
    model[0].calls = model[2].calls = 0
    again = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    assert (model[0].calls, model[2].calls) == (2, 1)
    assert all(torch.equal(one, other) for one, other in zip(plain, again, strict=True))
    with torch.no_grad():
        model(x)
    assert model[0].calls == 3 and list(model.state_dict()) == names


def test_parts_of_a_layer_that_is_computed_again_are_not_wrapped_once_more() -> None:
    model = nn.ModuleDict({"blocks": nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(2))})
    recompute({"net": model}, ["blocks.*"])  # matches 'blocks.0.0' too
    wrapped = [name for name, module in model.named_modules() if "forward" in vars(module)]
    assert wrapped == ["blocks.0", "blocks.1"]


def test_of_several_models_each_layer_is_in_at_least_one() -> None:
    models = {"small": nn.Sequential(Counted(4, 4)), "large": nn.Sequential(Counted(4, 4), nn.ReLU(), Counted(4, 4))}
    recompute(models, ["2", "0"])
    wrapped = [
        f"{name} {key}"
        for name, model in models.items()
        for key, part in model.named_children()
        if "forward" in vars(part)
    ]
    assert wrapped == ["small 0", "large 0", "large 2"]
    with pytest.raises(BadArgument, match=r"activation_checkpointing.*'7'"):
        recompute(models, ["0", "7"])


def test_a_layer_that_is_not_there_is_named_with_the_setting() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(BadArgument, match=r"activation_checkpointing.*'blocks\.7'"):
        Session(
            models={"net": model},
            optimizers={"sgd": torch.optim.SGD(model.parameters(), 0.1)},
            loaders={"train": Loader([(torch.rand(2), torch.rand(2))], 1)},
            losses={"loss": nn.MSELoss()},
            stages=[Stage(("train",), (), EpochsCompleted(1))],
            options=Options(activation_checkpointing=["blocks.7"]),
        )
