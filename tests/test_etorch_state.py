"""eTorch's `State`: recording from inside `forward`, values untouched."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from children import run_python
from torch import Tensor, nn

import torcheer as tl
from torcheer.errors import BadArgument
from torcheer.studio import Network, State


class Small(nn.Module):
    """The seed's `forward`, to the letter, over a small net."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(nn.Dropout(), nn.Linear(16, 6), nn.ReLU(inplace=True), nn.Linear(6, 5))
        self.est = State(self)
        self.fnames = ["C1.Net", "C1.Act", "P1.Act"]
        self.cnames = ["", "Cl1.Net", "Cl1.Act", "Out.Net"]
        self.est.wtmap = {"ImageToC1": "features.0", "APToCl1": "classifier.1", "Cl1ToOut": "classifier.3.weight"}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.est.rec(x, "Image.Act")
        for i, f in enumerate(self.features):
            x = f(x)
            self.est.rec(x, self.fnames[i])
        x = self.avgpool(x)
        self.est.rec(x, "AP.Act")
        x = torch.flatten(x, 1)
        for i, f in enumerate(self.classifier):
            x = f(x)
            cnm = self.cnames[i]
            if len(cnm) > 0:
                self.est.rec(x, cnm)
        return x


@pytest.fixture
def model() -> Small:
    torch.manual_seed(0)
    return Small().eval()


