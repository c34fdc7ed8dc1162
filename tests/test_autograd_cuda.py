"""The same on a GPU; left out where there is none."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from models import CASES
from torch import nn

from torcheer import autograd

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.mark.parametrize("name", CASES)
def test_gradients_on_a_gpu_equal_torchs(name: str) -> None:
    make, x, target = CASES[name]
    grads = []
    for ours in (False, True):
        torch.manual_seed(0)
        with torch.device("cuda"):
            model = make().double()
        data = x().cuda()
        data = data.double() if data.is_floating_point() else data
        torch.manual_seed(1)
        if ours:
            with autograd.record(), torch.device("cuda"):
                F.cross_entropy(model.eval()(data), target.cuda()).backward()
        else:
            with torch.device("cuda"), torch.backends.cudnn.flags(enabled=False):
                F.cross_entropy(model.eval()(data), target.cuda()).backward()
        grads.append([parameter.grad for parameter in model.parameters()])
    for one, two in zip(*grads):
        assert one.device.type == two.device.type == "cuda"
        torch.testing.assert_close(two, one, rtol=1e-9, atol=1e-9)


def test_a_model_trains_on_a_gpu() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, target = torch.randn(32, 8, device="cuda"), torch.randint(0, 4, (32,), device="cuda")
    losses = []
    with autograd.record():
        for _ in range(30):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_on_a_gpu(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).cuda()
    x = torch.randn(32, 8, device="cuda")
    grads = []
    for ours in (False, True):
        model.zero_grad()
        with autograd.record() if ours else torch.enable_grad():
            with torch.autocast("cuda", dtype):
                loss = model(x).float().square().mean()
            loss.backward()
        grads.append([parameter.grad.clone() for parameter in model.parameters()])
    for one, two in zip(*grads):
        torch.testing.assert_close(two, one, rtol=3e-2, atol=3e-3)


def test_moving_between_devices_brings_the_gradient_back() -> None:
    x = torch.ones(3, requires_grad=True)
    with autograd.record():
        (x.cuda() * 2).sum().cpu().backward()
    assert x.grad.device.type == "cpu" and x.grad.tolist() == [2, 2, 2]
