"""`Network`, `Layer`, `Projection`: what is recorded into, by name."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from children import run_python
from seams import net_of, network_records

from torcheer.errors import ArchiveDamaged, BadArgument, UnknownLayer
from torcheer.studio import Network


@pytest.fixture
def net() -> Network:
    found = Network("RA25")
    found.add_layer("Input", (5, 5), "Input")
    found.add_layer("Hidden", (2, 3, 4, 5), "Hidden")
    found.connect("Input", "Hidden")
    return found


def test_a_network_describes_itself_as_hosts_send_it(net: Network) -> None:
    net["Input"].States["Act"] = np.zeros((5, 5))
    net.projections["InputToHidden"].States["Wt"] = np.ones((120, 25))
    assert net.describe() == network_records.Network(
        "RA25",
        (
            network_records.Layer("Input", (5, 5), "Input", "plane"),
            network_records.Layer("Hidden", (2, 3, 4, 5), "Hidden", "pools"),
        ),
        (network_records.Projection("InputToHidden", "Input", "Hidden", "linear", (120, 25)),),
        (
            network_records.Variable("Act", "unit", "what the layer returned, after its activation"),
            network_records.Variable("Wt", "weight", "weights"),
        ),
    )
    assert [one.layer.name for one in net_of(net.describe()).layers] == ["Input", "Hidden"]


@pytest.mark.parametrize(
    ("word", "relation"),
    [("above", "above"), ("below", "below"), ("right_of", "right"), ("left_of", "left"), ("behind", "behind"),
     ("in_front_of", "front")],
)  # fmt: skip
def test_a_layer_is_placed_by_another(net: Network, word: str, relation: str) -> None:
    found = net.add_layer("Side", (4,), **{word: net["Input"]})
    assert (found.relation, found.other) == (relation, "Input")
    assert net.add_layer("There", (4,), place=(1.0, 2.0, 3.0)).place == (1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("Input", (5,)), "has a layer 'Input' already"),
        (("", (5,)), "a layer has a name and 1 to 4 dimensions"),
        (("New", ()), "1 to 4 dimensions"),
        (("New", (1, 2, 3, 4, 5)), "1 to 4 dimensions"),
        (("New", (5, 0)), "none of them 0"),
    ],
)
def test_a_layer_that_cannot_be_says_why(net: Network, arguments, text: str) -> None:
    with pytest.raises(BadArgument, match=text):
        net.add_layer(*arguments)


def test_a_place_that_cannot_be_says_why_and_leaves_no_layer(net: Network) -> None:
    with pytest.raises(UnknownLayer, match=r"no layer 'Inputs'. Did you mean 'Input'"):
        net.add_layer("New", (5,), above="Inputs")
    with pytest.raises(BadArgument, match="over does not place it; use one of: above=, below=, right_of="):
        net.add_layer("New", (5,), over="Input")
    with pytest.raises(BadArgument, match="New cannot lie right of itself"):
        net.add_layer("New", (5,), right_of="New")
    assert "New" not in net and len(net) == 2


def test_projections_have_names_and_types(net: Network) -> None:
    assert net.connect("Hidden", "Input", type="back").name == "HiddenToInput"
    assert net.connect("Hidden", "Hidden", type="lateral", name="Around").type == "lateral"
    with pytest.raises(BadArgument, match="has a projection 'InputToHidden' already"):
        net.connect("Input", "Hidden")
    with pytest.raises(BadArgument, match="one of forward, recurrent, skip, lateral, back, not 'sideways'"):
        net.connect("Input", "Hidden", type="sideways", name="Another")
    with pytest.raises(UnknownLayer, match="There are: Input, Hidden"):
        net.connect("Nothing", "Hidden")


def test_etorchs_own_names_build_a_network() -> None:
    net = Network()
    net.InitName(net, "RA25")
    low, high = net.AddLayer2D("Input", 5, 5, "Input"), net.AddLayer4D("Hidden", 2, 3, 4, 5, "Hidden")
    net.ConnectLayers(low, high, None, "Forward")
    net.Defaults()
    net.StdVertLayout()
    net.Build()
    assert net.describe().name == "RA25" and net.LayerByName("Hidden").shape == (2, 3, 4, 5)
    assert net.projections["InputToHidden"].type == "forward"


# Values


def test_values_have_a_batch_and_the_layers_shape(net: Network) -> None:
    states = net["Input"].States
    states["Act"] = np.arange(25)
    assert states["Act"].shape == (1, 5, 5) and states["Act"].dtype == np.float32
    states["Act"] = torch.arange(50.0).reshape(2, 25)
    assert np.array_equal(states["Act"][1].ravel(), np.arange(25.0, 50))
    states["Targ"] = np.ones((4, 5, 5))
    assert sorted(states) == ["Act", "Targ"] and len(states) == 2
    del states["Targ"]
    with pytest.raises(UnknownLayer, match="Input has no values of 'Targ'; recorded are: Act"):
        states["Targ"]


def test_what_was_put_in_does_not_change_with_its_array(net: Network) -> None:
    mine = np.zeros(25, np.float32)
    net["Input"].States["Act"] = mine
    mine[:] = 1
    assert not net["Input"].States["Act"].any()


@pytest.mark.parametrize("shape", [(24,), (5, 6), (2, 24), (0, 24)])
def test_values_of_another_size_say_what_fits(net: Network, shape: tuple[int, ...]) -> None:
    with pytest.raises(BadArgument, match="does not fit Input, which has 5×5 = 25 units"):
        net["Input"].States["Act"] = np.zeros(shape)


def test_weights_are_those_of_a_full_projection_or_a_convolution(net: Network) -> None:
    projection = net.projections["InputToHidden"]
    projection.States["Wt"] = np.arange(3000.0)
    assert projection.States["Wt"].shape == (120, 25)
    projection.States["Wt"] = np.zeros((4, 3, 3, 3))
    assert projection.describe().kind == "conv"
    with pytest.raises(BadArgument, match=r"Hidden has 120 units and Input 25, so weights are \(120, 25\)"):
        projection.States["Wt"] = np.zeros((25, 120))


def test_clear_forgets_values_and_keeps_layers(net: Network) -> None:
    net["Input"].States["Act"] = np.zeros(25)
    changes = net.changes
    net.clear()
    assert len(net["Input"].States) == 0 and len(net) == 2 and net.changes > changes


def test_a_copy_shares_nothing(net: Network) -> None:
    net["Input"].States["Act"] = np.zeros(25)
    twin = copy.deepcopy(net)
    twin["Input"].States["Act"] = np.ones(25)
    assert twin["Input"].network is twin and not net["Input"].States["Act"].any()


# Files


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_weights_go_to_a_file_and_back(net: Network, suffix: str, tmp_path: Path) -> None:
    weights = np.random.default_rng(1).normal(size=(120, 25)).astype(np.float32)
    net.projections["InputToHidden"].States["Wt"] = weights
    net["Hidden"].States["Bias"] = np.arange(120.0)
    net.save_weights(tmp_path / f"w.{suffix}")
    assert [file.name for file in tmp_path.iterdir()] == [f"w.{suffix}"]
    net.clear()
    net.load_weights(tmp_path / f"w.{suffix}")
    assert np.array_equal(net.projections["InputToHidden"].States["Wt"], weights)
    assert np.array_equal(net["Hidden"].States["Bias"].ravel(), np.arange(120.0))


def test_others_read_the_weights(net: Network, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    net.projections["InputToHidden"].States["Wt"] = np.ones((120, 25))
    net.save_weights(tmp_path / "w.safetensors")
    net.save_weights(tmp_path / "w.npz")
    assert np.array_equal(safetensors.load_file(tmp_path / "w.safetensors")["InputToHidden.Wt"], np.ones((120, 25)))
    assert np.array_equal(np.load(tmp_path / "w.npz")["InputToHidden.Wt"], np.ones((120, 25)))


def test_weights_that_do_not_fit_change_nothing(net: Network, tmp_path: Path) -> None:
    net.projections["InputToHidden"].States["Wt"] = np.ones((120, 25))
    np.savez(tmp_path / "strange.npz", **{"HiddenToOutput.Wt": np.zeros((1, 1))})
    with pytest.raises(
        BadArgument, match=r"holds HiddenToOutput.Wt, which RA25 has no place for; it has InputToHidden"
    ):
        net.load_weights(tmp_path / "strange.npz")
    np.savez(tmp_path / "wrong.npz", **{"Hidden.Bias": np.zeros(120), "InputToHidden.Wt": np.zeros((3, 3))})
    with pytest.raises(BadArgument, match="does not fit"):
        net.load_weights(tmp_path / "wrong.npz")
    assert net.projections["InputToHidden"].States["Wt"].all() and "Bias" not in net["Hidden"].States
    with pytest.raises(BadArgument, match="there is no"):
        net.load_weights(tmp_path / "nothing.npz")
    with pytest.raises(BadArgument, match=r"weights are kept as .safetensors or .npz, not as '.pt'"):
        net.save_weights(tmp_path / "w.pt")


def test_a_damaged_file_of_weights_is_refused(net: Network, tmp_path: Path) -> None:
    net.projections["InputToHidden"].States["Wt"] = np.ones((120, 25))
    net.save_weights(tmp_path / "w.safetensors")
    data = (tmp_path / "w.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(data[:-100])
    with pytest.raises(ArchiveDamaged):
        net.load_weights(tmp_path / "cut.safetensors")


def test_a_missing_package_is_named_and_npz_needs_none(
    net: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net.projections["InputToHidden"].States["Wt"] = np.ones((120, 25))
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(BadArgument, match=r"needs safetensors: pip install 'torcheer\[all\]'; a \.npz needs it not"):
        net.save_weights(tmp_path / "w.safetensors")
    assert list(tmp_path.iterdir()) == []
    net.save_weights(tmp_path / "w.npz")


def test_a_network_without_weights_has_none_to_save(net: Network, tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="RA25 has no weights to save"):
        net.save_weights(tmp_path / "w.npz")
    assert list(tmp_path.iterdir()) == []


def test_networks_and_tables_load_without_torch() -> None:
    code = (
        "import sys; from torcheer.studio import Network, Table; Network('a'); Table(); print('torch' in sys.modules)"
    )
    assert run_python("-c", code).stdout.strip() == "False"