def image(batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def test_the_seeds_forward_makes_its_layers_by_itself(model: Small) -> None:
    model(image())
    shapes = {layer.name: layer.shape for layer in model.est.net}
    assert shapes == {
        "Image": (3, 8, 8), "C1": (4, 8, 8), "P1": (4, 4, 4), "AP": (4, 2, 2), "Cl1": (6,), "Out": (5,),
    }  # fmt: skip
    assert [layer.view for layer in model.est.net.describe().layers] == ["maps"] * 4 + ["units"] * 2
    arrows = {(one.sender.name, one.receiver.name) for one in model.est.net.projections.values()}
    assert {("Image", "C1"), ("C1", "P1"), ("P1", "AP"), ("AP", "Cl1"), ("Cl1", "Out")} == arrows


def test_every_item_of_a_batch_keeps_its_own_values(model: Small) -> None:
    x = image(3)
    y = model(x)
    states = model.est.net["Out"].States
    assert states["Net"].dtype == np.float32 and states["Net"].shape == (3, 5)
    assert np.array_equal(states["Net"], y.detach().numpy())
    assert np.array_equal(model.est.net["Image"].States["Act"], x.numpy())


def test_what_follows_in_place_does_not_change_what_was_recorded(model: Small) -> None:
    x = image()
    model(x)
    net = model.features[0](x).detach().numpy()
    assert (net < 0).any()
    assert np.array_equal(model.est.net["C1"].States["Net"], net)
    assert np.array_equal(model.est.net["C1"].States["Act"], net.clip(0))


@pytest.mark.parametrize("record", [True, False])
def test_recording_changes_neither_outputs_nor_gradients(model: Small, record: bool) -> None:
    plain = copy.deepcopy(model)
    plain.est.rec = lambda x, var: None  # type: ignore[method-assign]
    model.est.record = record
    model.est.rec_wts = model.est.rec_grads = True
    for one in (plain, model):
        one(image()).square().sum().backward()
    assert torch.equal(plain(image()), model(image()))
    for mine, theirs in zip(model.parameters(), plain.parameters()):
        assert torch.equal(mine.grad, theirs.grad)
    assert list(model.state_dict()) == list(plain.state_dict())


def test_nothing_is_recorded_while_record_is_false(model: Small) -> None:
    model.est.record = False
    model(image())
    assert len(model.est.net) == 0
    model.est.rec(None, "anything at all")  # it does not even look


def test_trace_prints_names_and_sizes(model: Small, capsys: pytest.CaptureFixture[str]) -> None:
    model.est.trace = True
    model(image())
    assert capsys.readouterr().out.splitlines()[:2] == [
        "Image.Act torch.Size([2, 3, 8, 8])",
        "C1.Net torch.Size([2, 4, 8, 8])",
    ]


# Weights


def test_weights_biases_and_their_changes_are_recorded(model: Small) -> None:
    model.est.rec_wts = True
    model(image())
    net = model.est.net
    before = net.projections["ImageToC1"].States["Wt"].copy()
    assert np.array_equal(before, model.features[0].weight.detach().numpy())
    assert "DWt" not in net.projections["ImageToC1"].States
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(image()).sum().backward()
    optimizer.step()
    model(image())
    after = model.features[0].weight.detach().numpy()
    assert np.array_equal(net.projections["ImageToC1"].States["Wt"], after)
    assert np.array_equal(net.projections["ImageToC1"].States["DWt"], after - before) and (after != before).any()
    assert net["C1"].States["Bias"].shape == (1, 4, 8, 8)
    assert np.array_equal(net["C1"].States["Bias"][0, :, 0, 0], model.features[0].bias.detach().numpy())
    assert np.array_equal(net["Out"].States["Bias"][0], model.classifier[3].bias.detach().numpy())


def test_a_convolution_says_how_it_moves(model: Small) -> None:
    model.est.rec_wts = True
    model(image())
    found = {one.name: one for one in model.est.net.describe().projections}
    assert (found["ImageToC1"].kind, found["ImageToC1"].shape, found["ImageToC1"].padding) == (
        "conv", (4, 3, 3, 3), (1, 1),
    )  # fmt: skip
    assert (found["Cl1ToOut"].kind, found["Cl1ToOut"].shape) == ("linear", (5, 6))
    assert (found["C1ToP1"].kind, found["C1ToP1"].shape) == ("", ())


def test_weights_that_nobody_changed_are_not_copied_again(model: Small) -> None:
    model.est.rec_wts = True
    model(image())
    kept = model.est.net.projections["ImageToC1"].States.kept["Wt"]
    model(image())
    assert model.est.net.projections["ImageToC1"].States.kept["Wt"] is kept


def test_a_weight_that_is_not_there_is_named_with_those_that_are(model: Small) -> None:
    model.est.rec_wts = True
    model.est.wtmap = {"ImageToC1": "feature.0"}
    with pytest.raises(BadArgument, match=r"ImageToC1 are 'feature.0'.*features.0, .*classifier.1"):
        model(image())


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_weights_that_were_saved_come_back_into_a_model(model: Small, suffix: str, tmp_path) -> None:
    model.est.rec_wts = True
    y = model(image())
    model.est.net.save_weights(tmp_path / f"weights.{suffix}")
    torch.manual_seed(5)
    other = Small().eval()
    other.est.rec_wts = True
    other(image())
    other.est.net.load_weights(tmp_path / f"weights.{suffix}")
    other.est.set_weights()
    assert torch.equal(other(image()), y)


# Gradients


def test_gradients_are_those_of_autograd(model: Small) -> None:
    model.est.rec_grads = True
    x = image().requires_grad_()
    y = model(x)
    y.retain_grad()
    y.square().sum().backward()
    net = model.est.net
    assert np.array_equal(net["Image"].States["Grad"], x.grad.numpy())
    assert np.array_equal(net["Out"].States["NetGrad"], y.grad.numpy())
    masked = net["C1"].States["Grad"] * (net["C1"].States["Net"] > 0)  # what relu lets through
    assert np.allclose(net["C1"].States["NetGrad"], masked, atol=1e-7)


def test_gradients_of_the_pass_before_are_gone(model: Small) -> None:
    model.est.rec_grads = True
    model(image()).sum().backward()
    assert "Grad" in model.est.net["C1"].States
    with torch.no_grad():
        model(image())
    assert "Grad" not in model.est.net["C1"].States and "Act" in model.est.net["C1"].States


def test_of_a_layer_that_is_called_twice_the_gradient_belongs_to_the_value_kept() -> None:
    est = State()
    est.rec_grads = True
    first = torch.ones(1, 2, requires_grad=True) * 1
    second = torch.ones(1, 2, requires_grad=True) * 2
    for x in (first, second):
        est.rec(x, "A.Act")
    (first * 10 + second * 20).sum().backward()
    assert est.net["A"].States["Act"].tolist() == [[2.0, 2.0]] and est.net["A"].States["Grad"].tolist() == [
        [20.0, 20.0]
    ]


def test_hooks_do_not_pile_up_on_a_tensor_that_is_used_again() -> None:
    est = State()
    est.rec_grads = True
    x = torch.ones(1, 2, requires_grad=True)
    for _ in range(5):
        est.rec(x, "A.Act")
    assert len(x._backward_hooks) == 1


# Layers that somebody declared


def test_a_vector_goes_into_a_declared_plane() -> None:
    est = State(nn.Linear(25, 25))
    net = Network("RA25")
    net.add_layer("Input", (5, 5))
    est.set_net(net)
    est.rec(torch.arange(25.0), "Input.Act")
    assert np.array_equal(net["Input"].States["Act"], np.arange(25.0).reshape(1, 5, 5))
    est.rec(torch.zeros(7, 25), "Input.Act")
    assert net["Input"].States["Act"].shape == (7, 5, 5)
    with pytest.raises(BadArgument, match=r"Input.Act of shape \(2, 24\) does not fit Input, which has 5×5 = 25 units"):
        est.rec(torch.zeros(2, 24), "Input.Act")


def test_feature_maps_go_into_etorchs_four_dimensions() -> None:
    est = State()
    est.net.AddLayer4D("C1", 2, 2, 8, 8, "Hidden")
    x = torch.randn(3, 4, 8, 8)
    est.rec(x, "C1.Act")
    assert np.array_equal(est.net.LayerByName("C1").States["Act"].reshape(3, 4, 8, 8), x.numpy())


def test_an_inferred_layer_follows_another_size(model: Small) -> None:
    model(image())
    changes = model.est.net.changes
    model(torch.randn(1, 3, 12, 12))
    assert model.est.net["Image"].shape == (3, 12, 12) and model.est.net.changes > changes
    assert model.est.net["C1"].States["Act"].shape == (1, 4, 12, 12)


@pytest.mark.parametrize(
    ("shape", "layer"),
    [
        ((7,), (7,)),
        ((), (1,)),
        ((2, 7), (7,)),
        ((2, 6, 7), (6, 7)),
        ((2, 3, 4, 5), (3, 4, 5)),
        ((2, 3, 4, 5, 6), (12, 5, 6)),
    ],
)
def test_the_shape_of_one_item_is_that_of_the_layer(shape: tuple[int, ...], layer: tuple[int, ...]) -> None:
    est = State()
    est.rec(torch.zeros(shape), "A.Act")
    assert est.net["A"].shape == layer
    assert est.net["A"].States["Act"].shape == ((shape[0] if len(shape) > 1 else 1), *layer)


# Bounds and odd places


def test_of_a_large_batch_so_many_items_are_kept_and_the_one_looked_at() -> None:
    est = State()
    est.limit_bytes = 4 * 10 * 4
    x = torch.arange(100.0).repeat(10, 1).T.contiguous()  # 100 items of 10 units
    est.rec(x, "A.Act")
    assert np.array_equal(est.net["A"].States["Act"], x[:4].numpy())
    est.net.item = 50
    est.rec(x, "A.Act")
    first = est.net["A"].States.first["Act"]
    assert first <= 50 < first + 4
    assert np.array_equal(est.net["A"].States["Act"], x[first : first + 4].numpy())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool])
