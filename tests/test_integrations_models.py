"""Models from and to other programs: exported files, folders of the hub, variables added to a history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import PassSource, hub_model
from torch import nn

import torcheer as tl
from torcheer.errors import AmbiguousLayer, BadArgument
from torcheer.integrations import export_model


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(3, 2))


# variables of a history


def test_a_variable_of_a_layer_stands_beside_its_value_also_in_a_file_and_in_the_studio(tmp_path: Path) -> None:
    history = tl.log_forward_pass(net().eval(), torch.ones(2, 4))
    mask = torch.arange(6.0).reshape(2, 3)
    history.add_variable("mask", {"1": mask, "linear_2": torch.ones(2, 2)})
    assert torch.equal(history["relu_1"].variables["mask"], mask) and history["linear_1"].variables == {}
    history.save(tmp_path / "saved")
    saved = tl.load(tmp_path / "saved")
    assert torch.equal(torch.as_tensor(saved["relu_1"].variables["mask"]), mask)
    saved.save(tmp_path / "again")  # a history that was loaded keeps it, too
    source = PassSource(tmp_path / "again")
    assert source.net is not None and [each.name for each in source.net.variables][:3] == ["Act", "Net", "mask"]
    shown = source.store.value(0, "0", "mask")  # the first linear's layer ends with its activation
    assert shown is not None and np.array_equal(shown.array, mask.numpy())
    assert source.store.opening(0, "0", "mask").expression == "history['relu_1_2'].variables['mask']"


def test_a_variable_that_does_not_fit_is_refused_and_nothing_of_it_added() -> None:
    history = tl.log_forward_pass(net(), torch.ones(2, 4))
    with pytest.raises(BadArgument, match=r"mask of 'linear_2' has the shape \(3,\), and its output \(2, 2\)"):
        history.add_variable("mask", {"relu_1": torch.ones(2, 3), "linear_2": torch.ones(3)})
    assert history["relu_1"].variables == {}
    with pytest.raises(BadArgument, match="cannot be called 'Act'"):
        history.add_variable("Act", {})
    with pytest.raises(AmbiguousLayer, match="'Linear' is 2 operations"):
        history.add_variable("mask", {"Linear": torch.ones(2, 3)})


# weights of another package's class


class Int8Weight(torch.Tensor):
    """A float32 weight to its readers, kept as integers and a scale for each row, as torchao keeps it."""

    integers: torch.Tensor
    scales: torch.Tensor

    @staticmethod
    def __new__(cls, integers: torch.Tensor, scales: torch.Tensor) -> Any:
        weight = torch.Tensor._make_wrapper_subclass(cls, integers.shape, dtype=scales.dtype)  # type: ignore[attr-defined]
        weight.integers, weight.scales = integers, scales
        return weight

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["integers", "scales"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].integers, args[0].scales)
        args = [part.integers * part.scales if isinstance(part, cls) else part for part in args]
        return func(*args, **(kwargs or {}))


def quantised() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 4, bias=False), nn.ReLU())
    weight = Int8Weight(torch.arange(32).reshape(4, 8).to(torch.int8), torch.ones(4, 1))
    model[0].weight = nn.Parameter(weight, requires_grad=False)
    return model.eval()


def test_a_quantised_weight_counts_the_bytes_that_it_has() -> None:
    history = tl.log_forward_pass(quantised(), torch.ones(1, 8))
    assert [(stored.name, stored.bytes) for stored in history["linear_1"].record.stored] == [("0.weight", 32 + 16)]
    assert "32 params total; 48 B" in str(history)


def test_a_watch_and_a_plan_say_that_a_quantised_weight_is_not_supported() -> None:
    text = "Int8Weight is not supported: only its own code can read its numbers"
    model = quantised()
    with pytest.warns(RuntimeWarning, match=text), tl.watch(model, what=("output", "weight")) as watch:
        model(torch.ones(1, 8))
    assert watch.problems == [f"0.weight (weight) is not sent: {text}"]
    with pytest.raises(BadArgument, match=f"plan: 0.weight: {text}; plan the model before it is quantised"):
        tl.plan(model, torch.ones(1, 8))


# files


def test_weights_are_written_for_others_to_read(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    model = net()
    assert export_model(model, tmp_path / "new" / "net.safetensors") == tmp_path / "new" / "net.safetensors"
    written = load_file(tmp_path / "new" / "net.safetensors")
    assert written.keys() == model.state_dict().keys()
    assert all(torch.equal(written[name], value) for name, value in model.state_dict().items())
    with pytest.raises(BadArgument, match="is there already; overwrite=True replaces it"):
        export_model(model, tmp_path / "new" / "net.safetensors")


@pytest.mark.integrations  # torch.export takes seconds to load
def test_a_program_runs_without_its_code_on_batches_of_any_length(tmp_path: Path) -> None:
    model = net().train()
    model[0].eval()
    export_model(model, tmp_path / "net.pt2", torch.ones(2, 4))
    assert model.training and not model[0].training  # as it was
    program = torch.export.load(tmp_path / "net.pt2").module()
    assert torch.equal(program(torch.ones(5, 4)), model.eval()(torch.ones(5, 4)))


def test_what_cannot_be_exported_says_what_to_try(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match=r"is one of \.safetensors \(weights\)"):
        export_model(net(), tmp_path / "net.pth")
    with pytest.raises(BadArgument, match=r"export_model\(model, path, inputs\)"):
        export_model(net(), tmp_path / "net.pt2")


# folders of the hub


def test_a_folder_that_is_none_of_the_hubs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match=r"it has nothing there; config\.json and model\.safetensors are needed"):
        hub_model(tmp_path / "gone")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadArgument, match=r"it has config\.json; config\.json and model\.safetensors are needed"):
        hub_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(BadArgument, match="cannot be read"):
        hub_model(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadArgument, match="does not say what it was saved from; give head="):
        hub_model(tmp_path)
