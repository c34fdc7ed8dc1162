"""Numbers to begin with, and weights in files."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
import torch

import torcheer.autograd as torchtrace
from torcheer.autograd import init, nn, tracer
from torcheer.autograd.nn import Conv2d, Linear, ReLU, Sequential
from torcheer.errors import BadArgument

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float = 1e-12) -> bool:
    return torch.allclose(ours.detach().as_subclass(torch.Tensor), theirs, rtol=tolerance, atol=tolerance)


# Numbers to begin with


@pytest.mark.parametrize(
    "name", ["kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_", "uniform_", "normal_"]
)
@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 3, 2)])
def test_the_same_seed_fills_a_tensor_as_torch_does(name, shape):
    torch.manual_seed(1)
    ours = getattr(init, name)(tracer(torch.empty(shape)))
    torch.manual_seed(1)
    assert close(ours, getattr(torch.nn.init, name)(torch.empty(shape)), 1e-6)


@pytest.mark.parametrize("name", ["relu", "tanh", "linear", "sigmoid", "selu", "leaky_relu"])
@pytest.mark.parametrize("mode", ["fan_in", "fan_out"])
def test_kaiming_makes_up_for_each_nonlinearity(name, mode):
    torch.manual_seed(1)
    ours = init.kaiming_normal_(torch.empty(5, 7), 0.1, mode, name)
    torch.manual_seed(1)
    assert close(ours, torch.nn.init.kaiming_normal_(torch.empty(5, 7), 0.1, mode, name), 1e-6)


def test_fans_count_what_goes_in_and_out():
    assert init.calculate_fan(torch.empty(8, 3, 5, 5)) == (75, 200)


def test_a_vector_has_no_fan():
    with pytest.raises(BadArgument, match=r"shape \(3,\) joins no inputs to outputs"):
        init.kaiming_normal_(torch.empty(3))


def test_an_unknown_nonlinearity_or_mode_is_refused():
    with pytest.raises(BadArgument, match="no gain is known for 'sine'; there are leaky_relu"):
        init.kaiming_normal_(torch.empty(3, 3), nonlinearity="sine")
    with pytest.raises(BadArgument, match=r"mode is 'fan_in'.* not 'sideways'"):
        init.kaiming_normal_(torch.empty(3, 3), mode="sideways")


def test_weights_can_be_filled_while_they_ask():
    layer = Linear(4, 4)
    assert init.uniform_(layer.weight, 2, 3) is layer.weight
    assert layer.weight.requires_grad and layer.weight.min() >= 2


def test_a_seed_repeats_python_numpy_and_torch():
    def draw():
        torchtrace.set_seed(5)
        return random.random(), np.random.rand(), torch.rand(1).item()

    assert draw() == draw()


# Files


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float8_e4m3fn, torch.int64, torch.bool])
def test_every_type_comes_back_from_a_file(dtype, tmp_path):
    given = [torch.tensor([[0.5, 1.0], [2.0, 0.0]]).to(dtype), torch.tensor(1.0).to(dtype), torch.empty(0, 3).to(dtype)]
    torchtrace.save(tmp_path / "weights", given)
    found = torchtrace.load(tmp_path / "weights")
    assert [(one.dtype, one.shape, one.double().tolist()) for one in found] == [
        (one.dtype, one.shape, one.double().tolist()) for one in given
    ]


def test_a_model_comes_back_from_a_file_of_exactly_that_name(tmp_path):
    first, second = Sequential(Conv2d(1, 2, 3), ReLU()), Sequential(Conv2d(1, 2, 3), ReLU())
    torchtrace.save(tmp_path / "model", first.seq_list())
    second.load_seq_list(torchtrace.load(tmp_path / "model"))
    assert [one.name for one in tmp_path.iterdir()] == ["model"]
    assert all(torch.equal(one, other) for one, other in zip(first.parameters(), second.parameters()))


def test_a_save_that_fails_leaves_the_old_file(tmp_path):
    torchtrace.save(tmp_path / "model", [torch.ones(2)])
    with pytest.raises(Exception, match=r"storage|meta|device"):
        torchtrace.save(tmp_path / "model", [torch.ones(2, device="meta")])
    assert torchtrace.load(tmp_path / "model")[0].tolist() == [1.0, 1.0]


def other_files(folder):
    (folder / "text").write_text("hello")
    (folder / "empty").write_bytes(b"")
    torch.save({"a": torch.ones(2)}, folder / "torchs")
    (folder / "pickle").write_bytes(pickle.dumps([1, 2]))
    np.save(folder / "array.npy", np.ones(3))
    np.savez(folder / "arrays.npz", a=np.ones(3))
    np.savez(folder / "objects.npz", torcheer=np.array([{}], dtype=object))
    torchtrace.save(folder / "cut", [torch.ones(100)])
    (folder / "cut").write_bytes((folder / "cut").read_bytes()[:300])
    return sorted(folder.iterdir())


def test_a_file_that_is_not_ours_is_refused(tmp_path):
    files = other_files(tmp_path)
    assert len(files) == 8
    for file in files:
        with pytest.raises(BadArgument, match=f"{file.name}' is not a file that torcheer.autograd.save wrote"):
            torchtrace.load(file)


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        torchtrace.load(tmp_path / "nowhere")


def test_torchs_weights_fit_our_layers(tmp_path):
    theirs = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(12, 2))
    torch.save(theirs.state_dict(), tmp_path / "theirs.pt")
    ours = Sequential(Conv2d(2, 3, 2), ReLU(), nn.View(5, -1), Linear(12, 2))
    ours.load_seq_list(torchtrace.load_from_torch(tmp_path / "theirs.pt"))
    x = torch.rand(5, 2, 3, 3)
    assert close(ours(x), theirs(x), 1e-6)


def test_torchs_weights_come_in_the_order_that_was_asked(tmp_path):
    torch.save({"a": torch.zeros(1), "b": torch.ones(1)}, tmp_path / "two.pt")
    assert [one.item() for one in torchtrace.load_from_torch(tmp_path / "two.pt", ["b", "a"])] == [1.0, 0.0]
    with pytest.raises(BadArgument, match="has no 'c'; it has a, b"):
        torchtrace.load_from_torch(tmp_path / "two.pt", ["c"])


def test_a_file_of_torchs_with_more_than_weights_is_refused(tmp_path):
    torch.save({"epoch": 3}, tmp_path / "run.pt")
    with pytest.raises(BadArgument, match="holds no state_dict"):
        torchtrace.load_from_torch(tmp_path / "run.pt")
    torch.save(torch.nn.Linear(1, 1), tmp_path / "code.pt")
    with pytest.raises(pickle.UnpicklingError):
        torchtrace.load_from_torch(tmp_path / "code.pt")