def test_other_types_are_recorded_as_float32(dtype: torch.dtype) -> None:
    est = State()
    x = torch.tensor([[0, 1, 1]]).to(dtype)
    est.rec(x, "A.Act")
    assert np.array_equal(est.net["A"].States["Act"], np.float32([[0, 1, 1]]))


@pytest.mark.parametrize(
    ("x", "name", "text"),
    [
        (torch.zeros(1), "Act", "which layer and which of its variables"),
        (torch.zeros(1), ".Act", "which layer and which of its variables"),
        ((torch.zeros(1),), "LSTM.Act", "x is a tuple; record its tensors one by one"),
    ],
)
def test_what_cannot_be_recorded_says_why(x, name: str, text: str) -> None:
    with pytest.raises(BadArgument, match=text):
        State().rec(x, name)


def test_a_copy_of_a_model_records_into_a_network_of_its_own(model: Small) -> None:
    model(image())
    twin = copy.deepcopy(model)
    assert twin.est.nn is twin and twin.est.net is not model.est.net
    twin(torch.zeros(1, 3, 8, 8))
    assert model.est.net["Image"].States["Act"].any() and not twin.est.net["Image"].States["Act"].any()
    assert pickle.loads(pickle.dumps(model)).est.net["Out"].States["Net"].shape == (2, 5)


def test_a_capture_does_not_see_the_recording(model: Small) -> None:
    with_it = tl.log_forward_pass(model, image())
    model.est.record = False
    assert [op.name for op in with_it.ops] == [op.name for op in tl.log_forward_pass(model, image()).ops]


def test_inside_vmap_it_says_that_it_cannot(model: Small) -> None:
    def run(x: Tensor) -> Tensor:
        model.est.rec(x, "A.Act")
        return x * 2

    with pytest.warns(UserWarning, match="A.Act is not recorded: it lives inside a transformation"):
        torch.func.vmap(run)(torch.ones(3, 2))


@pytest.mark.slow
def test_a_compiled_model_records_and_computes_the_same(model: Small) -> None:
    expected = model(image())
    model.est.net.clear()
    compiled = torch.compile(model, backend="eager")
    assert torch.equal(compiled(image()), expected)
    assert np.array_equal(model.est.net["Out"].States["Net"], expected.detach().numpy())


def test_a_compiled_model_that_records_nothing_is_one_graph(model: Small) -> None:
    torch.compiler.reset()  # or what another test compiled, in parts, would be taken
    expected = model(image())
    model.est.record = False
    assert torch.equal(torch.compile(model, backend="eager", fullgraph=True)(image()), expected)
    model.est.record = True
    with pytest.raises(Exception, match=r"State.rec records outside of compiled graphs"):
        torch.compile(model, backend="eager", fullgraph=True)(image())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
def test_values_on_a_gpu_stay_there_until_somebody_reads_them(model: Small) -> None:
    model.cuda()
    model.est.rec_wts = model.est.rec_grads = True
    y = model(image().cuda())
    y.sum().backward()
    assert model.est.net["Out"].States.kept["Net"].is_cuda
    assert np.array_equal(model.est.net["Out"].States["Net"], y.detach().cpu().numpy())
    assert model.est.net["C1"].States["Grad"].shape == (2, 4, 8, 8)


def test_importing_it_does_not_load_the_compiler() -> None:
    code = "import sys; from torcheer.studio import State, NetView, Simulation; print('torch._dynamo' in sys.modules)"
    assert run_python("-c", code).stdout.strip() == "False"
