"""`tl.watch` on a GPU: nothing waits, nothing changes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models import small
from torch import nn
from watch_checks import batch

import torcheer as tl
from torcheer.inspector import Transport, open_watch

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
        for name in ("minimum", "maximum", "mean", "std", "norm", "zeros", "nans", "infs", "p5", "p50", "p95"):
            mine, theirs = getattr(gpu[key], name), getattr(cpu[key], name)
            assert np.allclose(mine, theirs, rtol=1e-3, atol=1e-4), (key, name)
        assert gpu[key].histogram.sum() == cpu[key].histogram.sum(), key  # so few numbers that all were looked at


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


def test_rules_speak_of_what_is_on_a_gpu() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(20, 200), nn.Tanh(), nn.Linear(200, 300), nn.ReLU(), nn.Linear(300, 400), nn.Sigmoid(),
        nn.Linear(400, 4),
    ).cuda()  # fmt: skip
    with torch.no_grad():
        model[0].weight *= 200
        model[2].bias[:250] = -100.0
        model[4].weight *= 300
    with tl.watch(model, what="output", every=1, rules=["saturation", "dead_relu"], transport=RING) as w:
        for _ in range(14):
            model(torch.randn(64, 20, device="cuda"))
    told = {(alert.rule, alert.layer) for alert in w.alerts}
    also = {(alert.rule, name.split()[0]) for alert in w.alerts for name in alert.values.get("also", ())}
    assert told | also == {("saturation", "1"), ("saturation", "5"), ("dead_relu", "3")}


@pytest.mark.parametrize("wait_secs", [0.1, 0.0])
def test_who_waits_for_the_gpu_does_not_wait_for_data(wait_secs: float) -> None:
    model = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(8)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    rules, x = {"stalled_loader": {"window": 5, "patience": 2}}, torch.rand(4096, 4096, device="cuda")
    with tl.watch(model, layers="0", what="output", every=1, rules=rules, transport=RING) as w:
        for _ in range(14):
            time.sleep(wait_secs)
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            loss.item()  # here all the work of the step is waited for
    assert [alert.rule for alert in w.alerts] == (["stalled_loader"] if wait_secs else [])


def test_what_is_kept_and_is_too_large_is_sampled_on_the_gpu(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 4096)).cuda()
    x = torch.rand(1024, 64, device="cuda")
    with torch.no_grad(), tl.watch(model, what="output", every=1, to=tmp_path, keep="0", transport=RING) as w:
        expected = model(x)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        again = model(x)
        grown = torch.cuda.max_memory_allocated() - before - again.nbytes
    assert grown < expected.nbytes / 4  # no copy of all of it
    found = open_watch(tmp_path)["0", "output"]
    assert found.stride[0] > 1 and bool(found.finite[0])
    assert np.array_equal(found.values[0], expected.flatten()[:: int(found.stride[0])].cpu().numpy())
    assert len(w.problems) == 1 and "Transport(bytes=" in w.problems[0]


def test_values_of_several_streams_are_summed_up_once_they_are_there(tmp_path: Path) -> None:
    model, side = nn.Sequential(nn.Linear(512, 512), nn.Identity()).cuda(), torch.cuda.Stream()
    expected = []
    with torch.no_grad(), tl.watch(model, what="output", every=1, to=tmp_path, transport=RING):
        for _ in range(20):
            x = torch.rand(512, 512, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(20):
                    x = x @ torch.full((512, 512), 1 / 512, device="cuda")
                expected.append(model(x).mean())
            for _ in range(4):
                torch.full((8 << 20,), 7.0, device="cuda")  # would write into memory that was given back too soon
        torch.cuda.synchronize()
    assert np.allclose(open_watch(tmp_path)["0", "output"].mean, [one.item() for one in expected], rtol=0.05, atol=1e-4)


@pytest.mark.parametrize("verb", [tl.watch, tl.live])
def test_samples_on_a_gpu_are_not_waited_for_and_come_as_they_were(tmp_path: Path, verb: Any) -> None:
    model, image = small().cuda(), torch.rand(3, 32, 33, device="cuda")
    expected = image.cpu().numpy().tobytes()
    options = {"open_server": False} if verb is tl.live else {"every": 100}
    with verb(model, to=tmp_path, **options) as view:
        model(batch(0)[0].cuda())
        # The first pinned memory of a size is waited for, by CUDA itself; torch keeps what is let go.
        pinned = [torch.empty(1 << size, dtype=torch.uint8, pin_memory=True) for size in range(6, 18) for _ in range(8)]
        del pinned
        torch.cuda.synchronize()
        torch.cuda._sleep(1_000_000_000)  # cycles: about half a second
        slept: Any = torch.cuda.Event()
        slept.record()
        torch.cuda.set_sync_debug_mode("error")
        try:
            view.log(image=image, tone=tl.Audio(image[0, 0], rate=8000), confusion=image[0, :32, :32])
            image.zero_()  # the copies are of what was there
            assert not slept.query()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        model(batch(0)[0].cuda())
    run = tl.load(tmp_path)
    assert not view.problems and run.samples("image")[0].array.tobytes() == expected
    assert run.samples("confusion")[0].shape == (32, 32) and run.samples("audio")[0].shape == (33,)
