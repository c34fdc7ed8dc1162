"""`tl.watch` on a GPU: nothing waits, nothing changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from watch_checks import batch, small

import torcheer as tl
from torcheer.inspector import open_watch
from torcheer.inspector.watching import Transport

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
RING = Transport(bytes=8 << 20)


def train(model: nn.Module, steps: int, after=lambda loss: None, waiting: str = "default") -> list[float]:
    """As on the CPU, without waiting for the loss."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(1)
    data = [tuple(one.cuda() for one in batch(step)) for step in range(steps)]
    torch.cuda.set_sync_debug_mode(waiting)  # the data had to be waited for, the rest has not
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        after(loss)
        losses.append(loss.detach())
    torch.cuda.set_sync_debug_mode("default")
    return [loss.item() for loss in losses]


@pytest.fixture
def same_numbers():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.filterwarnings("ignore")
def test_a_watched_step_never_waits_for_the_gpu_and_changes_nothing(tmp_path: Path, same_numbers: None) -> None:
    expected = train(small().cuda(), 6)
    model = small().cuda()
    what = ("output", "grad", "weight", "weight_grad", "update")
    with tl.watch(model, what=what, every=2, to=tmp_path, keep="5/output", transport=RING) as w:
        assert train(model, 6, after=lambda loss: w.log(loss=loss), waiting="error") == expected
    assert w.problems == []
    found = open_watch(tmp_path)
    for key in [("5", "output"), ("5", "grad"), ("5.weight", "weight"), ("5.weight", "weight_grad"),
                ("5.weight", "update")]:  # fmt: skip
        assert found[key].steps.tolist() == [0, 2, 4], key
    assert np.allclose(found["loss", "metric"].mean, expected)
    assert found["5", "output"].values[0].shape == (5, 3)


def test_what_was_summed_up_on_the_gpu_is_what_the_cpu_finds(tmp_path: Path) -> None:
    model = small().eval()
    x, _ = batch()
    with torch.no_grad():
        for place in ("cpu", "cuda"):
            model = model.to(place)
            with tl.watch(model, what=("output", "weight"), every=1, to=tmp_path / place, transport=RING):
                model(x.to(place))
    cpu, gpu = open_watch(tmp_path / "cpu"), open_watch(tmp_path / "cuda")
    assert set(cpu.keys()) == set(gpu.keys())
    for key in cpu.keys():
        for name in ("minimum", "maximum", "mean", "std", "norm", "zeros", "nans", "infs"):
            mine, theirs = getattr(gpu[key], name), getattr(cpu[key], name)
            assert np.allclose(mine, theirs, rtol=1e-3, atol=1e-4), (key, name)


def test_a_graph_that_is_captured_holds_nothing_of_ours() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).cuda().eval()
    x = torch.rand(2, 4, device="cuda")
    with torch.no_grad():
        model(x)
        with tl.watch(model, what="output", every=1, transport=RING) as w:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = model(x)
            graph.replay()
            assert torch.allclose(y, model(x))
    assert w.problems == []
