"""Extraction on a GPU: the values are the GPU's own, the model comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models import Noisy
from torch import nn

import torcheer as tl

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(inplace=True), nn.Conv2d(32, 64, 3), nn.Flatten(), nn.LazyLinear(5)
    )


def test_values_are_the_gpus_own_and_the_model_comes_back(tmp_path: Path) -> None:
    model, images = make_model(), torch.rand(200, 3, 32, 32)
    model(images[:1])
    found: Any = tl.extract(
        model, images, layers=["0", "1", "4"], to=tmp_path / "x", batch_size=16, device="cuda", progress=False
    )
    assert next(model.parameters()).device.type == "cpu"
    on_gpu = make_model()
    on_gpu(images[:1])
    on_gpu.load_state_dict(model.state_dict())
    on_gpu.cuda()
    with torch.no_grad():
        first = torch.cat([on_gpu[0](part.cuda()).cpu() for part in images.split(16)])
        whole = torch.cat([on_gpu(part.cuda()).cpu() for part in images.split(16)])
    assert np.array_equal(found["0"][:], first.numpy())
    assert np.array_equal(found["1"][:], first.relu().numpy())
    assert np.array_equal(found["4"][:], whole.numpy())


def test_a_model_on_the_gpu_stays_there(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4)).cuda()
    found: Any = tl.extract(model, torch.rand(9, 4), layers=["0"], to=tmp_path / "x", batch_size=4, progress=False)
    assert found["0"].shape == (9, 4) and next(model.parameters()).is_cuda


def test_a_model_that_writes_over_what_it_gave_out_changes_nothing(tmp_path: Path) -> None:
    class Buffered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Identity()
            self.register_buffer("memory", torch.zeros(8, 100_000))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.out(self.memory.copy_(x[:, :1].expand(-1, 100_000)))
            return out

    rows = torch.arange(400.0)[:, None]
    found: Any = tl.extract(
        Buffered(), rows, layers=["out"], to=tmp_path / "x", batch_size=8, device="cuda", progress=False
    )
    assert all(np.array_equal(row, np.full(100_000, n)) for n, row in enumerate(found["out"]))


def test_values_on_the_cpu_and_on_the_gpu_come_together(tmp_path: Path) -> None:
    layers = {"0": lambda value: value.cpu(), "1": None}
    model = nn.Sequential(nn.Linear(4, 2000), nn.ReLU()).cuda()
    found: Any = tl.extract(model, torch.rand(90, 4), layers=layers, to=tmp_path / "x", batch_size=8, progress=False)
    assert np.array_equal(np.maximum(found["0"][:], 0), found["1"][:])


def test_the_gpus_own_numbers_are_drawn_again_and_its_generator_is_left_alone(tmp_path: Path) -> None:
    before = torch.cuda.get_rng_state()
    one, two = (
        tl.extract(Noisy(), torch.rand(40, 4), layers={"add_1": lambda value, batch: value - batch.cuda()},
                   to=tmp_path / name, device="cuda", progress=False, batch_size=8)
        for name in "ab"
    )  # fmt: skip
    assert np.allclose(one["add_1"][:], two["add_1"][:], atol=1e-5) and torch.equal(torch.cuda.get_rng_state(), before)
    assert len(np.unique(one["add_1"][:, 0].round(4))) > 30
